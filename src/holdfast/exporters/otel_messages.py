"""Convert messages to the form of OpenTelemetry's GenAI conventions: a role, and parts of known types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.exporters.media import Media, media_of
from holdfast.inspect import Answered, Asked, Piece, chat_of, messages_of, said_by, unwrapped
from holdfast.types import Effect

_ITEMS: Final = ("reasoning", "function_call", "message")  # in OpenAI's Responses API several items make a reply
_FINISHED: Final = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_call",
    "tool_call": "tool_call",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "compaction": "compaction",
    "error": "error",
}
_UNKNOWN: Final = "unknown"

Message = dict[str, Any]


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a state. `output` is the last one if it is the model's, `finish` its finish reason if known."""

    input: list[Message]
    output: list[Message]
    finish: str | None


def talk_of(state: Any, journal: Iterable[Effect]) -> Talk | None:
    """The messages of a state in order; None if it has none. `journal` gives the status of calls without a result."""
    found = messages_of(state)
    chat = chat_of(state, journal=journal)
    if found is None or chat is None:
        return None
    _, items, ids = found
    told = {message.index: [call.status for call in message.calls] for message in chat.messages}
    messages: list[Message] = []
    finish: str | None = None
    was_item = False
    for index, item in enumerate(items):
        message = message_of(item, ids[index] if ids is not None and index < len(ids) else None, told.get(index, ()))
        is_item = message["role"] == "assistant" and _is_item(item)
        if is_item and was_item:
            messages[-1]["parts"] += message["parts"]
            finish = finished(item) or finish
        else:
            messages.append(message)
            finish = finished(item)
        was_item = is_item
    is_said = bool(messages) and messages[-1]["role"] == "assistant"
    output = [with_finish(messages.pop(), finish)] if is_said else []
    return Talk(input=messages, output=output, finish=finish if is_said else None)


def message_of(item: Any, id: Any = None, told: Sequence[str | None] = ()) -> Message:
    """Convert one message. `told` is the status of each of its calls, from the journal."""
    said = said_by(item, id)
    parts = [part_of(piece) for piece in said.parts if piece[1] != ""]
    parts += [_call(call, told[at] if at < len(told) else None) for at, call in enumerate(said.calls)]
    parts += [_response(result) for result in said.results]
    message: Message = {"role": said.role or _UNKNOWN, "parts": parts}
    # In a call or a result, the name is that of the tool, not of the speaker.
    if said.name is not None and said.role != "tool" and _type(item) != "function_call":
        message["name"] = said.name
    return message


def part_of(piece: Piece) -> Message:
    """Convert one piece of a message. A piece for which the conventions have no type becomes a part of type "data"."""
    kind, value = piece
    if kind == "text":
        return {"type": "text", "content": value}
    if kind == "thought":
        return {"type": "reasoning", "content": value}
    media = media_of(value)
    if media is not None:
        return _media(media)
    match value:
        case {"type": "server_tool_use", "name": str(name)}:
            call = {"type": name, "input": value.get("input")}
            return {"type": "server_tool_call", **_id(value.get("id")), "name": name, "server_tool_call": call}
        case {"type": str(of), "tool_use_id": str(id)} if of.endswith("_tool_result"):
            response = {"type": of, "content": value.get("content")}
            return {"type": "server_tool_call_response", **_id(id), "server_tool_call_response": response}
        case {"type": "compaction"}:
            content = value.get("content")
            return {"type": "compaction", **({"content": content} if type(content) is str else {})}
        case _:
            return {"type": "data", "content": value}


def with_finish(message: Message, finish: str | None) -> Message:
    """Add a finish reason, which earlier versions of the conventions require: by default "tool_call" or "unknown"."""
    asks = any(part["type"] == "tool_call" for part in message["parts"])
    return {**message, "finish_reason": finish or ("tool_call" if asks else _UNKNOWN)}


def finished(said: Any) -> str | None:
    """The finish reason of a reply, as the conventions name it; None if unknown."""
    inside = unwrapped(said)
    if type(inside) is not dict:
        return None
    around = inside.get("response_metadata")
    for each in (inside, around if type(around) is dict else {}):
        for key in ("finish_reason", "stop_reason", "finishReason", "done_reason"):
            reason = each.get(key)
            if type(reason) is str and reason:
                return finish_reason(reason)
    return None


def finish_reason(reason: str) -> str:
    """Translate a provider's finish reason to the conventions; one that they do not have stays as it is."""
    return _FINISHED.get(reason.lower(), reason)


def merged(items: Sequence[Any]) -> Message:
    """Merge the items of a reply of OpenAI's Responses API into one message."""
    parts = [part for item in items for part in message_of(item)["parts"]]
    return {"role": "assistant", "parts": parts}


def _call(call: Asked, told: str | None) -> Message:
    id, name, arguments = call
    part: Message = {"type": "tool_call", **_id(id), "name": name, "arguments": arguments}
    return part if told is None else {**part, "holdfast.status": told}


def _response(result: Answered) -> Message:
    id, _, pieces, is_error = result
    found = [value for _, value in pieces]
    response = found[0] if len(found) == 1 else found or None
    part: Message = {"type": "tool_call_response", **_id(id), "response": response}
    return {**part, "holdfast.is_error": True} if is_error else part


def _media(media: Media) -> Message:
    about: Message = {"modality": media.modality}
    if media.mime_type is not None:
        about["mime_type"] = media.mime_type
    if media.content is not None:
        return {"type": "blob", **about, "content": media.content}
    if media.uri is not None:
        return {"type": "uri", **about, "uri": media.uri}
    return {"type": "file", **about, "file_id": media.file_id}


def _id(id: Any) -> Message:
    return {"id": id} if type(id) is str and id else {}


def _type(item: Any) -> Any:
    return item.get("type") if type(item) is dict else None


def _is_item(item: Any) -> bool:
    # A reply of Anthropic has the type "message" too, but is a whole reply.
    return _type(item) in _ITEMS and "stop_reason" not in item
