"""Messages of a state as a chat, in the formats of several frameworks.

Known formats: OpenAI (chat completions and responses), Anthropic, transcripts of the Claude Agent SDK, Google, Pydantic
AI, LangGraph, and plain messages with a `role`. Anything else is shown as data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from holdfast.inspect.call_records import call_status
from holdfast.runs.identity import own_key
from holdfast.types import Effect

_EXT: Final = "$ext"
_PAYLOAD: Final = "payload"
_CLASSES: Final = {
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "RemoveMessage": "removed",
    "HumanMessageChunk": "user",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "request": "user",
    "response": "assistant",
    "function_call": "assistant",
    "function_call_output": "tool",
    "custom_tool_call": "assistant",
    "custom_tool_call_output": "tool",
    "reasoning": "assistant",
}
_TEXTS: Final = frozenset(
    ("text", "input_text", "output_text", "refusal", "user-prompt", "system-prompt", "retry-prompt")
)
_THOUGHTS: Final = frozenset(("thinking", "reasoning", "reasoning_text", "summary_text", "redacted_thinking"))

Piece = tuple[str, Any]  # kind ("text", "thought" or "data"), content
Asked = tuple[str | None, str, Any]  # id, name, arguments
Answered = tuple[str | None, str | None, tuple[Piece, ...], bool]  # id, name, content, whether it is an error
_KEY: Final = "messages"
_APART: Final = "$values"

# -- a chat -----------------------------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message: text, a model's thought, or other content such as an image, as plain data."""

    kind: Literal["text", "thought", "data"]
    text: str = ""
    data: Any = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a model, with its result.

    `result` is None if no message holds it. `status` is then the status of the call in the journal, if it is there,
    such as "in doubt" or "under way". `answered_at` is the index of the message with the result.
    """

    id: str | None
    name: str
    arguments: Any
    result: tuple[Part, ...] | None = None
    is_error: bool = False
    status: str | None = None
    answered_at: int | None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `index` is its place in the list. `role` is the written role, or that of its class."""

    index: int
    role: str
    name: str | None
    id: str | None
    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...]


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the messages of a state. `path` is where the list is in the state, `total` its length.

    A result is part of its call. It is a message of its own only if no call asked for it.
    """

    path: str
    total: int
    start: int
    messages: tuple[ChatMessage, ...]


def chat_of(
    state: Any, *, start: int = 0, limit: int | None = None, journal: Iterable[Effect] = (), is_held: bool = True
) -> Chat | None:
    """Return the messages of a state from the index `start` on; None if it holds none.

    `journal` gives the status of calls without a result; `is_held` is whether a process holds the run that made them. A
    negative `start` counts from the end.
    """
    found = messages_of(state)
    if found is None:
        return None
    path, items = found
    total = len(items)
    begin = max(total + start, 0) if start < 0 else min(start, total)
    end = total if limit is None else min(begin + limit, total)
    talk = _Talk(journal, is_held=is_held)
    # Ids may be reused in later turns, so a result belongs to the last call before it without a result.
    for index, item in enumerate(items):
        if is_claude_entry(item) and unwrapped(item) is item:
            continue  # data of its CLI
        talk.hear(index, message_in(item))
    messages = tuple(message for message in talk.messages() if begin <= message.index < end)
    return Chat(path=path, total=total, start=begin, messages=messages)


class _Asked:
    """A call, until its result is found."""

    __slots__ = ("at", "call")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.at: int | None = None


class _Talk:
    """Matches results with their calls."""

    def __init__(self, journal: Iterable[Effect], *, is_held: bool) -> None:
        self._is_held = is_held
        self._heard: list[tuple[int, Said, list[_Asked]]] = []
        self._open: dict[str, list[_Asked]] = {}
        self._journal = {(effect.name, id): effect for effect in journal for id in _ids_in(own_key(effect.key))}

    def hear(self, index: int, said: Said) -> None:
        left = [result for result in said.results if not self._answer(index, result)]
        asked = [_Asked(ToolCall(id=id, name=name, arguments=given)) for id, name, given in said.calls]
        for each in asked:
            self._open.setdefault(each.call.id or each.call.name, []).append(each)
        parts = [*said.parts, *(part for _, _, parts, _ in left for part in parts)]
        if parts or asked or not said.results:
            self._heard.append((index, msgspec.structs.replace(said, parts=tuple(parts)), asked))

    def _answer(self, index: int, result: tuple[str | None, str | None, tuple[Any, ...], bool]) -> bool:
        id, name, parts, is_error = result
        for key in (id, name):
            waiting = self._open.get(key or "", [])
            if waiting:
                asked = waiting.pop()
                asked.call = msgspec.structs.replace(
                    asked.call, result=parts_of(parts), is_error=is_error, answered_at=index
                )
                return True
        return False

    def messages(self) -> Iterable[ChatMessage]:
        for index, said, asked in self._heard:
            calls = tuple(self._with_status(each.call) for each in asked)
            yield ChatMessage(
                index=index, role=said.role, name=said.name, id=said.id, parts=parts_of(said.parts), calls=calls
            )

    def _with_status(self, call: ToolCall) -> ToolCall:
        if call.result is not None or not self._journal:
            return call
        effect = self._journal.get((call.name, call.id))
        if effect is None:
            return call
        status = call_status(effect.effect, effect.status, is_held=self._is_held)
        return msgspec.structs.replace(call, status=status)


def _ids_in(key: str | None) -> tuple[str | None, ...]:
    """The ids of a call that its key may have. Adapters put a scope or a number before it, or a digest after it."""
    if key is None:
        return (None,)
    last = key.rpartition("/")[2]
    return key, last, last.rpartition(":")[2], last.partition(" ")[0]


def parts_of(said: Iterable[Any]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for kind, value in said:
        if kind == "data":
            parts.append(Part(kind="data", data=value))
        elif value != "":
            parts.append(Part(kind=kind, text=value))
    return tuple(parts)


def messages_of(state: Any) -> tuple[str, list[Any]] | None:
    """Return the path of the messages in a state, and the messages."""
    if type(state) is list and _is_talk(state):
        return "$", state
    if type(state) is not dict:
        return None
    for around, path in ((state, "$"), (state.get(_APART), f"$.{_APART}")):
        if type(around) is not dict:
            continue
        found = around.get(_KEY)
        if type(found) is list:
            return f"{path}.{_KEY}", found
        for key, value in around.items():
            if type(key) is str and type(value) is list and not key.startswith("$") and _is_talk(value):
                return f"{path}.{key}", value
    return None


def _is_talk(items: list[Any]) -> bool:
    """Whether a list holds messages, judged by its first and last item."""
    return bool(items) and all(is_message(item) or is_claude_entry(item) for item in (items[0], items[-1]))


def is_message(item: Any) -> bool:
    inside = unwrapped(item)
    return type(inside) is dict and (
        type(inside.get("role")) is str
        or inside.get("kind") in ("request", "response")
        or inside.get("type") in ("function_call", "function_call_output", "message", "human", "ai", "tool", "system")
    )


# -- one message ------------------------------------------------------------------------------------------------------


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed message."""

    role: str
    name: str | None = None
    id: str | None = None
    parts: tuple[Piece, ...] = ()
    calls: tuple[Asked, ...] = ()
    results: tuple[Answered, ...] = ()


