"""Pydantic AI: agents whose model requests and tool calls are recorded in the current run.

    agent = Agent(MODEL, name="clerk", capabilities=[HoldfastDurability(declare={"look_up": {"effect": "read"}})])
    result = await run_durably(hf, agent, "Buy paper", thread="t")

Built on Pydantic AI's public interface for durable execution (`pydantic_ai.durable_exec`). See
`docs/tutorials/pydantic_ai.md`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.seam import require

require("pydantic-ai-slim", "2.62", "3", "pydantic-ai")

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter, ToolDenied
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.agent.abstract import AbstractAgent
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    CapabilityOperationId,
    CapabilityOperationParams,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationId,
    DynamicToolsetCallToolParams,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesParams,
    ModelRequestParams,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetCallToolParams,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, repair_messages
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT
from pydantic_core import to_jsonable_python

from holdfast.adapters.seam import (
    Codec,
    Declarations,
    Seam,
    approval_question,
    checked,
    current,
    durable_turn,
    refusal_of,
)
from holdfast.adapters.session_store import report_repairs
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.handle import Holdfast

if TYPE_CHECKING:
    from holdfast.adapters.pydantic_conversations import HoldfastConversationStore as HoldfastConversationStore  # noqa: PLC0414
    from holdfast.adapters.pydantic_steps import HoldfastStepStore as HoldfastStepStore  # noqa: PLC0414

__all__ = ["HoldfastDurability", "run_durably"]  # not the stores: see `__getattr__`


_PAYLOAD: Final = Codec("pydantic_ai/1", lambda value: value, lambda value: value)  # encoded by the framework
_VOLATILE: Final = frozenset({"timestamp", "run_id", "conversation_id"})  # of messages: other values after a restart
_params: Final[ContextVar[Any]] = ContextVar("holdfast_pydantic_ai_params", default=None)


def __getattr__(name: str) -> Any:
    """Import a store when it is first used: no version of Pydantic AI has the interfaces of both."""
    if name == "HoldfastConversationStore":
        return import_module("holdfast.adapters.pydantic_conversations").HoldfastConversationStore
    if name == "HoldfastStepStore":
        return import_module("holdfast.adapters.pydantic_steps").HoldfastStepStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """Records an agent's model requests and tool calls in the current run. Outside a run it changes nothing.

    `declare` has the options of `holdfast.tool` by the names of tools. A tool that is not declared is irreversible:
    after a crash inside it, a person is asked. The other parameters are those of Pydantic AI's own capabilities.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="call",
        durable_container_noun="run",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        *,
        declare: Declarations | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self.declare: Final = checked(declare)
        self._backend: _Backend | None = None

    @property
    def in_durable_context(self) -> bool:
        return current() is not None

    def get_durable_operation_backend(self) -> _Backend:
        if self._backend is None or self._backend.agent_name != self.name:  # the bound copy has the agent's name
            self._backend = _Backend(self.name, self.default_model_id, self.declare)
        return self._backend

    def get_default_run_id(self) -> str | None:
        seam = current()
        return None if seam is None else seam.new_id(self.name)

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None


class _Backend(JournalCallableOperationBackend[None]):
    """Makes each operation of an agent a call of the current run."""

    def __init__(self, agent_name: str, model_id: str | None, declare: Declarations) -> None:
        config = RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None)
        super().__init__(agent_name=agent_name, default_model_id=model_id, config=config)
        self.agent_name: Final = agent_name
        self._declare = declare

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> BoundDurableOperation[Any, Any, Any]:
        return _Bound(super().bind(operation))

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        seam, params = current(), _params.get()
        match operation_id, params:
            case ((EventStreamHandlerId() | ModelCancelSuspendedResponseId()), _):
                return await body()
            case _ if seam is None:
                return await body()
            case _, ModelRequestParams():
                tools = [tool.name for tool in params.model_request_parameters.function_tools]
                seam.settle_doubts(tools, self._declare)
                await seam.turn(self.agent_name, lambda: {"messages": _plain_messages(params.messages)})
                request = [params.model_id, _comparable(params.messages)]
                return await seam.model(self.agent_name, body, request=request, codec=_PAYLOAD)
            case _, ModelCompactMessagesParams():
                request = [params.model_id, _comparable(params.request_context.messages)]
                return await seam.model(f"{self.agent_name} compact", body, request=request, codec=_PAYLOAD)
            case ToolsetCallToolId(), (ToolsetCallToolParams() | DynamicToolsetCallToolParams()):
                key = f"{params.ctx.run_step}:{params.ctx.tool_call_id}"
                return await self._tool(seam, params.name, body, params.tool_args, key)
            case CapabilityOperationId(), CapabilityOperationParams():
                operation = f"{operation_id.capability_id}.{operation_id.operation}"
                return await self._tool(seam, operation, body, params.arguments, "operation")
            case _:  # discovery, and validation of arguments: reads of the framework itself
                reads = {name: {"effect": "read"}}
                return await seam.tool(name, body, {}, key="discovery", declare=reads, codec=_PAYLOAD)

    async def _tool(
        self, seam: Seam, name: str, body: Callable[[], Awaitable[object]], arguments: Mapping[str, Any], key: str
    ) -> object:
        given = to_jsonable_python(dict(arguments), serialize_unknown=True)
        return await seam.tool(name, body, given, key=key, declare=self._declare, codec=_PAYLOAD, said=_tool_return)


