"""What a state keeps beside its messages: the instructions that they are sent with."""

from __future__ import annotations

from typing import Any, Final

from holdfast.looking.dialects import Piece, said_by

_APART: Final = "$values"
_SYSTEM: Final = ("system", "system_prompt", "system_instruction", "systemInstruction", "instructions")


def around(state: Any) -> dict[Any, Any]:
    """What the messages of a state stand in: LangGraph has its values apart."""
    if type(state) is not dict:
        return {}
    values = state.get(_APART)
    return values if type(values) is dict else state


def system_pieces(state: Any) -> list[Piece]:
    """The instructions that stand beside the messages, piece by piece."""
    found = around(state)
    given = next((found[key] for key in _SYSTEM if found.get(key)), None)
    if given is None:
        given = _prompt(found)
    if given is None:
        return []
    inside = given if type(given) is dict and "parts" in given else {"content": given}
    return [piece for piece in said_by({**inside, "role": "system"}).parts if piece[1] != ""]


def _prompt(found: dict[Any, Any]) -> Any:
    """The prompt of a state of `holdfast.states`. A plain text of that name in another one may be anything."""
    match found:
        case {"prompt": {"static": str(static), "dynamic": str(dynamic)}}:
            return [static, dynamic]
        case {"prompt": str(text), "budget": int(), "messages": list(), "id": str()}:
            return text
        case _:
            return None
