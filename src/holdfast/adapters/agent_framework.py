"""Microsoft Agent Framework: agents whose model calls and tool calls are recorded in the current run.

    agent = Agent(client=CLIENT, name="clerk", tools=[look_up, buy], middleware=middleware())
    result = await run_durably(hf, agent, "Buy paper", thread="t")

`HoldfastCheckpointStorage` and `HoldfastHistoryProvider` are in `agent_framework_stores`.
See `docs/tutorials/agent_framework.md`.
"""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Final

from holdfast.adapters.seam import require

require("agent-framework-core", "1.23", "2", "agent-framework")

from agent_framework import (
    AgentMiddleware,
    AgentSession,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareTermination,
    ResponseStream,
    UserInputRequiredException,
)
from pydantic_core import to_jsonable_python

from holdfast.adapters.agent_framework_stores import (
    HoldfastCheckpointStorage,
    HoldfastHistoryProvider,
    repaired_messages,
)
from holdfast.adapters.seam import Codec, Declarations, checked, current, durable_turn
from holdfast.adapters.session_store import MESSAGES, report_repairs
from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument, Unsupported
from holdfast.handle import Holdfast

__all__ = ["HoldfastCheckpointStorage", "HoldfastHistoryProvider", "middleware", "run_durably"]

_NAME: Final = "holdfast_agent"  # the agent's name, on its way to the chat middleware
_MEMORY: Final = "in_memory"  # the history provider that keeps its messages in the session
_VOLATILE: Final = ("additional_properties", "message_id", "id")  # of messages: other values after a restart

Next = Callable[[], Awaitable[None]]


def middleware(*, declare: Declarations | None = None) -> list[Any]:
    """Return middleware that records an agent's model calls and tool calls in the current run.

    Give it to an agent after its other middleware. Outside a run it changes nothing. `declare` has the options of
    `holdfast.tool` by the names of tools. A tool that is not declared is irreversible: after a crash inside it, a
    person is asked. An agent that is used as a tool needs middleware of its own.
    """
    chosen = checked(declare)
    return [_Agents(), _Models(chosen), _Tools(chosen)]


class _Agents(AgentMiddleware):  # type: ignore[misc]  # the framework is not installed where types are checked
    """Tells the chat middleware the name of the agent. InvalidArgument if its client has no middleware."""

    async def process(self, context: Any, call_next: Next) -> None:
        if current() is None:
            await call_next()
            return
        client = context.agent.client
        if not isinstance(client, ChatMiddlewareLayer):
            raise InvalidArgument(
                f"{type(client).__name__} has no chat middleware, so its calls would not be recorded; nothing was "
                "called. Use a client that derives from ChatMiddlewareLayer."
            )
        context.client_kwargs = {**(context.client_kwargs or {}), _NAME: context.agent.name or "agent"}
        await call_next()


# -- models -----------------------------------------------------------------------------------------------------------


class _Models(ChatMiddleware):  # type: ignore[misc]
    def __init__(self, declare: Declarations) -> None:
        self._declare = declare

    async def process(self, context: Any, call_next: Next) -> None:
        name = context.kwargs.pop(_NAME, "model")
        seam = current()
        if seam is None:
            await call_next()
            return
        options = context.options or {}
        tools = [each.name for each in options.get("tools") or () if isinstance(each, FunctionTool)]
        seam.settle_doubts(tools, self._declare)
        await seam.turn(name, lambda: {"messages": [_plain(message) for message in context.messages]})
        request = [options.get("instructions"), [_comparable(message) for message in context.messages]]
        shape = options.get("response_format")
        codec = Codec("agent_framework.ChatResponse/1", _dumped_reply, lambda plain: _loaded_reply(plain, shape))

        def whole(taken: Any) -> Any:
            return ChatResponse.from_updates(taken, output_format_type=shape)

        async def call() -> Any:
            await call_next()
            if context.stream:
                return _with_ids(context.result)
            _set_ids((each for message in context.result.messages for each in message.contents), {})
            return context.result

        if not context.stream:
            context.result = await seam.model(name, call, request=request, codec=codec)
            return
        updates = seam.stream(name, call, request=request, final=whole, chunks=_updates_of, codec=codec)
        context.result = ResponseStream(updates, finalizer=whole)


