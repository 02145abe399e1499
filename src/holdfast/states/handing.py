"""A conversation that goes on with another provider, which knows neither the first one's ids nor its thoughts."""

from __future__ import annotations

import re
from copy import deepcopy
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
    """A new conversation with the same messages, as another provider takes them; the old one stays as it is.

    `reasoning`: "inline" puts what the assistant thought ahead of what it said, in `<thinking>` tags, "extract" takes
    that out of there again, "drop" leaves it away. With `new_ids` tool calls get ids that no provider gave, the same
    for a call and its answer. A message of the assistant that says nothing and asks for nothing says `placeholder`.
    """
    names: dict[str, str] = {}
    if new_ids:
        for message in conversation.messages:
            for call in message.tool_calls:
                names.setdefault(call.id, f"call_{len(names) + 1}")
    handed = deepcopy(conversation)
    handed.messages = [_handed(each, reasoning, names, placeholder) for each in handed.messages]
    if isinstance(handed, Work):
        handed.tool_calls = [_renamed(call, names) for call in handed.tool_calls]
    return handed


def _handed(message: Message, reasoning: Reasoning, names: dict[str, str], placeholder: str) -> Message:
    if message.role == "assistant":
        message = _thinking(message, reasoning)
        if isinstance(message.content, str) and not message.content.strip() and not message.tool_calls:
            message = replace(message, content=placeholder)
    if message.tool_calls and names:
        message = replace(message, tool_calls=[_renamed(call, names) for call in message.tool_calls])
    if message.tool_call_id in names:
        message = replace(message, tool_call_id=names[message.tool_call_id])
    return message


def _renamed(call: ToolCall, names: dict[str, str]) -> ToolCall:
    return replace(call, id=names.get(call.id, call.id))


def _thinking(message: Message, reasoning: Reasoning) -> Message:
    if reasoning == "drop":
        return replace(message, reasoning=None) if message.reasoning else message
    if reasoning == "inline" and message.reasoning:
        return replace(message, content=_ahead(f"<thinking>{message.reasoning}</thinking>", message), reasoning=None)
    found = _THOUGHT.search(message.text) if reasoning == "extract" else None
    if found and isinstance(message.content, str):
        said = message.content[: found.start()] + message.content[found.end() :]
        return replace(message, content=said, reasoning=found[1])
    return message


def _ahead(text: str, message: Message) -> str | list[Part]:
    return text + message.content if isinstance(message.content, str) else [Text(text), *message.content]
