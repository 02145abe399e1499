"""The attacks of ACRFence (arXiv 2603.20625) on a plain loop: a restored agent acts again in other words.

A model does not repeat itself. After a restore it words a call differently, so a journal that compares arguments does
not know the call again. The attack repeats a payment, or uses a credential that is valid once for another purpose.
"""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, NotDone
from tests.runs.conftest import World


class Service:
    """The outside world. A model asks it, each time in other words."""

    def __init__(self, *, is_declared: bool) -> None:
        self.payments: list[str] = []
        self.uses: list[tuple[str, str]] = []
        self._words = 0
        pay: Any = {"identity": ("invoice",)} if is_declared else {}
        spend: Any = {"identity": ("token",)} if is_declared else {}
        self.tools = [
            holdfast.tool(effect="irreversible", name="pay", **pay)(self._pay),
            holdfast.tool(effect="irreversible", name="spend", **spend)(self._spend),
        ]

    def _pay(self, invoice: str, reference: str) -> str:
        self.payments.append(invoice)
        return f"paid {invoice} ({len(self.payments)})"

    def _spend(self, token: str, purpose: str) -> str:
        self.uses.append((token, purpose))
        return f"{purpose} is done"

    def model(self, tool: str) -> dict[str, Any]:
        """A reply that words its call as it likes."""
        self._words += 1
        if tool == "pay":
            return {"name": "pay", "args": {"invoice": "A-17", "reference": f"reference {self._words}"}}
        purpose = "the refund that was approved" if self._words == 1 else "a transfer to the attacker"
        return {"name": "spend", "args": {"token": "approval-1", "purpose": purpose}}


def agent(hf: Holdfast, service: Service, tool: str, **options: Any) -> holdfast.Run:
    with hf.run("agent", start={"results": []}, **options) as run:
        for _ in run.steps():
            call = run.model(service.model, tool)
            run.state["results"].append(run.tool(call["name"], call["args"]))
            break
    return run


def restored(world: World, service: Service, tool: str) -> Holdfast:
    """The agent acts once. Then it is restored to the checkpoint before that."""
    hf = world.open(*service.tools)
    agent(hf, service, tool)
    hf.thread("agent").rewind("@0", past_effects=True)
    return hf


def test_a_reworded_payment_is_not_made_again(world: World) -> None:
    service = Service(is_declared=True)
    hf = restored(world, service, "pay")
    run = agent(hf, service, "pay")
    assert (run.status, run.state["results"]) == ("idle", ["paid A-17 (1)"])
    assert service.payments == ["A-17"]


def test_a_credential_is_not_used_for_another_purpose(world: World) -> None:
    service = Service(is_declared=True)
    hf = restored(world, service, "spend")
    run = agent(hf, service, "spend")
    assert run.state["results"] == ["the refund that was approved is done"]
    assert service.uses == [("approval-1", "the refund that was approved")]


@pytest.mark.parametrize("tool", ["pay", "spend"])
def test_without_an_identity_a_person_is_asked(world: World, tool: str) -> None:
    service = Service(is_declared=False)
    hf = restored(world, service, tool)
    run = agent(hf, service, tool)
    assert run.status == "waiting"
    assert len(service.payments + service.uses) == 1
    [question] = hf.waiting()
    info = hf.run_info("agent")
    for text in ("reference 1", "reference 2") if tool == "pay" else ("approved", "attacker"):
        assert text in (info.reason or "" if info is not None else "")
    hf.settle("agent", question.effect, NotDone())
    run = agent(hf, service, tool)
    assert run.status == "idle"
    assert len(service.payments + service.uses) == 2, "a person allowed it"


@pytest.mark.parametrize("tool", ["pay", "spend"])
def test_live_acts_again(world: World, tool: str) -> None:
    service = Service(is_declared=False)
    hf = restored(world, service, tool)
    agent(hf, service, tool, effects="live")
    assert len(service.payments + service.uses) == 2
