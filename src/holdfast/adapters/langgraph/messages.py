"""Separate messages in plain data into bodies and ids, so that each body is stored once.

A message is first part of an input or of a node's write, without an id. Later it is in a list of messages, and
LangGraph gives it an id. Therefore lists of messages are stored as bodies and ids. In small values (an input, a write,
a `Send`) the bodies are moved ("hoisted") to a separate list, `cells`, where each is a cell that later lists share.
"""

from __future__ import annotations

from typing import Any, Final

from langchain_core.messages import BaseMessage

from holdfast.adapters.langgraph.trees import EXT, PAYLOAD
from holdfast.errors import Damaged

MESSAGES: Final = "messages"
HOISTED: Final = "hoisted"
BODIES: Final = "bodies"
IDS: Final = "ids"
_START: Final = "start"
_COUNT: Final = "count"
_ALONE: Final = "alone"

_PYDANTIC: Final = 5
_OURS: Final = "langchain_core.messages."


def folded(plain: Any, cells: list[Any] | None = None) -> Any:
    """Replace lists of messages in plain data by bodies and ids. If `cells` is given, the bodies are appended to it.

    Single messages are then moved to `cells` too: an input or a node's output is in a list later.

    Modifies `plain`.
    """
    kind = type(plain)
    if kind is list:
        if plain and all(map(is_message, plain)):
            return _fold(plain, cells)
        for at, item in enumerate(plain):
            if type(item) in _CONTAINERS:
                plain[at] = folded(item, cells)
    elif kind is dict:
        if cells is not None and is_message(plain):
            return {**_fold([plain], cells), _ALONE: True}
        for key, member in plain.items():
            if type(member) in _CONTAINERS:
                plain[key] = folded(member, cells)
    return plain


_CONTAINERS: Final = frozenset((list, dict))


def apart(nodes: list[Any]) -> tuple[list[Any], list[str | None]]:
    """Split messages into bodies and ids. Modifies `nodes`."""
    ids: list[str | None] = []
    for node in nodes:
        fields = node[PAYLOAD][2]
        ids.append(fields["id"])
        fields["id"] = None
    return nodes, ids


def together(bodies: list[Any], ids: list[str | None] | None) -> list[Any]:
    """The inverse of `apart`."""
    if ids is not None:
        if type(ids) is not list or len(ids) != len(bodies):
            raise Damaged("a list of messages and the list of their ids have different lengths")
        for node, given in zip(bodies, ids, strict=True):
            if not is_message(node):
                raise Damaged("a list of messages contains something else")
            node[PAYLOAD][2]["id"] = given
    return bodies


def some(ids: list[str | None]) -> list[str | None] | None:
    """Ids in stored form: None if no message has one."""
    return None if all(id is None for id in ids) else ids


def unfolded(plain: Any, cells: list[Any]) -> Any:
    """The inverse of `folded`. Changed parts are copied."""
    kind = type(plain)
    if kind is list:
        return [unfolded(item, cells) if type(item) in _CONTAINERS else item for item in plain]
    if kind is not dict:
        return plain
    mark = plain.get(EXT)
    if mark == MESSAGES:
        return together(_list(plain.get(BODIES)), plain.get(IDS))
    if mark == HOISTED:
        found = together(_copied(_hoisted(plain, cells)), plain.get(IDS))
        return found[0] if _ALONE in plain and len(found) == 1 else found
    return {key: unfolded(item, cells) if type(item) in _CONTAINERS else item for key, item in plain.items()}


def moved(plain: Any, cells: list[Any], to: list[Any], behind: int = 0) -> Any:
    """Move the hoisted bodies of plain data from `cells` to the end of `to`.

    `behind` is the number of cells that precede those in `to`.
    """
    kind = type(plain)
    if kind is list:
        return [moved(item, cells, to, behind) if type(item) in _CONTAINERS else item for item in plain]
    if kind is not dict:
        return plain
    if plain.get(EXT) == HOISTED:
        bodies = _hoisted(plain, cells)
        start = behind + len(to)
        to += bodies
        return {**plain, _START: start}
    return {key: moved(item, cells, to, behind) if type(item) in _CONTAINERS else item for key, item in plain.items()}


def _fold(nodes: list[Any], cells: list[Any] | None) -> dict[str, Any]:
    bodies, ids = apart(nodes)
    if cells is None:
        return {EXT: MESSAGES, BODIES: bodies, IDS: some(ids)}
    start = len(cells)
    cells += bodies
    return {EXT: HOISTED, _START: start, _COUNT: len(bodies), IDS: some(ids)}


def _hoisted(plain: dict[str, Any], cells: list[Any]) -> list[Any]:
    start, count = plain.get(_START), plain.get(_COUNT)
    if type(start) is not int or type(count) is not int or not 0 <= start <= start + count <= len(cells):
        raise Damaged("a value refers to missing messages")
    return cells[start : start + count]


def _copied(nodes: list[Any]) -> list[Any]:
    """Copies of bodies, to set ids in: two values may share the same cells."""
    copies = []
    for node in nodes:
        if not is_message(node):
            raise Damaged("a list of messages contains something else")
        module, name, fields, *more = node[PAYLOAD]
        copies.append({**node, PAYLOAD: [module, name, dict(fields), *more]})
    return copies


def _list(plain: Any) -> list[Any]:
    if type(plain) is not list:
        raise Damaged("a list of messages contains something else")
    return plain


def are_messages(values: list[Any]) -> bool:
    """Whether all values are LangChain's own messages. Messages of other classes are ordinary objects."""
    return all(issubclass(kind, BaseMessage) and kind.__module__.startswith(_OURS) for kind in set(map(type, values)))


def is_message(node: Any) -> bool:
    """Whether plain data represents one of LangChain's own messages."""
    if type(node) is not dict or node.get(EXT) != _PYDANTIC:
        return False
    payload = node.get(PAYLOAD)
    if type(payload) is not list or len(payload) < 3 or type(payload[0]) is not str:
        return False
    fields = payload[2]
    return (
        payload[0].startswith(_OURS)
        and type(fields) is dict
        and "id" in fields
        and (fields["id"] is None or type(fields["id"]) is str)
    )
