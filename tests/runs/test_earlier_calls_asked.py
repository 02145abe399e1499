"""The earlier calls that a question shows, and until when a call of an unfinished turn is asked about."""

from __future__ import annotations

import holdfast
from holdfast import Holdfast, NotDone
from tests.runs.conftest import World
from tests.runs.test_earlier_calls_reworded import Bank, allow, bank, hf, pay, reason, rewound

__all__ = ["bank", "hf"]


def test_a_question_shows_every_earlier_call(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "rent", "tax")
    for number in (1, 2):
        with world.running("t", hf, ends="waiting") as run:
            pay(run, "the tax of May", "the rent of May")
        assert '"note":"rent"' in reason(hf)
        assert '"note":"tax"' in reason(hf)
        assert len(bank.paid) == 1 + number
        allow(hf)


def test_a_question_shows_the_newest_of_many_earlier_calls(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, *(f"bill {number}" for number in range(9)))
    with world.running("t", hf, ends="waiting") as run:
        pay(run, "another")
    shown = [number for number in range(9) if f'"note":"bill {number}"' in reason(hf)]
    assert shown == [4, 5, 6, 7, 8]
    assert "4 more" in reason(hf)


def test_a_live_call_does_not_answer_the_question(world: World, hf: Holdfast, bank: Bank) -> None:
    rewound(world, hf, "rent")
    with world.running("t", hf, effects="live") as run:
        pay(run, "flowers")
    with world.running("t", hf, ends="waiting") as run:
        pay(run, "", "the rent of May")
    assert bank.paid == ["rent", "flowers"]
    allow(hf)
    with world.running("t", hf) as run:
        pay(run, "", "the rent of May", "something new")
    assert bank.paid == ["rent", "flowers", "the rent of May", "something new"]


def test_a_turn_that_completed_does_not_hide_one_that_did_not(world: World, hf: Holdfast, bank: Bank) -> None:
    with world.failing("t", holdfast.Cancelled, hf, start={"n": 0}, turn="1") as run:
        pay(run, "rent")
        hf.cancel("t", "stop")
        run.tool("pay", {"invoice": "A-18", "note": ""})
    for turn in ("2", "3"):
        with world.running("t", hf, turn=turn, ends="completed") as run:
            for _ in run.steps():
                run.finish("sunny")
    for _ in range(2):
        with world.running("t", hf, turn="4", ends="waiting") as run:
            for _ in run.steps():
                run.finish(run.tool("pay", {"invoice": "A-17", "note": "the rent of May"}))
        assert bank.paid == ["rent"]
        assert "did not complete" in reason(hf)
    allow(hf)
    for turn in ("4", "5"):
        with world.running("t", hf, turn=turn, ends="completed") as run:
            for _ in run.steps():
                run.finish(run.tool("pay", {"invoice": turn, "note": "the rent of May" if turn == "4" else "new"}))


def test_a_call_in_doubt_that_was_not_done_allows_no_other_call(world: World, hf: Holdfast, bank: Bank) -> None:
    def unclear(invoice: str, note: str) -> str:
        raise TimeoutError

    unsure = world.open(holdfast.tool(effect="irreversible", name="pay")(unclear))
    with world.dying("t", hf, start={"n": 0}, turn="1") as run:
        run.tool("pay", {"invoice": "A-17", "note": "rent"}, key="rent")
    with world.running("t", unsure, turn="1", ends="waiting") as run:
        run.tool("pay", {"invoice": "A-17", "note": "rent"}, key="rent")
        run.tool("pay", {"invoice": "B-2", "note": "tax"}, key="tax")
    [doubtful] = [each for each in hf.effects("t") if each.status == "in_doubt"]
    hf.settle("t", doubtful, NotDone())
    hf.cancel("t", "enough")
    with world.running("t", hf, turn="2", ends="waiting") as run:
        run.tool("pay", {"invoice": "A-17", "note": "the rent of May"})
    assert bank.paid == ["rent"]
    assert '"note":"rent"' in reason(hf)