async def _with_ids(updates: Any) -> AsyncGenerator[Any, None]:
    known: dict[str, str] = {}
    async for update in updates:
        _set_ids(update.contents, known)
        yield update


def _set_ids(contents: Iterable[Any], known: dict[str, str]) -> None:
    """Give each tool call the id that the framework would give it after the model call: so it is recorded."""
    for each in contents:
        if each.type == "function_call" and each.id is None:
            each.id = known.setdefault(each.call_id, f"af-call-{uuid.uuid4().hex}")


def _comparable(message: Any) -> Any:
    """The part of a message that is the same after a restart."""
    plain = _plain(message)
    contents = [{name: each for name, each in part.items() if name not in _VOLATILE} for part in plain["contents"]]
    return {**{name: each for name, each in plain.items() if name not in _VOLATILE}, "contents": contents}


def _plain(value: Any) -> Any:
    """An object of the framework as plain data."""
    return to_jsonable_python(value.to_dict(exclude={"raw_representation"}), serialize_unknown=True)


def _dumped_reply(reply: Any) -> dict[str, Any]:
    plain = _plain(reply)
    counts = plain.get("usage_details") or {}
    names = {"input_tokens": "input_token_count", "output_tokens": "output_token_count"}
    usage = {name: counts[given] for name, given in names.items() if counts.get(given) is not None}
    return {**plain, "usage": usage} if usage else plain  # with the names that guards of Holdfast count


def _loaded_reply(plain: dict[str, Any], shape: Any) -> Any:
    reply = ChatResponse.from_dict({name: each for name, each in plain.items() if name != "usage"})
    return ChatResponse(**{name: getattr(reply, name) for name in _KEPT}, response_format=shape)


_KEPT: Final = (
    *("messages", "response_id", "conversation_id", "model", "created_at", "finish_reason", "usage_details"),
    *("continuation_token", "additional_properties"),
)


def _updates_of(reply: Any) -> list[Any]:
    """A recorded reply as the updates of a stream: one for each message."""
    common = {"response_id": reply.response_id, "conversation_id": reply.conversation_id, "model": reply.model}
    updates = [
        ChatResponseUpdate(
            contents=message.contents,
            role=message.role,
            author_name=message.author_name,
            message_id=message.message_id,
            created_at=reply.created_at,
            **common,
        )
        for message in reply.messages
    ]
    usage = [Content.from_usage(reply.usage_details)] if reply.usage_details else []
    return [*updates, ChatResponseUpdate(contents=usage, role="assistant", finish_reason=reply.finish_reason, **common)]


# -- tools ------------------------------------------------------------------------------------------------------------


class _Tools(FunctionMiddleware):  # type: ignore[misc]
    def __init__(self, declare: Declarations) -> None:
        self._declare = declare

    async def process(self, context: Any, call_next: Next) -> None:
        seam, tool = current(), context.function
        if seam is None:
            await call_next()
            return
        key = str(context.metadata.get("call_id", "direct"))
        if _is_durable_agent(tool):
            with seam.nested(tool.name, key):
                await call_next()
            return

        async def call() -> Any:
            try:
                await call_next()
            except Exception as error:  # noqa: BLE001 - those that are not signals are raised again
                return _dumped_signal(error)
            return {"result": _dumped(context.result)}

        found = await seam.tool(
            tool.name,
            call,
            to_jsonable_python(dict(context.arguments or {}), serialize_unknown=True),
            key=key,
            declare={
                tool.name: {"errors": "outcome", **self._declare.get(tool.name, {})}
            },  # the framework tells the model
            codec=_OUTCOME,
            said=lambda said: {"result": _dumped(tool.parse_result(said))},
        )
        match found:
            case {"again": True}:  # the framework refused the arguments; nothing was called
                await call_next()
            case {"input": contents, "message": message}:
                raise UserInputRequiredException([_loaded(each) for each in contents], message)
            case {"end": message, "result": result}:
                context.result = _loaded(result)
                raise MiddlewareTermination(message)
            case _:
                context.result = _loaded(found["result"])


def _is_durable_agent(tool: Any) -> bool:
    """Whether a tool is an agent, `agent.as_tool()`, that has this middleware."""
    function: Any = getattr(tool, "func", None)
    if not getattr(function, "__qualname__", "").endswith("as_tool.<locals>._agent_wrapper"):
        return False
    agent = inspect.getclosurevars(function).nonlocals.get("self")
    return any(isinstance(each, _Models) for each in getattr(agent, "middleware", None) or ())


