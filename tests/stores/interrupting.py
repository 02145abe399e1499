"""Interrupts that strike a caller of the group commit, each scenario in a process of its own.

Under coverage, CPython 3.11 hangs in them: an exception is pending on a thread that sleeps in a lock while the main
thread is traced. So they run where nothing is traced: `python -m tests.stores.interrupting NAME`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import sys
import threading
from collections.abc import Callable, Sequence

from holdfast.stores.write_queue import GroupCommit, QueuedWrite
from tests.waiting import DEADLINE, until

Entries = Sequence[QueuedWrite[int, int]]


class Writer:
    """A `run_batch` that can be held, and that remembers what it was given and on which thread."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: list[int] = []
        self.free = threading.Event()
        self.free.set()
        self.on_batch: Callable[[Entries], None] = self.square
        self.group: GroupCommit[int, int] = GroupCommit(self)

    def __call__(self, entries: Entries) -> None:
        self.batches.append([entry.write for entry in entries])
        self.threads.append(threading.get_ident())
        while not self.free.wait(0.01):
            pass
        self.on_batch(entries)

    def square(self, entries: Entries) -> None:
        for entry in entries:
            if not entry.finished:
                entry.finish(entry.write**2)

    def waiting(self) -> int:
        return len(self.group._queue)

    def has_waiting(self, count: int) -> bool:
        return self.waiting() == count


class Interrupt(BaseException):
    """What Ctrl-C is to a program: nothing that `except Exception` stops."""


class Interruptible(threading.Thread):
    """A caller that can be struck by an exception while it waits or leads."""

    def __init__(self, group: GroupCommit[int, int], item: int) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.item = item
        self.ready = threading.Event()
        self.answer: int | None = None
        self.raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.ready.set()
            self.answer = self.group.submit(self.item)
        except BaseException as error:  # noqa: BLE001 - what was raised is what the test is about
            self.raised = error

    def strike(self) -> None:
        assert self.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(Interrupt))

    def ended(self) -> None:
        self.join(DEADLINE)
        assert not self.is_alive()


def leader() -> None:
    writer = Writer()
    writer.free.clear()
    leader = Interruptible(writer.group, 1)
    until(lambda: writer.batches == [[1]])
    first = Interruptible(writer.group, 2)
    until(lambda: writer.waiting() == 1)
    leader.strike()
    leader.ended()
    assert isinstance(leader.raised, Interrupt)
    # The first in line was promoted and is writing; two more join it, and it is struck, too.
    until(lambda: writer.batches == [[1], [2]])
    others = [Interruptible(writer.group, n) for n in (3, 4)]
    until(lambda: writer.waiting() == 2)
    first.strike()
    first.ended()
    until(lambda: len(writer.batches) == 3)
    assert sorted(writer.batches[2]) == [3, 4]
    writer.free.set()
    for other in others:
        other.ended()
    assert [other.answer for other in others] == [9, 16]
    assert writer.group.submit(5) == 25


SCENARIOS: dict[str, Callable[[], None]] = {"leader": leader}

if __name__ == "__main__":
    faulthandler.dump_traceback_later(DEADLINE, exit=True)  # a thread that hangs shows where
    SCENARIOS[sys.argv[1]]()
