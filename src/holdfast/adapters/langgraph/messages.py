"""Messages within plain data: the body of each is a value of its own, stored once wherever it turns up.

A message is first part of the input, or of what a node writes, and has no id yet; then it is an element of a list, and
LangGraph gives it one. So lists of messages are stored as their bodies and their ids. In small values (an input, a
write, a `Send`) the bodies are hoisted into one list beside them, `cells`, so that each is a cell that is found again.
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
    """Plain data with its lists of messages as bodies and ids; the bodies go to the end of `cells`, if that is given.

    Then so do messages that stand alone: as an input or as what a node gives, they are in a list later.

    Changes what it is given.
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
    """The bodies and the ids of messages. Changes what it is given."""
    ids: list[str | None] = []
    for node in nodes:
        fields = node[PAYLOAD][2]
        ids.append(fields["id"])
        fields["id"] = None
    return nodes, ids


def together(bodies: list[Any], ids: list[str | None] | None) -> list[Any]:
    """What `apart` was given."""
    if ids is not None:
        if type(ids) is not list or len(ids) != len(bodies):
            raise Damaged("a list of messages and that of their ids do not fit together")
        for node, given in zip(bodies, ids, strict=True):
            if not is_message(node):
                raise Damaged("a list of messages holds something else")
            node[PAYLOAD][2]["id"] = given
    return bodies


def some(ids: list[str | None]) -> list[str | None] | None:
    """Ids as they are stored: None if there are none."""
    return None if all(id is None for id in ids) else ids


def unfolded(plain: Any, cells: list[Any]) -> Any:
    """The inverse of `folded`, as data of its own as far as it differs."""
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
    """Plain data whose hoisted bodies are in `cells`, with them at the end of `to` instead.

    `behind` is how many more there are before those of `to`.
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
        raise Damaged("a value names messages that are not there")
    return cells[start : start + count]


def _copied(nodes: list[Any]) -> list[Any]:
    """Bodies that may be given ids: two values may name the same cells."""
    copies = []
    for node in nodes:
        if not is_message(node):
            raise Damaged("a list of messages holds something else")
        module, name, fields, *more = node[PAYLOAD]
        copies.append({**node, PAYLOAD: [module, name, dict(fields), *more]})
    return copies


def _list(plain: Any) -> list[Any]:
    if type(plain) is not list:
        raise Damaged("a list of messages holds something else")
    return plain


def are_messages(values: list[Any]) -> bool:
    """Whether all of these are LangChain's own messages. Those of a class of yours are objects like any other."""
    return all(issubclass(kind, BaseMessage) and kind.__module__.startswith(_OURS) for kind in set(map(type, values)))


def is_message(node: Any) -> bool:
    """Whether plain data stands for one of LangChain's own messages."""
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
