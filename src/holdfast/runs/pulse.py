"""The pulse of a worker: whether its loops still look at the store, and how much they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

STALE_SECONDS = 60.0  # a look at the store that takes longer hangs: no store waits so long for anything


class Pulse:
    """What the loops of a worker are doing: looking at the store, since when, or running something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._last = self._begun
        self._looks: dict[int, float] = {}
        self._running = 0

    def look(self) -> None:
        """The loop in this thread is about to look at the store."""
        with self._lock:
            self._last = self._looks[threading.get_ident()] = time.monotonic()

    def end(self) -> None:
        """The loop in this thread has ended."""
        with self._lock:
            self._looks.pop(threading.get_ident(), None)

    @contextmanager
    def running(self) -> Generator[None]:
        """The loop in this thread runs something. How long that takes is not its affair."""
        with self._lock:
            self._looks.pop(threading.get_ident(), None)
            self._running += 1
        try:
            yield
        finally:
            self.look()
            with self._lock:
                self._running -= 1

    def is_beating(self) -> bool:
        """Whether every loop that looks at the store began to do so not long ago."""
        with self._lock:
            return all(time.monotonic() - begun <= STALE_SECONDS for begun in self._looks.values())

    def numbers(self) -> dict[str, float]:
        with self._lock:
            now = time.monotonic()
            return {
                "running": self._running,
                "last_look_seconds": round(now - self._last, 3),
                "uptime_seconds": round(now - self._begun, 3),
            }
