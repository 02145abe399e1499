"""The program of the kill experiment with Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

import holdfast
from holdfast.adapters.agent_framework import middleware, run_durably
from holdfast.errors import Unfinished
from tests.adapters.kill_world import CONTINUED, World, script_of


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
    """Replies by how many of its own replies are in the messages."""

    def __init__(self, world: World, script: str, seen: list[Any]) -> None:
        super().__init__()
        self.world = world
        self.script = script
        self.seen = seen

    def contents(self, messages: Any) -> list[Any]:
        results = [each for message in messages for each in message.contents if each.type == "function_result"]
        self.seen[:] = [each.result for each in results]
        later = [each for message in messages[1:] if message.role == "user" for each in message.contents]
        self.seen += [each.text for each in later if each.type == "text"]
        turn = sum(message.role == "assistant" for message in messages)
        found = self.world.reply(self.script, turn)
        if isinstance(found, str):
            return [Content.from_text(found)]
        return [
            Content.from_function_call(call_id=use.id, name=use.tool, arguments=json.dumps(use.args)) for use in found
        ]

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        if stream:
            return ResponseStream(self.updates(messages), finalizer=ChatResponse.from_updates)
        return self.reply(messages)

    async def reply(self, messages: Any) -> ChatResponse:
        usage: Any = {"input_token_count": 10, "output_token_count": 2}
        return ChatResponse(messages=[Message("assistant", self.contents(messages))], usage_details=usage)

    async def updates(self, messages: Any) -> AsyncIterable[Any]:
        contents = self.contents(messages)
        if contents[0].type == "text" and self.script == "stream":
            yield ChatResponseUpdate(contents=[Content.from_text("re")], role="assistant", message_id="m")
            await asyncio.sleep(0.2)
            self.world.die_once()
            contents = [Content.from_text(contents[0].text[2:])]
        yield ChatResponseUpdate(contents=contents, role="assistant", message_id="m")


def agent_of(
    world: World, script: str, policy: str, seen: list[Any], *, is_durable: bool, name: str = "clerk"
) -> Agent:
    @tool
    def look_up(item: str) -> int:
        """Look up."""
        return world.look_up(item)

    @tool
    async def buy(item: str, amount: int) -> dict[str, Any]:
        """Buy."""
        return await asyncio.to_thread(world.buy, item, amount)

    @tool(approval_mode="always_require")
    def pay(item: str) -> str:
        """Pay."""
        return world.pay(item)

    tools: list[Any] = [look_up, buy, pay]
    if script == "delegate":
        sub = agent_of(world, "delegated", policy, [], is_durable=is_durable, name="sub")
        tools.append(sub.as_tool(name="delegate", description="Delegate a task"))
    return Agent(
        client=ScriptedClient(world, script, seen),
        name=name,
        tools=tools,
        middleware=middleware(declare=world.declarations(policy)) if is_durable else None,
    )


async def streamed(hf: holdfast.Holdfast, agent: Agent) -> tuple[str, Any, Any]:
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            stream = agent.run("read", stream=True)
            async for _update in stream:
                pass
            await run.finish((await stream.get_final_response()).text)
    return run.status, run.result, None


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    script = script_of(scenario)
    seen: list[Any] = []
    agent = agent_of(world, script, policy, seen, is_durable=not scenario.endswith("alone"))
    if scenario.endswith("alone"):
        return "completed", asyncio.run(agent.run("buy paper")).text, None
    if scenario == "stream":
        return asyncio.run(streamed(hf, agent))
    if scenario == "sync":
        with hf.run("t", start={}) as run:
            for _ in run.steps():
                run.finish(asyncio.run(agent.run("buy paper")).text)
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
