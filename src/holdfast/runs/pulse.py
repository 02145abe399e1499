"""The pulse of a worker: whether its loops still look at the store, how much they run, and whether that is stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

STALE_SECONDS = 60.0  # a look at the store that takes longer hangs: no store waits so long for anything


class Pulse:
    """What the loops of a worker are doing: looking at the store, since when, or running something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._last = self._begun
        self._looks: dict[int, float] = {}
        self._running: list[Callable[[], bool]] = []
        self._unread = False
        self._unwritten: float | None = None

    def look(self) -> None:
        """The loop in this thread is about to look at the store."""
        self._look(threading.get_ident())

    def _look(self, loop: int) -> None:
        with self._lock:
            self._last = self._looks[loop] = time.monotonic()

    def looked(self, *, is_well: bool) -> None:
        """A look has ended; whether the store answered all that was asked."""
        with self._lock:
            self._unread = not is_well

    def wrote(self, *, is_well: bool) -> None:
        """Something was written, or could not be because of the store."""
        with self._lock:
            self._unwritten = None if is_well else time.monotonic()

    def end(self) -> None:
        """The loop in this thread has ended."""
        with self._lock:
            self._looks.pop(threading.get_ident(), None)

    @contextmanager
    def running(self, loop: int, is_failing: Callable[[], bool]) -> Generator[None]:
        """The loop in a thread runs something. How long that takes is not its affair; that it cannot be stored is."""
        with self._lock:
            self._looks.pop(loop, None)
            self._running.append(is_failing)
        try:
            yield
        finally:
            self._look(loop)
            with self._lock:
                self._running.remove(is_failing)

    def is_beating(self) -> bool:
        """Whether every loop that looks at the store began to do so not long ago."""
        with self._lock:
            return all(time.monotonic() - begun <= STALE_SECONDS for begun in self._looks.values())

    def is_storing(self) -> bool:
        """Whether the store did, as far as is known, the last that it was to do.

        A write that failed is forgotten after a while: where nothing is to be written, none can show that it works.
        """
        with self._lock:
            if self._unwritten is not None and time.monotonic() - self._unwritten > STALE_SECONDS:
                self._unwritten = None
            return not (self._unread or self._unwritten is not None or any(fails() for fails in self._running))

    def numbers(self) -> dict[str, float]:
        with self._lock:
            now = time.monotonic()
            return {
                "running": len(self._running),
                "last_look_seconds": round(now - self._last, 3),
                "uptime_seconds": round(now - self._begun, 3),
            }