def _dumped_signal(error: Any) -> dict[str, Any]:
    """The outcome of a call that was ended by the framework's own control flow."""
    if isinstance(error, UserInputRequiredException):
        return {"input": [_dumped(each) for each in error.contents], "message": str(error)}
    if isinstance(error, MiddlewareTermination):
        return {"end": str(error), "result": _dumped(error.result)}
    if type(error).__module__ == "agent_framework._tools":  # its checks of arguments
        return {"again": True}
    raise error


def _dumped(result: Any) -> Any:
    if isinstance(result, list) and all(isinstance(each, Content) for each in result):
        return {"contents": [_plain(each) for each in result]}
    if isinstance(result, Content):
        return {"content": _plain(result)}
    try:
        msgpack.check(result, is_state=False)
    except Unsupported:
        result = str(result)  # as the framework does
    return {"plain": result}


def _loaded(plain: dict[str, Any]) -> Any:
    match plain:
        case {"contents": list(contents)}:
            return [Content.from_dict(each) for each in contents]
        case {"content": dict(content)}:
            return Content.from_dict(content)
        case _:
            return plain["plain"]


_OUTCOME: Final = Codec("agent_framework.ToolResult/1", lambda value: value, lambda value: value)


# -- the two-line form ------------------------------------------------------------------------------------------------


async def run_durably(
    hf: Holdfast | AsyncHoldfast,
    agent: Any,
    messages: Any = None,
    *,
    thread: str,
    turn: str | None = None,
    **options: Any,
) -> Any:
    """Run an agent in a run of a thread, to its end, and return its text, or its structured output as plain data.

    The same call after a crash resumes the run. `turn` names a request of a conversation: its session is kept in the
    state of the thread. On a fork, and after a rewind, it continues from its messages. If a tool needs approval, the
    run waits: `hf.answer(thread, "approve CALL_ID", True)`, or a text that says why not. `Unfinished` until then.
    `options` go to `agent.run`.
    """
    if not any(isinstance(each, _Models) for each in agent.middleware or ()):
        raise InvalidArgument("run_durably needs an agent with middleware=middleware()")

    async def body(run: AsyncRun) -> Any:
        session = _session(run.state, thread)
        response = await agent.run(messages if run.fresh else None, session=session, **options)
        while requests := [each for each in response.user_input_requests if each.type == "function_approval_request"]:
            response = await agent.run(await _answers(requests), session=session, **options)
        kept = to_jsonable_python(session.to_dict(), serialize_unknown=True)
        run.state[MESSAGES] = kept["state"].get(_MEMORY, {}).pop(MESSAGES, [])
        run.state["session"] = kept
        value = getattr(response, "value", None)
        return response.text if value is None else to_jsonable_python(value, serialize_unknown=True)

    return await durable_turn(hf, thread, turn, agent.name, body)


def _session(state: Any, thread: str) -> Any:
    """The session of a thread's conversation."""
    kept = json.loads(json.dumps(state.get("session") or AgentSession(session_id=thread).to_dict()))
    if state[MESSAGES]:
        messages, repairs = repaired_messages([Message.from_dict(each) for each in state[MESSAGES]])
        report_repairs(thread, repairs)
        stored = [_plain(each) for each in messages] if repairs else list(state[MESSAGES])
        kept["state"].setdefault(_MEMORY, {})[MESSAGES] = stored
    return AgentSession.from_dict(kept)


async def _answers(requests: list[Any]) -> Any:
    """Ask about all calls at once, and return the message with the answers."""
    seam = current()
    assert seam is not None  # noqa: S101 - in the block of a run
    calls = [request.function_call for request in requests]
    refusals = await seam.refusals(
        (call.call_id, call.name, to_jsonable_python(call.parse_arguments(), serialize_unknown=True)) for call in calls
    )
    contents: list[Any] = []
    for request, refusal in zip(requests, refusals, strict=True):
        contents.append(request.to_function_approval_response(refusal is None))
        if refusal is not None:
            contents.append(Content.from_text(f"{request.function_call.name} was not called: {refusal}"))
    return Message("user", contents)
