"""Turns: requests on one thread, each idempotent by its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import EveryN, InvalidArgument, Run
from holdfast.errors import Unfinished
from holdfast.stores.contract import Claimed, Store
from holdfast.stores.contract_runs import ClaimLimit, RunRow
from tests.runs.conftest import World
from tests.selection import every_store


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


# -- the input of a turn after a rewind -----------------------------------------------------------------------------


def long_turn(world: World, turn_id: str | None, text: str, *, steps: int = 3, is_failing: bool = False) -> None:
    """A turn that saves its input and one message per step: `text`, `text 1`, `text 2` …"""
    with world.open().run("t", start={"messages": []}, turn=turn_id, policy=EveryN(1)) as run:
        if run.fresh:
            run.state["messages"].append(text)
        first = run.state["messages"].index(text)
        for _ in run.steps():
            run.state["messages"].append(f"{text} {len(run.state['messages']) - first}")
            if len(run.state["messages"]) - first > steps:
                if is_failing:
                    raise ZeroDivisionError
                run.finish()


def rewind(world: World, messages: list[str]) -> None:
    """Rewind to the newest checkpoint with these messages, on any branch."""
    thread = world.open().thread("t")
    thread.rewind(next(each.id for each in thread.history() if thread.load(each.id).state["messages"] == messages))


A, B = ["a", "a 1", "a 2", "a 3"], ["b", "b 1", "b 2", "b 3"]


@every_store("the record of a run is written anew after a rewind")
@pytest.mark.parametrize("turn_id", ["r1", None])
@pytest.mark.parametrize("is_failing", [True, False], ids=["failed", "completed"])
def test_input_is_put_in_once_after_a_rewind_into_its_turn(world: World, turn_id: str | None, is_failing: bool) -> None:
    for target in (A[:2], A[:3], []):
        if is_failing:
            with pytest.raises(ZeroDivisionError):
                long_turn(world, turn_id, "a", is_failing=True)
        else:
            long_turn(world, turn_id, "a")
        rewind(world, target)
        with world.open().run("t", turn=turn_id) as run:
            assert run.fresh == (target == [])
        long_turn(world, turn_id, "a")
        assert messages(world) == A
        world.open().thread("t").drop()


@every_store("the record of a run is written anew after a rewind")
def test_a_rewind_to_before_a_turn_or_to_an_abandoned_branch(world: World) -> None:
    long_turn(world, "r1", "a")
    with pytest.raises(ZeroDivisionError):
        long_turn(world, "r2", "b", is_failing=True)
    rewind(world, A[:2])  # before the turn: its input is added there
    with pytest.raises(ZeroDivisionError):
        long_turn(world, "r2", "b", is_failing=True)
    assert messages(world) == [*A[:2], *B[:3]]
    rewind(world, A)  # abandoned, and also before the turn
    with pytest.raises(ZeroDivisionError):
        long_turn(world, "r2", "b", steps=2, is_failing=True)
    rewind(world, [*A, *B[:3]])  # abandoned, and in the turn
    long_turn(world, "r2", "b")
    assert messages(world) == [*A, *B]


@every_store("the record of a run is written anew after a rewind")
def test_another_turn_after_a_rewind_adds_its_own_input(world: World) -> None:
    long_turn(world, "r1", "a")
    rewind(world, A[:3])
    long_turn(world, "r2", "b")
    assert messages(world) == [*A[:3], *B]


class Interposed:
    """A store before whose first claim something else happens."""

    def __init__(self, store: Store, meanwhile: Callable[[], object]) -> None:
        self._store = store
        self._meanwhile: Callable[[], object] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> Claimed:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._store.claim(expect, row, limit)


@every_store("two writers meet in the store")
def test_a_rewind_just_before_the_claim(world: World) -> None:
    for target, is_fresh in ((A[:2], False), ([], True)):
        with pytest.raises(ZeroDivisionError):
            long_turn(world, "r1", "a", is_failing=True)

        def interposed(opened: Store, target: list[str] = target) -> Any:
            return Interposed(opened, lambda: rewind(world, target))

        with world.running("t", world.open(store=interposed), turn="r1") as run:
            assert (run.state["messages"], run.fresh) == (target, is_fresh)
        world.open().thread("t").drop()


@every_store("two writers meet in the store")
def test_a_save_just_before_the_claim_does_not_take_the_input_of_a_new_turn(world: World) -> None:
    long_turn(world, "r1", "a")
    state = {"messages": [*A, "noted"]}
    hf = world.open(store=lambda store: Interposed(store, lambda: world.open().thread("t").save(state)))
    with world.dying("t", hf, turn="r2") as run:
        assert (run.state, run.fresh) == (state, True)
    with world.running("t", turn="r2") as run:
        assert (run.state, run.fresh) == (state, True)


def test_a_turn_is_named_by_a_text(world: World) -> None:
    wrong: Any
    for wrong in ("", 5, b"x"):
        with pytest.raises(InvalidArgument):
            world.open().run("t", start={}, turn=wrong)
