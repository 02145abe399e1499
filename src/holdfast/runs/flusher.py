"""The flusher: threads that write waiting results, a few milliseconds after their calls have ended."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final, Protocol

from holdfast import forksafe

WAIT_SECONDS: Final = 0.005  # how long a result waits for another write, to be written with it
_RETRY_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 0.1  # after so long without results, the thread waits until it is woken
_WRITERS: Final = 8  # results of several runs are written at the same time, and the store syncs them together


class HasPendingResult(Protocol):
    """The journal of a run, which may have a result that waits."""

    @property
    def pending_since(self) -> float | None:
        """The monotonic time since which a result waits for a write; None if none waits."""
        ...

    def write_pending(self) -> bool:
        """Write the result. False if that failed and is to be tried again."""
        ...


class Flusher:
    """Writes waiting results in threads that start with the first one. Serves all runs of the process."""

    def __init__(self) -> None:
        self.is_off = False  # in a drill: the writes of a run must not depend on the time
        self._start_anew()

    def _start_anew(self) -> None:
        # Both are ordered by time. `_due` has new results, `_again` has those that could not be written.
        self._due: deque[tuple[float, HasPendingResult]] = deque()
        self._again: deque[tuple[float, HasPendingResult]] = deque()
        self._queued: set[int] = set()  # ids of the journals in the first queue: each is there once
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._is_awake = False
        self._thread: threading.Thread | None = None
        self._jobs: SimpleQueue[HasPendingResult] = SimpleQueue()
        self._idle = threading.Semaphore(0)  # counts the writers that have nothing to do
        self._writers = 0

    def add(self, journal: HasPendingResult) -> None:
        """Write the waiting result of a journal soon, unless that is done before."""
        if not self.is_off and id(journal) not in self._queued:
            self._queued.add(id(journal))
            self._put(self._due, WAIT_SECONDS, journal)

    def _put(self, queue: deque[tuple[float, HasPendingResult]], seconds: float, journal: HasPendingResult) -> None:
        queue.append((monotonic() + seconds, journal))
        if self._is_awake:
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._hand_over_when_due, name="holdfast-flusher", daemon=True)
                thread.start()
                self._thread = thread
        self._wake.set()

    def restart(self) -> None:
        """Start empty in a forked child, which has no threads, and whose runs belong to its parent."""
        self._start_anew()

    def _hand_over_when_due(self) -> None:
        last = monotonic()
        while True:
            now = monotonic()
            queues = [queue for queue in (self._due, self._again) if queue]
            if queues:
                last = now
                pause = min(queue[0][0] for queue in queues) - now
                if pause <= 0:
                    for queue in queues:
                        self._hand_over(queue, now)
                    continue
            elif now - last > _IDLE_SECONDS:
                self._is_awake = False
                if not self._due and not self._again:  # a result may have been added meanwhile
                    self._wake.wait()
                self._wake.clear()
                self._is_awake = True
                last = monotonic()
                continue
            else:
                pause = WAIT_SECONDS
            sleep(min(pause, WAIT_SECONDS))

    def _hand_over(self, queue: deque[tuple[float, HasPendingResult]], now: float) -> None:
        """Pass each result that is due to a writer: a store that does not answer must not delay other stores."""
        while queue and queue[0][0] <= now:
            journal = queue.popleft()[1]
            # Discarded before `pending_since` is read: a result that is added after that is queued again.
            self._queued.discard(id(journal))
            since = journal.pending_since
            if since is None:
                continue
            if now - since < WAIT_SECONDS and queue is self._due:
                self._queued.add(id(journal))
                queue.append((since + WAIT_SECONDS, journal))  # a later result than the one that was queued
                continue
            self._jobs.put(journal)
            if not self._idle.acquire(blocking=False) and self._writers < _WRITERS:
                with suppress(RuntimeError):  # no thread can be started: a writer that exists takes it
                    threading.Thread(target=self._write, name="holdfast-flusher-writer", daemon=True).start()
                    self._writers += 1

    def _write(self) -> None:
        while True:
            journal = self._jobs.get()
            is_done = False
            with suppress(Exception):  # the next call of the program reports it
                is_done = journal.write_pending()
            if not is_done:
                self._put(self._again, _RETRY_SECONDS, journal)
            del journal  # it may be large
            self._idle.release()


flusher: Final = Flusher()
forksafe.register(in_child=flusher.restart)
