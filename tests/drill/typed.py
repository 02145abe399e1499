"""Agents whose tools return classes. They can be imported, as processes with another hash seed do."""

from __future__ import annotations

import dataclasses
from typing import Any

import holdfast
from holdfast import Run


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
