"""The flusher: a thread that writes results which wait for a write, a few milliseconds after their calls have ended."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Final, Protocol

from holdfast import forksafe

WAIT_SECONDS: Final = 0.005  # for so long a result waits for a write that takes it along
_RETRY_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 0.1  # after so long without results, the thread waits until it is woken
_WRITERS: Final = 8  # results of several runs are written at the same time, and the store syncs them together


class Waiting(Protocol):
    """The journal of a run, which may have a result that waits."""

    @property
    def is_waiting(self) -> bool:
        """Whether a result waits for a write."""
        ...

    def write_waiting(self) -> bool:
        """Write the result. False if that failed and is to be tried again."""
        ...


class Flusher:
    """Writes waiting results in a thread that starts with the first one. Serves all runs of the process."""

    def __init__(self) -> None:
        self.is_off = False  # in a drill: the writes of a run must not depend on the time
        self._start_anew()

    def _start_anew(self) -> None:
        self._due: deque[tuple[float, Waiting]] = deque()  # in the order of time
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._is_awake = False
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None

    def add(self, journal: Waiting) -> None:
        """Write the waiting result of a journal soon, unless that is done before."""
        if self.is_off:
            return
        self._due.append((monotonic() + WAIT_SECONDS, journal))
        if self._is_awake:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-flusher", daemon=True)
                self._thread.start()
        self._wake.set()

    def restart(self) -> None:
        """In a forked child, which has no thread and none of the runs."""
        self._start_anew()

    def _work(self) -> None:
        try:
            self._write_when_due()
        finally:  # after an unexpected error, the next result starts another thread
            self._thread, self._is_awake = None, False

    def _write_when_due(self) -> None:
        last = monotonic()
        while True:
            now = monotonic()
            if self._due:
                last = now
                pause = self._due[0][0] - now
                if pause <= 0:
                    self._write(now)
                    continue
            elif now - last > _IDLE_SECONDS:
                self._is_awake = False
                if not self._due:  # else a result was added before that was to be seen
                    self._wake.wait()
                self._wake.clear()
                self._is_awake = True
                last = monotonic()
                continue
            else:
                pause = WAIT_SECONDS
            sleep(pause)

    def _write(self, now: float) -> None:
        """Write the results that are due."""
        due: dict[int, Waiting] = {}
        while self._due and self._due[0][0] <= now:
            journal = self._due.popleft()[1]
            if journal.is_waiting:
                due[id(journal)] = journal
        if not due:
            return
        first, *others = due.values()
        if others and self._pool is None:
            self._pool = ThreadPoolExecutor(_WRITERS, "holdfast-flusher")
        writing = [self._pool.submit(journal.write_waiting) for journal in others] if self._pool is not None else []
        done = [first.write_waiting(), *(each.result() for each in writing)]
        again = monotonic() + _RETRY_SECONDS
        failed = [journal for journal, is_done in zip((first, *others), done, strict=True) if not is_done]
        self._due.extend((again, journal) for journal in failed)


flusher: Final = Flusher()
forksafe.register(in_child=flusher.restart)
