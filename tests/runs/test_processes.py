"""Real processes: killed, stopped past their lease, racing each other, told to end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Happened, LeaseHeld
from holdfast.threads import process
from holdfast.threads.process import is_dead, this_process
from tests.covers import covers
from tests.crash.nursery import Child, Nursery
from tests.runs.children import ask
from tests.waiting import DEADLINE, until


class Family:
    """Children on one store."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._children: list[Child] = []
        self.store = str(folder / "agent.db")

    def path(self, name: str) -> Path:
        return self._folder / name

    def start(self, program: str, **told: Any) -> Child:
        task = self._folder / f"task-{len(self._children)}"
        task.write_text(json.dumps({"store": self.store, **told}, default=str))
        child = self._nursery.start(f"tests.runs.children:{program}", task)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            child.close()


@pytest.fixture
def family(nursery: Nursery, tmp_path: Path) -> Iterator[Family]:
    made = Family(nursery, tmp_path)
    yield made
    made.close()


@contextmanager
def stopped(child: Child) -> Iterator[None]:
    os.kill(child.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child.pid, signal.SIGCONT)


def wait_for_line(child: Child, line: str) -> None:
    while line not in child.lines and not child.ended:
        child.wait_for(len(child.lines) + 1)
    assert line in child.lines, child.failure


@covers("A12", "D3", "E1", "E5", "continuum/CrashRecovery.detect_unclean_shutdown", "continuum/CrashRecovery.new")
def test_after_a_kill_nobody_waits_for_the_lease(family: Family) -> None:
    @holdfast.tool(name="act")
    def act() -> None:
        pytest.fail("acted twice")

    child = family.start("hold", lease=3600)
    wait_for_line(child, "acting")
    with holdfast.open(family.store, durability="off") as hf:
        with pytest.raises(LeaseHeld), hf.run("t"):
            pytest.fail("its owner is alive")
        with pytest.raises(LeaseHeld):
            hf.thread("t").save({"n": 9})
        assert list(hf.interrupted()) == []
        child.kill()
        started = time.monotonic()
        [found] = hf.interrupted()
        assert [effect.name for effect in found.in_doubt] == ["act"]
        with hf.run("t") as run:
            assert run.attempt == 2
            assert run.model(ask) == "paid for"
            run.tool(act, {}, key="k")
        assert run.status == "waiting"
        assert time.monotonic() - started < DEADLINE


def test_of_eight_processes_one_wins(family: Family) -> None:
    go, leave = family.path("go"), family.path("leave")
    children = [family.start("race", go=go, leave=leave) for _ in range(8)]
    for child in children:
        wait_for_line(child, "ready")
    go.touch()
    for child in children:
        child.wait_for(2)
        assert child.failure is None
    outcomes = sorted(child.lines[1] for child in children)
    leave.touch()
    assert outcomes == ["LeaseHeld"] * 7 + ["won"]


@covers("D3")
def test_a_worker_stopped_past_its_lease_is_refused_before_it_acts_again(family: Family) -> None:
    go, ledger = family.path("go"), family.path("ledger")
    child = family.start("zombie", lease=0.5, go=go, ledger=ledger)
    wait_for_line(child, "acting")
    with holdfast.open(family.store, durability="off") as hf:
        with stopped(child):
            with hf.run("t", wait=DEADLINE) as run:  # its lease has to end: it is not dead
                assert run.resumed
            # The world knows of the first effect; what became of it was settled while its worker could not say.
            hf.settle("t", 1, Happened("by hand"))
        go.touch()
        child.wait_for_end()
        assert child.failure is None
        assert child.lines == ["acting", "first LeaseLost", "second LeaseLost", "block LeaseLost"]
        assert ledger.read_text() == "first\n"
        first, late = hf.effects("t")
        assert (first.status, first.result) == ("done", "by hand")
        assert (late.status, late.result, late.key) == ("late", "first done", first.key)
        with hf.run("t") as run:
            assert run.state == {"n": 0}
            assert run.status == "running"


def test_a_worker_stopped_within_its_lease_goes_on(family: Family) -> None:
    go, ledger = family.path("go"), family.path("ledger")
    child = family.start("zombie", lease=30, go=go, ledger=ledger)
    wait_for_line(child, "acting")
    with stopped(child):
        go.touch()
    child.wait_for_end()
    assert child.lines == ["acting", "first done", "second done"]
    assert ledger.read_text() == "first\nsecond\n"


def test_sigterm_drains(family: Family) -> None:
    with holdfast.open(family.store, durability="off") as hf:
        hf.submit("h", "t", start={"n": 0})
        child = family.start("work")
        wait_for_line(child, "step 3")
        os.kill(child.pid, signal.SIGTERM)
        child.wait_for_end()
        assert child.lines[-1] == "drained", child.failure
        done = int(child.lines[-2].split()[1])
        with hf.run("t", start={"n": 0}) as run:
            assert run.state == {"n": done}
            assert run.step == done + 1


def test_a_worker_killed_in_its_run_is_replaced_by_another(family: Family) -> None:
    with holdfast.open(family.store, durability="off") as hf:
        hf.submit("h", "t", start={"n": 0})
        for _ in range(2):
            child = family.start("work")
            child.wait_for(3)
            child.kill()
            assert child.failure is None
        child = family.start("work")
        child.wait_for(1)
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state["n"] >= 4


def test_who_is_dead_is_told_by_more_than_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    me = this_process()
    assert not is_dead(me)
    assert is_dead(replace(me, started=me.started + 1))  # the number is in use again, by somebody else
    for elsewhere in (
        replace(me, host="elsewhere", pid=1 << 30),
        replace(me, boot="another", pid=1 << 30),
        replace(me, pid_namespace=me.pid_namespace + 1, pid=1 << 30),
    ):
        assert not is_dead(elsewhere)  # nobody can know from here
    assert is_dead(replace(me, pid=(1 << 22) + 1))
    # A system that shows nobody the processes of others: being hidden is no proof of death.
    monkeypatch.setattr(process, "_stat", lambda pid: None)
    assert not is_dead(me)


def test_a_child_is_another_owner_than_its_parent() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, str(this_process().pid).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = int(pipe.read())
    dead = replace(this_process(), pid=pid, started=0)
    until(lambda: is_dead(dead))  # a zombie is dead
    os.waitpid(pid, 0)
    assert told == pid
    assert is_dead(dead)
