"""Read model names, instructions, tool definitions and replies from states and journals, for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.exporters.beside import around, system_pieces
from holdfast.exporters.otel_messages import (
    Message,
    finish_reason,
    finished,
    merged,
    message_of,
    part_of,
    with_finish,
)
from holdfast.inspect import is_message, unwrapped
from holdfast.runs.guards import model_named

_DECLARED: Final = ("functionDeclarations", "function_declarations")
_SCHEMA: Final = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema")
_MODEL: Final = ("model", "model_name", "modelVersion", "model_version")
_ID: Final = ("id", "responseId", "response_id", "provider_response_id")


def system_of(state: Any) -> list[Message]:
    """The instructions that a state keeps outside its messages."""
    return [part_of(piece) for piece in system_pieces(state)]


def model_of(state: Any, metadata: dict[str, Any]) -> str | None:
    """The name of the model in a state or in a checkpoint's metadata."""
    for told, key in ((around(state), "model"), (metadata, "gen_ai.request.model"), (metadata, "model")):
        model = told.get(key)
        if type(model) is str and model:
            return model
    return None


def tools_of(state: Any) -> list[Message]:
    """The tool definitions in a state."""
    tools = around(state).get("tools")
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


def response_model(reply: Any) -> str | None:
    """The name of the model in a reply."""
    return model_named(reply) or _said(reply, _MODEL)


def response_id(reply: Any) -> str | None:
    """The provider's id of a reply."""
    return _said(reply, _ID)


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
            yield merged(items), finish_reason(reason) if type(reason) is str and reason else None
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


def _said(reply: Any, keys: tuple[str, ...]) -> str | None:
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
