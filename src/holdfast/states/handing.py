"""Convert a conversation so that another provider can continue it: tool call ids and reasoning."""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import count
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from holdfast.states.calls import ToolCall
from holdfast.states.conversation import Conversation
from holdfast.states.messages import Message, Part, Text
from holdfast.states.work import Work

Reasoning = Literal["keep", "inline", "extract", "drop"]
C = TypeVar("C", bound=Conversation)

_THOUGHT: Final = re.compile(r"<thinking>(.*?)</thinking>", re.DOTALL)


def hand_over(
    conversation: C, *, reasoning: Reasoning = "keep", new_ids: bool = True, placeholder: str = "(continued)"
) -> C:
    """Return a copy of a conversation that another provider accepts. The original is not changed.

    `reasoning` says what happens to the field of that name: "keep" keeps it; "inline" moves it to the start of the
    content, in `<thinking>` tags; "extract" moves such tags from the content to the end of the field; "drop" removes
    the field. With `new_ids` tool calls get new, neutral ids, and their results refer to these. An assistant message
    with neither text nor tool calls gets the text `placeholder`.
    """
    names = _new_ids(conversation) if new_ids else {}
    handed = deepcopy(conversation)
    handed.messages = [_handed(each, reasoning, names, placeholder) for each in handed.messages]
    if isinstance(handed, Work):
        handed.tool_calls = [_renamed(call, names) for call in handed.tool_calls]
    return handed


def _new_ids(conversation: Conversation) -> dict[str, str]:
    """The new id of each call. A result without a call keeps its id, so no call may get that id."""
    calls = [call for message in conversation.messages for call in message.tool_calls]
    calls += conversation.tool_calls if isinstance(conversation, Work) else []
    old = dict.fromkeys(call.id for call in calls)
    stray = {message.tool_call_id for message in conversation.messages} - old.keys()
    fresh = (name for name in map("call_{}".format, count(1)) if name not in stray)
    return dict(zip(old, fresh, strict=False))


def _handed(message: Message, reasoning: Reasoning, names: dict[str, str], placeholder: str) -> Message:
    if message.role == "assistant":
        message = _thinking(message, reasoning)
        if _says_nothing(message) and not message.tool_calls:
            message = replace(message, content=placeholder)
    if message.tool_calls and names:
        message = replace(message, tool_calls=[_renamed(call, names) for call in message.tool_calls])
    if message.tool_call_id in names:
        message = replace(message, tool_call_id=names[message.tool_call_id])
    return message


def _renamed(call: ToolCall, names: dict[str, str]) -> ToolCall:
    return replace(call, id=names.get(call.id, call.id))


def _says_nothing(message: Message) -> bool:
    is_text = isinstance(message.content, str) or all(isinstance(part, Text) for part in message.content)
    return is_text and not message.text.strip()


def _thinking(message: Message, reasoning: Reasoning) -> Message:
    if reasoning == "drop":
        return replace(message, reasoning=None) if message.reasoning else message
    if reasoning == "inline" and message.reasoning:
        return replace(message, content=_ahead(f"<thinking>{message.reasoning}</thinking>", message), reasoning=None)
    return _extracted(message) if reasoning == "extract" else message


def _ahead(text: str, message: Message) -> str | list[Part]:
    return text + message.content if isinstance(message.content, str) else [Text(text), *message.content]


def _extracted(message: Message) -> Message:
    said = [message.content] if isinstance(message.content, str) else _texts(message.content)
    found = [thought for text in said for thought in _THOUGHT.findall(text)]
    if not found:
        return message
    thoughts = "\n".join([message.reasoning, *found] if message.reasoning else found)
    if isinstance(message.content, str):
        return replace(message, content=_THOUGHT.sub("", message.content), reasoning=thoughts)
    parts = [Text(_THOUGHT.sub("", part.text)) if isinstance(part, Text) else part for part in message.content]
    left = [part for part, before in zip(parts, message.content, strict=True) if part != Text("") or part == before]
    return replace(message, content=left, reasoning=thoughts)


def _texts(parts: list[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Text)]
