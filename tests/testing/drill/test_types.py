"""Drills of agents whose tools return classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import holdfast
from holdfast import Run
from holdfast.testing.drill.verbs import crash_everywhere


@dataclasses.dataclass
class Receipt:
    number: int


@holdfast.tool(effect="irreversible", in_doubt="ask")
def pay(amount: int) -> Receipt:
    return Receipt(amount)


def agent(run: Run) -> Any:
    for _ in run.steps():
        receipt = run.tool(pay, {"amount": 3})
        assert isinstance(receipt, Receipt)
        return receipt.number
    return None


@holdfast.handler(type=Receipt)
def typed_agent(run: Run) -> Any:
    for _ in run.steps():
        run.state = run.tool(pay, {"amount": run.state.number})
        return run.state.number
    return None


def test_a_handler_with_a_typed_state_is_drilled() -> None:
    for start in (Receipt(3), {"number": 3}):
        report = crash_everywhere(typed_agent, start, tools=[pay], live=True, points=4)
        assert report.passed, report


def test_typed_results_survive_every_kill() -> None:
    for recorded in (False, True):
        report = crash_everywhere(agent, {}, tools=[pay], live=True, recorded=recorded)
        assert report.passed, report
