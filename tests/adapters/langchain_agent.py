"""The program of the kill experiment with agents of LangChain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

import holdfast
from holdfast.adapters.langchain import HoldfastMiddleware, run_durably
from holdfast.errors import Unfinished
from tests.adapters.kill_world import CONTINUED, World, script_of


class ScriptedModel(BaseChatModel):
    """Replies by how many of its own replies are in the messages."""

    world: Any
    script: str
    seen: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def reply(self, messages: list[Any]) -> AIMessage:
        self.seen[:] = [message.content for message in messages if isinstance(message, ToolMessage)]
        turn = sum(isinstance(message, AIMessage) for message in messages)
        found = self.world.reply(self.script, turn)
        usage: Any = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
        if isinstance(found, str):
            return AIMessage(found, usage_metadata=usage)
        calls = [{"name": use.tool, "args": use.args, "id": use.id, "type": "tool_call"} for use in found]
        return AIMessage("", tool_calls=calls, usage_metadata=usage)

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages))])

    async def _astream(self, messages: list[Any], *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        reply = self.reply(messages)
        if reply.tool_calls:
            calls: Any = [
                {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": 0}
                for call in reply.tool_calls
            ]
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=calls))
            return
        yield ChatGenerationChunk(message=AIMessageChunk(content=reply.text[:2]))
        await asyncio.sleep(0.2)
        self.world.die_once()
        yield ChatGenerationChunk(message=AIMessageChunk(content=reply.text[2:]))


def agent_of(world: World, script: str, policy: str, seen: list[Any], *, is_durable: bool) -> Any:
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

    @tool
    async def delegate(task: str) -> str:
        """Delegate a task."""
        sub = agent_of(world, "delegated", policy, [], is_durable=is_durable)
        return str((await sub.ainvoke({"messages": [("user", task)]}))["messages"][-1].text)

    middleware: list[Any] = [HoldfastMiddleware(declare=world.declarations(policy))] if is_durable else []
    if script == "approval":
        middleware = [HumanInTheLoopMiddleware(interrupt_on={"pay": True}), *middleware]
    return create_agent(
        ScriptedModel(world=world, script=script, seen=seen),
        [look_up, buy, pay, delegate],
        middleware=middleware,
        checkpointer=InMemorySaver() if script == "approval" else None,
        name="clerk",
    )


async def streamed(hf: holdfast.Holdfast, agent: Any) -> tuple[str, Any, Any]:
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            texts = []
            async for chunk, _metadata in agent.astream({"messages": [("user", "read")]}, stream_mode="messages"):
                texts.append(chunk.text if chunk.type.startswith(("AI", "ai")) else "")
            await run.finish("".join(texts) or "read")
    return run.status, run.result, None


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    script = script_of(scenario)
    seen: list[Any] = []
    agent = agent_of(world, script, policy, seen, is_durable=not scenario.endswith("alone"))
    sent: Any = {"messages": [("user", "buy paper")]}
    if scenario.endswith("alone"):
        return "completed", agent.invoke(sent)["messages"][-1].text, None
    if scenario == "stream":
        return asyncio.run(streamed(hf, agent))
    if scenario == "sync":
        with hf.run("t", start={}) as run:
            for _ in run.steps():
                run.finish(str(agent.invoke(sent)["messages"][-1].text))
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
