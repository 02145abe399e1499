"""Find the system instructions that a state keeps outside its messages."""

from __future__ import annotations

from typing import Any, Final

from holdfast.inspect import Piece, said_by

_APART: Final = "$values"
_SYSTEM: Final = ("system", "system_prompt", "system_instruction", "systemInstruction", "instructions")


def around(state: Any) -> dict[Any, Any]:
    """The dict that contains the messages of a state: for LangGraph that is a dict inside the state."""
    if type(state) is not dict:
        return {}
    values = state.get(_APART)
    return values if type(values) is dict else state


def system_pieces(state: Any) -> list[Piece]:
    """The instructions outside the messages, in pieces."""
    found = around(state)
    given = next((found[key] for key in _SYSTEM if found.get(key)), None)
    if given is None:
        given = _prompt(found)
    if given is None:
        return []
    inside = given if type(given) is dict and "parts" in given else {"content": given}
    return [piece for piece in said_by({**inside, "role": "system"}).parts if piece[1] != ""]


def _prompt(found: dict[Any, Any]) -> Any:
    """The prompt of a state of `holdfast.states`. In other states a `prompt` may mean anything, so it is ignored."""
    match found:
        case {"prompt": {"static": str(static), "dynamic": str(dynamic)}}:
            return [static, dynamic]
        case {"prompt": str(text), "budget": int(), "messages": list(), "id": str()}:
            return text
        case _:
            return None
