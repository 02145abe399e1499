"""The program of the kill experiment with Pydantic AI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastDurability, run_durably
from holdfast.errors import Unfinished
from tests.adapters.kill_world import CONTINUED, World, script_of


def agent_of(world: World, script: str, policy: str, *, is_durable: bool = True) -> Agent[None, Any]:
    seen: list[Any] = []

    def turn_of(messages: list[ModelMessage]) -> int:
        seen[:] = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        return sum(isinstance(message, ModelResponse) for message in messages)

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        found = world.reply(script, turn_of(messages))
        if isinstance(found, str):
            return ModelResponse([TextPart(found)])
        return ModelResponse([ToolCallPart(use.tool, use.args, use.id) for use in found])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        found = world.reply(script, turn_of(messages))
        if not isinstance(found, str):
            for number, use in enumerate(found):
                yield {number: DeltaToolCall(use.tool, json.dumps(use.args), tool_call_id=use.id)}
            return
        yield found[:2]
        await asyncio.sleep(0.2)
        world.die_once()
        yield found[2:]

    declare = {**world.declarations(policy), "delegate": {"effect": "idempotent"}}
    durability: list[Any] = [HoldfastDurability(declare=declare)] if is_durable else []
    agent: Agent[None, Any] = Agent(
        FunctionModel(model, stream_function=stream),
        name="clerk",
        output_type=[str, DeferredToolRequests],
        capabilities=durability,
    )

    @agent.tool_plain
    async def look_up(item: str) -> int:
        return world.look_up(item)

    @agent.tool_plain
    async def buy(item: str, amount: int) -> dict[str, Any]:
        return await asyncio.to_thread(world.buy, item, amount)

    @agent.tool_plain
    async def delegate(task: str) -> str:
        return str((await agent_of(world, "delegated", policy).run(task)).output)

    @agent.tool_plain(requires_approval=True)
    async def pay(item: str) -> str:
        return world.pay(item)

    agent.seen = seen  # type: ignore[attr-defined]
    return agent


async def alone(world: World, agent: Agent[None, Any]) -> tuple[str, Any, Any]:
    """The same without Holdfast."""
    result = await agent.run("buy paper")
    return "completed", result.output, None


async def streamed(hf: holdfast.Holdfast, agent: Agent[None, Any]) -> tuple[str, Any, Any]:
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            async with agent.run_stream("read") as stream:
                text = "".join([chunk async for chunk in stream.stream_text(delta=True)])
            await run.finish(text)
    return run.status, run.result, None


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    script = script_of(scenario)
    agent = agent_of(world, script, policy, is_durable=not scenario.endswith("alone"))
    if scenario.endswith("alone"):
        return asyncio.run(alone(world, agent))
    if scenario == "stream":
        return asyncio.run(streamed(hf, agent))
    if scenario == "sync":
        with hf.run("t", start={}) as run:
            for _ in run.steps():
                run.finish(agent.run_sync("buy paper").output)
        return run.status, run.result, agent.seen  # type: ignore[attr-defined]
    thread = "u" if scenario == "held" else CONTINUED.get(scenario, "t")
    prompt = None if scenario in CONTINUED else "buy paper"
    try:
        result = asyncio.run(run_durably(hf, agent, prompt, thread=thread))
    except Unfinished:
        result = None
    info = hf.run_info(thread)
    assert info is not None
    return info.status, result, agent.seen  # type: ignore[attr-defined]
