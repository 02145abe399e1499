"""Results of Strands Agents as plain data: replies of models, and outcomes of tools."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import json
from typing import Any, Final

from pydantic_core import to_jsonable_python
from strands.middleware import ModelStopReason
from strands.types._events import ToolInterruptEvent

from holdfast.adapters.recorded_errors import error_record
from holdfast.adapters.seam import Codec

_VOLATILE: Final = ("tracking_id", "metadata")  # of messages: other values after a restart


def comparable(message: Any) -> Any:
    """The part of a message that is the same after a restart."""
    return {name: value for name, value in message.items() if name not in _VOLATILE}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    """The usage of a reply, also with the names that guards of Holdfast count."""
    names = {
        "input_tokens": "inputTokens",
        "output_tokens": "outputTokens",
        "cache_read_input_tokens": "cacheReadInputTokens",
        "cache_creation_input_tokens": "cacheWriteInputTokens",
    }
    return {name: usage[given] for name, given in names.items() if given in usage}


def _stop_of(plain: dict[str, Any]) -> Any:
    return ModelStopReason(plain["stop_reason"], plain["message"], plain["strands_usage"], plain["metrics"])


STOP: Final = Codec(
    "strands.ModelStopReason/1",
    lambda event: {
        "stop_reason": event.stop_reason,
        "message": dict(event.message),
        "strands_usage": dict(event.usage),
        "metrics": dict(event.metrics),
        "usage": _usage(event.usage),
    },
    _stop_of,
)
OUTCOME: Final = Codec("strands.ToolResult/1", lambda value: value, lambda value: value)


def outcome_of(event: Any) -> dict[str, Any]:
    """The outcome of a tool call: its result, or the interrupts that it raised."""
    if isinstance(event, ToolInterruptEvent):
        kept = ("id", "name", "reason")
        return {"interrupts": [{name: getattr(each, name) for name in kept} for each in event.interrupts]}
    error = event.exception
    found: dict[str, Any] = {"result": dict(event.tool_result)}
    return found if error is None else {**found, "error": error_record(error)}


def state_changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The members of an agent's state that a tool has changed."""
    if before == after:
        return {}
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {"set": changed, "deleted": [key for key in before if key not in after]}


def reported(result: Any) -> dict[str, Any]:
    """The result of a tool, for what a person, a probe or `give_up` reported."""
    if isinstance(result, dict) and set(result) >= {"status", "content"}:
        return result
    text = result if isinstance(result, str) else json.dumps(to_jsonable_python(result), ensure_ascii=False)
    return {"status": "success", "content": [{"text": text}]}