def unwrapped(item: Any) -> Any:
    """Return the message inside an entry of a framework, such as LangGraph's class and fields; others unchanged."""
    match item:
        case {"message_id": int(), "message": dict(message)}:  # Strands
            return item.get("redact_message") or message
        case {"author": str(author), "content": {"parts": list(_), **content}}:  # Google ADK
            return {"role": "user", **content, "name": author, "parts": item["content"]["parts"]}
        case {"type": str(kind), "data": dict(data)} if kind in _ROLES or kind in ("tool", "system"):  # LangChain
            return {**data, "role": kind}
        case _:
            pass
    if is_claude_entry(item):
        message = item.get("message")
        return message if type(message) is dict and type(message.get("role")) is str else item
    if type(item) is dict and _EXT in item:
        payload = item.get(_PAYLOAD)
        if type(payload) is list and len(payload) >= 3 and type(payload[1]) is str and type(payload[2]) is dict:
            fields: dict[Any, Any] = payload[2]
            return {"role": _CLASSES.get(payload[1], str(fields.get("type", payload[1]))), **fields}
    return item


def is_claude_entry(item: Any) -> bool:
    """Whether this is an entry of a transcript of the Claude Agent SDK: a message, or data of its CLI."""
    return type(item) is dict and type(item.get("type")) is str and ("sessionId" in item or "parentUuid" in item)


def message_in(item: Any) -> Said:
    """Parse a message. Unknown content becomes a part of kind "data"."""
    message = unwrapped(item)
    if type(message) is str:
        return Said(role="", parts=(("text", message),))
    if type(message) is not dict:
        return Said(role="", parts=(("data", item),))
    role = _text(message.get("role")) or _text(message.get("kind")) or _text(message.get("type"))
    role = _ROLES.get(role, role)
    pieces = _Pieces()
    _top(message, pieces)
    if role == "tool" and not pieces.results:
        pieces.results.append((_id(message), _text(message.get("name")) or None, tuple(pieces.parts), _failed(message)))
        pieces.parts.clear()
    return Said(
        role=role,
        name=_text(message.get("name")) or None,
        id=(_text(message.get("id")) or None) if role != "tool" else None,
        parts=tuple(pieces.parts),
        calls=tuple(pieces.calls),
        results=tuple(pieces.results),
    )


class _Pieces:
    """The parts, calls and results found in a message so far."""

    def __init__(self) -> None:
        self.parts: list[Piece] = []
        self.calls: list[Asked] = []
        self.results: list[Answered] = []

    def add_call(self, call: Asked) -> None:
        # LangChain stores Anthropic's blocks in the content, and the same calls again in `tool_calls`.
        if call[0] is None or all(known[0] != call[0] for known in self.calls):
            self.calls.append(call)


