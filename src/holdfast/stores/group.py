"""Group commit: concurrent writers share one sync, without an extra thread and without a hand-off for a single writer.

A caller that arrives while no batch is being written becomes the leader and writes at once, on its own thread. Callers
that arrive meanwhile are queued. A leader that is done promotes the first in the queue, which writes for all that are
queued by then. So a single writer pays for one uncontended lock, and N waiting writers share the cost of one sync.
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

    __slots__ = ("_answer", "_error", "_wake", "finished", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.finished = False
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
        """End the wait, now or before it starts."""
        self._wake.release()

    def answer(self) -> Answer:
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error  # the traceback holds this frame, which would create a cycle per error


class GroupCommit(Generic[Write, Answer]):
    """Runs writes in batches. Each batch is run by one of the callers, who are shielded from signals.

    `run_batch` finishes or fails every write it is given. If it raises, the unfinished writes were not done. After an
    `Exception` they fail with it. After any other exception (an interrupt while the leader waits for its turn) the
    other writes return to the front of the queue.
    """

    def __init__(self, run_batch: Callable[[Sequence[QueuedWrite[Write, Answer]]], None]) -> None:
        self._run_batch = run_batch
        self._mutex = threading.Lock()
        self._is_led = False
        self._line: deque[QueuedWrite[Write, Answer]] = deque()
        self._inside: set[int] = set()

    def submit(self, write: Write) -> Answer:
        """Run the write, alone or in a batch; return or raise the result that `run_batch` set for it.

        `Busy` in a signal handler that interrupted a call of the same thread, because it would wait for itself forever.
        """
        caller = threading.get_ident()
        if caller in self._inside:
            raise rules.in_signal_handler()
        queued: QueuedWrite[Write, Answer] = QueuedWrite(write)
        self._inside.add(caller)
        try:
            with self._mutex:
                waits, self._is_led = self._is_led, True
                if waits:
                    self._line.append(queued)
            if waits:
                queued.wait()
            if not queued.finished:
                self._lead(queued)
        finally:
            self._inside.discard(caller)
        return queued.answer()

    def _lead(self, leader: QueuedWrite[Write, Answer]) -> None:
        batch = [leader]
        try:
            with self._mutex:
                while self._line and len(batch) < BATCH:
                    batch.append(self._line.popleft())
            self._run_batch(batch)
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets the error, each on its own thread
            for queued in batch:
                if not queued.finished:
                    queued.fail(error if queued is leader else again(error))
        except BaseException:
            with self._mutex:
                self._line.extendleft(queued for queued in reversed(batch[1:]) if not queued.finished)
            raise
        finally:
            with self._mutex:
                self._is_led = bool(self._line)
                if self._line:
                    self._line.popleft().wake()


def again(error: Error) -> Error:
    """A copy of the error for one more caller: raised in two threads, one instance would mix their tracebacks."""
    try:
        other = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error that cannot be copied is raised as it is
        return error
    other.__cause__ = error.__cause__
    return other
