"""A made-up agent framework, and its adapter: the contract of the seam is tested with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import holdfast
from holdfast.adapters.seam import Codec, current
from tests.adapters.kill_world import SCRIPTS, Use, World, script_of

# -- the framework ----------------------------------------------------------------------------------------------------


class Reply:
    """A reply of a model. A class of the framework's own, which only its adapter can record."""

    def __init__(self, uses: list[Use], text: str) -> None:
        self.uses = uses
        self.text = text


class Agent:
    """Calls its model and its tools until the model replies with text."""

    def __init__(self, name: str, model: Callable[[list[Any]], Awaitable[Reply]], tools: Mapping[str, Any]) -> None:
        self.name = name
        self.model = model
        self.tools = dict(tools)

    async def call(self, use: Use) -> Any:
        return await self.tools[use.tool](**use.args)

    async def run(self, task: str) -> tuple[str, list[Any]]:
        messages: list[Any] = [task]
        while True:
            reply = await self.model(messages)
            messages.append([list(use) for use in reply.uses] or reply.text)
            if not reply.uses:
                return reply.text, messages
            messages.append(await asyncio.gather(*map(self.call, reply.uses)))


# -- its adapter ------------------------------------------------------------------------------------------------------

REPLY = Codec(
    "small.Reply/1",
    lambda reply: {"uses": [list(use) for use in reply.uses], "text": reply.text},
    lambda plain: Reply([Use(*each) for each in plain["uses"]], plain["text"]),
)


def durable(agent: Agent, declare: Mapping[str, Mapping[str, Any]] | None = None) -> Agent:
    """The agent with its calls recorded in the current run."""
    made = Agent(agent.name, agent.model, agent.tools)

    async def model(messages: list[Any]) -> Reply:
        seam = current()
        if seam is None:
            return await agent.model(messages)
        seam.settle_doubts(agent.tools, declare)
        reply: Reply = await seam.model(agent.name, lambda: agent.model(messages), request=messages, codec=REPLY)
        return reply

    async def call(use: Use) -> Any:
        seam = current()
        if seam is None:
            return await agent.call(use)
        return await seam.tool(
            use.tool,
            lambda: agent.call(use),
            use.args,
            key=use.id,
            declare=declare,
            said=lambda result: {"said": result},
            caught=lambda error: {"error": str(error)},
        )

    made.model = model
    made.call = call  # type: ignore[method-assign]
    return made


# -- the program of the kill experiment -------------------------------------------------------------------------------


def scripted(world: World, script: str) -> Callable[[list[Any]], Awaitable[Reply]]:
    async def model(messages: list[Any]) -> Reply:
        await asyncio.sleep(0.01)
        found = world.reply(script, (len(messages) - 1) // 2)
        return Reply([], found) if isinstance(found, str) else Reply(found, "")

    return model


def agent_of(world: World, script: str, policy: str) -> Agent:
    async def look_up(item: str) -> Any:
        return world.look_up(item)

    async def buy(item: str, amount: int) -> Any:
        return await asyncio.to_thread(world.buy, item, amount)

    async def delegate(task: str) -> Any:
        return (await agent_of(world, "delegated", policy).run(task))[0]

    tools = {"look_up": look_up, "buy": buy, "delegate": delegate}
    return durable(Agent("clerk", scripted(world, script), tools), world.declarations(policy))


def run_agent(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    if scenario.endswith("alone"):
        text, seen = asyncio.run(agent_of(world, script_of(scenario), policy).run("buy paper"))
        return "completed", text, seen
    if scenario == "sync run":
        return run_in_sync_run(world, hf, policy)
    return asyncio.run(run_in_async_run(world, hf, scenario, policy))


def run_in_sync_run(world: World, hf: holdfast.Holdfast, policy: str) -> tuple[str, Any, Any]:
    """An async framework in the block of a sync run."""
    seen: Any = None
    with hf.run("t", start={}) as run:
        for _ in run.steps():
            text, seen = asyncio.run(agent_of(world, "second", policy).run("buy paper"))
            run.finish(text)
    return run.status, run.result, seen


async def run_in_async_run(world: World, hf: holdfast.Holdfast, scenario: str, policy: str) -> tuple[str, Any, Any]:
    seen: Any = None
    async with hf.aio.run("t", start={}) as run:
        async for _ in run.steps():
            if scenario == "stream":
                text = await streamed(world)
            elif scenario == "sub-agents":
                text = await sub_agents(world, run, policy)
            else:
                assert scenario in SCRIPTS
                text, seen = await agent_of(world, scenario, policy).run("buy paper")
            await run.finish(text)
    return run.status, run.result, seen


async def streamed(world: World) -> str:
    """Two streams. The process dies in the middle of the second."""

    async def chunks(number: int) -> AsyncIterator[str]:
        world.note("models", f"stream {number}")
        for word in ("to", "be", "or"):
            yield word
            if number == 2 and word == "be":
                await asyncio.sleep(0.1)
                world.die_once()

    seam = current()
    assert seam is not None
    texts = []
    for number in (1, 2):
        source = seam.stream(
            "poet",
            lambda number=number: chunks(number),  # type: ignore[misc]
            request=number,
            final=" ".join,
            chunks=str.split,
        )
        texts.append(" ".join([chunk async for chunk in source]))
    return "; ".join(texts)


async def sub_agents(world: World, run: holdfast.AsyncRun, policy: str) -> str:
    """Two sub-agents of one name at the same time, in scopes of their own. The second starts first after the kill."""
    has_died = bool(world.lines("died"))

    async def ask(who: str, seconds: float) -> str:
        async def model(messages: list[Any]) -> Reply:
            await asyncio.sleep(0.1)
            world.note("models", f"{who} {len(messages)}")
            return Reply([buy_of(who)], "") if len(messages) == 1 else Reply([], f"{who} bought {messages[-1]}")

        async def buy(item: str, amount: int) -> Any:
            return await asyncio.to_thread(world.buy, item, amount)

        with run.scope(who):
            await asyncio.sleep(seconds)
            agent = durable(Agent("helper", model, {"buy": buy}), world.declarations(policy))
            return (await agent.run("the same task"))[0]

    first, second = (0.2, 0.0) if has_died else (0.0, 0.2)
    texts = await asyncio.gather(ask("ink", first), ask("paper", second))
    return "; ".join(texts)


def buy_of(item: str) -> Use:
    return Use("buy", {"item": item, "amount": 3}, "c1")
