"""Check that the serializer can rebuild the objects that it stores.

For an object that it cannot rebuild, LangGraph returns the stored data or None: a set of tuples, a nested class, an
array of objects, a dataclass with a field that its constructor does not accept. Here each type is tried while the value
is saved, and a failure is an error.
"""

from __future__ import annotations

import re
import sys
import threading
from typing import Any, Final
from weakref import WeakKeyDictionary

from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_NUMPY_ARRAY,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
)

from holdfast.adapters.langgraph.allowing import Name, load
from holdfast.adapters.langgraph.comparing import compare, is_steady
from holdfast.adapters.langgraph.finding import place
from holdfast.adapters.langgraph.importing import is_being_imported
from holdfast.adapters.langgraph.trees import Built
from holdfast.codec.msgpack import extension
from holdfast.errors import Unsupported

_ARRAY: Final = ("numpy", "ndarray")


def _name(item: Built) -> Name | None:
    """The type name of a stored object; None if it has none."""
    if item.code == EXT_NUMPY_ARRAY:
        return _ARRAY
    payload = item.payload
    if EXT_CONSTRUCTOR_SINGLE_ARG <= item.code <= EXT_PYDANTIC_V2 and type(payload) is list and len(payload) > 2:
        module, name = payload[0], payload[1]
        if type(module) is str and type(name) is str:
            return module, name
    return None


_proven: Final[WeakKeyDictionary[JsonPlusSerializer, set[Name]]] = WeakKeyDictionary()
_proving: Final = threading.Lock()


def _proven_by(serde: JsonPlusSerializer) -> set[Name]:
    proven = _proven.get(serde)
    if proven is None:
        with _proving:
            proven = _proven.setdefault(serde, set())
    return proven


def check_saved(serde: JsonPlusSerializer, value: Any, data: bytes, built: list[Built], path: str) -> None:
    """Raise `Unsupported`, with the path, if an object in `value` would not be loaded as one of its type.

    `data` are the saved bytes of the value, and `built` the objects in them.
    """
    if any((name := _name(item)) is not None and is_being_imported(name[0]) for item in built):
        return
    proven = _proven_by(serde)
    foreign = False
    for item in built:
        name = _name(item)
        foreign = foreign or (name is not None and not is_steady(name[0]))
        # Pydantic models are rebuilt without the constructor if it fails, so one check per type is enough.
        if name is None or (item.code == EXT_PYDANTIC_V2 and name in proven):
            continue
        try:
            _try(serde, item, name, path)
        except Unsupported as error:
            found = _place_of(serde, value, item, path)
            if found is None:
                raise
            raise Unsupported(found, error.problem) from None
        _prove(proven, item.code, name)
    if foreign:
        compare(value, load(serde, "msgpack", data, path), path)


def check_loaded(serde: JsonPlusSerializer, value: Any, built: list[Built], path: str, *, whole: bool) -> None:
    """Raise `Unsupported` if an object in `value`, which was loaded from `built`, does not have its type.

    `whole` says that the value itself is the last of `built`.
    """
    proven = _proven_by(serde)
    for item in built:
        name = _name(item)
        if name is None:
            continue
        if whole and item is built[-1]:
            _judge(name, value, path)
        elif name in proven or is_being_imported(name[0]):
            continue
        else:
            _try(serde, item, name, path)
        _prove(proven, item.code, name)


def _prove(proven: set[Name], code: int, name: Name) -> None:
    if code == EXT_PYDANTIC_V2 or is_steady(name[0]):
        proven.add(name)


def _try(serde: JsonPlusSerializer, item: Built, name: Name, path: str) -> None:
    try:
        made = load(serde, "msgpack", extension(item.code, item.body), path)
    except Unsupported:
        raise
    except ValueError as error:  # what ormsgpack raises
        raise Unsupported(
            path, f"a value of type {'.'.join(name)} cannot be rebuilt; convert it before saving"
        ) from error
    _judge(name, made, path)


def _judge(name: Name, made: Any, path: str) -> None:
    if name == _ARRAY:
        if made is None or made.dtype.kind == "V":
            raise Unsupported(path, "an array of this dtype cannot be rebuilt; convert it before saving")
        return
    if not _is_one(made, name):
        raise Unsupported(
            path,
            f"a value of type {name[0]}.{name[1]} cannot be rebuilt: its class is not found under that name, or does "
            "not accept the saved data; convert it before saving, or change the class",
        )


def _is_one(made: Any, name: Name) -> bool:
    kind = type(made)
    if (kind.__module__, kind.__name__) == name or (name == ("re", "compile") and kind is re.Pattern):
        return True
    named = getattr(sys.modules.get(name[0]), name[1], None)
    return isinstance(named, type) and isinstance(made, named)


def _place_of(serde: JsonPlusSerializer, value: Any, item: Built, path: str) -> str | None:
    stored = extension(item.code, item.body)
    found = place(value, lambda part: _bytes_of(serde, part) == stored, path)
    return None if found is None else found[0]


def _bytes_of(serde: JsonPlusSerializer, part: Any) -> bytes | None:
    try:
        return serde.dumps_typed(part)[1]
    except TypeError:
        return None