def _top(message: dict[Any, Any], pieces: _Pieces) -> None:
    kind = message.get("type")
    if kind in ("function_call", "custom_tool_call"):
        given = _parsed(message.get("arguments")) if kind == "function_call" else message.get("input")
        pieces.add_call((_text(message.get("call_id")) or None, _text(message.get("name")), given))
        return
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = tuple(_content(message.get("output")))
        pieces.results.append((_text(message.get("call_id")) or None, None, output, False))
        return
    if kind == "reasoning":
        pieces.parts += [("thought", text) for _, text in _content(message.get("summary")) if type(text) is str]
        return
    known = False
    for field in ("reasoning", "reasoning_content"):
        if type(message.get(field)) is str and message[field]:
            known = True
            pieces.parts.append(("thought", message[field]))
    for field in ("content", "contents", "parts"):
        if field in message:
            known = True
            for block in _blocks(message[field]):
                _block(block, pieces)
    for field in ("tool_calls", "calls"):
        calls = message.get(field)
        if type(calls) is list:
            known = True
            for call in calls:
                asked = _asked(call)
                if asked is not None:
                    pieces.add_call(asked)
    if not known:
        pieces.parts.append(("data", {key: value for key, value in message.items() if key != "role"}))


def _block(block: Any, pieces: _Pieces) -> None:
    match block:
        case {"type": "tool_use", "name": str(name)}:
            pieces.add_call((_text(block.get("id")) or None, name, block.get("input")))
        case {"type": "tool_result"}:
            content = tuple(_content(block.get("content")))
            pieces.results.append((_text(block.get("tool_use_id")) or None, None, content, bool(block.get("is_error"))))
        case {"part_kind": "tool-call", "tool_name": str(name)}:
            pieces.add_call((_text(block.get("tool_call_id")) or None, name, _parsed(block.get("args"))))
        case {"part_kind": "tool-return"}:
            result = tuple(_content(block.get("content")))
            of = _text(block.get("tool_name")) or None
            pieces.results.append((_text(block.get("tool_call_id")) or None, of, result, False))
        case {"type": "function_call", "name": str(name)}:
            pieces.add_call((_text(block.get("call_id")) or None, name, _parsed(block.get("arguments"))))
        case {"type": "function_result"}:
            result = tuple(_content(block.get("items") or block.get("result")))
            pieces.results.append((_text(block.get("call_id")) or None, None, result, bool(block.get("exception"))))
        case {"toolUse": {"name": str(name), **use}}:
            pieces.add_call((_text(use.get("toolUseId")) or None, name, use.get("input")))
        case {"toolResult": dict(answer)}:
            result = tuple(_content(answer.get("content")))
            is_error = answer.get("status") == "error"
            pieces.results.append((_text(answer.get("toolUseId")) or None, None, result, is_error))
        case {"reasoningContent": {"reasoningText": {"text": str(text)}}}:
            pieces.parts.append(("thought", text))
        case {"functionCall": {"name": str(name), **call}} | {"function_call": {"name": str(name), **call}}:
            pieces.add_call((_text(call.get("id")) or None, name, call.get("args")))
        case {"functionResponse": {"name": str(name), **call}} | {"function_response": {"name": str(name), **call}}:
            pieces.results.append((_text(call.get("id")) or None, name, (("data", call.get("response")),), False))
        case _:
            pieces.parts += _content(block)


def _blocks(content: Any) -> list[Any]:
    return list(content) if type(content) in (list, tuple) else [content]


def _content(content: Any) -> Iterator[Piece]:
    for block in _blocks(content):
        if block is None:
            continue
        if type(block) is str:
            yield "text", block
            continue
        kind = _text(block.get("type") or block.get("part_kind")) if type(block) is dict else ""
        text = (
            next((block[key] for key in ("text", "content", "refusal") if type(block.get(key)) is str), None)
            if (type(block) is dict)
            else None
        )
        thought = block.get("thinking", block.get("reasoning", text)) if type(block) is dict else None
        if kind in _THOUGHTS and type(thought) is str:
            yield "thought", thought
        elif text is not None and (kind in _TEXTS or not kind or set(block) <= {"type", "text", "index", "id"}):
            yield "text", text
        else:
            yield "data", block


def _asked(call: Any) -> Asked | None:
    match call:
        case {"function": {"name": str(name), **function}}:
            return _text(call.get("id")) or None, name, _parsed(function.get("arguments"))
        case {"name": str(name)}:
            given = next((call[key] for key in ("args", "arguments", "input") if key in call), None)
            return _text(call.get("id")) or None, name, _parsed(given)
        case _:
            return None


def _id(message: dict[Any, Any]) -> str | None:
    return next((_text(message[key]) for key in ("tool_call_id", "call_id", "id") if _text(message.get(key))), None)


def _failed(message: dict[Any, Any]) -> bool:
    return message.get("status") == "error" or bool(message.get("is_error"))


def _parsed(arguments: Any) -> Any:
    """Parse arguments. OpenAI stores them as a JSON string."""
    if type(arguments) is not str:
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _text(value: Any) -> str:
    return value if type(value) is str else ""
