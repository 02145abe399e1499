"""What a resume would do now, told before anybody does it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import EveryN, Retry, ToolNotDone
from holdfast.errors import HoldfastError, Unsupported, WaitTimedOut
from holdfast.inspect import RecoveryPlan, recovery
from tests.inspect.conftest import post, reply, started, work
from tests.runs.conftest import World


def bare(command: str | None) -> str:
    """A command without the address of its store."""
    assert command is not None
    return re.sub(r" --store (\S+)", "", command)


def plan(world: World, thread: str, *tools: object) -> RecoveryPlan:
    found = recovery(world.open(*tools), thread)  # type: ignore[arg-type] # tools are functions
    assert found is not None
    return found


def test_a_thread_without_a_run(world: World) -> None:
    world.open().thread("plain").save({})
    assert recovery(world.open(), "plain") is None


def test_an_interrupted_run(world: World) -> None:
    started(world)
    found = plan(world, "shop", post)
    assert found.status == "interrupted"
    assert found.can_resume
    assert [(each.call.name, each.does) for each in found.calls] == [
        ("reply", "answered"),
        ("look_up", "answered"),
        ("post", "decide"),
    ]
    assert (found.answered, found.again, found.needed) == (2, 0, 1)
    number = found.calls[2].call.number
    assert [bare(each) for each in found.calls[2].commands] == [
        f"holdfast settle shop {number} --happened RESULT",
        f"holdfast settle shop {number} --not-done",
        f"holdfast settle shop {number} --give-up",
    ]
    assert bare(found.command) == "holdfast resume APP shop"
    assert found.lost == ()
    assert found.code == "with hf.run('shop') as run:"
    assert found.summary == ("continues after step 2; 2 calls replayed; 1 decision needed first")


def test_what_is_said_comes_true(world: World) -> None:
    started(world)
    found = plan(world, "shop", post)
    assert [each.does for each in found.calls] == ["answered", "answered", "decide"]
    made: list[str] = []

    @holdfast.tool(effect="read", name="look_up")
    def counted(item: str) -> None:
        made.append(item)

    with world.open(post).run("shop") as run:
        for step in run.steps():
            run.model(reply, step)
            run.tool(counted, {"item": "ink"}, key="call_0")
            made.append(f"step {step}")
            run.tool(post, {"letter": "Dear Sir"}, key="p")
            made.append("posted")
    assert made == ["step 3"]
    assert run.status == "waiting"


def test_the_tool_decides_what_is_done_in_doubt(world: World) -> None:
    started(world)
    for how, does in (("give_up", "answered"), ("rerun", "again"), ("ask", "decide")):
        tool = holdfast.tool(effect="irreversible", in_doubt=how, name="post")(lambda letter: None)  # type: ignore[call-overload] # one of a Literal
        assert [each.does for each in plan(world, "shop", tool).calls][-1] == does
    probed = holdfast.tool(probe=lambda letter: None, name="post")(lambda letter: None)
    last = plan(world, "shop", probed).calls[-1]
    assert (last.does, last.why) == (
        "again",
        "outcome unknown; the probe checks whether it happened, and it is called if not",
    )
    assert plan(world, "shop").calls[-1].does == "decide"  # nobody knows the tool


def test_a_run_that_asks(world: World) -> None:
    with world.open().run("invoice 7", start={}) as run:
        run.wait("approve it", 3)
    found = plan(world, "invoice 7")
    assert found.status == "waiting"
    [asked] = found.calls
    assert (asked.does, *map(bare, asked.commands)) == ("wait", "holdfast answer 'invoice 7' 'approve it' VALUE")
    assert found.needed == 1


def test_a_run_that_sleeps_needs_nobody(world: World) -> None:
    with world.open().run("sleeps", start={}) as run:
        run.sleep(60)
    found = plan(world, "sleeps")
    assert [(each.does, each.commands) for each in found.calls] == [("wait", ())]
    assert found.needed == 0


def test_a_completed_run_and_one_that_is_held(world: World) -> None:
    with world.open().run("done", start={"messages": []}) as run:
        work(run, 1)
        run.finish()
    found = plan(world, "done")
    assert (found.can_resume, found.why_not, found.calls) == (False, "the run is completed", ())
    with world.running("held", start={}):
        found = plan(world, "held")
        assert not found.can_resume
        assert found.why_not == "held by process 1 on here"


def test_version_and_turn_are_in_the_code(world: World) -> None:
    with world.open().run("chat", start={}, version="2", turn="request-1"):
        pass
    found = plan(world, "chat")
    assert found.code == "with hf.run('chat', version='2', turn='request-1') as run:"
    assert found.summary.endswith("needs version 2")


def test_a_failure_after_which_the_process_died_is_not_raised_again(world: World) -> None:
    def fail() -> None:
        raise ConnectionError

    with world.dying("t", start={}) as run, suppress(ConnectionError):
        try:
            run.model(fail)
        finally:
            run.core.calls().context.journal.flush()
    with world.dying("t") as run:
        run.model(reply, 1, key="another")  # before the failed call is made again
    found = plan(world, "t")
    assert [(each.call.status, each.does) for each in found.calls] == [("failed", "again"), ("done", "answered")]


def test_how_other_failures_are_answered(world: World) -> None:
    @holdfast.tool(effect="irreversible", name="pay")
    def pay() -> None:
        raise ToolNotDone("busy")

    def program(run: holdfast.Run) -> None:
        with suppress(ToolNotDone):
            run.tool(pay)
        with suppress(WaitTimedOut):
            run.wait("ready", timeout=1)
        run.model(reply, 1)

    with world.running("t", start={}, ends="waiting") as run:
        program(run)
    world.pass_time(2)
    with world.dying("t") as run:
        program(run)
    found = plan(world, "t")
    assert [(each.call.status, each.does) for each in found.calls] == [
        ("not_done", "answered"),
        ("failed", "answered"),
        ("done", "answered"),
    ]
    assert [each.why for each in found.calls[:2]] == [
        "the program continued after the error, so the error is raised again",
        "it was not answered in time, and WaitTimedOut is raised again",
    ]


def test_a_failure_that_ended_the_run_is_made_again(world: World) -> None:
    def fail() -> None:
        raise ConnectionError

    with world.failing("t", ConnectionError, start={}) as run:
        try:
            run.model(fail)
        except ConnectionError:
            run.model(reply, 1, key="another")
            raise
    found = plan(world, "t")
    assert [(each.call.status, each.does) for each in found.calls] == [("failed", "again"), ("done", "answered")]


def test_a_failure_that_the_program_went_on_from_is_raised_again(world: World) -> None:
    def fail() -> None:
        raise ConnectionError("busy")

    with world.open().run("failed", start={}) as run:
        with suppress(ConnectionError):
            run.model(fail, key="first")
        run.model(lambda: "another model", key="second")
    found = plan(world, "failed")
    assert [(each.call.status, each.does) for each in found.calls] == [("failed", "answered"), ("done", "answered")]
    with world.failing("last", ConnectionError, start={}) as run:
        run.model(fail)
    assert plan(world, "last").calls == ()  # nothing came after it: it is made again


@pytest.mark.parametrize("in_doubt", ["rerun", "give_up", "ask"])
def test_a_result_that_could_not_be_stored_needs_a_decision(world: World, in_doubt: Any) -> None:
    made: list[int] = []

    @holdfast.tool(effect="irreversible", in_doubt=in_doubt, name="post")
    def send() -> Any:
        made.append(1)
        return object()

    with pytest.raises(Unsupported), world.open(send).run("t", start={}) as run:
        run.tool(send)
    found = plan(world, "t", send)
    [call] = found.calls
    assert (call.does, call.why) == (
        "decide",
        "It happened, and its result could not be stored. What was the result?",
    )
    assert (found.needed, found.again, found.answered) == (1, 0, 0)
    with pytest.raises(HoldfastError, match="Settle call 1"), world.open(send).run("t") as run:
        run.tool(send)
    assert made == [1]


def test_a_child_that_failed_is_resumed(world: World) -> None:
    made: list[int] = []

    def program(run: holdfast.Run, *, fails: bool) -> None:
        with run.child("c", start={}) as child:
            child.model(lambda: made.append(1))
            if fails:
                raise ConnectionError
            child.finish()

    with world.failing("t", ConnectionError, start={}) as run:
        try:
            program(run, fails=True)
        finally:
            run.core.calls().context.journal.flush()
    [call] = plan(world, "t").calls
    assert (call.call.status, call.does) == ("failed", "child")
    with world.open().run("t") as run:
        program(run, fails=False)
    assert made == [1]


@pytest.mark.parametrize("error", [ConnectionError("busy"), ToolNotDone("busy")])
def test_a_call_that_waits_for_its_retry_is_made_again_and_when(world: World, error: Exception) -> None:
    made: list[int] = []

    @holdfast.tool(effect="idempotent", name="send", retry=Retry(2, first=60, factor=1))
    def send() -> None:
        made.append(1)
        if len(made) < 3:
            raise error

    for times in ("once", "2 times"):
        with world.running("t", world.open(send), ends="waiting", start={} if times == "once" else None) as run:
            run.tool(send)
        found = plan(world, "t", send)
        [call] = found.calls
        assert call.does == "again"
        assert found.due is not None
        assert re.fullmatch(rf"it failed {times}, and is called again at {found.due:%Y-%m-%d %H:}..:.. UTC", call.why)
        assert found.needed == 0
        world.pass_time(300)
        assert plan(world, "t", send).calls[0].why == f"it failed {times}, and is called again at once"
    with world.running("t", world.open(send)) as run:
        run.tool(send)
    assert len(made) == 3


def test_calls_outside_of_steps_are_replayed_although_their_step_is_closed(world: World) -> None:
    made: list[str] = []

    def busy() -> None:
        made.append("busy")
        raise ConnectionError

    def program(run: holdfast.Run, last: int) -> None:
        run.model(lambda: made.append("outline"), key="outline")
        with suppress(ConnectionError):
            run.model(busy, key="busy")
        run.tool(post_again, {"letter": "Dear Sir"}, key="p")
        for step in run.steps():
            run.model(lambda: made.append("inside"), key="inside")
            if step == last:
                break

    @holdfast.tool(effect="irreversible", name="post")
    def post_again(letter: str) -> None:
        made.append("post")

    with world.dying("t", world.open(post_again), start={"messages": []}, policy=EveryN(1)) as run:
        program(run, 3)
    before = [*made]
    found = plan(world, "t", post_again)
    assert found.step == 2
    outside = "made outside of steps, for the whole turn: "
    assert [(each.call.kind, each.call.status, each.call.step, each.does, each.why) for each in found.calls] == [
        ("model", "done", 1, "answered", f"{outside}its result is recorded"),
        ("model", "failed", 1, "answered", f"{outside}its error is recorded, and raised again"),
        ("irreversible", "done", 1, "answered", f"{outside}its result is recorded"),
        ("model", "done", 3, "answered", "its result is recorded"),
    ]
    assert (found.answered, found.again, found.needed) == (4, 0, 0)
    assert found.summary.startswith("continues after step 2; 4 calls replayed")
    with world.open(post_again).run("t", policy=EveryN(1)) as run:
        program(run, 3)
    assert made == before

    with world.dying("t", world.open(post_again), policy=EveryN(1)) as run:
        program(run, 4)
        run.finish()
    made.clear()
    with world.dying("t", world.open(post_again), turn="next", policy=EveryN(1)) as run:
        pass
    assert plan(world, "t", post_again).calls == ()


def test_a_call_outside_of_steps_that_was_undone_is_not_replayed(world: World) -> None:
    undone: list[str] = []

    @holdfast.tool(effect="irreversible", name="book", undo=lambda letter, result: undone.append(letter))
    def book(letter: str) -> None:
        pass

    hf = world.open(book)
    with world.dying("t", hf, start={"messages": []}, policy=EveryN(1)) as run:
        run.tool(book, {"letter": "Dear Sir"}, key="p")
        for step in run.steps():
            if step == 3:
                break
    [call] = plan(world, "t", book).calls
    assert call.does == "answered"
    hf.undo("t", to="@0")
    assert (undone, plan(world, "t", book).calls) == (["Dear Sir"], ())
