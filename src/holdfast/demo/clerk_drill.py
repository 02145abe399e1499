"""The crash drill of the clerk: it is killed before and after every write and every call, and resumed each time.

    holdfast drill holdfast.demo.clerk_drill:drill

Its services are files in the current folder, which is new in each run, so its own tools can be called. The model is the
script itself, without a server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.demo import clerk
from holdfast.demo.scripted_model import reply_to
from holdfast.testing import Drill

TASK = {"role": "user", "content": "Pay what is right, dispute what is not.", "invoices": ["INV-1", "INV-2"]}
DELIVERED = {"INV-1": 10, "INV-2": 7}


def ask_model(*, messages: list[dict[str, Any]]) -> Any:
    return reply_to(messages)


def write_papers() -> None:
    """Write two invoices: the first was delivered completely, the second in part."""
    for folder in ("invoices", "deliveries"):
        Path(folder).mkdir()
    for name, delivered in DELIVERED.items():
        invoice = {"invoice": name, "ordered": 10, "price": 4, "supplier": "Northern Mill"}
        Path("invoices", f"{name}.json").write_text(json.dumps(invoice), "utf-8")
        Path("deliveries", f"{name}.json").write_text(json.dumps({"invoice": name, "delivered": delivered}), "utf-8")


def reserved() -> list[str]:
    """The reservations of the budget office, without idempotency keys, which differ in each run."""
    return [line.rpartition(",")[0] for line in clerk.lines("budget.csv")]


clerk.Desk.seconds = 0.0
clerk.ask_model = ask_model

drill = Drill(
    handler=clerk.work,
    start={"messages": [TASK]},
    tools=[clerk.read_invoice, clerk.read_delivery, clerk.reserve, clerk.pay, clerk.dispute],
    live=True,
    setup=write_papers,
    watch=["ledger.csv", reserved],
)
