"""Pauses between retries, with a time limit."""

from __future__ import annotations

import random
import time
from typing import Final

_FIRST: Final = 0.02
_LONGEST: Final = 0.5


class Backoff:
    """Pauses between attempts, each longer than the one before, until a time limit."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = _FIRST

    def wait(self) -> bool:
        """Wait before the next attempt. Returns False at once if there is no time left for one."""
        if time.monotonic() + self._pause > self._deadline:
            return False
        time.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that two processes do not collide again
        self._pause = min(2 * self._pause, _LONGEST)
        return True
