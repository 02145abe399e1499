"""The plain loop, async and streaming: the model's text is printed as it arrives. Kill it at any time.

    python examples/plain_loop_async.py openai|anthropic ADDRESS STORE

ADDRESS is https://api.openai.com or https://api.anthropic.com, with the key where their clients look for it. Or it is
the address that scripted_server.py prints; that needs no key. Orders are written to orders.csv, in place of a shop. A
reply that was streamed to its end is recorded; an incomplete one is requested again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import AsyncRun, Happened, NotDone
from holdfast.adapters.generic import recorded, usage_of
from holdfast.adapters.streams import joined

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


async def openai_agent(run: AsyncRun, address: str) -> None:
    import openai  # noqa: PLC0415 - only the client that is used has to be installed

    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMAS[name]}} for name in SCHEMAS]
    asked: dict[str, Any] = {
        "model": "gpt-5-mini",
        "tools": tools,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    messages = run.state["messages"]
    key = os.environ.get("OPENAI_API_KEY", "none")
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key) as client:
        async for _ in run.steps():
            chunks = []
            async for chunk in run.stream(recorded(client.chat.completions.create), messages=messages, **asked):
                chunks.append(chunk)
                for choice in chunk["choices"]:
                    print(choice["delta"].get("content") or "", end="", flush=True)
            print()
            message = joined(chunks)["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                await run.finish(message["content"])
                break
            for call in message["tool_calls"]:
                args = json.loads(call["function"]["arguments"])
                result = await run.tool(call["function"]["name"], args, key=call["id"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


async def anthropic_agent(run: AsyncRun, address: str) -> None:
    import anthropic  # noqa: PLC0415 - only the client that is used has to be installed

    tools = [{"name": name, "input_schema": SCHEMAS[name]} for name in SCHEMAS]
    asked: dict[str, Any] = {"model": "claude-haiku-4-5", "max_tokens": 1024, "tools": tools, "stream": True}
    messages = run.state["messages"]
    key = os.environ.get("ANTHROPIC_API_KEY", "none")
    async with anthropic.AsyncAnthropic(base_url=address, api_key=key) as client:
        async for _ in run.steps():
            events = []
            async for event in run.stream(recorded(client.messages.create), messages=messages, **asked):
                events.append(event)
                if event["type"] == "content_block_delta":
                    print(event["delta"].get("text", ""), end="", flush=True)
            print()
            reply = joined(events)
            messages.append({"role": "assistant", "content": reply["content"]})
            if reply["stop_reason"] != "tool_use":
                await run.finish("".join(block["text"] for block in reply["content"] if block["type"] == "text"))
                break
            results = []
            for call in reply["content"]:
                if call["type"] == "tool_use":
                    result = await run.tool(call["name"], call["input"], key=call["id"])
                    results.append({"type": "tool_result", "tool_use_id": call["id"], "content": json.dumps(result)})
            messages.append({"role": "user", "content": results})


async def main(provider: str, address: str, store: str) -> None:
    agent = {"openai": openai_agent, "anthropic": anthropic_agent}[provider]
    task = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}
    with holdfast.open(store) as hf:
        async with hf.aio.run("shopping", start={"messages": [task]}, tools=[look_up, order]) as run:
            await agent(run, address)
        paid = [usage_of(effect.result) for effect in hf.effects("shopping") if effect.effect == "model"]
        print(sum(usage.total for usage in paid if usage), "tokens")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
