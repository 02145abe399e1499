"""Turns: requests on one thread, each idempotent by its id."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import InvalidArgument, Run
from holdfast.errors import Unfinished
from tests.runs.conftest import World


def chat_model(run: Run, text: str, replies: list[str]) -> str:
    def model() -> str:
        replies.append(text)
        return f"reply to {text}"

    return str(run.model(model))


def chat(run: Run, text: str, replies: list[str]) -> None:
    """One turn of a conversation."""
    if run.fresh:
        run.state["messages"].append(text)
    for _ in run.steps():
        reply = chat_model(run, text, replies)
        run.state["messages"].append(reply)
        run.finish(reply)


def turn(world: World, turn_id: str, text: str, replies: list[str]) -> Any:
    with world.open().run("t", start={"messages": []}, turn=turn_id) as run:
        if run.status != "completed":
            chat(run, text, replies)
    return run.result


def messages(world: World) -> Any:
    latest = world.open().thread("t").latest()
    assert latest is not None
    return latest.state["messages"]


def test_turns_follow_each_other_on_one_thread(world: World) -> None:
    replies: list[str] = []
    assert turn(world, "r1", "a", replies) == "reply to a"
    assert turn(world, "r2", "b", replies) == "reply to b"
    assert messages(world) == ["a", "reply to a", "b", "reply to b"]


def test_a_request_that_is_sent_again_gets_its_result_again(world: World) -> None:
    replies: list[str] = []
    for turn_id, text in (("r1", "a"), ("r1", "a"), ("r2", "b"), ("r1", "a"), ("r2", "b"), ("r3", "c"), ("r1", "a")):
        assert turn(world, turn_id, text, replies) == f"reply to {text}"
    assert replies == ["a", "b", "c"]
    assert messages(world) == ["a", "reply to a", "b", "reply to b", "c", "reply to c"]


def test_a_turn_that_died_is_resumed_by_its_id(world: World) -> None:
    replies: list[str] = []
    turn(world, "r1", "a", replies)
    with world.dying("t", turn="r2") as run:
        assert run.fresh
        run.state["messages"].append("b")
        chat_model(run, "b", replies)
    assert turn(world, "r2", "b", replies) == "reply to b"
    assert replies == ["a", "b"]
    assert messages(world) == ["a", "reply to a", "b", "reply to b"]


def test_input_is_put_in_once_wherever_the_process_dies(world: World) -> None:
    replies: list[str] = []
    turn(world, "r1", "a", replies)
    with world.dying("t", turn="r2") as run:
        run.state["messages"].append("b")
        run.save()
        assert not run.fresh
    with world.running("t", turn="r2") as run:
        assert (run.fresh, run.resumed) == (False, True)
        assert run.state["messages"] == ["a", "reply to a", "b"]


@pytest.mark.parametrize("how", ["died", "failed", "idle", "waiting"])
def test_another_turn_has_to_wait_for_one_that_is_not_finished(world: World, how: str) -> None:
    replies: list[str] = []
    turn(world, "r1", "a", replies)
    if how == "died":
        with world.dying("t", turn="r2"):
            pass
    elif how == "failed":
        with world.failing("t", ZeroDivisionError, turn="r2"):
            raise ZeroDivisionError
    else:
        with world.running("t", turn="r2", ends=how) as run:
            if how == "waiting":
                run.wait("approve")
    with pytest.raises(Unfinished, match="r2") as refused:
        turn(world, "r3", "c", replies)
    assert refused.value.turn == "r2"
    assert turn(world, "r1", "a", replies) == "reply to a", "what is done is done"
    if how != "waiting":
        assert turn(world, "r2", "b", replies) == "reply to b"
        assert turn(world, "r3", "c", replies) == "reply to c"


def test_without_a_turn_a_run_resumes_whatever_is_unfinished(world: World) -> None:
    with world.dying("t", start={"messages": []}, turn="r1"):
        pass
    with world.running("t") as run:
        assert run.resumed
    with world.running("u", start={}):
        pass
    with pytest.raises(Unfinished, match="without a turn"):
        world.open().run("u", turn="r1").__enter__()


def test_a_cancelled_turn_makes_way_and_leaves_nothing_open(world: World) -> None:
    """The next turn begins at the same step: it must not be answered with what the cancelled one was."""
    replies: list[str] = []
    hf = world.open()
    turn(world, "r1", "a", replies)
    with world.running("t", hf, turn="r2") as run:
        run.model(lambda: "reply to b")
    hf.cancel("t", "never mind")
    assert turn(world, "r3", "c", replies) == "reply to c"
    assert messages(world) == ["a", "reply to a", "c", "reply to c"]


def test_a_turn_that_was_rewound_is_done_anew(world: World) -> None:
    replies: list[str] = []
    turn(world, "r1", "a", replies)
    turn(world, "r2", "b", replies)
    turn(world, "r3", "c", replies)
    hf = world.open()
    thread = hf.thread("t")
    [_, second, _, _] = list(thread.history())
    thread.latest()
    thread.rewind(second.id)
    assert turn(world, "r1", "a", replies) == "reply to a"
    assert turn(world, "r2", "b", replies) == "reply to b"
    assert replies == ["a", "b", "c"]
    assert turn(world, "r3", "c", replies) == "reply to c"
    assert replies == ["a", "b", "c", "c"]


def test_a_turn_is_named_by_a_text(world: World) -> None:
    wrong: Any
    for wrong in ("", 5, b"x"):
        with pytest.raises(InvalidArgument):
            world.open().run("t", start={}, turn=wrong)
