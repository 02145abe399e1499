"""Strands Agents: agents whose model calls and tool calls are recorded in the current run.

    agent = Agent(name="clerk", tools=[look_up, buy], plugins=[HoldfastPlugin(declare={"look_up": {"effect": "read"}})])
    result = await run_durably(hf, agent, "Buy paper", thread="t")

`HoldfastSessionRepository` and `HoldfastStorage` are in `strands_session`. See `docs/tutorials/strands.md`.
"""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from holdfast.adapters.seam import require

require("strands-agents", "1.62", "2", "strands")

from pydantic_core import to_jsonable_python
from strands import Agent, Snapshot
from strands.hooks import AfterToolsEvent
from strands.interrupt import Interrupt, InterruptException
from strands.middleware import ExecuteToolStage, InvokeModelStage, ModelStopReason, ToolResultEvent
from strands.plugins import Plugin
from strands.types._events import ToolInterruptEvent
from strands.types.exceptions import EventLoopException

from holdfast.adapters.seam import Codec, Declarations, Emit, Seam, call_events, checked, current, durable_turn
from holdfast.adapters.seam_calls import error_record, recorded_error
from holdfast.adapters.strands_session import HoldfastSessionRepository, HoldfastStorage, comparable
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.handle import Holdfast
from holdfast.runs.block_end import Waiting

__all__ = ["HoldfastPlugin", "HoldfastSessionRepository", "HoldfastStorage", "run_durably"]

# Tools that change the agent or the swarm in this process, and nothing else. They are called again when a run resumes.
_CONTROL: Final = ("strands.multiagent.swarm", "strands.vended_tools.stop", "strands.background_tasks")
_durable: Final[WeakSet[Any]] = WeakSet()  # the agents that have the plugin


class HoldfastPlugin(Plugin):  # type: ignore[misc]  # the framework is not installed where types are checked
    """Records an agent's model calls and tool calls in the current run. Outside a run it changes nothing.

    `declare` has the options of `holdfast.tool` by the names of tools. A tool that is not declared is irreversible:
    after a crash inside it, a person is asked. An agent that is used as a tool needs a plugin of its own.
    """

    name = "holdfast"

    def __init__(self, *, declare: Declarations | None = None) -> None:
        self.declare: Final = checked(declare)
        self._raised: WeakKeyDictionary[Any, BaseException] = WeakKeyDictionary()
        super().__init__()

    def init_agent(self, agent: Any) -> None:
        _durable.add(agent)
        agent.add_middleware(InvokeModelStage, self._model)
        agent.add_middleware(ExecuteToolStage, self._tool)
        agent.add_hook(self._after_tools, AfterToolsEvent)

    # -- models -----------------------------------------------------------------------------------------------------

    async def _model(self, context: Any, make: Callable[[Any], Any]) -> AsyncGenerator[Any, None]:
        seam = current()
        if seam is None:
            async with aclosing(make(context)) as events:
                async for event in events:
                    yield event
            return
        if context.model.stateful:
            raise InvalidArgument(
                f"{type(context.model).__name__} keeps the conversation at its provider, so its calls cannot be "
                "recorded. Use a model that gets all messages."
            )
        seam.settle_doubts([spec["name"] for spec in context.tool_specs], self.declare)
        await seam.turn(context.agent.name, lambda: _kept(context.agent))
        request = [context.system_prompt, [comparable(message) for message in context.messages]]

        async def call(emit: Emit) -> Any:
            return await _last(make(context), ModelStopReason, emit)

        async def recorded(emit: Emit) -> Any:
            try:
                return await seam.model(context.agent.name, lambda: call(emit), request=request, codec=_STOP)
            except _Unrecorded as cancelled:
                return cancelled.event

        async with aclosing(call_events(recorded)) as events:
            async for event in events:
                yield event

    # -- tools ------------------------------------------------------------------------------------------------------

    async def _tool(self, context: Any, make: Callable[[Any], Any]) -> AsyncGenerator[Any, None]:
        seam, tool = current(), context.tool
        if seam is None or tool is None or _is_control(tool):
            async with aclosing(make(context)) as events:
                async for event in events:
                    yield event
            return
        if tool.tool_type == "agent" and tool.agent in _durable:
            call = self._nested(seam, context, make)
        else:
            call = self._recorded(seam, context, make)
        try:
            async with aclosing(call_events(call)) as events:
                async for event in events:
                    yield event
        except (Waiting, HoldfastError) as error:
            self._raised[context.agent] = error  # Strands would continue without the tool's result
            raise

    def _nested(self, seam: Seam, context: Any, make: Callable[[Any], Any]) -> Callable[[Emit], Awaitable[Any]]:
        """A call of an agent that is used as a tool. Its own calls are recorded, in a scope of their own."""

        async def call(emit: Emit) -> Any:
            with seam.nested(context.tool_use["name"], context.tool_use["toolUseId"]):
                return await _last(make(context), (ToolResultEvent, ToolInterruptEvent), emit)

        return call

    def _recorded(self, seam: Seam, context: Any, make: Callable[[Any], Any]) -> Callable[[Emit], Awaitable[Any]]:
        use, agent = context.tool_use, context.agent
        name, id_ = use["name"], use["toolUseId"]
        is_in_doubt = self.declare.get(name, {}).get("errors") == "doubt"

        async def made(emit: Emit) -> dict[str, Any]:
            before = agent.state.get()
            try:
                event = await _last(make(context), (ToolResultEvent, ToolInterruptEvent), emit)
            except InterruptException as interrupt:
                event = ToolInterruptEvent(use, [interrupt.interrupt])
            if is_in_doubt and isinstance(event, ToolResultEvent) and event.exception is not None:
                raise event.exception
            return {**_outcome_of(event), **_state_changes(before, agent.state.get())}

        async def call(emit: Emit) -> Any:
            found = await seam.tool(
                name,
                lambda: made(emit),
                to_jsonable_python(use["input"], serialize_unknown=True),
                key=id_ if _is_asked_for(agent, id_) else "direct",  # Strands makes up an id for a direct call
                declare=self.declare,
                codec=_OUTCOME,
                said=lambda result: {"result": _reported(result)},
            )
            for key, value in found.get("set", {}).items():
                agent.state.set(key, value)
            for key in found.get("deleted", ()):
                agent.state.delete(key)
            if "interrupts" in found:
                return ToolInterruptEvent(use, [Interrupt(**each) for each in found["interrupts"]])
            error = recorded_error(*found["error"]) if "error" in found else None
            return ToolResultEvent({**found["result"], "toolUseId": id_}, exception=error)

        return call

    def _after_tools(self, event: Any) -> None:
        """Stop an agent whose run waits for a person, or has ended, before the results of its tools are used."""
        raised = self._raised.pop(event.agent, None)
        if raised is not None:
            raise raised


