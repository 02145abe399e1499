"""What children did is what their parents did: rewinding past it, undoing it, giving it back."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Happened, Holdfast, NotDone, Run
from holdfast.errors import EffectsAhead
from tests.runs.conftest import World


class Bank:
    """What was charged and given back."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.keys: list[str] = []
        self.fault: Exception | None = None
        self.charge = holdfast.tool(effect="irreversible", undo=self._refund, name="charge")(self._charge)

    def _charge(self, card: str, idempotency_key: str) -> str:
        self.log.append(f"+{card}")
        self.keys.append(idempotency_key)
        if self.fault is not None:
            raise self.fault
        return f"receipt {len(self.log)}"

    def _refund(self, card: str) -> None:
        self.log.append(f"-{card}")


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def hf(world: World, bank: Bank) -> Holdfast:
    return world.open(bank.charge)


def pay(run: Run, name: str, *cards: str) -> Any:
    """What a child was given for its charges."""
    with run.child(name, start={}) as child:
        if child.status != "completed":
            child.finish([child.tool("charge", {"card": card}) for card in cards])
    return child.result


def pay_below(run: Run, *cards: str) -> Any:
    """The same, one generation further down."""
    with run.child("a", start={}) as child:
        if child.status != "completed":
            child.finish(pay(child, "b", *cards))
    return child.result


@pytest.mark.parametrize("work", [lambda run, card: pay(run, "a", card), pay_below])
def test_what_children_did_lies_ahead_too(world: World, hf: Holdfast, work: Any) -> None:
    with world.running("p", hf, start={}) as run:
        for card in "12":
            work(run, card)
            run.save()
    for checkpoint in ("@0", "@1"):
        with pytest.raises(EffectsAhead, match="charge"):
            hf.thread("p").rewind(checkpoint)
    assert [effect.name for effect in hf.undo("p", to="@1")] == ["charge"]
    assert hf.thread("p").rewind("@1").step == 1, "what it did before that is not ahead"
    with pytest.raises(EffectsAhead):
        hf.thread("p").rewind("@0")


def test_undoing_goes_through_parents_and_children_newest_first(world: World, hf: Holdfast, bank: Bank) -> None:
    with world.running("p", hf, start={}) as run:
        run.tool("charge", {"card": "1"})
        pay(run, "a", "2", "3")
        run.tool("charge", {"card": "4"})
        pay(run, "b", "5")
    bank.log.clear()
    assert [effect.arguments for effect in hf.undo("p", to="@0")] == [{"card": card} for card in "54321"]
    assert bank.log == ["-5", "-4", "-3", "-2", "-1"]
    assert hf.undo("p", to="@0") == []
    hf.thread("p").rewind("@0")


def test_nothing_is_undone_if_a_child_did_what_cannot_be(world: World, hf: Holdfast, bank: Bank) -> None:
    def ship() -> None: ...

    with world.running("p", hf, start={}) as run:
        run.tool("charge", {"card": "1"})
        with run.child("a", start={}, tools=[ship]) as child:
            child.tool("ship", {})
            child.finish()
    with pytest.raises(Conflict, match="ship"):
        hf.undo("p", to="@0")
    assert bank.log == ["+1"]


def test_a_child_whose_effects_were_undone_is_done_anew(world: World, hf: Holdfast, bank: Bank) -> None:
    with world.failing("p", ValueError, hf, start={}) as run:
        pay(run, "a", "1")
        raise ValueError
    hf.undo("p", to="@0")
    with world.running("p", hf) as run:
        assert pay(run, "a", "1") == ["receipt 3"]
    assert bank.log == ["+1", "-1", "+1"]
    assert len(set(bank.keys)) == 2
    with world.running("p", hf) as run:
        assert pay(run, "a", "1") == ["receipt 3"]


def test_a_child_that_failed_first_is_done_anew_too(world: World, hf: Holdfast, bank: Bank) -> None:
    with world.failing("p", ValueError, hf, start={}) as run:
        with pytest.raises(KeyError):
            pay_and_fail(run)
        assert pay(run, "a", "1") == ["receipt 1"]
        raise ValueError
    hf.undo("p", to="@0")
    with world.running("p", hf) as run:
        assert pay(run, "a", "1") == ["receipt 3"]


