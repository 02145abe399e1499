"""What stops a worker, and where its idle loops wait: for that, for work that was announced, or for the next look."""

from __future__ import annotations

import threading


class Stop:
    """An event that is set once, with which work may be announced before: each announcement lets one loop go."""

    def __init__(self, loops: int) -> None:
        self._loops = loops
        self._announced = 0
        self._is_set = False
        # Its lock may be taken again by the thread that has it, such as by the handler of a signal.
        self._changed = threading.Condition()

    def set(self) -> None:
        """Let all go, now and from now on."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def is_set(self) -> bool:
        return self._is_set

    def announce(self) -> None:
        """Let one go that waits, or comes to wait. Of many, no more are remembered than there are loops."""
        with self._changed:
            self._announced = min(self._announced + 1, self._loops)
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Wait until let go, and no longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_set or self._announced, seconds)
            self._announced = max(self._announced - 1, 0)