# -- events -----------------------------------------------------------------------------------------------------------


class _Unrecorded(Exception):
    """Ends a model call without a record: the program has cancelled the agent."""

    def __init__(self, event: Any) -> None:
        self.event = event


async def _last(events: Any, kinds: Any, emit: Emit) -> Any:
    """Pass the events of a call on, but for its result, which is returned."""
    result: Any = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, kinds):
                result = event
            else:
                emit(event)
    if isinstance(result, ModelStopReason) and result.stop_reason == "cancelled":
        raise _Unrecorded(result)
    if result is None:
        raise RuntimeError("the call ended without a result")
    return result


def _is_control(tool: Any) -> bool:
    return tool.tool_type == "structured_output" or str(tool.__module__).startswith(_CONTROL)


def _is_asked_for(agent: Any, id_: str) -> bool:
    """Whether the model has asked for a call, or the program makes it: `agent.tool.name()`."""
    content = agent.messages[-1]["content"] if agent.messages else []
    return any(block.get("toolUse", {}).get("toolUseId") == id_ for block in content)


# -- results as plain data --------------------------------------------------------------------------------------------


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    """The usage of a reply, also with the names that guards of Holdfast count."""
    names = {
        "input_tokens": "inputTokens",
        "output_tokens": "outputTokens",
        "cache_read_input_tokens": "cacheReadInputTokens",
        "cache_creation_input_tokens": "cacheWriteInputTokens",
    }
    return {name: usage[given] for name, given in names.items() if given in usage}


def _stop_of(plain: dict[str, Any]) -> Any:
    return ModelStopReason(plain["stop_reason"], plain["message"], plain["strands_usage"], plain["metrics"])


_STOP: Final = Codec(
    "strands.ModelStopReason/1",
    lambda event: {
        "stop_reason": event.stop_reason,
        "message": dict(event.message),
        "strands_usage": dict(event.usage),
        "metrics": dict(event.metrics),
        "usage": _usage(event.usage),
    },
    _stop_of,
)
_OUTCOME: Final = Codec("strands.ToolResult/1", lambda value: value, lambda value: value)


