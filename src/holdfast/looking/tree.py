"""A state as a tree that is unfolded where somebody looks: names, kinds, sizes, and short texts of what is inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.types import Lost

_SHOWN: Final = 200  # characters of a text
_KINDS: Final[dict[type[Any], str]] = {
    dict: "dict",
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    str: "text",
    bytes: "bytes",
    bool: "bool",
    int: "number",
    float: "number",
    type(None): "none",
    datetime: "time",
    date: "time",
    time: "time",
    timedelta: "time",
    Lost: "lost",
}
_HOLDING: Final = ("dict", "list", "tuple", "set", "frozenset")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One value in its place. `at` leads to it from the root: at each level the how-manieth it is, from 0.

    `key` is how it is named there, `text` a short text of it where it holds no others, `count` how many it holds or how
    many characters or bytes it has.
    """

    at: tuple[int, ...]
    key: str
    kind: str
    text: str
    count: int
    is_cut: bool


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """A page of what a value holds, and how many there are in all."""

    at: tuple[int, ...]
    start: int
    total: int
    nodes: tuple[Node, ...]


def node_of(value: Any, key: str = "$", at: tuple[int, ...] = ()) -> Node:
    """A value as it is shown before it is unfolded."""
    kind = _KINDS.get(type(value), type(value).__name__)
    if kind in _HOLDING:
        return Node(at=at, key=key, kind=kind, text="", count=len(value), is_cut=False)
    text, count = _text(value)
    return Node(at=at, key=key, kind=kind, text=text[:_SHOWN], count=count, is_cut=len(text) > _SHOWN)


def nodes_in(value: Any, at: Sequence[int] = (), *, start: int = 0, limit: int = 200) -> Nodes:
    """What the value at a place holds. InvalidArgument if there is no such place."""
    inside = value_at(value, at)
    kind = _KINDS.get(type(inside))
    if kind not in _HOLDING:
        return Nodes(at=tuple(at), start=start, total=0, nodes=())
    pairs = islice(enumerate(_items(inside)), start, start + limit)
    nodes = tuple(node_of(item, key, (*at, number)) for number, (key, item) in pairs)
    return Nodes(at=tuple(at), start=start, total=len(inside), nodes=nodes)


def value_at(value: Any, at: Sequence[int]) -> Any:
    """The value at a place. InvalidArgument if there is none."""
    for number in at:
        found = next(islice(_items(value), number, None), None) if number >= 0 and _holds(value) else None
        if found is None:
            raise InvalidArgument("there is nothing at this place of the state")
        value = found[1]
    return value


def _holds(value: Any) -> bool:
    return _KINDS.get(type(value)) in _HOLDING


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if type(value) is dict:
        return ((key if type(key) is str else shown(key), item) for key, item in value.items())
    if type(value) in (set, frozenset):
        return (("", item) for item in sorted(value, key=shown))
    return ((str(number), item) for number, item in enumerate(value))


def shown(value: Any) -> str:
    """A value as Python writes it, as far as that can be done: an int of too many digits is written as hexadecimal."""
    try:
        return repr(value)
    except ValueError:  # more digits than Python converts
        return hex(value) if type(value) is int else f"<{type(value).__name__}>"


def _text(value: Any) -> tuple[str, int]:
    if type(value) is str:
        return value[: _SHOWN + 1], len(value)
    if type(value) is bytes:
        return value[:_SHOWN].hex(" "), len(value)
    if isinstance(value, Lost):
        return value.why, 0
    if isinstance(value, datetime | date | time):
        return value.isoformat(), 0
    return shown(value), 0
