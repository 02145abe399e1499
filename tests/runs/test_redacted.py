"""Calls whose arguments were redacted: what is recorded of them must not be used as if it were what they got."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Happened, Holdfast, InvalidArgument, NotDone
from holdfast.errors import EffectMismatch
from tests.runs.conftest import Crash, World


def hide(text: str) -> str:
    return "[hidden]" if text.startswith("card") else text


class Bank:
    """What was charged, and what was asked about it."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.asked: list[str] = []
        self.undone: list[str] = []
        self.keys: list[str] = []
        self.fault: BaseException | None = None
        self.truth: Any = None

    def charge(self, card: str, idempotency_key: str) -> str:
        self.charged.append(card)
        self.keys.append(idempotency_key)
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return f"receipt {len(self.charged)}"

    def look(self, card: str) -> Any:
        self.asked.append(card)
        return self.truth

    def refund(self, card: str) -> None:
        self.undone.append(card)

    def tool(self, **declared: Any) -> Any:
        return holdfast.tool(name="charge", **declared)(self.charge)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def opened(world: World, tool: Any) -> Holdfast:
    return world.open(tool, redact=hide)


def crash_in(world: World, bank: Bank, tool: Any, card: str) -> None:
    """The process dies when the card was charged and nothing of that is recorded."""
    bank.fault = Crash()
    with world.dying("t", opened(world, tool), start={}) as run:
        run.tool("charge", {"card": card}, key="c")


# -- in doubt ---------------------------------------------------------------------------------------------------------


def test_a_probe_gets_what_the_program_gives_now(world: World, bank: Bank) -> None:
    tool = bank.tool(effect="irreversible", probe=bank.look)
    crash_in(world, bank, tool, "card 1")
    bank.truth = Happened("the receipt")
    hf = opened(world, tool)
    with world.running("t", hf) as run:
        assert run.tool("charge", {"card": "card 1"}, key="c") == "the receipt"
    assert (bank.asked, bank.charged) == (["card 1"], ["card 1"])
    assert hf.effects("t")[0].arguments == {"card": "[hidden]"}


def test_a_rerun_gets_what_the_program_gives_now(world: World, bank: Bank) -> None:
    tool = bank.tool(effect="idempotent")
    crash_in(world, bank, tool, "card 1")
    with world.running("t", opened(world, tool)) as run:
        assert run.tool("charge", {"card": "card 1"}, key="c") == "receipt 2"
    assert bank.charged == ["card 1", "card 1"]
    assert len(set(bank.keys)) == 1


@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
def test_a_key_with_something_else_is_refused(world: World, bank: Bank, effect: str) -> None:
    probe = {"probe": bank.look} if effect == "irreversible" else {}
    tool = bank.tool(effect=effect, **probe)
    crash_in(world, bank, tool, "card 1")
    hf = opened(world, tool)
    with world.failing("t", EffectMismatch, hf) as run:
        run.tool("charge", {"card": "another kind of thing"}, key="c")
    assert (bank.asked, bank.charged) == ([], ["card 1"])


def test_a_tool_that_gives_up_does_so_for_the_call_that_was_made(world: World, bank: Bank) -> None:
    tool = bank.tool(effect="irreversible", in_doubt="give_up")
    crash_in(world, bank, tool, "card 1")
    with world.running("t", opened(world, tool)) as run:
        assert "unknown" in str(run.tool("charge", {"card": "card 1"}, key="c"))
    assert bank.charged == ["card 1"]


def test_a_handle_that_does_not_redact_does_not_use_what_another_did(world: World, bank: Bank) -> None:
    tool = bank.tool(effect="idempotent")
    crash_in(world, bank, tool, "card 1")
    with world.failing("t", EffectMismatch, world.open(tool)) as run:
        run.tool("charge", {"card": "card 1"}, key="c")
    assert bank.charged == ["card 1"]


def test_arguments_that_were_not_redacted_are_compared(world: World, bank: Bank) -> None:
    tool = bank.tool(effect="idempotent")
    crash_in(world, bank, tool, "voucher 1")
    with world.failing("t", EffectMismatch, opened(world, tool)) as run:
        run.tool("charge", {"card": "voucher 2"}, key="c")
    assert bank.charged == ["voucher 1"]


# -- calls that look alike --------------------------------------------------------------------------------------------


def test_two_calls_of_one_key_are_told_apart_by_what_they_were_given(world: World, bank: Bank) -> None:
    hf = opened(world, bank.tool(effect="irreversible"))
    with world.running("t", hf, start={}) as run:
        assert run.tool("charge", {"card": "card 1"}, key="a") == "receipt 1"
        assert run.tool("charge", {"card": "card 1"}, key="a") == "receipt 1"
        with pytest.raises(InvalidArgument, match="other arguments"):
            run.tool("charge", {"card": "card 2"}, key="a")


