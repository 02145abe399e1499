"""Group commit: who writes for whom, and what an interrupt leaves behind."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from holdfast.stores.group import BATCH, Entry, GroupCommit

PATIENCE = 30.0

Entries = Sequence[Entry[int, int]]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


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
        self.batches.append([entry.item for entry in entries])
        self.threads.append(threading.get_ident())
        while not self.free.wait(0.01):
            pass
        self.on_batch(entries)

    def square(self, entries: Entries) -> None:
        for entry in entries:
            if not entry.settled:
                entry.settle(entry.item**2)

    def waiting(self) -> int:
        return len(self.group._line)

    def has_waiting(self, count: int) -> bool:
        return self.waiting() == count


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer()
    yield made
    made.free.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(200) as made:
        yield made


def test_a_lone_caller_writes_on_its_own_thread(writer: Writer) -> None:
    assert [writer.group.submit(n) for n in (2, 3)] == [4, 9]
    assert writer.batches == [[2], [3]]
    assert set(writer.threads) == {threading.get_ident()}


def test_whoever_waits_is_written_in_one_batch_by_the_first_in_line(writer: Writer, pool: ThreadPoolExecutor) -> None:
    writer.free.clear()
    leader = pool.submit(writer.group.submit, 0)
    until(lambda: writer.batches == [[0]])
    rest = []
    for n in range(1, 11):
        rest.append(pool.submit(writer.group.submit, n))
        until(partial(writer.has_waiting, n))
    writer.free.set()
    assert leader.result(PATIENCE) == 0
    assert [future.result(PATIENCE) for future in rest] == [n**2 for n in range(1, 11)]
    assert writer.batches == [[0], list(range(1, 11))]
    assert writer.threads[0] != writer.threads[1]


def test_a_batch_is_bounded(writer: Writer, pool: ThreadPoolExecutor) -> None:
    writer.free.clear()
    futures = [pool.submit(writer.group.submit, 0)]
    until(lambda: bool(writer.batches))
    futures += [pool.submit(writer.group.submit, n) for n in range(1, 151)]
    until(lambda: writer.waiting() == 150)
    writer.free.set()
    assert [future.result(PATIENCE) for future in futures] == [n**2 for n in range(151)]
    assert [len(batch) for batch in writer.batches] == [1, BATCH, BATCH, 150 - 2 * BATCH]


def test_one_failure_is_for_its_caller_alone(writer: Writer, pool: ThreadPoolExecutor) -> None:
    def odd_ones_fail(entries: Entries) -> None:
        for entry in entries:
            if entry.item % 2:
                entry.fail(ValueError(entry.item))
            else:
                entry.settle(entry.item)

    writer.on_batch = odd_ones_fail
    writer.free.clear()
    futures = [pool.submit(writer.group.submit, n) for n in range(20)]
    until(lambda: writer.waiting() == 19)
    writer.free.set()
    for n, future in enumerate(futures):
        if n % 2:
            with pytest.raises(ValueError, match=str(n)):
                future.result(PATIENCE)
        else:
            assert future.result(PATIENCE) == n


def test_a_batch_that_fails_as_a_whole_fails_for_each_and_the_next_goes_on(
    writer: Writer, pool: ThreadPoolExecutor
) -> None:
    def break_down(entries: Entries) -> None:
        writer.on_batch = writer.square
        entries[0].settle(-1)
        raise OSError("broken")

    writer.free.clear()
    writer.on_batch = break_down
    leader = pool.submit(writer.group.submit, 0)
    until(lambda: bool(writer.batches))
    rest = [pool.submit(writer.group.submit, n) for n in (1, 2)]
    until(lambda: writer.waiting() == 2)
    writer.free.set()
    assert leader.result(PATIENCE) == -1, "what was settled before stays settled"
    assert [future.result(PATIENCE) for future in rest] == [1, 4]

    def break_again(entries: Entries) -> None:
        raise OSError("broken")

    writer.on_batch = break_again
    with pytest.raises(OSError, match="broken"):
        writer.group.submit(5)
    writer.on_batch = writer.square
    assert writer.group.submit(5) == 25


class Interrupt(BaseException):
    """What Ctrl-C is to a program: nothing that `except Exception` stops."""


class Interruptible(threading.Thread):
    """A caller that can be struck by an exception while it waits or leads."""

    def __init__(self, group: GroupCommit[int, int], item: int, *, linger: bool = False) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.item = item
        self.linger = linger
        self.ready = threading.Event()
        self.answer: int | None = None
        self.raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.ready.set()
            self.answer = self.group.submit(self.item)
            while self.linger:  # until struck: a strike after the end would hit the machinery of threads
                time.sleep(0.0001)
        except BaseException as error:  # noqa: BLE001 - what was raised is what the test is about
            self.raised = error

    def strike(self) -> None:
        assert self.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(Interrupt))

    def ended(self) -> None:
        self.join(PATIENCE)
        assert not self.is_alive()


def test_an_interrupted_leader_leaves_its_followers_to_the_next(writer: Writer) -> None:
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


def test_an_interrupted_leader_gives_its_batch_back_to_the_line(writer: Writer) -> None:
    writer.free.clear()
    callers = [Interruptible(writer.group, 0)]
    until(lambda: len(writer.batches) == 1)
    for n in (1, 2, 3):
        callers.append(Interruptible(writer.group, n))
        until(partial(writer.has_waiting, n))

    def interrupted(entries: Entries) -> None:
        writer.on_batch = writer.square
        entries[1].settle(-2)
        raise Interrupt

    def then(entries: Entries) -> None:
        writer.square(entries)
        writer.on_batch = interrupted

    writer.on_batch = then
    writer.free.set()
    for caller in callers:
        caller.ended()
    assert writer.batches == [[0], [1, 2, 3], [3]]
    assert isinstance(callers[1].raised, Interrupt)
    assert [caller.answer for caller in callers] == [0, None, -2, 9]


def test_an_interrupted_waiter_leaves_the_line(writer: Writer) -> None:
    writer.free.clear()
    leader = Interruptible(writer.group, 1)
    until(lambda: writer.batches == [[1]])
    waiter = Interruptible(writer.group, 2)
    until(lambda: writer.waiting() == 1)
    last = Interruptible(writer.group, 3)
    until(lambda: writer.waiting() == 2)
    # An exception set on a thread that sleeps in a lock strikes when it wakes: here, promoted.
    waiter.strike()
    writer.free.set()
    for caller in (leader, waiter, last):
        caller.ended()
    assert isinstance(waiter.raised, Interrupt)
    assert (leader.answer, last.answer) == (1, 9)
    assert writer.group.submit(4) == 16


def test_interrupts_at_any_moment_never_block_the_others(writer: Writer) -> None:
    """Strikes at random moments; whoever was not struck gets its answer, and the group works on."""
    stop = threading.Event()
    answers: list[int] = []
    outcomes: set[int | None] = set()
    delays = random.Random(1)

    def steady() -> None:
        while not stop.is_set():
            answers.append(writer.group.submit(3))

    steadies = [threading.Thread(target=steady, daemon=True) for _ in range(2)]
    for thread in steadies:
        thread.start()
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        victim = Interruptible(writer.group, 2, linger=True)
        assert victim.ready.wait(PATIENCE)
        for _ in range(delays.randrange(2000)):
            pass
        victim.strike()
        victim.ended()
        assert isinstance(victim.raised, Interrupt)
        assert victim.answer in (None, 4)
        outcomes.add(victim.answer)
    assert outcomes == {None, 4}, "some were struck before their answer, some after"
    seen = len(answers)
    until(lambda: len(answers) > seen)
    stop.set()
    for thread in steadies:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert set(answers) == {9}