def _outcome_of(event: Any) -> dict[str, Any]:
    """The outcome of a tool call: its result, or the interrupts that it raised."""
    if isinstance(event, ToolInterruptEvent):
        kept = ("id", "name", "reason")
        return {"interrupts": [{name: getattr(each, name) for name in kept} for each in event.interrupts]}
    found: dict[str, Any] = {"result": dict(event.tool_result)}
    return found if event.exception is None else {**found, "error": error_record(event.exception)}


def _state_changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The members of an agent's state that a tool has changed."""
    if before == after:
        return {}
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {"set": changed, "deleted": [key for key in before if key not in after]}


def _reported(result: Any) -> dict[str, Any]:
    """The result of a tool, for what a person, a probe or `give_up` reported."""
    if isinstance(result, dict) and set(result) >= {"status", "content"}:
        return result
    text = result if isinstance(result, str) else json.dumps(to_jsonable_python(result), ensure_ascii=False)
    return {"status": "success", "content": [{"text": text}]}


# -- the two-line form ------------------------------------------------------------------------------------------------


async def run_durably(
    hf: Holdfast | AsyncHoldfast,
    agent: Agent | Callable[[], Agent],
    prompt: Any = None,
    *,
    thread: str,
    turn: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent in a run of a thread, to its end, and return its text or its structured output as plain data.

    The same call after a crash resumes the run. `turn` names a request of a conversation: its messages and the agent's
    state are kept in the state of the thread. On a fork, and after a rewind, the agent continues from them. If the
    agent is interrupted, the run waits: `hf.answer(thread, "NAME TOOL_USE_ID", response)`. `Unfinished` until then.
    `options` go to `agent.invoke_async`.

    An agent with a session manager is given as a function that makes it, so that its session is read in the run.
    """

    async def body(run: AsyncRun) -> Any:
        made: Any = agent if isinstance(agent, Agent) else agent()
        if made not in _durable:
            raise InvalidArgument("run_durably needs an agent with plugins=[HoldfastPlugin()]")
        before = made.take_snapshot(preset="session")
        if run.state["messages"]:
            data = {**run.state["agent"]["data"], "messages": run.state["messages"]}
            made.load_snapshot(Snapshot.from_dict({**run.state["agent"], "data": data}))
        try:
            result = await made.invoke_async(prompt if run.fresh else None, **options)
            while result.stop_reason == "interrupt":
                result = await made.invoke_async(await _answers(made, result.interrupts), **options)
            run.state.update(_kept(made))
        except EventLoopException as error:
            cause = error.original_exception
            raise cause if isinstance(cause, HoldfastError) else error from None
        finally:
            if isinstance(agent, Agent):
                made.load_snapshot(before)  # for the next turn, or for the same one again
        output = result.structured_output
        return str(result).rstrip("\n") if output is None else to_jsonable_python(output)

    if isinstance(agent, Agent) and getattr(agent, "_session_manager", None) is not None:
        raise InvalidArgument("this agent has a session manager; give run_durably a function that makes the agent")
    return await durable_turn(hf, thread, turn, getattr(agent, "name", None), body)


def _kept(agent: Any) -> dict[str, Any]:
    """The members of a run's state: the messages of an agent, and the rest of its snapshot."""
    kept = agent.take_snapshot(preset="session").to_dict()
    return {"messages": kept["data"].pop("messages"), "agent": kept}


async def _answers(agent: Agent, interrupts: list[Any]) -> list[Any]:
    """Ask about all interrupts at once, and return the responses."""
    seam = current()
    assert seam is not None  # noqa: S101 - in the block of a run
    uses = [block["toolUse"]["toolUseId"] for block in agent.messages[-1]["content"] if "toolUse" in block]
    questions: list[tuple[str, Any]] = []
    for interrupt in interrupts:
        its = [use for use in uses if f":{use}:" in interrupt.id]
        name = f"{interrupt.name} {its[0] if len(its) == 1 else interrupt.id}"
        questions.append((name, to_jsonable_python(interrupt.reason)))
    answers = await seam.ask(questions)
    return [
        {"interruptResponse": {"interruptId": interrupt.id, "response": answer}}
        for interrupt, answer in zip(interrupts, answers, strict=True)
    ]