@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
def test_what_an_abandoned_branch_did_is_not_taken_for_another_call(world: World, bank: Bank, effect: str) -> None:
    hf = opened(world, bank.tool(effect=effect))
    with world.running("t", hf, start={}) as run:
        for step in run.steps():
            if step == 3:
                break
            run.tool("charge", {"card": f"card {step}"}, key="c")
    hf.thread("t").rewind("@1", past_effects=True)
    for _ in range(2):  # not answered, it asks again
        with world.running("t", hf, ends="waiting") as run:
            run.tool("charge", {"card": "card 3"}, key="c")
    assert bank.charged == ["card 1", "card 2"]
    [question] = hf.waiting()
    hf.settle("t", question.effect, NotDone())
    with world.running("t", hf) as run:
        assert run.tool("charge", {"card": "card 3"}, key="c") == "receipt 3"
    assert bank.charged == ["card 1", "card 2", "card 3"]
    assert len(set(bank.keys)) == 3, "nobody may take it for the call that was abandoned"


def test_what_an_abandoned_branch_did_can_be_told(world: World, bank: Bank) -> None:
    hf = opened(world, bank.tool(effect="irreversible"))
    with world.running("t", hf, start={}) as run:
        for step in run.steps():
            if step == 3:
                break
            run.tool("charge", {"card": f"card {step}"}, key="c")
    hf.thread("t").rewind("@1", past_effects=True)
    with world.running("t", hf, ends="waiting") as run:
        run.tool("charge", {"card": "card 2"}, key="c")
    [question] = hf.waiting()
    hf.settle("t", question.effect, Happened("receipt 2"))
    with world.running("t", hf) as run:
        assert run.tool("charge", {"card": "card 2"}, key="c") == "receipt 2"
    assert bank.charged == ["card 1", "card 2"]


# -- undoing ----------------------------------------------------------------------------------------------------------


def test_what_was_redacted_is_not_undone_by_what_is_left_of_it(world: World, bank: Bank) -> None:
    hf = opened(world, bank.tool(effect="irreversible", undo=bank.refund))
    for card in ("card 1", "voucher 1"):
        with world.running(card, hf, start={}) as run:
            for step in run.steps():
                if step == 2:
                    break
                run.tool("charge", {"card": card}, key="c")
    with pytest.raises(Conflict, match="redacted"):
        hf.undo("card 1", to="@0")
    assert bank.undone == []
    hf.undo("voucher 1", to="@0")
    assert bank.undone == ["voucher 1"]


def test_an_undo_that_takes_the_result_needs_it_as_it_was(world: World, bank: Bank) -> None:
    def refund(card: str, result: str) -> None:
        bank.undone.append(result)

    @holdfast.tool(effect="irreversible", undo=refund)
    def buy(card: str) -> str:
        return f"{card} was charged"

    hf = world.open(buy, redact=lambda text: "[hidden]" if "charged" in text else text)
    with world.running("t", hf, start={}) as run:
        for step in run.steps():
            if step == 2:
                break
            assert run.tool("buy", {"card": "card 1"}, key="c") == "[hidden]"
    with pytest.raises(Conflict, match="redacted"):
        hf.undo("t", to="@0")
    assert bank.undone == []


# -- reads and models without keys ------------------------------------------------------------------------------------


def balance(card: str) -> str:
    return f"balance of {card}"


@pytest.mark.parametrize("kind", ["read", "model", "stream"])
def test_calls_without_keys_that_differ_only_in_what_is_redacted_are_refused(world: World, kind: str) -> None:
    """A resume that made them in another order would swap their results."""
    tool = holdfast.tool(effect="read")(balance)

    def ask(run: holdfast.Run, card: str, key: str | None = None) -> Any:
        if kind == "read":
            return run.tool(tool, {"card": card}, key=key)
        if kind == "model":
            return run.model(balance, card, key=key)
        return "".join(run.stream(balance, card, key=key))

    with opened(world, tool) as hf, hf.run("t", start={}) as run:
        steps = run.steps()
        next(steps)
        assert ask(run, "card 1") == ask(run, "card 1"), "equal calls are told apart by their order"
        with pytest.raises(InvalidArgument, match=r"nothing was called\. Pass key="):
            ask(run, "card 2")
        assert ask(run, "card 2", key="second") == "balance of card 2"
        next(steps)
        assert ask(run, "card 2") == "balance of card 2"


def test_a_call_that_failed_can_be_made_again_with_another_secret(world: World) -> None:
    tool = holdfast.tool(effect="read")(balance)

    def rejected(card: str) -> str:
        if card == "card 1":
            raise PermissionError
        return balance(card)

    with opened(world, tool) as hf, hf.run("t", start={}) as run:
        with pytest.raises(PermissionError):
            run.model(rejected, "card 1")
        assert run.model(rejected, "card 2") == "balance of card 2"
