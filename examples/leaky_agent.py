"""An agent with a bug that ordinary tests do not find, and the crash drill that finds it.

    holdfast drill examples.leaky_agent:drill

The agent orders items. Its model function also writes a bill, one line per request: an undeclared effect. A model call
that was in progress when its process died is made again, and then the bill has one line too many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast
from holdfast import Run
from holdfast.testing import Drill

BILL = Path("bill.txt")


@holdfast.tool(effect="irreversible", in_doubt="ask")
def order(item: str) -> dict[str, Any]:
    raise NotImplementedError("a drill must not call the shop")


def fake_order(item: str) -> dict[str, Any]:
    return {"ordered": item}


def ask_model(*, messages: list[dict[str, Any]]) -> dict[str, Any]:
    with BILL.open("a", encoding="utf-8") as bill:  # the bug
        bill.write("one request\n")
    ordered = [message for message in messages if message["role"] == "tool"]
    calls = [] if ordered else [{"id": "call_0", "name": "order", "args": {"item": "paper"}}]
    return {"role": "assistant", "content": "done" if ordered else "", "calls": calls}


def agent(run: Run) -> None:
    for _ in run.steps():
        reply = run.model(ask_model, messages=run.state["messages"])
        run.state["messages"].append(reply)
        if not reply["calls"]:
            run.finish(reply["content"])
            break
        for call in reply["calls"]:
            result = run.tool(call["name"], call["args"], key=call["id"])
            run.state["messages"].append({"role": "tool", "id": call["id"], "content": result})


drill = Drill(
    handler=agent,
    start={"messages": [{"role": "user", "content": "Order paper."}]},
    tools=[order],
    fakes={"order": fake_order},
    watch=[BILL],
)
