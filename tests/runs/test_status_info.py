"""What is told of a run from outside: its status and why, also by a process that never ran it."""

from __future__ import annotations

import pytest

from holdfast import NotFound
from tests.covers import covers
from tests.runs.conftest import World


@covers("ares/LoopAction.HaltAgent", "continuum/CrashRecovery.mark_session_terminated", "continuum/AgentState.stopped")
@covers("cortex/DurableExecution.state", "cortex/ExecutionState.execution_id")
def test_a_halted_run_says_why_to_everybody(world: World) -> None:
    with world.open().run("t", start={"n": 0}) as run:
        run.halt("it went in circles")
    told = world.open().run_info("t")
    assert told is not None
    assert (told.thread, told.status, told.interrupted) == ("t", "halted", False)
    assert "it went in circles" in (told.reason or "")


@covers("continuum/CrashRecovery.mark_session_terminated", "continuum/AgentState.error")
@covers("continuum/ErrorCategory.System", "cortex/ExecutionState.is_failed")
def test_a_failed_run_says_why(world: World) -> None:
    with pytest.raises(ValueError, match="broken"), world.open().run("t", start={"n": 0}, version="2"):
        raise ValueError("broken")
    told = world.open().run_info("t")
    assert told is not None
    assert (told.status, told.version) == ("failed", "2")
    assert "broken" in (told.reason or "")


@covers("continuum/AgentState.running", "continuum/CrashRecovery.mark_session_active", "cortex/ExecutionStatus.Running")
@covers("cortex/GraphStatus")
def test_a_run_whose_process_is_gone_is_interrupted(world: World) -> None:
    with world.open().run("t", start={"n": 0}, turn="first") as run:
        told = world.open().run_info("t")
        assert told is not None
        assert (told.status, told.interrupted, told.turn) == ("running", False, "first")
        run.finish()
    with world.dying("u", start={"n": 0}):
        pass
    told = world.open().run_info("u")
    assert told is not None
    assert (told.status, told.interrupted, told.attempt) == ("running", True, 1)


def test_run_info_and_the_list_agree_about_what_is_interrupted(world: World) -> None:
    """A failed child is left to its parent, so neither calls it interrupted."""
    hf = world.open()
    with world.failing("p", ZeroDivisionError, hf, start={}) as run, run.child("a", start={}):
        raise ZeroDivisionError
    with world.dying("q", start={}) as run, run.child("a", start={}) as child:
        world.kill(child)
    told = [hf.run_info(thread) for thread in ("p", "p/a", "q", "q/a")]
    assert [info is not None and info.status for info in told] == ["failed", "failed", "running", "running"]
    listed = {found.thread for found in hf.interrupted()}
    assert listed == {"p", "q", "q/a"}
    assert {info.thread for info in told if info is not None and info.interrupted} == listed


def test_a_thread_without_a_run_has_none_and_there_must_be_a_thread(world: World) -> None:
    hf = world.open()
    hf.thread("t").save({"n": 1})
    assert hf.run_info("t") is None
    with pytest.raises(NotFound):
        hf.run_info("no such thread")
