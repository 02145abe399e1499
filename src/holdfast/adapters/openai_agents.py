"""OpenAI Agents SDK: agents whose model calls and tool calls are recorded in the current run.

    agent = durable(agent, declare={"look_up": {"effect": "read"}})
    result = await run_durably(hf, agent, "Buy paper", thread="t")

`HoldfastSession` is a session in a store of Holdfast: see `openai_session`. See `docs/tutorials/openai_agents.md`.
"""

# pyright: reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import copy
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from holdfast.adapters.seam import require

require("openai-agents", "0.24", "0.25", "openai-agents")

import agents
from agents import Agent, CustomTool, FunctionTool, Handoff, Model, RunConfig, Runner
from agents.tool import invoke_function_tool
from pydantic_core import to_jsonable_python

from holdfast.adapters.openai_items import (
    EVENT,
    OUTPUT,
    RESPONSE,
    comparable,
    last_event,
    parsed,
    plain_items,
    repaired_items,
)
from holdfast.adapters.openai_session import HoldfastSession
from holdfast.adapters.seam import Declarations, Seam, checked, current, durable_turn
from holdfast.adapters.session_store import report_repairs
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast

__all__ = ["HoldfastSession", "durable", "run_durably"]

_HOSTED: Final[tuple[Any, ...]] = (
    *(agents.CodeInterpreterTool, agents.FileSearchTool, agents.HostedMCPTool, agents.ImageGenerationTool),
    *(agents.ToolSearchTool, agents.WebSearchTool),
)
_OWN_HISTORY: Final = ("session", "conversation_id", "previous_response_id")  # options with a history of their own


def durable(agent: Agent[Any], *, declare: Declarations | None = None) -> Agent[Any]:
    """Return a copy of an agent that records its model calls and tool calls in the current run.

    The agents that it hands off to, and the tools of its MCP servers, are included. An agent that is used by
    `as_tool()` must be made durable before. `declare` has the options of `holdfast.tool` by the names of tools. A tool
    that is not declared is irreversible: after a crash inside it, a person is asked.
    """
    return _Copies(checked(declare)).of(agent)


class _Copies:
    """The durable copies of an agent and of those that it hands off to, which may hand back."""

    def __init__(self, declare: Declarations, config: RunConfig | None = None) -> None:
        """`config` may have a model for all agents, and the provider of models that are given by their names."""
        self.declare: Final = declare
        self._model = None if config is None else config.model
        self._provider = (config or RunConfig()).model_provider
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}  # with the original, so that its id stays its own

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        if _is_durable(agent):
            return agent
        if id(agent) in self._copies:
            return self._copies[id(agent)][1]
        made: Any = object.__new__(_durable_class(type(agent)))
        made.__dict__.update(agent.__dict__)
        self._copies[id(agent)] = agent, made
        names = [tool.name for tool in agent.tools if isinstance(tool, FunctionTool)]
        made.model = _DurableModel(agent.name, self._model or agent.model, names, self)
        made.tools = [self.tool(tool) for tool in agent.tools]
        made.handoffs = [self._handoff(each) for each in agent.handoffs]
        return made

    def named(self, name: str | None) -> Agent[Any] | None:
        """The copy of the agent with this name."""
        return next((made for _, made in self._copies.values() if made.name == name), None)

    def model(self, given: Any) -> Model:
        """A model that may be given by its name."""
        return given if isinstance(given, Model) else self._provider.get_model(given)

    def _handoff(self, target: Any) -> Any:
        if not isinstance(target, Handoff):
            return self.of(target)
        invoke = target.on_invoke_handoff

        async def invoke_durable(context: Any, arguments: str) -> Any:
            return self.of(await invoke(context, arguments))

        made = copy.copy(target)
        made.on_invoke_handoff = invoke_durable
        return made

    def tool(self, tool: Any) -> Any:
        """A tool whose calls are recorded. InvalidArgument for one that would act in this process unrecorded."""
        if isinstance(tool, _HOSTED):
            return tool  # the provider calls it: it is part of the model's reply
        if not isinstance(tool, FunctionTool | CustomTool):
            raise InvalidArgument(
                f"{type(tool).__name__} cannot be made durable: its calls would not be recorded. Use a function tool."
            )
        made = copy.copy(tool)
        agent = getattr(tool, "_agent_instance", None)
        if agent is None:
            made.on_invoke_tool = _recorded(tool, self.declare)
            if isinstance(made, FunctionTool):
                made.timeout_seconds = None  # `_invoked` has it, as a part of the recorded call
        elif _is_durable(agent):
            made.on_invoke_tool = _in_scope(tool)
        else:
            raise InvalidArgument(
                f"the agent {agent.name!r} is used as a tool and is not durable: use durable(agent).as_tool(…)"
            )
        return made


