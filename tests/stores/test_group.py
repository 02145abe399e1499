"""Group commit: who writes for whom, and what an interrupt leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from holdfast.errors import Busy
from holdfast.stores.write_queue import BATCH, again
from tests.covers import covers
from tests.stores.interrupting import SCENARIOS, Entries, Interrupt, Interruptible, Writer
from tests.waiting import DEADLINE, until


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
    assert leader.result(DEADLINE) == 0
    assert [future.result(DEADLINE) for future in rest] == [n**2 for n in range(1, 11)]
    assert writer.batches == [[0], list(range(1, 11))]
    assert writer.threads[0] != writer.threads[1]


def test_a_batch_is_bounded(writer: Writer, pool: ThreadPoolExecutor) -> None:
    writer.free.clear()
    futures = [pool.submit(writer.group.submit, 0)]
    until(lambda: bool(writer.batches))
    futures += [pool.submit(writer.group.submit, n) for n in range(1, 151)]
    until(lambda: writer.waiting() == 150)
    writer.free.set()
    assert [future.result(DEADLINE) for future in futures] == [n**2 for n in range(151)]
    assert [len(batch) for batch in writer.batches] == [1, BATCH, BATCH, 150 - 2 * BATCH]


@covers("D5")
def test_one_failure_is_for_its_caller_alone(writer: Writer, pool: ThreadPoolExecutor) -> None:
    def odd_ones_fail(entries: Entries) -> None:
        for entry in entries:
            if entry.write % 2:
                entry.fail(ValueError(entry.write))
            else:
                entry.finish(entry.write)

    writer.on_batch = odd_ones_fail
    writer.free.clear()
    futures = [pool.submit(writer.group.submit, n) for n in range(20)]
    until(lambda: writer.waiting() == 19)
    writer.free.set()
    for n, future in enumerate(futures):
        if n % 2:
            with pytest.raises(ValueError, match=str(n)):
                future.result(DEADLINE)
        else:
            assert future.result(DEADLINE) == n


def test_a_batch_that_fails_as_a_whole_fails_for_each_and_the_next_goes_on(
    writer: Writer, pool: ThreadPoolExecutor
) -> None:
    def break_down(entries: Entries) -> None:
        writer.on_batch = writer.square
        entries[0].finish(-1)
        raise OSError("broken")

    writer.free.clear()
    writer.on_batch = break_down
    leader = pool.submit(writer.group.submit, 0)
    until(lambda: bool(writer.batches))
    rest = [pool.submit(writer.group.submit, n) for n in (1, 2)]
    until(lambda: writer.waiting() == 2)
    writer.free.set()
    assert leader.result(DEADLINE) == -1, "what was settled before stays settled"
    assert [future.result(DEADLINE) for future in rest] == [1, 4]

    def break_again(entries: Entries) -> None:
        if len(entries) > 1:
            raise OSError("broken")
        writer.square(entries)

    writer.on_batch = break_again
    writer.free.clear()
    leader = pool.submit(writer.group.submit, 5)
    until(lambda: writer.batches[-1] == [5])
    rest = [pool.submit(writer.group.submit, n) for n in (6, 7)]
    until(lambda: writer.waiting() == 2)
    writer.free.set()
    assert leader.result(DEADLINE) == 25
    errors = [future.exception(DEADLINE) for future in rest]
    assert [str(error) for error in errors] == ["broken", "broken"]
    assert errors[0] is not errors[1], "raised in two threads, one instance would mix their tracebacks"


class Sealed(Exception):
    """Cannot be copied: it asks for more than it keeps in `args`."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def test_an_error_for_one_more_caller() -> None:
    error = OSError(5, "broken")
    error.__cause__ = ValueError()
    other = again(error)
    assert other is not error
    assert (type(other), other.args, other.__cause__) == (OSError, error.args, error.__cause__)
    sealed = Sealed("a", "b")
    assert again(sealed) is sealed


def test_a_call_from_within_a_call_is_refused(writer: Writer) -> None:
    """As from a signal handler: its thread leads or stands in line, and would wait for itself."""
    refusals: list[Busy] = []

    def handler(entries: Entries) -> None:
        with pytest.raises(Busy, match="signal handler") as raised:
            writer.group.submit(9)
        refusals.append(raised.value)
        writer.square(entries)

    writer.on_batch = handler
    callers = [Interruptible(writer.group, n) for n in (2, 3)]
    for caller in callers:
        caller.ended()
    assert [caller.answer for caller in callers] == [4, 9]
    assert len(refusals) == len(writer.batches)
    writer.on_batch = writer.square
    assert writer.group.submit(4) == 16


def test_an_interrupted_leader_gives_its_batch_back_to_the_line(writer: Writer) -> None:
    writer.free.clear()
    callers = [Interruptible(writer.group, 0)]
    until(lambda: len(writer.batches) == 1)
    for n in (1, 2, 3):
        callers.append(Interruptible(writer.group, n))
        until(partial(writer.has_waiting, n))

    def interrupted(entries: Entries) -> None:
        writer.on_batch = writer.square
        entries[1].finish(-2)
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


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_interrupt_is_for_the_one_it_strikes_alone(scenario: str) -> None:
    paths = os.pathsep.join(entry or os.curdir for entry in sys.path)
    environment = {name: found for name, found in os.environ.items() if not name.startswith(("COV_", "COVERAGE_"))}
    child = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.stores.interrupting", scenario],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
        env={**environment, "PYTHONPATH": paths},
    )
    assert child.returncode == 0, child.stdout + child.stderr
