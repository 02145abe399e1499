"""Export threads as JSON lines in the form of OpenTelemetry's GenAI conventions.

There is one line for each thread, and one for each model call in the journal that led to the checkpoint. Holdfast's own
attributes are named `holdfast.*`; docs/how-to/export.md lists them. No OpenTelemetry package is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from holdfast.codec import msgpack
from holdfast.errors import Damaged, NotFound
from holdfast.exporters.excerpt import Excerpt, ExcerptReader
from holdfast.exporters.message_parts import media_of, system_pieces
from holdfast.exporters.target import Exported, Progress, Target, Write, check_selection, put_all, written_to
from holdfast.handle import Holdfast
from holdfast.inspect import (
    Answered,
    Asked,
    Piece,
    chat_of,
    data_of,
    find,
    is_message,
    message_in,
    messages_of,
    unwrapped,
    usage_of,
)
from holdfast.runs.guards import cache_written, model_named
from holdfast.stores.contract_runs import Entry
from holdfast.threads import scan
from holdfast.threads.metadata import moment
from holdfast.types import Problem, Usage

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
THREAD: Final = "holdfast.thread"
MODEL_CALL: Final = "gen_ai.client.inference.operation.details"

_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*")

Attributes = dict[str, Any]
Message = dict[str, Any]

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
_DECLARED: Final = ("functionDeclarations", "function_declarations")
_SCHEMA: Final = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema")
_MODEL: Final = ("model", "model_name", "modelVersion", "model_version")
_ID: Final = ("id", "responseId", "response_id", "provider_response_id")


def export_otel(
    hf: Holdfast,
    target: Target,
    *,
    threads: Sequence[str] | None = None,
    prefix: str | None = None,
    redact: Callable[[str], str] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write threads in the form of OpenTelemetry's GenAI conventions, to a new file or an open one.

    `threads` are names or references ("notes@12"), by default all threads, or those whose names start with `prefix`.
    `redact` is called with every text except names and returns the text to write. NotFound if a named thread does not
    exist, InvalidArgument if the file exists. Unreadable parts are left out and reported.
    """
    check_selection(threads, prefix)
    reader = ExcerptReader(hf, redact)
    everything = scan.threads(hf.context.store, prefix or "")
    names = [row.name for row in everything] if threads is None else list(threads)
    if threads is not None:
        for name in names:
            find(hf, name)
    return written_to(target, _OtelExport(reader, names, progress).run)


class _OtelExport:
    """The state of one export: the threads to write, and what was left out."""

    def __init__(self, reader: ExcerptReader, names: list[str], progress: Progress | None) -> None:
        self._reader = reader
        self._names = names
        self._progress = progress
        self._left_out: list[Problem] = []

    def run(self, write: Write) -> Exported:
        threads = calls = size = 0
        for done, name in enumerate(self._names):
            if self._progress is not None:
                self._progress("exporting", done, len(self._names))
            try:
                excerpt = self._reader.read(name)
                lines = [_line(THREAD, excerpt.checkpoint.created_at, _thread(excerpt))]
                lines += self._calls(excerpt)
            except (Damaged, NotFound) as error:
                self._left_out.append(Problem(name, (), f"the whole thread was left out: {error}"))
                continue
            seqs = (excerpt.checkpoint.seq,)
            self._left_out += [Problem(excerpt.thread, seqs, why) for why in excerpt.lost]
            size += put_all(write, lines)
            threads, calls = threads + 1, calls + len(lines) - 1
        return Exported(threads=threads, checkpoints=threads, entries=calls, bytes=size, left_out=tuple(self._left_out))

    def _calls(self, excerpt: Excerpt) -> Iterator[str]:
        try:
            for row in self._reader.journal(excerpt):
                if row.kind == "model":
                    yield _line(MODEL_CALL, moment(row.started_at), self._call(excerpt, row))
        except Damaged:
            return  # `excerpt.lost` already reports that the journal cannot be read

    def _call(self, excerpt: Excerpt, row: Entry) -> Attributes:
        reply = None if row.result is None else self._reader.redacted(msgpack.decode(row.result))
        outputs, reasons = outputs_of(reply)
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": excerpt.thread,
            "gen_ai.agent.name": excerpt.agent,
            "gen_ai.response.model": model_named(reply) or _named(reply, _MODEL),
            "gen_ai.response.id": _named(reply, _ID),
            "gen_ai.response.finish_reasons": reasons,
            **_usage(usage_of(row)),
            "gen_ai.usage.cache_creation.input_tokens": cache_written(reply) or None,
            "gen_ai.output.messages": outputs,
            "error.type": _error(row.error),
            "holdfast.step": row.step,
            "holdfast.branch": row.branch,
            "holdfast.effect": row.number,
            "holdfast.fence": row.fence,
            "holdfast.status": row.status,
            "holdfast.seconds": None if row.ended_at is None else max(row.ended_at - row.started_at, 0) / 1_000_000,
        }
        return attributes


