"""OpenAI Agents SDK: agents whose model calls and tool calls are recorded in the current run.

    agent = durable(agent, declare={"look_up": {"effect": "read"}})
    result = await run_durably(hf, agent, "Buy paper", thread="t")

`HoldfastSession` is a session in a store of Holdfast: see `openai_session`. See `docs/tutorials/openai_agents.md`.
"""

# pyright: reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from holdfast.adapters.packages import require

require("openai-agents", "0.24", "0.25", "openai-agents")

import agents
from agents import Agent, CustomTool, FunctionTool, Handoff, Model, ModelResponse, RunConfig, Runner
from openai.types.responses import ResponseCompletedEvent, ResponseFailedEvent, ResponseIncompleteEvent
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from holdfast.adapters.durable_turn import durable_turn
from holdfast.adapters.openai_session import HoldfastSession
from holdfast.adapters.seam import Codec, Declarations, checked, current
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument, Unsupported
from holdfast.handle import Holdfast
from holdfast.runs.context import Suspended as Waiting

__all__ = ["HoldfastSession", "durable", "run_durably"]

_HOSTED: Final[tuple[Any, ...]] = (
    *(agents.CodeInterpreterTool, agents.FileSearchTool, agents.HostedMCPTool, agents.ImageGenerationTool),
    *(agents.ToolSearchTool, agents.WebSearchTool),
)
_ENDS: Final[dict[str, type[BaseModel]]] = {
    "response.completed": ResponseCompletedEvent,
    "response.incomplete": ResponseIncompleteEvent,
    "response.failed": ResponseFailedEvent,
}
_OUTPUTS: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (agents.ToolOutputText, agents.ToolOutputImage, agents.ToolOutputFileContent)
}


def durable(agent: Agent[Any], *, declare: Declarations | None = None) -> Agent[Any]:
    """Return a copy of an agent that records its model calls and tool calls in the current run.

    The agents that it hands off to, and the tools of its MCP servers, are included. An agent that is used by
    `as_tool()` must be made durable before. `declare` has the options of `holdfast.tool` by the names of tools. A tool
    that is not declared is irreversible: after a crash inside it, a person is asked.
    """
    return _Copies(checked(declare)).of(agent)


class _Copies:
    """The durable copies of an agent and of those that it hands off to, which may hand back."""

    def __init__(self, declare: Declarations) -> None:
        self._declare = declare
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}  # with the original, so that its id stays its own

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        if isinstance(agent.model, _DurableModel):
            return agent
        if id(agent) in self._copies:
            return self._copies[id(agent)][1]
        made: Any = object.__new__(_durable_class(type(agent)))
        made.__dict__.update(agent.__dict__)
        self._copies[id(agent)] = agent, made
        names = [tool.name for tool in agent.tools if isinstance(tool, FunctionTool)]
        made.model = _DurableModel(agent.name, agent.model, names, self._declare)
        made.tools = [self.tool(tool) for tool in agent.tools]
        made.handoffs = [self._handoff(each) for each in agent.handoffs]
        made.durable_tool = self.tool
        return made

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
            made.on_invoke_tool = _recorded(tool, self._declare)
        elif isinstance(agent.model, _DurableModel):
            made.on_invoke_tool = _in_scope(tool)
        else:
            raise InvalidArgument(
                f"the agent {agent.name!r} is used as a tool and is not durable: use durable(agent).as_tool(…)"
            )
        return made


def _durable_class(kind: type[Any]) -> type[Any]:
    """The class of durable agents: the tools of MCP servers are made when an agent runs."""
    if kind not in _classes:

        class Durable(kind):  # type: ignore[misc]  # a class that is only known at run time
            async def get_mcp_tools(self, run_context: Any) -> list[Any]:
                return [self.durable_tool(tool) for tool in await super().get_mcp_tools(run_context)]

        Durable.__name__, Durable.__qualname__ = kind.__name__, kind.__qualname__
        _classes[kind] = Durable
    return _classes[kind]


_classes: dict[type[Any], type[Any]] = {}


# -- models -----------------------------------------------------------------------------------------------------------


class _DurableModel(Model):  # type: ignore[misc]  # the framework is not installed where types are checked
    """Records the replies of an agent's model."""

    def __init__(self, agent: str, model: Any, tools: list[str], declare: Declarations) -> None:
        self._agent = agent
        self._model = model
        self._tools = tools
        self._declare = declare

    @property
    def _inner(self) -> Any:
        if not isinstance(self._model, Model):
            self._model = RunConfig().model_provider.get_model(self._model)
        return self._model

    async def close(self) -> None:
        await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._inner.get_retry_advice(request)

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        seam = current()
        if seam is None:
            return await self._inner.get_response(*args, **kwargs)
        seam.settle_doubts(self._tools, self._declare)
        request = _comparable(*args, **kwargs)
        call = lambda: self._inner.get_response(*args, **kwargs)  # noqa: E731
        return await seam.model(self._agent, call, request=request, codec=_RESPONSE)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        seam = current()
        if seam is None:
            async for event in self._inner.stream_response(*args, **kwargs):
                yield event
            return
        seam.settle_doubts(self._tools, self._declare)
        events = seam.stream(
            self._agent,
            lambda: self._inner.stream_response(*args, **kwargs),
            request=_comparable(*args, **kwargs),
            final=_last_event,
            chunks=lambda event: [event],
            codec=_EVENT,
        )
        async for event in events:
            yield event


