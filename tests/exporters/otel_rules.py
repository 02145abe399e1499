"""The rules of OpenTelemetry's GenAI conventions for messages: what 1.42.0-dev, or versions before it, refuse."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

MODALITIES = {"image", "video", "audio", "document", "unknown"}
TEXT = {
    "text": "content",
    "reasoning": "content",
    "uri": "uri",
    "file": "file_id",
    "blob": "content",
    "tool_call": "name",
    "server_tool_call": "name",
}
ATTRIBUTES = {
    "gen_ai.operation.name": str,
    "gen_ai.conversation.id": str,
    "gen_ai.agent.name": str,
    "gen_ai.request.model": str,
    "gen_ai.response.model": str,
    "gen_ai.response.id": str,
    "gen_ai.response.finish_reasons": list,
    "gen_ai.usage.input_tokens": int,
    "gen_ai.usage.output_tokens": int,
    "gen_ai.usage.cache_read.input_tokens": int,
    "gen_ai.usage.cache_creation.input_tokens": int,
    "gen_ai.input.messages": list,
    "gen_ai.output.messages": list,
    "gen_ai.system_instructions": list,
    "gen_ai.tool.definitions": list,
    "error.type": str,
}


def problems(event: Any) -> list[str]:
    """What of an event is not as the conventions have it."""
    return list(_event(event))


def _event(event: Any) -> Iterator[str]:
    attributes = event["attributes"]
    if event["event_name"] not in ("holdfast.thread", "gen_ai.client.inference.operation.details"):
        yield "an event of another name"
    if attributes.get("gen_ai.operation.name") not in ("chat", "invoke_agent"):
        yield "an operation of another name"
    for key, value in attributes.items():
        if not key.startswith("holdfast."):
            kind = ATTRIBUTES.get(key)
            if kind is None or type(value) is not kind:
                yield f"{key} is {type(value).__name__}"
    for message in attributes.get("gen_ai.input.messages", ()):
        yield from _message(message)
        if "finish_reason" in message:
            yield "an input message that finishes"
    for message in attributes.get("gen_ai.output.messages", ()):
        yield from _message(message)
        if type(message.get("finish_reason")) is not str:
            yield "an output message without a reason"
    for part in attributes.get("gen_ai.system_instructions", ()):
        yield from _part(part)
        if part["type"] not in ("text", "data"):
            yield f"a system instruction of type {part['type']}"
    for tool in attributes.get("gen_ai.tool.definitions", ()):
        yield from _tool(tool)


def _message(message: Any) -> Iterator[str]:
    if type(message.get("role")) is not str or not message["role"] or type(message.get("parts")) is not list:
        yield "a message without a role or parts"
        return
    if not isinstance(message.get("name", ""), str):
        yield "a name that is no text"
    for part in message["parts"]:
        yield from _part(part)


def _part(part: Any) -> Iterator[str]:
    kind = part.get("type")
    if type(kind) is not str:
        yield "a part without a type"
        return
    if kind in TEXT and type(part.get(TEXT[kind])) is not str:
        yield f"a part {kind} without {TEXT[kind]}"
    # Earlier versions take null for what is not known, later ones do not: it is left out.
    yield from (f"a part {kind} with {key} null" for key in ("id", "mime_type", "name") if part.get(key, "") is None)
    if kind in ("uri", "file", "blob") and part.get("modality") not in MODALITIES:
        yield f"a part {kind} without a modality"
    if kind == "uri" and part["uri"].startswith("data:"):
        yield "a URI that is its own data"
    if kind == "blob":
        try:
            base64.b64decode(part["content"], validate=True)
        except binascii.Error:
            yield "a blob that is not base64"
    if kind == "tool_call" and "arguments" not in part:
        yield "a call without arguments"
    if kind == "tool_call_response" and "response" not in part:
        yield "a result without a response"
    if kind in ("server_tool_call", "server_tool_call_response") and type(part.get(kind, {}).get("type")) is not str:
        yield f"a part {kind} without its details"


def _tool(tool: Any) -> Iterator[str]:
    if type(tool.get("type")) is not str or type(tool.get("name")) is not str:
        yield "a tool without a type or a name"
    if type(tool.get("description", "")) is not str or type(tool.get("parameters", {})) is not dict:
        yield "a tool whose description or parameters are none"
