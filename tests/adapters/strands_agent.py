"""The program of the kill experiment with Strands Agents."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models import Model

import holdfast
from holdfast.adapters.strands import HoldfastPlugin, run_durably
from holdfast.errors import Unfinished
from tests.adapters.kill_world import CONTINUED, World, script_of


class ScriptedModel(Model):  # type: ignore[misc]
    """Replies by how many of its own replies are in the messages."""

    def __init__(self, world: World, script: str, seen: list[Any], *, is_streamed: bool = False) -> None:
        self.world = world
        self.script = script
        self.seen = seen
        self.is_streamed = is_streamed

    def update_config(self, **config: Any) -> None: ...
    def get_config(self) -> Any:
        return {}

    async def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = [block for message in messages for block in message["content"]]
        self.seen[:] = [block["toolResult"]["content"][0].get("text") for block in blocks if "toolResult" in block]
        turn = sum(message["role"] == "assistant" for message in messages)
        found = self.world.reply(self.script, turn)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(found, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": found[:2]}}}
            if self.is_streamed:
                await asyncio.sleep(0.2)
                self.world.die_once()
            yield {"contentBlockDelta": {"delta": {"text": found[2:]}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}
        else:
            for use in found:
                yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": use.id, "name": use.tool}}}}
                given = {"input": use.args["task"]} if use.tool == "delegate" else use.args
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
                yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
        usage = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def agent_of(world: World, script: str, policy: str, seen: list[Any], **options: Any) -> Agent:
    @tool
    def look_up(item: str) -> int:
        """Look up."""
        return world.look_up(item)

    @tool
    def buy(item: str, amount: int) -> dict[str, Any]:
        """Buy."""
        return world.buy(item, amount)

    @tool
    def pay(item: str) -> str:
        """Pay."""
        return world.pay(item)

    def approve(event: BeforeToolCallEvent) -> None:
        use = event.tool_use
        if use["name"] == "pay":
            answer = event.interrupt("approve", reason={"tool": use["name"], "arguments": use["input"]})
            if answer is not True:
                event.cancel_tool = str(answer)

    tools: list[Any] = [look_up, buy, pay]
    if script == "delegate":
        sub = agent_of(
            world, "delegated", policy, [], name="sub", plugins=options.get("plugins") and plugins(world, policy)
        )
        tools.append(sub.as_tool(name="delegate", description="Delegate a task"))
    model = ScriptedModel(world, script, seen, is_streamed=script == "stream")
    return Agent(**{"name": "clerk", **options}, model=model, tools=tools, hooks=[approve], callback_handler=None)


def plugins(world: World, policy: str) -> list[Any]:
    return [HoldfastPlugin(declare=world.declarations(policy))]


async def streamed(hf: holdfast.Holdfast, agent: Agent) -> tuple[str, Any, Any]:
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            async for event in agent.stream_async("read"):
                if "result" in event:
                    await run.finish(str(event["result"]).strip())
    return run.status, run.result, None


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    script = script_of(scenario)
    seen: list[Any] = []
    if scenario.endswith("alone"):
        return "completed", str(agent_of(world, script, policy, seen)("buy paper")), None
    agent = agent_of(world, script, policy, seen, plugins=plugins(world, policy))
    if scenario == "stream":
        return asyncio.run(streamed(hf, agent))
    if scenario == "sync":
        with hf.run("t", start={}) as run:
            for _ in run.steps():
                run.finish(str(agent("buy paper")).strip())
        return run.status, run.result, seen
    thread = "u" if scenario == "held" else CONTINUED.get(scenario, "t")
    prompt = None if scenario in CONTINUED else "buy paper"
    try:
        result = asyncio.run(run_durably(hf, agent, prompt, thread=thread))
    except Unfinished:
        result = None
    info = hf.run_info(thread)
    assert info is not None
    return info.status, result, json.loads(json.dumps(seen))
