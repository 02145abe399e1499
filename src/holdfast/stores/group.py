"""Group commit: concurrent writers share one sync, without an extra thread and without a hand-off for a single writer.

A caller that arrives while no batch is being written becomes the leader and writes at once, on its own thread. Callers
that arrive meanwhile are queued. A leader that is done promotes the first in the queue, which writes for all that are
queued by then. So a single writer pays for one uncontended lock, and N waiting writers share the cost of one sync.

Leadership is the only state that could be lost. It is the identity of a queued write (`_leader is queued`), not a flag.
So if an exception interrupts a caller at any point, it is known whether the caller led, and exactly that is undone.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from holdfast.stores import rules

Write = TypeVar("Write")
Answer = TypeVar("Answer")
Error = TypeVar("Error", bound=Exception)

BATCH: Final = 64


class QueuedWrite(Generic[Write, Answer]):
    """One caller's write in the queue, and its result once it is known."""

    __slots__ = ("_answer", "_error", "_wake", "finished", "gone", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.finished = False
        self.gone = False
        self._answer: Answer
        self._error: BaseException | None = None
        self._wake = threading.Lock()
        self._wake.acquire()

    def finish(self, answer: Answer) -> None:
        """Report that the write is durably done. Its caller continues at once; the leader may have more to do."""
        self._answer = answer
        self.finished = True
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Report that the write was not done. `error` is raised in its caller."""
        self._error = error
        self.finished = True
        self.wake()

    def wait(self) -> None:
        self._wake.acquire()

    def wake(self) -> None:
        """End the wait, now or before it starts. Calling it twice is harmless."""
        try:
            self._wake.release()
        except RuntimeError:
            return

    def answer(self) -> Answer:
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error  # the traceback holds this frame, which would create a cycle per error


class GroupCommit(Generic[Write, Answer]):
    """Runs writes in batches. Each batch is run by one of the callers.

    `run_batch` finishes or fails every write it is given. If it raises, the unfinished writes were not done. After an
    `Exception` they fail with it. After any other exception (an interrupt meant for the leader alone) the other writes
    return to the front of the queue.
    """

    def __init__(
        self, run_batch: Callable[[Sequence[QueuedWrite[Write, Answer]]], None], *, limit: int = BATCH
    ) -> None:
        self._run_batch = run_batch
        self._limit = limit
        self._mutex = threading.Lock()
        self._leader: QueuedWrite[Write, Answer] | None = None
        self._line: deque[QueuedWrite[Write, Answer]] = deque()
        self._inside: set[int] = set()

    def submit(self, write: Write) -> Answer:
        """Run the write, alone or in a batch; return or raise the result that `run_batch` set for it.

        A caller that is interrupted while another leads gets its interrupt at once; its write may still be done. `Busy`
        in a signal handler that interrupted a call of the same thread, because it would wait for itself forever.
        """
        caller = threading.get_ident()
        if caller in self._inside:
            raise rules.in_signal_handler()
        queued: QueuedWrite[Write, Answer] = QueuedWrite(write)
        try:
            self._inside.add(caller)
            with self._mutex:
                if self._leader is None:
                    self._leader = queued
                else:
                    self._line.append(queued)
            if self._leader is not queued:
                queued.wait()
            if self._leader is queued:
                self._lead(queued)
        finally:
            try:
                self._leave(queued, caller)
            except BaseException:
                # An interrupt arrived during _leave. The other callers would wait forever, so finish it first.
                self._leave(queued, caller)
                raise
        return queued.answer()

    def _lead(self, leader: QueuedWrite[Write, Answer]) -> None:
        batch = [leader]
        try:
            with self._mutex:
                while self._line and len(batch) < self._limit:
                    batch.append(self._line.popleft())
            self._run_batch(batch)
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets the error, each on its own thread
            for queued in batch:
                if not queued.finished:
                    queued.fail(error if queued is leader else again(error))
        except BaseException:
            with self._mutex:
                self._line.extendleft(queued for queued in reversed(batch[1:]) if not (queued.finished or queued.gone))
            for queued in batch:
                if queued.finished:
                    queued.wake()  # the interrupt may have come just before its wake()
            raise

    def _leave(self, queued: QueuedWrite[Write, Answer], caller: int) -> None:
        """Remove the write from the queue; a leader promotes the first in the queue. Calling it twice is harmless."""
        with self._mutex:
            queued.gone = True
            if self._leader is queued:
                self._leader = self._line.popleft() if self._line else None
            elif not queued.finished and queued in self._line:
                self._line.remove(queued)
            if self._leader is not None:
                self._leader.wake()
        self._inside.discard(caller)  # last: until here, a signal handler would find the mutex held


def again(error: Error) -> Error:
    """A copy of the error for one more caller: raised in two threads, one instance would mix their tracebacks."""
    try:
        other = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error that cannot be copied is raised as it is
        return error
    other.__cause__ = error.__cause__
    return other
