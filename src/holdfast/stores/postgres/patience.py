"""How long, and how often, something is tried again."""

from __future__ import annotations

import random
import time
from typing import Final

_FIRST: Final = 0.02
_LONGEST: Final = 0.5


class Patience:
    """Pauses between tries, each longer than the one before, until so many seconds are over."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = _FIRST

    def wait(self) -> bool:
        """Wait for the next try. False, at once, if there is no time left for one."""
        if time.monotonic() + self._pause > self._deadline:
            return False
        time.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that two who met do not meet again
        self._pause = min(2 * self._pause, _LONGEST)
        return True
