"""Group commit by leader promotion: no thread of its own, no hand-off for a single writer.

Whoever comes while nothing is being written leads: it writes at once, on its own thread. Whoever comes meanwhile
waits in line. A leader that is done promotes the first in line, who writes for all that wait by then. So a lone
writer pays one uncontended lock, and N waiting writers share the cost of one sync.

The one piece of state that could be lost, leadership, is the identity of an entry (`_leader is entry`) and not a
flag: an exception that strikes a caller anywhere finds out what the caller was and undoes exactly that.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from holdfast.errors import Busy

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Error = TypeVar("Error", bound=Exception)

BATCH: Final = 64


class Entry(Generic[Item, Answer]):
    """One caller's item in the queue, and its answer once there is one."""

    __slots__ = ("_answer", "_error", "_wake", "gone", "item", "settled")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.settled = False
        self.gone = False
        self._answer: Answer
        self._error: BaseException | None = None
        self._wake: threading.Lock | None = None

    def settle(self, answer: Answer) -> None:
        """The item is done, durably: its caller goes on at once, whatever the leader still has to do."""
        self._answer = answer
        self.settled = True
        self.wake()

    def fail(self, error: BaseException) -> None:
        """The item was not done: `error` is raised in its caller."""
        self._error = error
        self.settled = True
        self.wake()

    def prepare(self) -> None:
        """Become something that can wait. Must happen before others can see the entry."""
        self._wake = threading.Lock()
        self._wake.acquire()

    def wait(self) -> None:
        if self._wake is not None:
            self._wake.acquire()

    def wake(self) -> None:
        """End the wait, now or before it begins. Doing so twice is harmless."""
        if self._wake is not None:
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
            del error  # the traceback holds this frame: without this, a cycle per error


class GroupCommit(Generic[Item, Answer]):
    """Runs items in batches, each batch by one of the callers.

    `run_batch` settles or fails every entry it is given. If it raises, what it left unsettled was not done: after an
    `Exception` those entries fail with it; after anything else (an interrupt meant for the leader alone) the others
    go back to the front of the line.
    """

    def __init__(self, run_batch: Callable[[Sequence[Entry[Item, Answer]]], None], *, limit: int = BATCH) -> None:
        self._run_batch = run_batch
        self._limit = limit
        self._mutex = threading.Lock()
        self._leader: Entry[Item, Answer] | None = None
        self._line: deque[Entry[Item, Answer]] = deque()
        self._inside: set[int] = set()

    def submit(self, item: Item) -> Answer:
        """Have the item run, alone or with others; returns or raises what `run_batch` said of it.

        A caller that is interrupted while another leads gets its interrupt at once: its item may still be done.
        `Busy` in a signal handler that interrupted a call of its own thread, which would wait for itself for ever.
        """
        caller = threading.get_ident()
        if caller in self._inside:
            raise Busy(
                "a save cannot be made from a signal handler that interrupted a save of the same thread; nothing was "
                "stored. Set a flag in the handler and save later"
            )
        entry: Entry[Item, Answer] = Entry(item)
        try:
            self._inside.add(caller)
            with self._mutex:
                if self._leader is None:
                    self._leader = entry
                else:
                    entry.prepare()
                    self._line.append(entry)
            if self._leader is not entry:
                entry.wait()
            if self._leader is entry:
                self._lead(entry)
        finally:
            try:
                self._leave(entry, caller)
            except BaseException:
                # An interrupt struck on the way out. Everybody else would wait for ever, so leave first.
                self._leave(entry, caller)
                raise
        return entry.answer()

    def _lead(self, leader: Entry[Item, Answer]) -> None:
        batch = [leader]
        try:
            with self._mutex:
                while self._line and len(batch) < self._limit:
                    batch.append(self._line.popleft())
            self._run_batch(batch)
        except Exception as error:  # noqa: BLE001 - every caller of the batch must hear of it, each on its own thread
            for entry in batch:
                if not entry.settled:
                    entry.fail(error if entry is leader else again(error))
        except BaseException:
            with self._mutex:
                self._line.extendleft(entry for entry in reversed(batch[1:]) if not (entry.settled or entry.gone))
            for entry in batch:
                if entry.settled:
                    entry.wake()  # the interrupt may have come just before
            raise

    def _leave(self, entry: Entry[Item, Answer], caller: int) -> None:
        """Give up whatever place the entry has; a leader promotes the first in line. Doing so twice is harmless."""
        with self._mutex:
            entry.gone = True
            if self._leader is entry:
                self._leader = self._line.popleft() if self._line else None
            elif not entry.settled and entry in self._line:
                self._line.remove(entry)
            if self._leader is not None:
                self._leader.wake()
        self._inside.discard(caller)  # last: until here, a handler would find the mutex held


def again(error: Error) -> Error:
    """The same error for one more caller: raised in two threads, one instance would mix their tracebacks."""
    try:
        other = copy.copy(error)
    except Exception:  # noqa: BLE001 - a class that cannot be copied is no reason to hide the error itself
        return error
    other.__cause__ = error.__cause__
    return other
