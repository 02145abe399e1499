"""LangChain: agents of `create_agent` whose model calls and tool calls are recorded in the current run.

    agent = create_agent(MODEL, [look_up, buy], middleware=[HoldfastMiddleware()])
    text = await run_durably(hf, agent, "Buy paper", thread="t")

`HoldfastTools` is the middleware of the LangGraph adapter, for agents that a `HoldfastSaver` checkpoints: see
`docs/tutorials/langgraph.md`. This one needs no checkpointer: see `docs/tutorials/langchain.md`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.adapters.seam import require

require("langchain", "1.4", "2", "langchain")

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, message_to_dict, messages_from_dict
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.types import Command, interrupt
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from holdfast.adapters.langgraph.middleware import HoldfastTools
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
from holdfast.adapters.session_store import INTERRUPTED, MESSAGES, report_repairs, unpaired
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument, Unsupported
from holdfast.handle import Holdfast

__all__ = ["HoldfastMiddleware", "HoldfastTools", "run_durably"]

_serde: Final = JsonPlusSerializer()
_INTERRUPTS: Final = "__interrupt__"  # the key of an agent's result
ToolResult = ToolMessage | Command[Any]


class HoldfastMiddleware(AgentMiddleware[Any, Any, Any]):
    """Records an agent's model calls and tool calls in the current run. Outside a run it changes nothing.

    Put it last in the list, so that other middleware, such as retries, is around it. `declare` has the options of
    `holdfast.tool` by the names of tools. A tool that is not declared is irreversible: after a crash inside it, a
    person is asked. `name` tells apart the model calls of agents that run at the same time.
    """

    def __init__(self, *, declare: Declarations | None = None, name: str = "agent") -> None:
        super().__init__()
        self.declare: Final = checked(declare)
        self._agent: Final = name

    # -- models -----------------------------------------------------------------------------------------------------

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        seam = current()
        if seam is None:
            return handler(request)
        options = self._model_options(seam, request)
        seam.turn_sync(self._agent, lambda: _kept(request.messages))
        return seam.model_sync(self._agent, lambda: handler(request), **options)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        seam = current()
        if seam is None:
            return await handler(request)
        options = self._model_options(seam, request)
        await seam.turn(self._agent, lambda: _kept(request.messages))
        return await seam.model(self._agent, lambda: handler(request), **options)

    def _model_options(self, seam: Seam, request: ModelRequest[Any]) -> dict[str, Any]:
        names = [tool.name for tool in request.tools if isinstance(tool, BaseTool)]
        seam.settle_doubts(names, self.declare)
        system = [] if request.system_message is None else [request.system_message]
        shape = getattr(request.response_format, "schema", request.response_format)
        codec = Codec("langchain.ModelResponse/1", _dumped_reply, lambda plain: _loaded_reply(plain, shape))
        return {"request": [_comparable(each) for each in (*system, *request.messages)], "codec": codec}

    # -- tools ------------------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        seam = current()
        if seam is None:
            return handler(request)
        call = request.tool_call

        def made() -> dict[str, Any]:
            try:
                return _dumped(handler(request))
            except GraphBubbleUp as signal:
                return _dumped_signal(signal)

        return _outcome(seam.tool_sync(call["name"], made, **self._tool_options(call)))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        seam = current()
        if seam is None:
            return await handler(request)
        call = request.tool_call

        async def made() -> dict[str, Any]:
            try:
                return _dumped(await handler(request))
            except GraphBubbleUp as signal:
                return _dumped_signal(signal)

        return _outcome(await seam.tool(call["name"], made, **self._tool_options(call)))

    def _tool_options(self, call: Any) -> dict[str, Any]:
        def said(result: Any) -> dict[str, Any]:
            return _dumped(_message_of(result, call))

        return {
            "arguments": to_jsonable_python(dict(call["args"]), serialize_unknown=True),
            "key": call["id"] or "call",
            "declare": self.declare,
            "codec": _OUTCOME,
            "said": said,
        }


# -- data -------------------------------------------------------------------------------------------------------------


def _comparable(message: BaseMessage) -> Any:
    """The part of a message that is the same after a restart."""
    plain = _plain(message)
    return {**plain, "data": {name: each for name, each in plain["data"].items() if name != "id"}}


def _plain(message: BaseMessage) -> dict[str, Any]:
    plain = message_to_dict(message)
    try:
        msgpack.check(plain, is_state=False)
    except Unsupported:
        plain = to_jsonable_python(plain, serialize_unknown=True)
    return plain


def _dumped_reply(reply: Any) -> dict[str, Any]:
    if isinstance(reply, AIMessage):
        reply = ModelResponse(result=[reply])
    if not isinstance(reply, ModelResponse):
        raise InvalidArgument(f"a model call returned {type(reply).__name__}: put HoldfastMiddleware last in the list")
    plain: dict[str, Any] = {"messages": [_plain(message) for message in reply.result]}
    if reply.structured_response is not None:
        plain["structured"] = to_jsonable_python(reply.structured_response, serialize_unknown=True)
    usages = [message.usage_metadata for message in reply.result if isinstance(message, AIMessage)]
    counts = next((usage for usage in usages if usage), None)
    if counts is not None:  # with the names that guards of Holdfast count
        plain["usage"] = {name: counts[name] for name in ("input_tokens", "output_tokens")}
    return plain


def _loaded_reply(plain: dict[str, Any], shape: Any) -> ModelResponse[Any]:
    structured = plain.get("structured")
    if structured is not None and shape is not None and not isinstance(shape, dict):
        structured = TypeAdapter(shape).validate_python(structured)
    return ModelResponse(result=messages_from_dict(plain["messages"]), structured_response=structured)


def _dumped(result: ToolResult) -> dict[str, Any]:
    if isinstance(result, ToolMessage):
        plain = message_to_dict(result)
        try:
            msgpack.check(plain, is_state=False)
        except Unsupported:
            pass
        else:
            return {"message": plain}
    kind, data = _serde.dumps_typed(result)  # a command, or a message with an object of the program
    return {"packed": [kind, data]}


def _dumped_signal(signal: GraphBubbleUp) -> dict[str, Any]:
    """The outcome of a tool that has interrupted its graph, or that sends a command to the graph above."""
    if isinstance(signal, ParentCommand):
        return {"above": list(_serde.dumps_typed(signal.args[0]))}
    if not isinstance(signal, GraphInterrupt):
        raise signal
    return {"interrupts": [to_jsonable_python(each.value, serialize_unknown=True) for each in signal.args[0]]}


def _outcome(found: dict[str, Any]) -> ToolResult:
    match found:
        case {"above": [kind, data]}:
            raise ParentCommand(_serde.loads_typed((kind, data)))
        case {"interrupts": [value, *_]}:
            while True:  # earlier questions of this tool are answered, and this one is not
                interrupt(value)
        case {"packed": [kind, data]}:
            loaded: ToolResult = _serde.loads_typed((kind, data))
            return loaded
        case _:
            [message] = messages_from_dict([found["message"]])
            assert isinstance(message, ToolMessage)  # noqa: S101 - as recorded
            return message


def _message_of(said: Any, call: Any) -> ToolMessage:
    """The result of a tool, for what a person, a probe or `give_up` reported."""
    text = said if isinstance(said, str) else json.dumps(to_jsonable_python(said), ensure_ascii=False)
    return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"])


_OUTCOME: Final = Codec("langchain.ToolResult/1", lambda value: value, lambda value: value)


# -- the two-line form ------------------------------------------------------------------------------------------------


async def run_durably(
    hf: Holdfast | AsyncHoldfast,
    agent: Any,
    messages: Any = None,
    *,
    thread: str,
    turn: str | None = None,
    config: Any = None,
    **options: Any,
) -> Any:
    """Run an agent in a run of a thread, to its end, and return its last text, or its structured response.

    The same call after a crash resumes the run. `messages` is a text or a list of messages. `turn` names a request of a
    conversation: its messages are kept in the state of the thread. On a fork, and after a rewind, it continues from
    them. If `HumanInTheLoopMiddleware` asks about a call, the
    run waits: `hf.answer(thread, "approve CALL_ID", True)`, or a text that says why not. `Unfinished` until then. Such
    an agent needs a checkpointer: `InMemorySaver()` is enough. `options` go to `agent.ainvoke`.
    """
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages or ())

    async def body(run: AsyncRun) -> Any:
        configurable = {**(config or {}).get("configurable", {}), "thread_id": str(uuid.uuid4())}
        settings = {**(config or {}), "configurable": configurable}
        kept = repaired_messages(thread, messages_from_dict(run.state[MESSAGES]))
        sent: Any = {"messages": [*kept, *(given if run.fresh else [])]}
        asked = 0
        while True:
            result = await agent.ainvoke(sent, settings, **options)
            interrupts = result.get(_INTERRUPTS) or ()
            if not interrupts:
                break
            sent = Command(resume=await _answers(result, interrupts, asked))
            asked += len(interrupts)
        run.state.update(_kept(result["messages"]))
        structured = result.get("structured_response")
        return str(result["messages"][-1].text) if structured is None else to_jsonable_python(structured)

    return await durable_turn(hf, thread, turn, getattr(agent, "name", None), body)


def _kept(messages: list[Any]) -> dict[str, Any]:
    """The members of a run's state."""
    return {MESSAGES: [_plain(message) for message in messages]}


