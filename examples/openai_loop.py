"""An agent on OpenAI. Kill it at any time and start it again: it resumes, and orders nothing twice.

Needs the package openai. Start it with: OPENAI_API_KEY=… python examples/openai_loop.py
"""

import json
import sys
from pathlib import Path
from typing import Any

import openai

import holdfast
from holdfast import Happened, NotDone, Run
from holdfast.adapters.generic import recorded, usage_of

PRICES = {"paper": 4, "ink": 11}
ORDERS = Path("orders.csv")  # in place of a shop


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


FIELDS = {"item": {"type": "string", "enum": list(PRICES)}, "amount": {"type": "integer"}}
SCHEMAS = {
    name: {"type": "object", "properties": {each: FIELDS[each] for each in needed}, "required": needed}
    for name, needed in {"look_up": ["item"], "order": ["item", "amount"]}.items()
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMAS[name]}} for name in SCHEMAS]
TASK = {"messages": [{"role": "user", "content": "Order three packs of paper and one bottle of ink."}]}


def agent(run: Run, address: str) -> None:
    client = openai.OpenAI(base_url=f"{address}/v1")
    messages = run.state["messages"]
    for _ in run.steps():
        reply = run.model(recorded(client.chat.completions.create), model="gpt-5-mini", messages=messages, tools=TOOLS)
        message = reply["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            run.finish(message["content"])
            break
        for call in message["tool_calls"]:
            args = json.loads(call["function"]["arguments"])
            result = run.tool(call["function"]["name"], args, key=call["id"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


def main(address: str = "https://api.openai.com", store: str = "agent.db") -> None:
    with holdfast.open(store, tools=[look_up, order]) as hf:
        with hf.run("shopping", start=TASK) as run:
            agent(run, address)
        paid = [usage_of(effect.result) for effect in hf.effects("shopping") if effect.effect == "model"]
        print(run.result)
        print(sum(usage.total for usage in paid if usage), "tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
