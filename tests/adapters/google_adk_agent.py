"""The program of the kill experiment with Google ADK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import google.adk.auth.auth_preprocessor
import google.adk.flows.llm_flows.auto_flow  # noqa: F401 - ADK imports these when it is used, which takes a second
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import AgentTool, FunctionTool
from google.genai import types

import holdfast
from holdfast.adapters.google_adk import HoldfastPlugin, run_durably
from holdfast.errors import Unfinished
from tests.adapters.kill_world import CONTINUED, World, script_of


class ScriptedModel(BaseLlm):  # type: ignore[misc]
    """Replies by how many of its own replies are in the request."""

    world: Any
    script: str
    seen: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        parts = [part for content in llm_request.contents for part in content.parts]
        self.seen[:] = [part.function_response.response for part in parts if part.function_response]
        self.seen += [part.text for part in parts[1:] if part.text]
        turn = sum(content.role == "model" for content in llm_request.contents)
        found = self.world.reply(self.script, turn)
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=2)
        if isinstance(found, str):
            if stream:
                yield LlmResponse(content=types.ModelContent(found[:2]), partial=True)
                await asyncio.sleep(0.2)
                self.world.die_once()
            yield LlmResponse(content=types.ModelContent(found), usage_metadata=usage)
        else:
            calls = [self.call(use) for use in found]
            yield LlmResponse(content=types.Content(role="model", parts=calls), usage_metadata=usage)

    def call(self, use: Any) -> types.Part:
        args = {"request": use.args["task"]} if use.tool == "delegate" else use.args
        args = {"agent_name": "buyer"} if use.tool == "transfer_to_buyer" else args
        name = "transfer_to_agent" if use.tool == "transfer_to_buyer" else use.tool
        return types.Part(function_call=types.FunctionCall(id=use.id, name=name, args=args))


def agent_of(world: World, script: str, seen: list[Any], *, name: str = "clerk") -> LlmAgent:
    def look_up(item: str) -> int:
        """Look up."""
        return world.look_up(item)

    async def buy(item: str, amount: int) -> dict[str, Any]:
        """Buy."""
        return await asyncio.to_thread(world.buy, item, amount)

    def pay(item: str) -> str:
        """Pay."""
        return world.pay(item)

    tools: list[Any] = [look_up, buy, FunctionTool(pay, require_confirmation=True)]
    if script == "delegate":
        tools.append(AgentTool(agent_of(world, "delegated", [], name="delegate")))
    subs = [agent_of(world, "second", seen, name="buyer")] if script == "hand-off" else []
    return LlmAgent(
        name=name,
        model=ScriptedModel(model="scripted", world=world, script=script, seen=seen),
        tools=tools,
        sub_agents=subs,
    )


async def events_of(agent: LlmAgent, text: str, plugins: list[Any], **options: Any) -> list[Any]:
    sessions = InMemorySessionService()
    runner = Runner(app_name="shop", agent=agent, session_service=sessions, plugins=plugins)
    session = await sessions.create_session(app_name="shop", user_id="u")
    return [
        event
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=types.UserContent(text), **options
        )
    ]


def text_of(events: list[Any]) -> str:
    return str(events[-1].content.parts[0].text)


async def streamed(hf: holdfast.Holdfast, agent: LlmAgent, plugins: list[Any]) -> tuple[str, Any, Any]:
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            config = RunConfig(streaming_mode=StreamingMode.SSE)
            await run.finish(text_of(await events_of(agent, "read", plugins, run_config=config)))
    return run.status, run.result, None


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    script = script_of(scenario)
    seen: list[Any] = []
    agent, declare = agent_of(world, script, seen), world.declarations(policy)
    plugins = [HoldfastPlugin(declare=declare)]
    if scenario.endswith("alone"):
        return "completed", text_of(asyncio.run(events_of(agent, "buy paper", []))), None
    if scenario == "stream":
        return asyncio.run(streamed(hf, agent, plugins))
    if scenario == "sync":
        with hf.run("t", start={}) as run:
            for _ in run.steps():
                run.finish(text_of(asyncio.run(events_of(agent, "buy paper", plugins))))
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
