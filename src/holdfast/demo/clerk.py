"""An agent that pays invoices, as a worker that may be killed at any moment.

    python -m holdfast.demo.clerk FOLDER PORT [SECONDS]

It works on the queued runs in FOLDER/agent.db until SIGTERM. FOLDER has the invoices, the delivery notes and the
ledger. The model listens on PORT. A service takes SECONDS to answer. The process writes each call to
FOLDER/events.jsonl, for the demo to show.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Happened, NotDone, Run


class Desk:
    """The agent's folder and services. `calls` counts the calls that this process made, without replayed ones."""

    folder = Path()
    port = 0
    seconds = 0.1
    calls = 0


# -- tools: each declares its effect on the world, and what to do if its outcome is unknown ----------------------------


@holdfast.tool(effect="read")
def read_invoice(invoice: str) -> Any:
    Desk.calls += 1
    return json.loads((Desk.folder / "invoices" / f"{invoice}.json").read_text("utf-8"))


@holdfast.tool(effect="read")
def read_delivery(invoice: str) -> Any:
    Desk.calls += 1
    return json.loads((Desk.folder / "deliveries" / f"{invoice}.json").read_text("utf-8"))


@holdfast.tool(effect="idempotent")
def reserve(invoice: str, amount: int, idempotency_key: str) -> dict[str, Any]:
    """Reserve money. The budget office ignores a key that it knows, so a repeated call does no harm."""
    Desk.calls += 1
    if not any(line.endswith(idempotency_key) for line in lines("budget.csv")):
        act("budget.csv", f"{invoice},{amount},{idempotency_key}")
    return {"invoice": invoice, "reserved": amount}


def was_paid(invoice: str, amount: int, to: str) -> Happened | NotDone:
    """The probe: ask the bank whether a payment was made."""
    happened = f"pay,{invoice},{amount},{to}" in lines("ledger.csv")
    note("probe", call=f"pay {invoice}", happened=happened)
    return Happened({"invoice": invoice, "paid": amount}) if happened else NotDone()


@holdfast.tool(effect="irreversible", probe=was_paid, probe_after=1.0)  # a second later, it can no longer happen
def pay(invoice: str, amount: int, to: str) -> dict[str, Any]:
    """Send money. A repeated call would pay twice."""
    Desk.calls += 1
    act("ledger.csv", f"pay,{invoice},{amount},{to}")
    return {"invoice": invoice, "paid": amount}


@holdfast.tool(effect="irreversible", in_doubt="ask")
def dispute(invoice: str, reason: str) -> dict[str, Any]:
    """Post a letter. There is no way to check whether it was posted, so in doubt a person decides."""
    Desk.calls += 1
    act("ledger.csv", f"dispute,{invoice},{reason}")
    return {"invoice": invoice, "disputed": reason}


# -- the model and the loop: this code does not handle crashes ---------------------------------------------------------


def ask_model(*, messages: list[dict[str, Any]]) -> Any:
    Desk.calls += 1
    connection = http.client.HTTPConnection("127.0.0.1", Desk.port, timeout=30)
    try:
        connection.request("POST", "/", json.dumps({"messages": messages}))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def work(run: Run) -> Any:
    note("claim", resumed=run.resumed, step=run.step)
    try:
        for step in run.steps():
            with Noted("model", step):
                reply = run.model(ask_model, messages=run.state["messages"])
            run.state["messages"].append(reply)
            if not reply["calls"]:
                return reply["content"]
            for call in reply["calls"]:
                with Noted("tool", step, f"{call['name']} {call['args']['invoice']}"):
                    result = run.tool(call["name"], call["args"], key=call["id"])
                run.state["messages"].append({"role": "tool", "id": call["id"], "content": result})
    finally:
        note("leave")


# -- files -------------------------------------------------------------------------------------------------------------


class Noted:
    """Writes a call to the log before it is made, and its result after."""

    def __init__(self, kind: str, step: int, call: str = "the model") -> None:
        self._kind = kind
        self._details = {"step": step, "call": call}

    def __enter__(self) -> None:
        note("begin", **self._details)
        self._before = Desk.calls

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            note(self._kind, recorded=Desk.calls == self._before, **self._details)


def note(event: str, **details: Any) -> None:
    append("events.jsonl", json.dumps({"at": time.time(), "pid": os.getpid(), "event": event, **details}))


def act(paper: str, line: str) -> None:
    append(paper, line)
    time.sleep(Desk.seconds)  # the effect has happened, the answer is on its way


def append(paper: str, line: str) -> None:
    """Append a line in one write, so that a kill leaves a whole line or nothing."""
    file = os.open(Desk.folder / paper, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def lines(paper: str) -> list[str]:
    path = Desk.folder / paper
    return path.read_text("utf-8").splitlines() if path.exists() else []


def main(folder: str, port: str, seconds: str = "0.1") -> None:
    Desk.folder, Desk.port, Desk.seconds = Path(folder), int(port), float(seconds)
    tools: list[Callable[..., Any]] = [read_invoice, read_delivery, reserve, pay, dispute]
    with holdfast.open(Desk.folder / "agent.db", tools=tools) as hf:
        hf.worker({"clerk": work}, attempts=1000).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
