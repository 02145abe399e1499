"""Join the chunks of a streamed reply."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from holdfast.errors import InvalidArgument

# Strings that are sent whole, by some providers in every chunk. All other strings are sent in pieces.
_WHOLE = {"finish_reason", "id", "name", "role", "type"}


def joined(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Join the chunks of a stream to the reply that the provider would send without streaming.

    Accepts chunks of OpenAI's chat completions, events of its responses, and events of Anthropic's messages, as plain
    data. InvalidArgument for other data, and for an incomplete reply, which must not be used.

    >>> reply = joined([
    ...     {"id": "c1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
    ...     {"id": "c1", "choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
    ... ])
    >>> reply["choices"][0]["message"]
    {'role': 'assistant', 'content': 'Hello'}
    >>> reply = joined([
    ...     {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
    ...     {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ...     {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    ...     {"type": "content_block_stop", "index": 0},
    ...     {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    ...     {"type": "message_stop"},
    ... ])
    >>> reply["content"], reply["usage"]
    ([{'type': 'text', 'text': 'Hello'}], {'input_tokens': 3, 'output_tokens': 1})
    """
    pieces = list(chunks)
    match pieces:
        case [{"choices": _}, *_]:
            return _completion(pieces)
        case [{"type": "message_start"}, *_]:
            return _message(pieces)
        case [{"type": "response.created"}, *_]:
            return _response(pieces)
        case _:
            raise InvalidArgument(
                "the chunks are not those of a chat completion, a response or a message, as plain data"
            )


def unjoined(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return chunks that `joined` joins to this reply: as few as possible.

    >>> reply = {"id": "c1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"},
    ...     "finish_reason": "stop"}], "object": "chat.completion"}
    >>> [chunk["choices"][0]["delta"] for chunk in unjoined(reply)]
    [{'role': 'assistant', 'content': 'Hello'}]
    >>> joined(unjoined(reply)) == reply
    True
    """
    if "choices" in reply:
        return [{**reply, "object": "chat.completion.chunk", "choices": [_delta(each) for each in reply["choices"]]}]
    if reply.get("object") == "response":
        kind = f"response.{reply.get('status') or 'completed'}"
        return [
            {"type": "response.created", "sequence_number": 0, "response": reply},
            {"type": kind, "sequence_number": 1, "response": reply},
        ]
    usage = reply.get("usage") or {}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}]
    for index, block in enumerate(reply["content"]):
        events += _block_events(index, block)
    stop = {name: reply.get(name) for name in ("stop_reason", "stop_sequence")}
    counts = {"output_tokens": usage.get("output_tokens", 0)}
    return [*events, {"type": "message_delta", "delta": stop, "usage": counts}, {"type": "message_stop"}]


def _delta(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a completion as that of a chunk."""
    message = dict(choice["message"])
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": message}


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one block of a message."""
    deltas: list[dict[str, Any]] = []
    start = dict(block)
    match block:
        case {"type": "text", "text": text}:
            start["text"] = ""
            deltas = [{"type": "text_delta", "text": text}]
            deltas += [{"type": "citations_delta", "citation": each} for each in start.pop("citations", None) or ()]
        case {"type": "thinking", "thinking": text}:
            start |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": text}]
            deltas.append({"type": "signature_delta", "signature": block.get("signature", "")})
        case {"input": given}:
            start["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(given)}]
        case _:
            pass
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _completion(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    reply: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        reply.update({name: value for name, value in chunk.items() if name != "choices" and value is not None})
        for choice in chunk.get("choices") or []:
            _add(choices.setdefault(choice["index"], {"index": choice["index"]}), choice)
    if not choices or any(choice.get("finish_reason") is None for choice in choices.values()):
        raise _unfinished()
    reply["object"] = "chat.completion"
    reply["choices"] = [_choice(choices[index]) for index in sorted(choices)]
    return reply


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("delta")
    message.setdefault("content", None)
    for call in message.get("tool_calls") or []:
        call.pop("index", None)  # belongs to the stream, not to the reply
    return {"index": choice.pop("index"), "message": message, **choice}


def _add(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece of a reply to the earlier pieces."""
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(value, dict):
            whole[name] = before or {}
            _add(whole[name], value)
        elif isinstance(value, list):
            whole[name] = before or []
            _add_items(whole[name], value)
        elif isinstance(value, str) and isinstance(before, str) and name not in _WHOLE:
            whole[name] = before + value
        elif value is not None or name not in whole:
            whole[name] = value


def _add_items(items: list[Any], more: list[Any]) -> None:
    """Add pieces to a list. A piece with an index belongs to the item with that index; others are new items."""
    for piece in more:
        if not isinstance(piece, dict) or "index" not in piece:
            items.append(piece)
            continue
        found = next((item for item in items if item.get("index") == piece["index"]), None)
        if found is None:
            found = {}
            items.append(found)
        _add(found, piece)


def _response(events: list[dict[str, Any]]) -> dict[str, Any]:
    match events[-1]:
        case {"type": "response.completed" | "response.incomplete" | "response.failed", "response": dict(response)}:
            return response
        case _:
            raise _unfinished()


def _message(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for event in events:
        match event:
            case {"type": "message_start", "message": dict(started)}:
                message = {**started, "usage": dict(started.get("usage") or {})}
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                blocks[index] = dict(block)
            case {"type": "content_block_delta", "index": int(index), "delta": {"partial_json": str(text)}}:
                inputs[index] = inputs.get(index, "") + text
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                _add_to_block(blocks.setdefault(index, {}), delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                message.update(delta)
                # Counts are running totals; a count that is not sent again stays.
                counts = event.get("usage") or {}
                message["usage"].update({name: count for name, count in counts.items() if count is not None})
            case {"type": "message_stop"}:
                for index, text in inputs.items():
                    blocks.setdefault(index, {})["input"] = _input(text, message)
                return {**message, "content": [blocks[index] for index in sorted(blocks)]}
            case _:
                pass  # pings, and new types of events, which Anthropic may add
    raise _unfinished()


def _add_to_block(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            block["text"] = block.get("text", "") + text
        case {"type": "thinking_delta", "thinking": str(text)}:
            block["thinking"] = block.get("thinking", "") + text
        case {"type": "signature_delta", "signature": str(signature)}:
            block["signature"] = signature
        case {"type": "citations_delta", "citation": citation}:
            block["citations"] = [*(block.get("citations") or []), citation]
        case _:
            raise InvalidArgument(f"a message has a piece of unknown type {delta.get('type')!r}; it cannot be joined")


def _input(text: str, message: dict[str, Any]) -> Any:
    """Parse the arguments of a tool call. They are incomplete if the model reached its token limit."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        # No cause: it contains the text of the reply.
        reason = message.get("stop_reason")
        raise InvalidArgument(f"the arguments of a tool call are incomplete; the reply ended with {reason!r}") from None


def _unfinished() -> InvalidArgument:
    return InvalidArgument("the stream ended before the reply was complete; do not use this reply")
