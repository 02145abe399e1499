"""Three ways in which an engine could do the same work twice: none of them is open.

A second process that recovers beside a live one, one that is told to take a live run over, and one that goes on with
the run of a process that only seemed to be dead. Each is judged by what happened outside of the store.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Conflict, GiveUp, Happened, Holdfast, LeaseHeld, NotDone, Run
from holdfast.stores.contract_runs import RunRow
from holdfast.threads.scan import thread_named
from tests.crash.nursery import Child, Nursery
from tests.runs.children import STEPS, note
from tests.runs.test_processes import Family, stopped
from tests.waiting import DEADLINE, until

START: dict[str, Any] = {"done": []}
LEASE = 2.0


@pytest.fixture
def family(nursery: Nursery, tmp_path: Path) -> Iterator[Family]:
    made = Family(nursery, tmp_path)
    made.path("go").mkdir()
    yield made
    made.close()


@pytest.fixture
def hf(family: Family) -> Iterator[Holdfast]:
    with holdfast.open(family.store, durability="off") as opened:
        yield opened


def serve(family: Family, name: str, **told: Any) -> Child:
    """A process of the program of these tests: workers, after whatever it resumes by hand."""
    told = {"resume": False, "concurrency": 1, "lease": LEASE, **told}
    return family.start("serve", name=name, effects=family.path("effects"), go=family.path("go"), **told)


def effects(family: Family) -> list[str]:
    return family.path("effects").read_text().splitlines()


def go_on(family: Family, step: int) -> None:
    (family.path("go") / f"step-{step}").touch()


def row_of(hf: Holdfast) -> RunRow:
    store = hf.context.store
    thread = thread_named(store, "t")
    assert thread is not None
    row = store.run(thread.position.thread)
    assert row is not None
    return row


def wait_for_line(child: Child, line: str) -> None:
    """Until the child has said a line, however much else it says meanwhile."""

    def is_said() -> bool:
        if line not in child.lines and not child.ended:
            child.wait_for(len(child.lines) + 1)
        return line in child.lines or child.ended

    until(is_said)
    assert line in child.lines, child.failure


def wait_for_look(child: Child) -> None:
    """Until a worker of the process has started to look for runs, from now on, and has looked."""
    seen, now = len(child.lines), time.monotonic()
    looks = 0
    while looks < 2:
        child.wait_for(seen + 1)
        assert not child.ended, child.failure
        looks += sum(line.startswith("looked") and float(line.split()[1]) > now for line in child.lines[seen:])
        seen = len(child.lines)


def claims(child: Child) -> int:
    return child.lines.count("claimed")


def end(child: Child) -> None:
    os.kill(child.pid, signal.SIGTERM)
    child.wait_for_end()
    assert child.lines[-1] == "drained", child.failure


# -- a second process recovers beside the first ------------------------------------------------------------------------


def test_a_second_process_that_recovers_leaves_a_live_run_alone(family: Family, hf: Holdfast) -> None:
    hf.submit("job", "t", start=START)
    first = serve(family, "A", concurrency=3)
    wait_for_line(first, "acting step-1")
    claimed = row_of(hf)
    second = serve(family, "B", concurrency=2, resume=True)
    wait_for_line(second, "LeaseHeld")
    assert "interrupted:" in second.lines, "nothing is interrupted while its owner lives"
    # The run outlives the lease it was claimed for: it is renewed, and the end that was written first means nothing.
    until(lambda: hf.context.store.clock().now > claimed.lease_until)
    for step in range(1, STEPS + 1):
        wait_for_line(first, f"acting step-{step}")
        wait_for_look(first)
        wait_for_look(second)
        held = row_of(hf)
        assert (held.status, held.fence, held.attempt) == ("running", claimed.fence, 1)
        assert list(hf.interrupted()) == []
        go_on(family, step)
    until(lambda: row_of(hf).status == "completed")
    for child in (first, second):
        wait_for_look(child)
        end(child)
    assert effects(family) == ["A step-1", "A step-2", "A step-3"]
    assert (claims(first), claims(second)) == (1, 0)
    assert row_of(hf).fence == claimed.fence


def test_what_a_dead_process_left_is_resumed_once_by_whoever_is_first(family: Family, hf: Holdfast) -> None:
    """The same look, the other answer: that a live run is left alone is not for want of recovery."""
    hf.submit("job", "t", start=START)
    first = serve(family, "A", lease=60)
    go_on(family, 1)
    wait_for_line(first, "acting step-2")
    others = [serve(family, name, concurrency=3) for name in ("B", "C")]
    for other in others:
        wait_for_look(other)
    first.kill()
    until(lambda: row_of(hf).status == "waiting")
    assert effects(family) == ["A step-1", "A step-2"], "in doubt, so nobody repeats it"
    for step in range(2, STEPS + 1):
        go_on(family, step)
    hf.settle("t", 2, Happened("step-2 by A"))
    until(lambda: row_of(hf).status == "completed")
    for other in others:
        end(other)
    *before, last = effects(family)
    assert before == ["A step-1", "A step-2"]
    assert last in ("B step-3", "C step-3")
    assert sum(map(claims, others)) >= 2, "the claim that found the doubt, and the one after the answer"


# -- a second process is told to take over -----------------------------------------------------------------------------


def test_a_live_run_cannot_be_taken_over_by_order(family: Family, hf: Holdfast) -> None:
    hf.submit("job", "t", start=START)
    first = serve(family, "A", lease=60)
    wait_for_line(first, "acting step-1")
    held = row_of(hf)
    [started] = hf.effects("t")
    assert started.status == "started"
    for wait in (0, 0.1):
        with pytest.raises(LeaseHeld), hf.run("t", start=START, wait=wait):
            pytest.fail("its owner is alive")
    hf.submit("job", "t", start=START)
    with pytest.raises(Conflict):
        hf.submit("job", "t", start={"done": ["something else"]})
    for outcome in (NotDone(), Happened("by hand"), GiveUp()):
        with pytest.raises(Conflict):
            hf.settle("t", started, outcome)
    thread = hf.thread("t")
    orders: list[Callable[[], object]] = [
        lambda: thread.save({"done": ["by hand"]}),
        lambda: thread.rewind("@0", past_effects=True),
        thread.drop,
    ]
    for order in orders:
        with pytest.raises(LeaseHeld):
            order()
    assert row_of(hf) == replace(held, lease_until=row_of(hf).lease_until), "at most renewed"
    assert hf.effects("t") == [started]
    for step in range(1, STEPS + 1):
        go_on(family, step)
    until(lambda: row_of(hf).status == "completed")
    end(first)
    assert effects(family) == ["A step-1", "A step-2", "A step-3"]
    with hf.run("t") as run:
        assert run.result == ["step-1 by A", "step-2 by A", "step-3 by A"]


# -- a second process goes on while the first is stopped ---------------------------------------------------------------


def takes_over(book: Path, **declared: Any) -> Callable[[Run], None]:
    """The program of the process that was stopped, in the process that takes over."""

    def act(what: str) -> str:
        note(book, f"B {what}")
        return f"{what} done by B"

    def job(run: Run) -> None:
        tool = holdfast.tool(name="act", **declared)(act)
        run.finish([run.tool(tool, {"what": what}, key=what) for what in ("first", "second")])

    return job


@pytest.mark.parametrize("by", ["question", "probe without a timeout", "probe"])
def test_the_effect_a_stopped_process_is_inside_of_is_not_repeated(family: Family, hf: Holdfast, by: str) -> None:
    book, go = family.path("effects"), family.path("go on")
    asked: list[str] = []

    def probe(what: str) -> Happened | NotDone:
        asked.append(what)
        return Happened("first, as the probe found") if what in effects(family) else NotDone()

    # What happened has happened, so that answer of a probe counts at any time.
    declared: dict[str, dict[str, Any]] = {
        "question": {},
        "probe without a timeout": {"probe": probe},
        "probe": {"probe": probe, "timeout": 0.2},
    }
    job = takes_over(book, **declared[by])
    stopped_one = family.start("zombie", lease=0.5, go=go, ledger=book)
    wait_for_line(stopped_one, "acting")
    with stopped(stopped_one), hf.run("t", wait=DEADLINE) as run:
        assert (run.resumed, run.attempt) == (True, 2)
        job(run)
    found = "first, as the probe found"
    if by != "question":
        assert (run.status, asked) == ("completed", ["first"])
        assert effects(family) == ["first", "B second"]
    else:
        assert (run.status, asked) == ("waiting", [])
        assert effects(family) == ["first"], "neither repeated nor passed over"
    go.touch()
    stopped_one.wait_for_end()
    # What it is inside of ends, as nobody can prevent; what it would begin next is refused before it acts.
    assert stopped_one.lines == ["acting", "first LeaseLost", "second LeaseLost", "block LeaseLost"]
    [late] = [effect for effect in hf.effects("t") if effect.status == "late"]
    assert (late.name, late.result, late.arguments) == ("act", "first done", {"what": "first"})
    if by == "question":
        # The late result is what whoever is asked has been waiting for.
        [question] = [effect for effect in hf.effects("t") if effect.status == "in_doubt"]
        assert late.key == question.key
        hf.settle("t", question, Happened(late.result))
        with hf.run("t") as run:
            job(run)
        found = "first done"
    assert effects(family) == ["first", "B second"]
    with hf.run("t") as run:
        assert run.result == [found, "second done by B"]
