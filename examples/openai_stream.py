"""An async agent on OpenAI that prints the model's text as it arrives. Kill it at any time and start it again.

Needs the package openai. Start it with: OPENAI_API_KEY=… python examples/openai_stream.py
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import openai

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
ASKED: dict[str, Any] = {"model": "gpt-5-mini", "stream": True, "stream_options": {"include_usage": True}}
ASKED["tools"] = [{"type": "function", "function": {"name": name, "parameters": SCHEMAS[name]}} for name in SCHEMAS]
TASK = {"messages": [{"role": "user", "content": "Order three packs of paper and one bottle of ink."}]}


async def agent(run: AsyncRun, address: str) -> None:
    messages = run.state["messages"]
    async with openai.AsyncOpenAI(base_url=f"{address}/v1") as client:
        async for _ in run.steps():
            chunks = []
            async for chunk in run.stream(recorded(client.chat.completions.create), messages=messages, **ASKED):
                chunks.append(chunk)
                print(*(choice["delta"].get("content") or "" for choice in chunk["choices"]), end="", flush=True)
            print()
            message = joined(chunks)["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                await run.finish(message["content"])
                break
            for call in message["tool_calls"]:
                asked = call["function"]
                result = await run.tool(asked["name"], json.loads(asked["arguments"]), key=call["id"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


async def main(address: str = "https://api.openai.com", store: str = "agent.db") -> None:
    async with await holdfast.aopen(store, tools=[look_up, order]) as hf, hf.run("shopping", start=TASK) as run:
        await agent(run, address)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
