"""An agent with a real provider. Kill it at any time and start it again: it resumes, and orders nothing twice.

    python examples/plain_loop.py openai|anthropic ADDRESS STORE

ADDRESS is https://api.openai.com or https://api.anthropic.com, with the key where their clients look for it. Or it is
the address that scripted_server.py prints; that needs no key. Orders are written to orders.csv, in place of a shop.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Happened, NotDone, Run
from holdfast.adapters.generic import recorded, usage_of

PRICES = {"paper": 4, "ink": 11}
ORDERS = Path("orders.csv")


@holdfast.tool(effect="read")
def look_up(item: str) -> dict[str, Any]:
    return {"item": item, "price": PRICES[item]}


def was_ordered(item: str, amount: int, idempotency_key: str) -> Happened | NotDone:
    """The probe: after a crash during an order, look whether it was placed."""
    placed = ORDERS.exists() and idempotency_key in ORDERS.read_text("utf-8")
    return Happened({"item": item, "ordered": amount}) if placed else NotDone()


@holdfast.tool(effect="irreversible", probe=was_ordered, probe_after=1.0)  # a second later, it can no longer happen
def order(item: str, amount: int, idempotency_key: str) -> dict[str, Any]:
    with ORDERS.open("a", encoding="utf-8") as orders:
        orders.write(f"{idempotency_key},{item},{amount}\n")
    return {"item": item, "ordered": amount}


ITEM, AMOUNT = {"type": "string", "enum": list(PRICES)}, {"type": "integer"}
SCHEMAS = {
    "look_up": {"type": "object", "properties": {"item": ITEM}, "required": ["item"]},
    "order": {"type": "object", "properties": {"item": ITEM, "amount": AMOUNT}, "required": ["item", "amount"]},
}


def openai_agent(run: Run, address: str) -> None:
    import openai  # noqa: PLC0415 - only the client that is used has to be installed

    client = openai.OpenAI(base_url=f"{address}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none"))
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMAS[name]}} for name in SCHEMAS]
    messages = run.state["messages"]
    for _ in run.steps():
        reply = run.model(recorded(client.chat.completions.create), model="gpt-5-mini", messages=messages, tools=tools)
        message = reply["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            run.finish(message["content"])
            break
        for call in message["tool_calls"]:
            args = json.loads(call["function"]["arguments"])
            result = run.tool(call["function"]["name"], args, key=call["id"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


def anthropic_agent(run: Run, address: str) -> None:
    import anthropic  # noqa: PLC0415 - only the client that is used has to be installed

    client = anthropic.Anthropic(base_url=address, api_key=os.environ.get("ANTHROPIC_API_KEY", "none"))
    tools = [{"name": name, "input_schema": SCHEMAS[name]} for name in SCHEMAS]
    messages = run.state["messages"]
    create = recorded(client.messages.create)
    for _ in run.steps():
        reply = run.model(create, model="claude-haiku-4-5", max_tokens=1024, messages=messages, tools=tools)
        messages.append({"role": "assistant", "content": reply["content"]})
        if reply["stop_reason"] != "tool_use":
            run.finish("".join(block["text"] for block in reply["content"] if block["type"] == "text"))
            break
        results = []
        for call in reply["content"]:
            if call["type"] == "tool_use":
                result = run.tool(call["name"], call["input"], key=call["id"])
                results.append({"type": "tool_result", "tool_use_id": call["id"], "content": json.dumps(result)})
        messages.append({"role": "user", "content": results})


def main(provider: str, address: str, store: str) -> None:
    agent = {"openai": openai_agent, "anthropic": anthropic_agent}[provider]
    task = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}
    with holdfast.open(store, tools=[look_up, order]) as hf:
        with hf.run("shopping", start={"messages": [task]}) as run:
            agent(run, address)
        paid = [usage_of(effect.result) for effect in hf.effects("shopping") if effect.effect == "model"]
        print(run.result)
        print(sum(usage.total for usage in paid if usage), "tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