def _thread(excerpt: Excerpt) -> Attributes:
    checkpoint = excerpt.checkpoint
    talk = talk_of(excerpt)
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": excerpt.thread,
        "gen_ai.agent.name": excerpt.agent,
        "gen_ai.request.model": model_of(checkpoint.state, checkpoint.metadata),
        "gen_ai.response.finish_reasons": [] if talk.finish is None else [talk.finish],
        **_usage(excerpt.usage),
        "gen_ai.system_instructions": [part_of(piece) for piece in system_pieces(checkpoint.state)],
        "gen_ai.tool.definitions": tools_of(checkpoint.state),
        "gen_ai.input.messages": talk.input,
        "gen_ai.output.messages": talk.output,
        "holdfast.checkpoint.id": checkpoint.id,
        "holdfast.checkpoint.seq": checkpoint.seq,
        "holdfast.step": checkpoint.step,
        "holdfast.branch": excerpt.branches[excerpt.branch - 1][0].number if excerpt.branches else 0,
        "holdfast.head": excerpt.is_head,
        "holdfast.status": excerpt.status,
        "holdfast.label": checkpoint.label,
        "holdfast.tags": list(checkpoint.tags),
        "holdfast.in_doubt": [call.effect.number for call in excerpt.open_calls if call.status == "in doubt"],
    }


def _usage(usage: Usage | None) -> Attributes:
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input or None,
        "gen_ai.usage.output_tokens": usage.output or None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
        "holdfast.usage.total_tokens": usage.total or None,
        "holdfast.usage.cost": usage.cost or None,
        "holdfast.usage.currency": usage.currency if usage.cost else None,
    }


def _error(text: str | None) -> str | None:
    """The class name at the start of an error text; "_OTHER" if there is none."""
    if text is None:
        return None
    kind = text.partition(": ")[0]
    return kind if _CLASS.fullmatch(kind) else "_OTHER"


def _line(name: str, at: datetime, attributes: Attributes) -> str:
    """An event as one line of ASCII. Unknown and empty attributes are left out."""
    told = {key: data_of(value) for key, value in attributes.items() if value is not None and value not in ([], "")}
    event = {"schema_url": SCHEMA_URL, "event_name": name, "timestamp": at.isoformat(), "attributes": told}
    return f"{json.dumps(event, separators=(',', ':'))}\n"


# -- states and replies ------------------------------------------------------------------------------------------------


def model_of(state: Any, metadata: dict[str, Any]) -> str | None:
    """The name of the model in a state or in a checkpoint's metadata."""
    for told, key in ((state, "model"), (metadata, "gen_ai.request.model"), (metadata, "model")):
        model = told.get(key) if type(told) is dict else None
        if type(model) is str and model:
            return model
    return None


def tools_of(state: Any) -> list[Message]:
    """The tool definitions in a state."""
    tools = state.get("tools") if type(state) is dict else None
    return [found for tool in tools for found in _tools(tool)] if isinstance(tools, list | tuple) else []


def outputs_of(reply: Any) -> tuple[list[Message], list[str]]:
    """The messages of a model's reply, one per choice, and their finish reasons if known.

    Empty for a reply in chunks or in an unknown format.
    """
    outputs: list[Message] = []
    reasons: list[str] = []
    for message, reason in _choices(reply):
        outputs.append(with_finish(message, reason))
        reasons += [] if reason is None else [reason]
    return outputs, reasons


def _choices(reply: Any) -> Iterator[tuple[Message, str | None]]:
    match reply:
        case {"choices": list(choices)}:
            for choice in choices:
                if type(choice) is dict:
                    said = choice.get("message", {"role": "assistant", "content": choice.get("text")})
                    yield message_of(said), finished(choice)
        case {"candidates": list(candidates)}:
            for candidate in candidates:
                if type(candidate) is dict:
                    said = candidate.get("content")
                    content = {"role": "model", **said} if type(said) is dict else {"role": "model", "parts": []}
                    yield message_of(content), finished(candidate)
        case {"output": list(items), **rest}:
            details = rest.get("incomplete_details")
            reason = details.get("reason") if type(details) is dict else rest.get("status")
            parts = [part for item in items for part in message_of(item)["parts"]]
            yield (
                {"role": "assistant", "parts": parts},
                _FINISHED.get(reason.lower(), reason) if type(reason) is str else None,
            )
        case {"message": dict(said)}:
            yield message_of(said), finished(reply)
        case str():
            yield message_of({"role": "assistant", "content": reply}), None
        case _ if is_message(reply):
            yield message_of(reply), finished(reply)
        case _:
            pass


