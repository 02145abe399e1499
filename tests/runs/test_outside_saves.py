"""thread.save on a thread whose run is unfinished: it does not drop calls that the run has recorded."""

from __future__ import annotations

from contextlib import suppress

import pytest

import holdfast
from holdfast import ANY, Conflict, Happened, Holdfast, ToolNotDone
from holdfast.errors import EffectsAhead
from holdfast.threads.save import Expectation
from tests.runs.conftest import World
from tests.runs.till import Till


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def hf(world: World, till: Till) -> Holdfast:
    return world.open(till.pay, till.note)


@pytest.mark.parametrize("expect", [None, ANY], ids=["seen", "any"])
def test_a_save_does_not_drop_a_recorded_payment(
    world: World, hf: Holdfast, till: Till, expect: Expectation | None
) -> None:
    with world.dying("t", hf, start={}) as run:
        run.tool("pay", {"card": "a"})
    with pytest.raises(EffectsAhead, match="pay"):
        hf.thread("t").save({"edited": 1}, expect=expect)
    assert hf.thread("t").count() == 1
    with world.running("t", hf) as run:
        assert run.tool("pay", {"card": "a"}) == "receipt 1"
    assert till.paid == ["a"]


def test_a_save_can_be_insisted_on(world: World, hf: Holdfast, till: Till) -> None:
    with world.dying("t", hf, start={}) as run:
        run.tool("pay", {"card": "a"})
    hf.thread("t").save({"receipt": 1}, past_effects=True)
    with world.running("t", hf, ends="completed") as run:
        assert run.state == {"receipt": 1}
        run.finish()
    assert till.paid == ["a"]


@pytest.mark.parametrize("status", ["idle", "failed", "halted", "waiting"])
def test_a_save_does_not_drop_it_in_any_status(world: World, hf: Holdfast, status: str) -> None:
    with suppress(ValueError), hf.run("t", start={}) as run:
        run.tool("pay", {"card": "a"})
        if status == "failed":
            raise ValueError
        if status == "halted":
            run.halt("enough")
        if status == "waiting":
            run.wait("approval")
    info = hf.run_info("t")
    assert info is not None
    assert info.status == status
    with pytest.raises(EffectsAhead):
        hf.thread("t").save({})


def test_what_was_saved_by_the_run_and_will_be_asked_for_again_is_not_dropped(world: World, hf: Holdfast) -> None:
    with world.dying("t", hf, start={}) as run:
        run.tool("pay", {"card": "a"})
        run.save()
    with pytest.raises(EffectsAhead):
        hf.thread("t").save({})


def test_a_save_that_drops_no_payment_is_not_refused(world: World, hf: Holdfast, till: Till) -> None:
    with world.running("t", hf, start={}) as run:
        for step in run.steps():
            if step == 2:
                break
            run.tool("pay", {"card": "a"})
        run.model(lambda: "reply")
        run.tool("note", {})
        with pytest.raises(ToolNotDone):
            run.tool("pay", {"card": "refused"})
    hf.thread("t").save({"edited": 1})
    with world.running("t", hf, ends="completed") as run:
        run.tool("pay", {"card": "b"})
        run.finish()
    hf.thread("t").save({"edited": 2})
    assert till.paid == ["a", "refused", "b"]


def test_a_call_of_an_earlier_turn_does_not_count(world: World, hf: Holdfast) -> None:
    with world.running("t", hf, start={}, turn="1", ends="halted") as run:
        run.tool("pay", {"card": "a"})
        run.halt("enough")
    with world.running("t", hf, turn="2"):
        pass
    hf.thread("t").save({})


def test_a_call_of_a_child_counts(world: World, hf: Holdfast) -> None:
    with world.running("t", hf, start={}) as run, run.child("c", start={}) as child:
        child.tool("pay", {"card": "a"})
        child.finish()
    with pytest.raises(EffectsAhead, match="pay"):
        hf.thread("t").save({})


def test_a_payment_that_was_undone_does_not_count(world: World) -> None:
    @holdfast.tool(undo=lambda: None)
    def pay() -> str:
        return "receipt"

    hf = world.open(pay)
    with world.dying("t", hf, start={}) as run:
        run.tool(pay, {})
    hf.undo("t", to="@0")
    hf.thread("t").save({})


def test_a_payment_in_doubt_counts(world: World, hf: Holdfast) -> None:
    def pay() -> None:
        raise TimeoutError

    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool(pay, {})
    with pytest.raises(EffectsAhead):
        hf.thread("t").save({})
    [question] = hf.waiting()
    hf.settle("t", question.effect, Happened())
    with pytest.raises(EffectsAhead):
        hf.thread("t").save({})


def test_a_payment_that_is_made_while_the_journal_is_read_is_not_missed(
    world: World, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = hf.thread("t")
    with world.running("t", hf, start={}) as run:
        run.model(lambda: "reply")
    thread.latest()
    store, last_entry = hf.context.store, hf.context.store.last_entry

    def slow(number: int) -> int:
        monkeypatch.setattr(store, "last_entry", last_entry)
        seen = last_entry(number)
        with world.running("t") as other:
            other.tool(lambda: "receipt", {})
        return seen

    monkeypatch.setattr(store, "last_entry", slow)
    with pytest.raises(Conflict):
        thread.save({})
    assert thread.count() == 1