def _is_durable(agent: Agent[Any]) -> bool:
    return isinstance(agent.model, _DurableModel)


def _durable_class(kind: type[Any]) -> type[Any]:
    """The class of durable agents: the tools of MCP servers are made when an agent runs."""
    if kind not in _classes:

        class Durable(kind):  # type: ignore[misc]  # a class that is only known at run time
            async def get_mcp_tools(self, run_context: Any) -> list[Any]:
                tools = await super().get_mcp_tools(run_context)
                return [self.model.copies.tool(tool) for tool in tools] if _is_durable(self) else tools

        Durable.__name__, Durable.__qualname__ = kind.__name__, kind.__qualname__
        _classes[kind] = Durable
    return _classes[kind]


_classes: dict[type[Any], type[Any]] = {}


# -- models -----------------------------------------------------------------------------------------------------------


class _DurableModel(Model):  # type: ignore[misc]  # the framework is not installed where types are checked
    """Records the replies of an agent's model."""

    def __init__(self, agent: str, model: Any, tools: list[str], copies: _Copies) -> None:
        self._agent = agent
        self._model = model
        self._tools = tools
        self.copies: Final = copies

    @property
    def _inner(self) -> Any:
        self._model = self.copies.model(self._model)
        return self._model

    async def close(self) -> None:
        await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._inner.get_retry_advice(request)

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        seam = current()
        if seam is None:
            return await self._inner.get_response(*args, **kwargs)
        await self._turn(seam, *args, **kwargs)
        request = comparable(*args, **kwargs)
        call = lambda: self._inner.get_response(*args, **kwargs)  # noqa: E731
        return await seam.model(self._agent, call, request=request, codec=RESPONSE)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        seam = current()
        if seam is None:
            events: Any = self._inner.stream_response(*args, **kwargs)
        else:
            await self._turn(seam, *args, **kwargs)
            events = seam.stream(
                self._agent,
                lambda: self._inner.stream_response(*args, **kwargs),
                request=comparable(*args, **kwargs),
                final=last_event,
                chunks=lambda event: [event],
                codec=EVENT,
            )
        async with aclosing(events):
            async for event in events:
                yield event

    async def _turn(self, seam: Seam, system_instructions: Any, input: Any, *_: Any, **__: Any) -> None:  # noqa: A002
        """Before a model call: ask about calls in doubt, and close the step of the turn before it."""
        seam.settle_doubts(self._tools, self.copies.declare)
        await seam.turn(self.copies, lambda: {"messages": plain_items(input), "agent": self._agent})


# -- tools ------------------------------------------------------------------------------------------------------------