def repaired_messages(thread: str, messages: list[Any]) -> list[Any]:
    """The messages in a form that models accept. The repairs are logged, and the stored messages are not changed."""
    items = [
        *((at, "call", call["id"]) for at, each in enumerate(messages) for call in getattr(each, "tool_calls", ())),
        *((at, "result", each.tool_call_id) for at, each in enumerate(messages) if isinstance(each, ToolMessage)),
    ]
    items.sort(key=lambda item: item[0])
    calls, orphans = ([items[at] for at in sorted(places)] for places in unpaired(item[1:] for item in items))
    report_repairs(thread, [f"call {id_!r} has no result; one was added that says so" for _, _, id_ in calls])
    report_repairs(
        thread, [f"the result of call {id_!r} has no call before it; it was left out" for *_, id_ in orphans]
    )
    lost = {at for at, *_ in orphans}
    repaired: list[Any] = []
    for at, message in enumerate(messages):
        repaired += [] if at in lost else [message]
        repaired += [ToolMessage(INTERRUPTED, tool_call_id=id_) for place, _, id_ in calls if place == at]
    return repaired


async def _answers(result: Any, interrupts: Any, asked: int) -> dict[str, Any]:
    """Ask all questions at once, and return the answers by the ids of the interrupts."""
    seam = current()
    assert seam is not None  # noqa: S101 - in the block of a run
    calls = list(getattr(result["messages"][-1], "tool_calls", ()))
    questions: list[tuple[str, Any]] = []
    places: dict[
        str, tuple[bool, slice]
    ] = {}  # by interrupt: whether it is about calls, and the place of its questions
    for number, each in enumerate(interrupts, asked + 1):
        value = to_jsonable_python(each.value, serialize_unknown=True)
        requests = value.get("action_requests") if isinstance(value, dict) else None
        first = len(questions)
        if requests is None:
            questions.append((f"interrupt {number}", value))
        else:
            questions += [approval_question(_id_of(call, calls), call["name"], call["args"]) for call in requests]
        places[each.id] = requests is not None, slice(first, len(questions))
    answers = await seam.ask(questions)
    return {
        id_: {"decisions": [_decision(each) for each in answers[place]]} if is_about_calls else answers[place][0]
        for id_, (is_about_calls, place) in places.items()
    }


def _id_of(request: Any, calls: list[Any]) -> str:
    """The id of a call. The request of the middleware does not have it."""
    for call in calls:
        if call["name"] == request["name"] and call["args"] == request["args"]:
            calls.remove(call)
            return str(call["id"])
    return str(request["name"])


def _decision(answer: Any) -> dict[str, Any]:
    refusal = refusal_of(answer)
    return {"type": "approve"} if refusal is None else {"type": "reject", "message": refusal}
