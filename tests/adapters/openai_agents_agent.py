"""The program of the kill experiment with the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool
from agents.testing import assistant_message, function_call
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

import holdfast
from holdfast.adapters.openai_agents import durable, run_durably
from holdfast.errors import Unfinished
from tests.adapters.kill_world import CONTINUED, World, script_of


class ScriptedModel(Model):  # type: ignore[misc]
    """Replies by how many of its own replies are in the input."""

    def __init__(self, world: World, script: str, seen: list[Any]) -> None:
        self.world = world
        self.script = script
        self.seen = seen

    def output(self, given: Any) -> list[Any]:
        items = [] if isinstance(given, str) else given
        self.seen[:] = [item["output"] for item in items if item.get("type") == "function_call_output"]
        turn, was_reply = 0, False
        for item in items:
            is_reply = item.get("type") in ("function_call", "message") and item.get("role") != "user"
            turn += is_reply and not was_reply
            was_reply = is_reply
        found = self.world.reply(self.script, turn)
        if isinstance(found, str):
            return [assistant_message(found)]
        args = [{"input": use.args["task"]} if use.tool == "delegate" else use.args for use in found]
        return [function_call(use.tool, given, call_id=use.id) for use, given in zip(found, args, strict=True)]

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        usage = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12)
        return ModelResponse(output=self.output(input), usage=usage, response_id=None)

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        output = self.output(input)
        if output[0].type == "message":
            delta: Any = {"item_id": "m", "output_index": 0, "content_index": 0, "logprobs": [], "sequence_number": 1}
            yield ResponseTextDeltaEvent(type="response.output_text.delta", delta="re", **delta)
            await asyncio.sleep(0.2)
            self.world.die_once()
        response = Response(
            id="r",
            created_at=0,
            model="scripted",
            object="response",
            output=output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=2)


def agent_of(world: World, script: str, policy: str, seen: list[Any], *, name: str = "clerk") -> Agent[Any]:
    @function_tool
    async def look_up(item: str) -> int:
        return world.look_up(item)

    @function_tool
    async def buy(item: str, amount: int) -> dict[str, Any]:
        return await asyncio.to_thread(world.buy, item, amount)

    @function_tool(needs_approval=True)
    async def pay(item: str) -> str:
        return world.pay(item)

    tools: list[Any] = [look_up, buy, pay]
    if script == "delegate":
        sub = durable(agent_of(world, "delegated", policy, [], name="sub"), declare=world.declarations(policy))
        tools.append(sub.as_tool("delegate", "Delegate a task"))
    handoffs = []
    if script == "hand-off":
        handoffs = [agent_of(world, "second", policy, seen, name="buyer")]
    return Agent(name=name, model=ScriptedModel(world, script, seen), tools=tools, handoffs=handoffs)


async def alone(world: World, agent: Agent[Any]) -> tuple[str, Any, Any]:
    """The same without Holdfast, with the SDK's own session."""
    session = SQLiteSession("s", world.folder / "own.db")
    result = await Runner.run(agent, "buy paper", session=session)
    session.close()
    return "completed", result.final_output, None


async def streamed(hf: holdfast.Holdfast, agent: Agent[Any]) -> tuple[str, Any, Any]:
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            result = Runner.run_streamed(durable(agent, declare={"look_up": {"effect": "read"}}), "read")
            async for _event in result.stream_events():
                pass
            await run.finish(result.final_output)
    return run.status, run.result, None


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    script = script_of(scenario)
    seen: list[Any] = []
    agent, declare = agent_of(world, script, policy, seen), world.declarations(policy)
    if scenario.endswith("alone"):
        return asyncio.run(alone(world, agent))
    if scenario == "stream":
        return asyncio.run(streamed(hf, agent))
    if scenario == "sync":
        with hf.run("t", start={}) as run:
            for _ in run.steps():
                run.finish(Runner.run_sync(durable(agent, declare=declare), "buy paper").final_output)
        return run.status, run.result, seen
    thread = "u" if scenario == "held" else CONTINUED.get(scenario, "t")
    prompt = None if scenario in CONTINUED else "buy paper"
    try:
        result = asyncio.run(run_durably(hf, agent, prompt, thread=thread, declare=declare))
    except Unfinished:
        result = None
    info = hf.run_info(thread)
    assert info is not None
    return info.status, result, json.loads(json.dumps(seen))