def _tools(tool: Any) -> Iterator[Message]:
    match tool:
        case str():
            yield {"type": "function", "name": tool}
        case {"function": {"name": str()}}:
            yield _function(tool["function"])
        case {"name": str(name), "type": str(of)} if of not in ("function", "custom", "object"):
            yield {"type": of, "name": name}
        case {"name": str()}:
            yield _function(tool)
        case {"type": str(of)}:
            yield {"type": of, "name": of}
        case dict():
            for key in _DECLARED:
                declared = tool.get(key)
                yield from (found for each in (declared if type(declared) is list else ()) for found in _tools(each))
        case _:
            pass


def _function(tool: dict[Any, Any]) -> Message:
    found: Message = {"type": "function", "name": tool["name"]}
    if type(tool.get("description")) is str:
        found["description"] = tool["description"]
    schema = next((tool[key] for key in _SCHEMA if type(tool.get(key)) is dict), None)
    return found if schema is None else {**found, "parameters": schema}


def _named(reply: Any, keys: tuple[str, ...]) -> str | None:
    inside = unwrapped(reply)
    if type(inside) is not dict:
        return None
    more = inside.get("response_metadata")
    for each in (inside, more if type(more) is dict else {}):
        for key in keys:
            if type(each.get(key)) is str and each[key]:
                found: str = each[key]
                return found
    return None


# -- messages ----------------------------------------------------------------------------------------------------------


class Talk(NamedTuple):
    """The messages of a state. `output` is the last one if it is the model's, `finish` its finish reason if known."""

    input: list[Message]
    output: list[Message]
    finish: str | None


def talk_of(excerpt: Excerpt) -> Talk:
    """The messages of a state in order. The journal gives the status of calls without a result."""
    found = messages_of(excerpt.checkpoint.state)
    chat = chat_of(excerpt.checkpoint.state, journal=excerpt.effects, is_held=excerpt.is_held)
    if found is None or chat is None:
        return Talk([], [], None)
    statuses = {message.index: [call.status for call in message.calls] for message in chat.messages}
    messages: list[Message] = []
    finish: str | None = None
    was_item = False
    for index, item in enumerate(found[1]):
        message = message_of(item, statuses.get(index, ()))
        is_item = message["role"] == "assistant" and _is_item(item)
        if is_item and was_item:
            messages[-1]["parts"] += message["parts"]
            finish = finished(item) or finish
        else:
            messages.append(message)
            finish = finished(item)
        was_item = is_item
    if not messages or messages[-1]["role"] != "assistant":
        return Talk(messages, [], None)
    return Talk(messages[:-1], [with_finish(messages[-1], finish)], finish)


def message_of(item: Any, told: Sequence[str | None] = ()) -> Message:
    """Convert one message. `told` is the status of each of its calls, from the journal."""
    said = message_in(item)
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
        about: Message = {"modality": media.modality, **({"mime_type": media.mime_type} if media.mime_type else {})}
        if media.content is not None:
            return {"type": "blob", **about, "content": media.content}
        if media.uri is not None:
            return {"type": "uri", **about, "uri": media.uri}
        return {"type": "file", **about, "file_id": media.file_id}
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
    """The finish reason of a reply, as the conventions name it or else as the provider does; None if unknown."""
    inside = unwrapped(said)
    if type(inside) is not dict:
        return None
    around = inside.get("response_metadata")
    for each in (inside, around if type(around) is dict else {}):
        for key in ("finish_reason", "stop_reason", "finishReason", "done_reason"):
            reason = each.get(key)
            if type(reason) is str and reason:
                return _FINISHED.get(reason.lower(), reason)
    return None


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


def _id(id: Any) -> Message:
    return {"id": id} if type(id) is str and id else {}


def _type(item: Any) -> Any:
    return item.get("type") if type(item) is dict else None


def _is_item(item: Any) -> bool:
    # A reply of Anthropic has the type "message" too, but is a whole reply.
    return _type(item) in _ITEMS and "stop_reason" not in item
