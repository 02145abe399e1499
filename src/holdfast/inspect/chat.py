"""The messages of a state as a chat, in the formats of several frameworks.

Known formats: OpenAI (chat completions and responses), Anthropic, transcripts of the Claude Agent SDK, Google, Pydantic
AI, LangGraph, and plain messages with a `role`. Anything else is shown as data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from holdfast.inspect.dialects import Said, is_claude_entry, said_by, unwrapped
from holdfast.runs.identity import own_key
from holdfast.types import Effect

_KEY: Final = "messages"
_IDS: Final = "$ids:"
_APART: Final = "$values"


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


def chat_of(state: Any, *, start: int = 0, limit: int | None = None, journal: Iterable[Effect] = ()) -> Chat | None:
    """Return the messages of a state from the index `start` on; None if it holds none.

    `journal` gives the status of calls without a result. A negative `start` counts from the end.
    """
    found = messages_of(state)
    if found is None:
        return None
    path, items, ids = found
    total = len(items)
    begin = max(total + start, 0) if start < 0 else min(start, total)
    end = total if limit is None else min(begin + limit, total)
    talk = _Talk(journal)
    # Ids may be reused in later turns, so a result belongs to the last call before it without a result.
    for index, item in enumerate(items):
        if is_claude_entry(item) and unwrapped(item) is item:
            continue  # data of its CLI
        talk.hear(index, said_by(item, ids[index] if ids is not None and index < len(ids) else None))
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

    def __init__(self, journal: Iterable[Effect]) -> None:
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
        status = {"in_doubt": "in doubt", "begun": "under way"}.get(effect.status, effect.status)
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


def messages_of(state: Any) -> tuple[str, list[Any], list[Any] | None] | None:
    """Return the path of the messages in a state, the messages, and their ids if these are stored separately."""
    if type(state) is list and _is_talk(state):
        return "$", state, None
    if type(state) is not dict:
        return None
    for around, path in ((state, "$"), (state.get(_APART), f"$.{_APART}")):
        if type(around) is not dict:
            continue
        ids = around.get(_IDS + _KEY)
        found = around.get(_KEY)
        if type(found) is list:
            return f"{path}.{_KEY}", found, ids if type(ids) is list else None
        for key, value in around.items():
            if type(key) is str and type(value) is list and not key.startswith("$") and _is_talk(value):
                ids = around.get(_IDS + key)
                return f"{path}.{key}", value, ids if type(ids) is list else None
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
