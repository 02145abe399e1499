"""The sorted names of a folder's threads, read again only when the folder has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

# The modification time of a folder is coarse: a second change in the same tick would be missed. So a listing read this
# soon after a change (ns) is not reused.
_SETTLED: Final = 2_000_000_000


class Listing:
    """The sorted names of the threads in one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._changed = -1
        self._names: list[tuple[str, str]] = []
        self._untold: list[str] = []

    def names(self, name_in: Callable[[str], str | None]) -> list[tuple[str, str]]:
        """Names and folders, ordered by the names' code points, which is the order of their UTF-8 bytes."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._changed:
            is_settled = time.time_ns() - changed > _SETTLED
            self._names, self._untold = [], [os.path.join(self._folder, name) for name in os.listdir(self._folder)]
            self._changed = changed if is_settled else -1
        # A folder without a readable name may get a log that has it; the parent folder does not change then.
        if self._untold:
            told = [(name_in(folder), folder) for folder in self._untold]
            self._names = sorted([*self._names, *((name, folder) for name, folder in told if name is not None)])
            self._untold = [folder for name, folder in told if name is None]
        return self._names
