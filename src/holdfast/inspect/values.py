"""Values of a state: as a tree that is read level by level, and as JSON data."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidArgument
from holdfast.types import ABSENT, NOT_LOADED, MissingValue

_SHOWN: Final = 200  # characters of a node's text
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
    MissingValue: "lost",
}
_HOLDING: Final = ("dict", "list", "tuple", "set", "frozenset")
_BITS: Final = 2000  # integers up to this size can be converted whatever Python's digit limit is set to

# -- a tree -----------------------------------------------------------------------------------------------------------


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One value in the tree. `at` is the path from the root, as indexes from 0.

    `key` is its key or index, `text` a short text if it is not a container, `count` the number of its items, characters
    or bytes.
    """

    at: tuple[int, ...]
    key: str
    kind: str
    text: str
    count: int
    is_cut: bool


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the items of a value, and their total number."""

    at: tuple[int, ...]
    start: int
    total: int
    nodes: tuple[Node, ...]


def node_of(value: Any, key: str = "$", at: tuple[int, ...] = ()) -> Node:
    """Return the node of a value, without its items."""
    kind = _KINDS.get(type(value), type(value).__name__)
    if kind in _HOLDING:
        return Node(at=at, key=key, kind=kind, text="", count=len(value), is_cut=False)
    text, count = _text(value)
    return Node(at=at, key=key, kind=kind, text=text[:_SHOWN], count=count, is_cut=len(text) > _SHOWN)


def nodes_in(value: Any, at: Sequence[int] = (), *, start: int = 0, limit: int = 200) -> Nodes:
    """Return the items of the value at a path. Raises InvalidArgument if there is no such path."""
    inside = value_at(value, at)
    kind = _KINDS.get(type(inside))
    if kind not in _HOLDING:
        return Nodes(at=tuple(at), start=start, total=0, nodes=())
    pairs = islice(enumerate(_items(inside)), start, start + limit)
    nodes = tuple(node_of(item, key, (*at, number)) for number, (key, item) in pairs)
    return Nodes(at=tuple(at), start=start, total=len(inside), nodes=nodes)


def value_at(value: Any, at: Sequence[int]) -> Any:
    """Return the value at a path. Raises InvalidArgument if there is none."""
    for number in at:
        found = next(islice(_items(value), number, None), None) if number >= 0 and _holds(value) else None
        if found is None:
            raise InvalidArgument("the state has no value at this path")
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
    """Return the repr of a value; for an integer with too many digits, its hexadecimal form."""
    try:
        return repr(value)
    except ValueError:  # more digits than Python converts
        return hex(value) if type(value) is int else f"<{type(value).__name__}>"


def _text(value: Any) -> tuple[str, int]:
    if type(value) is str:
        return value[: _SHOWN + 1], len(value)
    if type(value) is bytes:
        return value[:_SHOWN].hex(" "), len(value)
    if isinstance(value, MissingValue):
        return value.why, 0
    if isinstance(value, datetime | date | time):
        return value.isoformat(), 0
    return shown(value), 0


# -- JSON data --------------------------------------------------------------------------------------------------------


# Bytes become {"$bytes": base64}. Dates and times become ISO 8601 strings, durations seconds. Decimals, UUIDs, NaN and
# infinities become strings; integers over 4,300 digits become hexadecimal strings. Sets become sorted lists. Keys that
# are not strings are written as Python reprs. A lost value becomes {"$lost": reason}.


def data_of(value: Any) -> Any:
    """Return a record or a state as JSON data. States that were not loaded are left out."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() <= _BITS else _number(value)
    if kind is str:
        return value.encode("utf-8", "backslashreplace").decode() if not value.isascii() else value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is dict:
        return {_key(key): data_of(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [data_of(item) for item in value]
    if kind is set or kind is frozenset:
        return [data_of(item) for item in sorted(value, key=shown)]
    if isinstance(value, MissingValue):
        return {"$lost": value.why}
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: data_of(item) for name, item in fields if item is not NOT_LOADED and item is not ABSENT}
    return _spelled(value)


def _number(value: int) -> int | str:
    """Return an integer, or its hexadecimal string if it has more digits than Python converts."""
    try:
        str(value)
    except ValueError:
        return hex(value)
    return value


def _spelled(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def _key(key: Any) -> str:
    return str(data_of(key)) if type(key) is str else shown(key)