def _recorded(tool: Any, declare: Declarations) -> Callable[[Any, str], Awaitable[Any]]:
    """The function of a tool, with its calls recorded."""
    original = tool
    if isinstance(tool, FunctionTool) and declare.get(tool.name, {}).get("errors") == "doubt":
        # Its error function would make a text of an exception, and the call would not be in doubt.
        original = copy.copy(tool)
        original._failure_error_function, original._use_default_failure_error_function = None, False
        original.timeout_behavior = "raise_exception"

    async def invoke(context: Any, arguments: str) -> Any:
        seam = current()
        if seam is None:
            return await _invoked(tool, context, arguments)
        return await seam.tool(
            tool.name,
            lambda: _invoked(original, context, arguments),
            parsed(arguments),
            key=context.tool_call_id,
            declare=declare,
            codec=OUTPUT,
        )

    return invoke


def _invoked(tool: Any, context: Any, arguments: str) -> Any:
    """Call a tool, with its timeout."""
    if getattr(tool, "timeout_seconds", None) is None:
        return tool.on_invoke_tool(context, arguments)
    return invoke_function_tool(function_tool=tool, context=context, arguments=arguments)


def _in_scope(tool: Any) -> Callable[[Any, str], Awaitable[Any]]:
    """The function of an agent that is used as a tool. Its own calls are recorded, in a scope of their own."""

    async def invoke(context: Any, arguments: str) -> Any:
        seam = current()
        if seam is None:
            return await tool.on_invoke_tool(context, arguments)
        with seam.nested(tool.name, context.tool_call_id):
            return await tool.on_invoke_tool(context, arguments)

    return invoke


# -- the two-line form ------------------------------------------------------------------------------------------------


async def run_durably(
    hf: Holdfast | AsyncHoldfast,
    agent: Agent[Any],
    input: Any,  # noqa: A002 - its name in Runner.run
    *,
    thread: str,
    turn: str | None = None,
    declare: Declarations | None = None,
    **options: Any,
) -> Any:
    """Run an agent in a run of a thread, to its end, and return its final output as plain data.

    The same call after a crash resumes the run. `turn` names a request of a conversation: its items are kept in the
    state of the thread. On a fork, and after a rewind, the input None continues from the items. If a tool needs
    approval, the run waits: `hf.answer(thread, "approve CALL_ID", True)`, or a text that says why not. `Unfinished`
    until then. `options` go to `Runner.run`.
    """
    config = options.get("run_config")
    copies = _Copies(checked(declare), config)
    first = copies.of(agent)
    if config is not None and config.model is not None:
        if first is agent:
            raise InvalidArgument("run_config.model cannot replace the model of a durable agent; pass the agent itself")
        options["run_config"] = dataclasses.replace(config, model=None)

    async def body(run: AsyncRun) -> Any:
        is_continued = input is None or not run.fresh
        items, repairs = repaired_items(run.state.get("messages", []))
        report_repairs(thread, repairs)
        items += [] if is_continued else plain_items(input)
        if not items:
            raise InvalidArgument(f"thread {thread!r} has no messages to continue from; pass an input")
        if any(options.get(name) is not None for name in _OWN_HISTORY):
            items = [] if is_continued else plain_items(input)  # the session has the others
        agent = copies.named(run.state.get("agent")) if is_continued else None
        agent = agent or first
        result = await Runner.run(agent, items, **options)
        while result.interruptions:
            state = result.to_state()
            await _decide(state, result.interruptions)
            result = await Runner.run(agent, state, **options)
        run.state.update(messages=to_jsonable_python(result.to_input_list()), agent=result.last_agent.name)
        return to_jsonable_python(result.final_output, serialize_unknown=True)

    return await durable_turn(hf, thread, turn, agent.name, body)


async def _decide(state: Any, interruptions: list[Any]) -> None:
    """Ask about all calls at once, and approve or reject them by the answers."""
    seam = current()
    assert seam is not None  # noqa: S101 - in the block of a run
    refusals = await seam.refusals((item.call_id, item.name, parsed(item.arguments or "")) for item in interruptions)
    for item, refusal in zip(interruptions, refusals, strict=True):
        if refusal is None:
            state.approve(item)
        else:
            state.reject(item, rejection_message=refusal)
