"""An irreversible call in other words, after a rewind or a turn that did not complete: a person is asked first."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, NotDone, Run
from tests.runs.conftest import World


class Bank:
    def __init__(self) -> None:
        self.paid: list[str] = []
        self.pay = holdfast.tool(effect="irreversible", name="pay")(self._pay)

    def _pay(self, invoice: str, note: str) -> str:
        self.paid.append(note)
        return f"receipt {len(self.paid)}"


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def hf(world: World, bank: Bank) -> Holdfast:
    return world.open(bank.pay)


def pay(run: Run, *notes: str) -> Any:
    result = None
    for step in run.steps():
        if step > len(notes):
            break
        result = run.tool("pay", {"invoice": "A-17", "note": notes[step - 1]})
    return result


def rewound(world: World, hf: Holdfast, *notes: str) -> None:
    with world.running("t", hf, start={"n": 0}) as run:
        pay(run, *notes)
    hf.thread("t").rewind("@0", past_effects=True)


def allow(hf: Holdfast) -> None:
    [asked] = [each for each in hf.effects("t") if each.status == "asked"]
    hf.settle("t", asked, NotDone())


def reason(hf: Holdfast) -> str:
    found = hf.run_info("t")
    return "" if found is None else found.reason or ""


def test_a_reworded_call_after_a_rewind_asks_first(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "first")
    for _ in range(2):  # resumed without an answer, it asks again
        with world.running("t", hf, ends="waiting") as run:
            pay(run, "second")
        assert bank.paid == ["first"]
        assert '"note":"first"' in reason(hf)
        assert '"note":"second"' in reason(hf)
        assert "call 1" in reason(hf)
    allow(hf)
    with world.running("t", hf) as run:
        assert pay(run, "second", "third") == "receipt 3"
    assert bank.paid == ["first", "second", "third"], "each earlier call is asked about once"


def test_the_same_call_is_answered_and_then_a_new_one_is_new(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "first")
    with world.running("t", hf) as run:
        pay(run, "first", "second")
    assert bank.paid == ["first", "second"]


def test_each_of_several_earlier_calls_is_asked_about(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "first", "second")
    for number in (1, 2):
        with world.running("t", hf, ends="waiting") as run:
            pay(run, "third", "fourth", "fifth")
        assert f'"note":"{("first", "second")[number - 1]}"' in reason(hf)
        assert len(bank.paid) == 1 + number
        allow(hf)
    with world.running("t", hf) as run:
        pay(run, "third", "fourth", "fifth")
    assert bank.paid == ["first", "second", "third", "fourth", "fifth"]


def test_live_says_that_one_means_it(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "first")
    with world.running("t", hf, ends="waiting") as run:
        pay(run, "second")
    with world.running("t", hf, effects="live") as run:
        pay(run, "second")
    assert bank.paid == ["first", "second"]


def test_another_tool_is_not_asked_about(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "first")
    other = Bank()
    mail = holdfast.tool(effect="irreversible", name="mail")(other._pay)
    with world.running("t", world.open(mail)) as run:
        for _ in run.steps():
            run.tool("mail", {"invoice": "A-17", "note": "second"})
            break
    assert other.paid == ["second"]


@pytest.mark.parametrize("note", ["first", "second"])
def test_a_new_turn_after_a_cancelled_one_asks_first(world: World, hf: Holdfast, bank: Bank, note: str) -> None:
    with world.failing("t", holdfast.Cancelled, hf, start={"n": 0}, turn="1") as run:
        pay(run, "first")
        hf.cancel("t", "stop")
        run.tool("pay", {"invoice": "A-18", "note": ""})
    with world.running("t", hf, turn="2", ends="waiting") as run:
        pay(run, "", note)
    assert bank.paid == ["first"]
    assert "did not complete" in reason(hf)
    allow(hf)
    with world.running("t", hf, turn="2", ends="completed") as run:
        for _ in run.steps():
            run.tool("pay", {"invoice": "A-17", "note": note})
            run.tool("pay", {"invoice": "A-19", "note": "third"})
            run.finish(None)
    assert bank.paid == ["first", note, "third"]
    with world.running("t", hf, turn="3", ends="completed") as run:
        for _ in run.steps():
            run.tool("pay", {"invoice": "A-20", "note": "fourth"})
            run.finish(None)
            break


def test_a_new_turn_after_one_that_completed_asks_nothing(world: World, hf: Holdfast, bank: Bank) -> None:
    for turn in ("1", "2", "3"):
        with world.running("t", hf, start={"n": 0}, turn=turn, ends="completed") as run:
            for _ in run.steps():
                run.tool("pay", {"invoice": "A-17", "note": turn})
                run.finish(None)
                break
    assert bank.paid == ["1", "2", "3"]
