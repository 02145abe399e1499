"""Items, responses and outputs of the OpenAI Agents SDK as plain data, and the repair of conversations."""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import agents
from agents import ModelResponse
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from holdfast.adapters.seam import Codec
from holdfast.adapters.session_store import INTERRUPTED, unpaired
from holdfast.codec import msgpack
from holdfast.errors import Unsupported

_OUTPUTS: Final = {  # by the types of calls
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}

_ENDS: Final[dict[str, type[BaseModel]]] = {
    "response.completed": ResponseCompletedEvent,
    "response.incomplete": ResponseIncompleteEvent,
}
_KINDS: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (agents.ToolOutputText, agents.ToolOutputImage, agents.ToolOutputFileContent)
}


# -- requests and responses -------------------------------------------------------------------------------------------


def plain_items(given: Any) -> list[Any]:
    """The input of a run as items."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    plain: list[Any] = to_jsonable_python(items)
    return plain


def comparable(system_instructions: Any, input: Any, *_: Any, **options: Any) -> Any:  # noqa: A002 - its name there
    """The part of a request that identifies it."""
    kept = [options.get(name) for name in ("previous_response_id", "conversation_id", "prompt")]
    return to_jsonable_python([system_instructions, input, *kept], serialize_unknown=True)


def last_event(events: list[Any]) -> Any:
    """The event with the whole response. A response that failed is not recorded: a resumed run asks again."""
    ends = [event for event in events if event.type in _ENDS]
    if not ends:
        raise ConnectionError("the stream of the model ended before its response was complete")
    return ends[-1]


_adapter: Final = TypeAdapter(ModelResponse)
RESPONSE: Final = Codec(
    "openai_agents.ModelResponse/1",
    lambda reply: _adapter.dump_python(reply, mode="json", exclude_unset=True, warnings=False),
    _adapter.validate_python,
)
EVENT: Final = Codec(
    "openai_agents.Event/1",
    lambda event: event.model_dump(mode="json", exclude_unset=True, warnings=False),
    lambda plain: _ENDS[plain["type"]].model_validate(plain),
)


# -- tools ------------------------------------------------------------------------------------------------------------


def parsed(arguments: str) -> dict[str, Any]:
    try:
        found = json.loads(arguments or "{}")
    except ValueError:
        found = arguments
    return found if isinstance(found, dict) else {"input": found}


def _dumped(output: Any) -> Any:
    """An output of a tool as plain data. The SDK makes a text of an object that it does not know, and so does this."""
    if isinstance(output, list):
        return {"list": [_dumped(each) for each in output]}
    if type(output) in _KINDS.values():
        return {"type": type(output).__name__, "data": output.model_dump(mode="json", exclude_unset=True)}
    try:
        msgpack.check(output, is_state=False)
    except Unsupported:
        output = str(output)
    return {"plain": output}


def _loaded(plain: dict[str, Any]) -> Any:
    match plain:
        case {"list": list(items)}:
            return [_loaded(each) for each in items]
        case {"type": str(name), "data": data}:
            return _KINDS[name].model_validate(data)
        case _:
            return plain["plain"]


OUTPUT: Final = Codec("openai_agents.ToolOutput/1", _dumped, _loaded)


# -- poisoned conversations -------------------------------------------------------------------------------------------


def repaired_items(items: list[Any]) -> tuple[list[Any], list[str]]:
    """The items in a form that models accept, and what was changed.

    A call without an output gets one that says so. An output without a call before it is left out.
    """
    open_calls, orphans = unpaired(map(_place, items))
    repaired: list[Any] = []
    repairs: list[str] = []
    for at, item in enumerate(items):
        if at in orphans:
            repairs.append(f"the output of call {_call_of(item)!r} has no call before it; it was left out")
            continue
        repaired.append(item)
        if at in open_calls:
            repairs.append(f"call {_call_of(item)!r} has no output; one was added that says so")
            repaired.append({"type": _OUTPUTS[_kind(item)], "call_id": _call_of(item), "output": INTERRUPTED})
    return repaired, repairs


def _place(item: Any) -> tuple[str | None, tuple[str, str]]:
    """Whether an item is a call or an output, and what pairs have in common."""
    kind = _kind(item)
    what = "result" if kind in _OUTPUTS.values() else "call" if kind in _OUTPUTS else None
    return what, (_OUTPUTS.get(kind, kind), _call_of(item))


def _call_of(item: Any) -> str:
    return str(item.get("call_id")) if isinstance(item, Mapping) else ""


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, Mapping) else None
    return kind if isinstance(kind, str) else ""