class _Bound(BoundDurableOperation[Any, Any, Any]):
    """An operation that `_Backend.execute` can see the parameters of."""

    def __init__(self, bound: BoundDurableOperation[Any, Any, Any]) -> None:
        self._bound = bound

    @property
    def operation(self) -> DurableOperation[Any, Any, Any]:
        return self._bound.operation

    async def __call__(self, params: Any, *, config: object | None = None) -> Any:
        token = _params.set(params)
        try:
            return await self._bound(params, config=config)
        finally:
            _params.reset(token)


def _tool_return(said: object) -> dict[str, Any]:
    """The recorded form of a tool's result, for what a person, a probe or `give_up` reported."""
    is_like_return = isinstance(said, dict) and said.get("kind") == "tool-return"
    return {"kind": "tool_content_result" if is_like_return else "tool_return", "result": said}


def _comparable(messages: list[ModelMessage]) -> Any:
    """The messages of a request without what differs after a restart: times, and ids of the agent's run."""
    return [
        {
            name: [{key: each for key, each in part.items() if key not in _VOLATILE} for part in value]
            if name == "parts"
            else value
            for name, value in message.items()
            if name not in _VOLATILE
        }
        for message in _plain_messages(messages)
    ]


async def run_durably(
    hf: Holdfast | AsyncHoldfast,
    agent: AbstractAgent[Any, Any],
    user_prompt: Any = None,
    *,
    thread: str,
    turn: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent in a run of a thread, to its end, and return its output as plain data.

    The same call after a crash resumes the run. `turn` names a request of a conversation: its messages are kept in the
    state of the thread. On a fork, and after a rewind, no prompt continues from the messages. If a tool needs approval,
    the run waits: `hf.answer(thread, "approve CALL_ID", True)`, or a text that says why not. `Unfinished` until then.
    `options` go to `agent.run`.
    """
    if HoldfastDurability.from_agent(agent) is None:
        raise UserError("run_durably needs an agent with capabilities=[HoldfastDurability()]")

    async def body(run: AsyncRun) -> Any:
        prompt = user_prompt if run.fresh else None
        stored = ModelMessagesTypeAdapter.validate_python(run.state.get("messages", []))
        history = repaired(thread, stored, is_last_closed=prompt is not None)
        result = await agent.run(prompt, message_history=history or None, **options)
        while isinstance(result.output, DeferredToolRequests):
            results = await _approved(result.output)
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=results, **options)
        run.state["messages"] = _plain_messages(result.all_messages())
        return to_jsonable_python(result.output)

    return await durable_turn(hf, thread, turn, agent.name, body)


def _plain_messages(messages: list[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


def repaired(thread: str, messages: list[ModelMessage], *, is_last_closed: bool) -> list[ModelMessage]:
    """The messages without calls without results, and the reverse. Before a prompt, also the last calls are closed."""
    found = repair_messages(messages, repair_last_response=is_last_closed)
    if found != messages:
        counts = f"{len(found)} messages, {len(messages)} before"
        report_repairs(thread, [f"calls without results, or results without calls, were repaired; {counts}"])
    return found


async def _approved(requests: DeferredToolRequests) -> DeferredToolResults:
    """Ask about all calls at once, and return the answers. A call that is made elsewhere needs its result."""
    seam = current()
    assert seam is not None  # noqa: S101 - in the block of a run
    calls = [*requests.approvals, *requests.calls]
    questions = [approval_question(call.tool_call_id, call.tool_name, call.args_as_dict()) for call in calls]
    elsewhere = {call.tool_call_id for call in requests.calls}
    answers = await seam.ask(
        (f"result {call.tool_call_id}" if call.tool_call_id in elsewhere else name, payload)
        for call, (name, payload) in zip(calls, questions, strict=True)
    )
    results = DeferredToolResults()
    for call, answer in zip(calls, answers, strict=True):
        if call.tool_call_id in elsewhere:
            results.calls[call.tool_call_id] = answer
        else:
            refusal = refusal_of(answer)
            results.approvals[call.tool_call_id] = True if refusal is None else ToolDenied(refusal)
    return results
