"""Runs that make no progress: which, since when, and why."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, InvalidArgument, Run, tool
from holdfast.types import StuckRun
from tests.covers import covers
from tests.runs.conftest import World
from tests.runs.test_status_progress import renew
from tests.selection import every_store

HOUR = 3600.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, world: World) -> Callable[[float], None]:
    """Lets time pass, on the wall and on the clock of leases."""
    ahead = [0]
    wall = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() + ahead[0])

    def pass_time(seconds: float) -> None:
        ahead[0] += round(seconds * 1_000_000_000)
        world.pass_time(seconds)

    return pass_time


def only(hf: Holdfast, older_than: float = HOUR) -> StuckRun:
    [found] = hf.stuck(older_than=older_than)
    return found


@covers("cortex/ExecutionStatus.Pending", "cortex/StepStatus.Pending")
def test_a_queued_run_that_nobody_claims(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    hf.submit("invoice", "t", start={}, version="v2")
    assert list(hf.stuck(older_than=HOUR)) == []
    later(HOUR + 1)
    found = only(hf)
    assert (found.thread, found.status) == ("t", "queued")
    assert abs(found.since.timestamp() - time.time()) < 60
    assert found.why == "queued, and no worker claims it (is a worker with handler 'invoice' and version 'v2' running?)"
    hf.worker({"invoice": lambda _: None}).run(until_idle=True)
    assert list(hf.stuck(older_than=0)) == [], "what is finished is not stuck"


def test_a_run_whose_owner_is_gone(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.dying("t", start={}):
        pass
    assert list(hf.stuck(older_than=HOUR)) == []
    later(HOUR + 1)
    assert only(hf).why == "its process is gone, and it has no handler (hf.run resumes it)"


@covers("continuum/AgentState.tool_calling", "cortex/StepStatus.Running")
def test_a_run_that_hangs_inside_a_call(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    found: list[StuckRun] = []

    def hang(on: str) -> None:
        later(HOUR + 1)
        renew(run)
        found.extend(hf.stuck(older_than=HOUR))

    def quick() -> None: ...

    with world.running("t", start={}, lease=86_400) as run:
        run.tool(quick)
        assert list(hf.stuck(older_than=HOUR)) == []
        run.tool(hang, {"on": "secret"})
        assert list(hf.stuck(older_than=HOUR)) == [], "a journal entry is progress"
    [hanging] = found
    assert hanging.status == "running"
    assert hanging.why.startswith("runs, and is inside hang (call 2, since 20")
    assert "secret" not in hanging.why


@pytest.mark.parametrize("by", ["progress", "save"])
def test_a_run_that_hangs_somewhere(world: World, later: Callable[[float], None], by: str) -> None:
    hf = world.open()
    with world.running("t", start={}, lease=86_400) as run:
        later(HOUR + 1)
        renew(run)
        assert only(hf).why == "runs without a recorded call: inside a model call, a read, or its own code"
        if by == "progress":
            run.progress(1)
            renew(run)
        else:
            run.save()
        assert list(hf.stuck(older_than=HOUR)) == []


def test_a_parent_whose_child_gets_on_is_not_stuck(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", start={}, lease=86_400) as run, run.child("c", start={}) as child:
        later(HOUR + 1)
        renew(run)
        renew(child)
        assert {each.thread for each in hf.stuck(older_than=HOUR)} == {"t", "t/c"}
        child.save()
        assert list(hf.stuck(older_than=HOUR)) == []


def test_a_run_that_waits_for_an_answer(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", start={}, ends="waiting") as run:
        run.wait("approve", {"sum": 10}, timeout=HOUR * 5)
    later(HOUR + 1)
    found = only(hf)
    assert (found.status, found.why) == ("waiting", "waits for an answer to 'approve'; hf.answer answers it")
    later(HOUR * 5)
    assert only(hf).why.startswith("the time it waited for is over, and it has no handler")
    hf.answer("t", "approve", value=True)
    assert only(hf, 0).why.startswith("queued")


def test_a_run_in_doubt(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()

    def post() -> None:
        raise OSError

    with world.running("t", start={}, ends="waiting") as run:
        run.tool(post)
    later(HOUR + 1)
    found = only(hf)
    assert found.status == "waiting"
    assert found.why == "in doubt: post (call 1) has no recorded outcome; settle it with hf.settle"


def test_a_run_that_sleeps_is_not_stuck_until_nobody_wakes_it(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", start={}, ends="waiting") as run:
        run.sleep(HOUR * 5)
    later(HOUR * 4)
    assert list(hf.stuck(older_than=0)) == []
    later(HOUR * 1.5)
    assert list(hf.stuck(older_than=HOUR)) == [], "due for half an hour"
    later(HOUR)
    assert only(hf).why == "the time it waited for is over, and it has no handler (hf.run resumes it): sleeps"


@covers("continuum/ErrorCategory.System", "continuum/AgentState.error")
def test_a_run_that_failed(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.failing("t", ZeroDivisionError, start={}):
        raise ZeroDivisionError("x")
    later(HOUR + 1)
    found = only(hf)
    assert found.status == "failed"
    assert found.why == "failed after 1 attempt, and it has no handler (hf.run resumes it): ZeroDivisionError: x"


def test_a_run_that_fails_again_and_again_and_then_is_dead(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()

    def fail(_: Run) -> None:
        raise ZeroDivisionError("x")

    hf.submit("agent", "t", start={})
    worker = hf.worker({"agent": fail}, attempts=3)
    worker.run(until_idle=True)
    assert only(hf, 0).why == (
        "failed 1 time since its last checkpoint; is tried again in 1 second: ZeroDivisionError: x"
    )
    later(HOUR + 1)
    worker.run(until_idle=True)
    found = only(hf)
    assert found.status == "queued"
    assert found.why.startswith("failed 2 times since its last checkpoint; is tried again in")
    assert found.why.endswith(": ZeroDivisionError: x")
    later(HOUR + 1)
    assert "no worker claims it (is a worker with handler 'agent' running?)" in only(hf).why
    worker.run(until_idle=True)
    assert [each.status for each in hf.stuck(older_than=0)] == ["dead"]
    assert only(hf, 0).why == "dead after 3 attempts; workers ignore it, hf.run resumes it: ZeroDivisionError: x"


@pytest.mark.parametrize("end", ["completed", "halted", "idle"])
def test_what_has_ended_is_not_stuck(world: World, later: Callable[[float], None], end: str) -> None:
    hf = world.open()
    hf.thread("no run").save({})
    with world.running("t", start={}, ends=end) as run:
        if end == "completed":
            run.finish()
        elif end == "halted":
            run.halt("enough")
    later(HOUR)
    assert list(hf.stuck(older_than=0)) == []


def test_all_of_them_in_one_look(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    for n in range(450):
        hf.submit("agent", f"t{n}", start={})
    later(HOUR + 1)
    assert {each.thread for each in hf.stuck(older_than=HOUR)} == {f"t{n}" for n in range(450)}


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "1", None])
def test_older_than_is_seconds(world: World, bad: Any) -> None:
    with pytest.raises(InvalidArgument):
        world.open().stuck(older_than=bad)


@every_store("readers beside writers see what the store lets them see")
def test_stuck_is_safe_beside_workers(world: World) -> None:
    hf = world.open()
    done = threading.Event()
    for n in range(50):
        hf.submit("agent", f"t{n}", start={})

    def save(run: Run) -> None:
        run.save()

    def work() -> None:
        hf.worker({"agent": save}).run(until_idle=True)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        list(hf.stuck(older_than=0))
    thread.join()
    assert list(hf.stuck(older_than=0)) == []


# -- claimed again and again -----------------------------------------------------------------------------------------


def die(
    world: World, later: Callable[[float], None], times: int, work: Callable[[Run], Any] = lambda run: None
) -> None:
    """Let a run be claimed so often, once in half an hour, by processes that die."""
    for _ in range(times):
        later(HOUR / 2)
        with world.dying("t", start={}) as run:
            work(run)


def test_a_crash_loop_is_stuck_since_its_last_checkpoint(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    hf.submit("agent", "t", start={})
    with world.dying("t", hf, start={}) as run:
        run.save()
    saved = time.time_ns() / 1e9
    die(world, later, 3)
    found = only(hf)
    assert abs(found.since.timestamp() - saved) < 60
    assert found.why == (
        "its process is gone, and no worker claims it (is a worker with handler 'agent' running?); "
        "attempt 4 without a checkpoint"
    )


def test_a_run_that_never_came_to_anything_is_stuck_since_its_first_claim(
    world: World, later: Callable[[float], None]
) -> None:
    hf = world.open()
    hf.submit("agent", "t", start={})
    later(HOUR * 5)
    started = time.time_ns() / 1e9 + HOUR / 2
    die(world, later, 3)
    assert abs(only(hf).since.timestamp() - started) < 60
    later(HOUR / 2)
    with world.running("t", hf, start={}, lease=86_400):
        assert only(hf).why == (
            "runs without a recorded call: inside a model call, a read, or its own code; attempt 4 without a checkpoint"
        )


def test_what_a_crash_loop_records_is_progress(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        pass
    die(world, later, 3)
    assert only(hf).thread == "t"
    die(world, later, 1, lambda run: run.model(lambda: "reply"))
    assert list(hf.stuck(older_than=HOUR)) == []
    die(world, later, 3, lambda run: run.model(lambda: "reply"))
    assert "attempt 7" in only(hf).why, "what is answered from the journal was recorded long ago"


def test_a_call_that_is_started_again_in_every_attempt_is_no_progress(
    world: World, later: Callable[[float], None]
) -> None:
    hf = world.open()

    @tool(effect="idempotent")
    def kills() -> None:
        stop = run_of[-1]
        world.kill(stop)

    run_of: list[Run] = []

    def work(run: Run) -> None:
        run_of.append(run)
        run.tool(kills, {}, key="k")

    with world.running("t", hf, start={}):
        pass
    die(world, later, 4, work)
    assert len([effect for effect in hf.effects("t") if effect.name == "kills"]) >= 1
    assert "attempt 4 without a checkpoint" in only(hf).why


def test_what_lay_idle_is_not_stuck_when_it_is_taken_up(world: World, later: Callable[[float], None]) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        pass
    later(HOUR * 100)
    with world.dying("t", hf):
        assert list(hf.stuck(older_than=HOUR)) == []
    with world.running("t", hf):
        assert list(hf.stuck(older_than=HOUR)) == [], "it was first claimed a moment ago"


def test_a_new_turn_of_an_old_thread_has_not_been_stuck_since_the_one_before(
    world: World, later: Callable[[float], None]
) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, turn="1", ends="completed") as run:
        run.finish()
    later(HOUR * 100)
    with world.dying("t", hf, turn="2"):
        pass
    with world.failing("t", ZeroDivisionError, hf, turn="2"):
        assert list(hf.stuck(older_than=HOUR)) == []
        raise ZeroDivisionError


def test_a_run_that_slept_on_a_later_attempt_is_not_stuck_when_it_wakes(
    world: World, later: Callable[[float], None]
) -> None:
    hf = world.open()
    with world.dying("t", hf, start={}):
        pass
    with world.running("t", hf, ends="waiting") as run:
        run.sleep(HOUR * 5)
    later(HOUR * 5 + 1)
    with world.running("t", hf) as run:
        assert run.attempt == 2
        assert list(hf.stuck(older_than=HOUR)) == []


def test_a_child_that_crashes_again_and_again_is_no_progress_of_its_parent(
    world: World, later: Callable[[float], None]
) -> None:
    hf = world.open()

    def work(run: Run) -> None:
        with run.child("c", start={}) as child:
            world.kill(child)

    with world.running("t", hf, start={}):
        pass
    die(world, later, 4, work)
    assert {found.thread for found in hf.stuck(older_than=HOUR)} == {"t", "t/c"}
