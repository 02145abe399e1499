"""Redact the strings in plain data, except those that LangGraph needs.

Names of types, fields and nodes, and ids of messages and interrupts are not redacted. Without them a value could not be
loaded, an answer would not match its question, and two messages could get the same id.
"""

from __future__ import annotations

from typing import Any, Final

from langgraph.checkpoint.serde.jsonplus import EXT_NUMPY_ARRAY

from holdfast.adapters.langgraph.messages import BODIES, HOISTED, MESSAGES, is_message
from holdfast.adapters.langgraph.trees import DICT, EXT, PAYLOAD, TYPED
from holdfast.errors import Unsupported
from holdfast.redaction import Redaction

_WHOLE: Final = frozenset((HOISTED, TYPED, EXT_NUMPY_ARRAY))
# Objects that are stored as strings but are not text.
_NO_TEXTS: Final = frozenset(("datetime", "decimal", "ipaddress", "re", "uuid", "zoneinfo"))
_OF_MESSAGES: Final = frozenset(("id", "type"))
_KEPT: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("langgraph.types", "Interrupt"): frozenset(("id",)),
    ("langgraph.types", "Command"): frozenset(("goto", "graph")),
}
_SENT: Final = ("langgraph.types", "Send")


def redacted(redaction: Redaction, plain: Any) -> Any:
    """Redact the strings in plain data. Unsupported as for `Redaction.value`."""
    # Usually nothing changes, and then the exceptions below do not matter.
    return plain if redaction.value(plain) is plain else _value(redaction, plain)


def _value(redaction: Redaction, plain: Any) -> Any:
    kind = type(plain)
    if kind is list:
        return [_value(redaction, item) for item in plain]
    if kind is not dict:
        return redaction.value(plain)
    if EXT in plain:
        return _object(redaction, plain)
    keys = redaction.value(dict.fromkeys(plain))
    return dict(zip(keys, (_value(redaction, member) for member in plain.values()), strict=True))


def _object(redaction: Redaction, node: dict[str, Any]) -> dict[str, Any]:
    mark, payload = node[EXT], node.get(PAYLOAD)
    if mark in _WHOLE:
        return node
    if mark == MESSAGES:
        return {**node, BODIES: _value(redaction, node.get(BODIES))}
    if mark == DICT:
        return {**node, PAYLOAD: _pairs(redaction, payload)}
    if type(payload) is list and len(payload) > 2 and type(payload[0]) is str and type(payload[1]) is str:
        module, name, fields, *more = payload
        kept = _OF_MESSAGES if is_message(node) else _KEPT.get((module, name), frozenset())
        return {**node, PAYLOAD: [module, name, _fields(redaction, (module, name), fields, kept), *more]}
    return {**node, PAYLOAD: _value(redaction, payload)}


def _fields(redaction: Redaction, name: tuple[str, str], fields: Any, kept: frozenset[str]) -> Any:
    if name[0] in _NO_TEXTS:
        return fields
    if type(fields) is dict and EXT not in fields:
        return {key: value if key in kept else _value(redaction, value) for key, value in fields.items()}
    if name == _SENT and type(fields) is list:
        return [*fields[:1], *(_value(redaction, value) for value in fields[1:])]
    return _value(redaction, fields)


def _pairs(redaction: Redaction, pairs: Any) -> Any:
    found = _value(redaction, pairs)
    keys = [pair[0] for pair in found if type(pair) is list and pair and type(pair[0]) is str]
    if len(set(keys)) < len(keys):
        raise Unsupported("$", "two keys of a dict are equal after redaction")
    return found
