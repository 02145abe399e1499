"""Agents that break a rule which one kill in one process would not show. They can be imported."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Run
from holdfast.errors import CallTimedOut

INVOICES = {"invoices": frozenset(f"invoice {number}" for number in range(4)), "paid": {}}


def pay(invoice: str) -> str:
    return f"receipt of {invoice}"


@holdfast.tool(effect="idempotent", timeout=30)
def book(amount: int, idempotency_key: str) -> str:
    return f"booked {amount}"


@holdfast.tool(effect="irreversible", timeout=30)
def wire(amount: int) -> str:
    return f"wired {amount}"


def by_place(run: Run) -> Any:
    """The keys are places in the order of a set."""
    return _pay_all(run, lambda number, invoice: str(number))


def without_keys(run: Run) -> Any:
    return _pay_all(run, lambda number, invoice: None)


def by_invoice(run: Run) -> Any:
    return _pay_all(run, lambda number, invoice: invoice)


def _pay_all(run: Run, key_of: Any) -> Any:
    for _ in run.steps():
        for number, invoice in enumerate(run.state["invoices"]):
            run.state["paid"][invoice] = run.tool("pay", {"invoice": invoice}, key=key_of(number, invoice))
        return len(run.state["paid"])
    return None


def by_the_minute(run: Run) -> Any:
    for _ in run.steps():
        return run.tool("pay", {"invoice": "one"}, key=f"{datetime.now():%H:%M}")  # noqa: DTZ005 - the bug
    return None


def dated(run: Run) -> Any:
    """The day is in the arguments, which is no bug."""
    for _ in run.steps():
        run.model(_reply, f"{datetime.now():%Y-%m-%d}")  # noqa: DTZ005
        return run.tool("pay", {"invoice": "one"}, key="one")
    return None


def _reply(prompt: str) -> str:
    return "fine"


def third_time(run: Run) -> Any:
    """It takes its third process for its first."""
    for _ in run.steps():
        return run.tool("pay", {"invoice": "one"}, key="again" if run.attempt == 3 else "first")
    return None


def cleans_up(run: Run) -> Any:
    """Its cleaning has an effect, which a kill prevents and an interrupt does not."""
    try:
        for _ in run.steps():
            return run.tool("pay", {"invoice": "one"})
    except KeyboardInterrupt:
        with Path("cleaned.txt").open("a") as file:
            file.write("cleaned\n")
        raise
    return None


def impatient(run: Run) -> Any:
    """It takes a call that timed out for one that did nothing."""
    for _ in run.steps():
        try:
            return run.tool("book", {"amount": 3})
        except CallTimedOut:
            return run.tool("book", {"amount": 3}, key="again")
    return None


def patient(run: Run) -> Any:
    for _ in run.steps():
        return [run.tool("book", {"amount": 3}), run.tool("wire", {"amount": 3})]
    return None


def sleeper(run: Run) -> Any:
    for step in run.steps():
        run.sleep(24 * 3600)
        run.tool("pay", {"invoice": str(step)}, key="one")
        if step == 2:
            return "rested"
    return None
