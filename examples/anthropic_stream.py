"""An async agent on Anthropic that prints the model's text as it arrives. Kill it at any time and start it again.

Needs the package anthropic. Start it with: ANTHROPIC_API_KEY=… python examples/anthropic_stream.py
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import anthropic

import holdfast
from holdfast import AsyncRun, Happened, NotDone
from holdfast.adapters.generic import recorded
from holdfast.adapters.streams import joined

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
ASKED: dict[str, Any] = {"model": "claude-haiku-4-5", "max_tokens": 1024, "stream": True}
ASKED["tools"] = [{"name": name, "input_schema": SCHEMAS[name]} for name in SCHEMAS]
TASK = {"messages": [{"role": "user", "content": "Order three packs of paper and one bottle of ink."}]}


async def agent(run: AsyncRun, address: str) -> None:
    messages = run.state["messages"]
    async with anthropic.AsyncAnthropic(base_url=address) as client:
        async for _ in run.steps():
            events = []
            async for event in run.stream(recorded(client.messages.create), messages=messages, **ASKED):
                events.append(event)
                if event["type"] == "content_block_delta":
                    print(event["delta"].get("text", ""), end="", flush=True)
            print()
            content = joined(events)["content"]
            messages.append({"role": "assistant", "content": content})
            if not (calls := [block for block in content if block["type"] == "tool_use"]):
                await run.finish("".join(block["text"] for block in content))
                break
            results = []
            for call in calls:
                result = await run.tool(call["name"], call["input"], key=call["id"])
                results.append({"type": "tool_result", "tool_use_id": call["id"], "content": json.dumps(result)})
            messages.append({"role": "user", "content": results})


async def main(address: str = "https://api.anthropic.com", store: str = "agent.db") -> None:
    async with await holdfast.aopen(store, tools=[look_up, order]) as hf, hf.run("shopping", start=TASK) as run:
        await agent(run, address)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