def pay_and_fail(run: Run) -> None:
    with run.child("a", start={}) as child:
        child.tool("charge", {"card": "1"})
        raise KeyError


def test_a_child_of_which_nothing_was_undone_is_not_done_again(world: World, bank: Bank) -> None:
    noted: list[int] = []

    def note() -> None:
        noted.append(1)

    hf = world.open(holdfast.tool(effect="idempotent")(note), bank.charge)
    with world.running("p", hf, start={}) as run:
        run.tool("charge", {"card": "1"})
        with run.child("a", start={}) as child:
            child.finish(child.tool("note", {}))
    assert len(hf.undo("p", to="@0")) == 1
    with world.running("p", hf) as run, run.child("a", start={}) as child:
        assert child.status == "completed"
    assert noted == [1]


@pytest.mark.parametrize("work", [lambda run, *cards: pay(run, "a", *cards), pay_below])
def test_what_children_of_an_abandoned_branch_did_is_given_back_once_each(
    world: World, hf: Holdfast, bank: Bank, work: Any
) -> None:
    result: Any = None
    for cards in (["1"], ["1"], ["1", "1", "2"]):
        with world.running("p", hf, start={}) as run:
            result = work(run, *cards)
            run.save()
        hf.thread("p").rewind("@0", past_effects=True)
    assert result == ["receipt 1", "receipt 2", "receipt 3"]
    assert bank.log == ["+1", "+1", "+2"]


def test_children_of_other_names_and_those_that_count_give_nothing(world: World, hf: Holdfast, bank: Bank) -> None:
    with world.running("p", hf, start={}) as run:
        pay(run, "a", "1")
        run.save()
        pay(run, "a", "2")
        run.save()
    hf.thread("p").rewind("@1", past_effects=True)
    with world.running("p", hf, effects="live") as run:  # else a person is asked about the other words
        assert pay(run, "a", "1", "2") == ["receipt 3", "receipt 2"]
        assert pay(run, "b", "2") == ["receipt 4"]


def test_what_was_given_back_to_a_child_can_be_undone_once(world: World, hf: Holdfast, bank: Bank) -> None:
    for _ in range(2):
        with world.running("p", hf, start={}) as run:
            pay(run, "a", "1")
            run.save()
        hf.thread("p").rewind("@0", past_effects=True)
    with world.running("p", hf) as run:
        assert pay(run, "a", "1") == ["receipt 1"]
    assert len(hf.undo("p", to="@0")) == 1
    hf.thread("p").rewind("@0")
    with world.running("p", hf) as run:
        assert pay(run, "a", "1") == ["receipt 3"]
    assert bank.log == ["+1", "-1", "+1"]


@pytest.mark.parametrize("rule", [{"probe": lambda card: NotDone()}, {"in_doubt": "rerun"}])
def test_what_is_in_doubt_in_a_child_of_an_abandoned_branch_is_asked_about(world: World, bank: Bank, rule: Any) -> None:
    bank.fault = ConnectionError()
    asks = holdfast.tool(effect="irreversible", name="charge")(bank._charge)
    with world.running("p", world.open(asks), start={}, ends="waiting") as run:
        pay(run, "a", "1")
    bank.fault = None
    hf = world.open(holdfast.tool(effect="irreversible", name="charge", **rule)(bank._charge))
    hf.thread("p").rewind("@0", past_effects=True)
    for _ in range(2):
        with world.running("p", hf, ends="waiting") as run:
            pay(run, "a", "1")
    assert bank.log == ["+1"]
    [question] = [question for question in hf.waiting() if question.thread == "p/a~1"]
    hf.settle("p/a~1", question.effect, Happened("paid"))
    with world.running("p", hf) as run:
        assert pay(run, "a", "1") == ["paid"]
    assert bank.log == ["+1"]
