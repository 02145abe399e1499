"""The names of a folder's threads, in order, read again only when the folder has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

# A folder's time of change is coarse: another change in the same tick would not be seen. So what was read this soon
# after a change (ns) is not kept.
_SETTLED: Final = 2_000_000_000


class Listing:
    """The sorted names of the threads in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._changed = -1
        self._names: list[tuple[str, str]] = []
        self._untold: list[str] = []

    def names(self, name_in: Callable[[str], str | None]) -> list[tuple[str, str]]:
        """Names and folders, in order of the names' code points, which is that of their UTF-8 bytes."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._changed:
            is_settled = time.time_ns() - changed > _SETTLED
            self._names, self._untold = [], [os.path.join(self._folder, name) for name in os.listdir(self._folder)]
            self._changed = changed if is_settled else -1
        # A folder that does not say its name may get a log that does, and itself stay as it was.
        if self._untold:
            told = [(name_in(folder), folder) for folder in self._untold]
            self._names = sorted([*self._names, *((name, folder) for name, folder in told if name is not None)])
            self._untold = [folder for name, folder in told if name is None]
        return self._names