def _comparable(system_instructions: Any, input: Any, *_: Any, **options: Any) -> Any:  # noqa: A002 - its name there
    """The part of a request that identifies it."""
    kept = [options.get(name) for name in ("previous_response_id", "conversation_id", "prompt")]
    return to_jsonable_python([system_instructions, input, *kept], serialize_unknown=True)


def _last_event(events: list[Any]) -> Any:
    """The event with the whole response."""
    ends = [event for event in events if event.type in _ENDS]
    if not ends:
        raise ConnectionError("the stream of the model ended before its response was complete")
    return ends[-1]


_adapter: Final = TypeAdapter(ModelResponse)
_RESPONSE: Final = Codec(
    "openai_agents.ModelResponse/1",
    lambda reply: _adapter.dump_python(reply, mode="json", exclude_unset=True, warnings=False),
    _adapter.validate_python,
)
_EVENT: Final = Codec(
    "openai_agents.Event/1",
    lambda event: event.model_dump(mode="json", exclude_unset=True, warnings=False),
    lambda plain: _ENDS[plain["type"]].model_validate(plain),
)


# -- tools ------------------------------------------------------------------------------------------------------------


def _recorded(tool: Any, declare: Declarations) -> Callable[[Any, str], Awaitable[Any]]:
    """The function of a tool, with its calls recorded."""
    original = tool
    if isinstance(tool, FunctionTool) and declare.get(tool.name, {}).get("errors") == "doubt":
        # Its error function would make a text of an exception, and the call would not be in doubt.
        original = copy.copy(tool)
        original._failure_error_function, original._use_default_failure_error_function = None, False

    async def invoke(context: Any, arguments: str) -> Any:
        seam = current()
        if seam is None:
            return await tool.on_invoke_tool(context, arguments)
        return await seam.tool(
            tool.name,
            lambda: original.on_invoke_tool(context, arguments),
            _parsed(arguments),
            key=context.tool_call_id,
            declare=declare,
            codec=_OUTPUT,
        )

    return invoke


def _in_scope(tool: Any) -> Callable[[Any, str], Awaitable[Any]]:
    """The function of an agent that is used as a tool. Its own calls are recorded, in a scope of their own."""

    async def invoke(context: Any, arguments: str) -> Any:
        seam = current()
        if seam is None:
            return await tool.on_invoke_tool(context, arguments)
        with seam.nested(tool.name, context.tool_call_id):
            return await tool.on_invoke_tool(context, arguments)

    return invoke


def _parsed(arguments: str) -> dict[str, Any]:
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        found = arguments
    return found if isinstance(found, dict) else {"input": found}


def _dumped(output: Any) -> Any:
    """An output of a tool as plain data. The SDK makes a text of an object that it does not know, and so does this."""
    if isinstance(output, list):
        return {"list": [_dumped(each) for each in output]}
    if type(output) in _OUTPUTS.values():
        return {"type": type(output).__name__, "data": output.model_dump(mode="json", exclude_unset=True)}
    try:
        msgpack.check(output, is_state=False)
    except Unsupported:
        output = str(output)
    return {"plain": output}


def _loaded(plain: dict[str, Any]) -> Any:
    match plain:
        case {"list": list(items)}:
            return [_loaded(each) for each in items]
        case {"type": str(name), "data": data}:
            return _OUTPUTS[name].model_validate(data)
        case _:
            return plain["plain"]


_OUTPUT: Final = Codec("openai_agents.ToolOutput/1", _dumped, _loaded)


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
    state of the thread. If a tool needs approval, the run waits: `hf.answer(thread, "approve CALL_ID", True)`, or a
    text that says why not. `Unfinished` until then. `options` go to `Runner.run`.
    """
    agent = durable(agent, declare=declare)
    given = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)

    async def body(run: AsyncRun) -> Any:
        result = await Runner.run(agent, [*run.state["messages"], *given], **options)
        while result.interruptions:
            state = result.to_state()
            await _decide(run, state, result.interruptions)
            result = await Runner.run(agent, state, **options)
        run.state["messages"] = to_jsonable_python(result.to_input_list())
        return to_jsonable_python(result.final_output, serialize_unknown=True)

    return await durable_turn(hf, thread, turn, agent.name, body)


async def _decide(run: AsyncRun, state: Any, interruptions: list[Any]) -> None:
    """Ask about all calls at once, and approve or reject them by the answers."""
    waiting: BaseException | None = None
    for item in interruptions:
        payload = {"tool": item.name, "arguments": _parsed(item.arguments or "")}
        try:
            answer = await run.wait(f"approve {item.call_id}", payload)
        except Waiting as asked:
            waiting = asked
            continue
        if answer is True:
            state.approve(item)
        else:
            state.reject(item, rejection_message=str(answer or "The call was not approved."))
    if waiting is not None:
        raise waiting
