"""What classes with fields (dataclasses, structs, attrs classes, pydantic models) hold, told without importing them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, time
from enum import Enum
from functools import cached_property
from typing import Any, Final

import msgspec

from holdfast.codec.check import LEAVES, MAX_DEPTH, key_step, refusal, type_name
from holdfast.errors import Unsupported

_KNOWN: Final = LEAVES | {datetime, time, bytearray}


def is_pydantic(kind: type[Any]) -> bool:
    """Whether a class is a pydantic model (of version 2: version 1 has no such attribute)."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


def has_fields(kind: type[Any]) -> bool:
    """Whether instances are looked into by field."""
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or "__attrs_attrs__" in vars(kind)
        or is_pydantic(kind)
    )


def attributes(value: Any) -> dict[str, Any]:
    """Everything an instance holds, by name: its fields, and what was set on it beside them."""
    kind = type(value)
    found: dict[str, Any] = {}
    for name in _field_names(kind):
        if hasattr(value, name):
            found[name] = getattr(value, name)
    # A cached property is not state: it is computed again.
    found |= {
        name: item
        for name, item in getattr(value, "__dict__", {}).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }
    if is_pydantic(kind):
        found.update(value.__pydantic_extra__ or {})
        found.update(value.__pydantic_private__ or {})
    return found


def _field_names(kind: type[Any]) -> Iterator[str]:
    if issubclass(kind, msgspec.Struct):
        yield from kind.__struct_fields__
    elif dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield field.name
    elif "__attrs_attrs__" in vars(kind):
        for attribute in vars(kind)["__attrs_attrs__"]:
            yield attribute.name


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds, each with its step of the path."""
    kind = type(value)
    if has_fields(kind):
        for name, item in attributes(value).items():
            yield key_step(name), item
    elif issubclass(kind, dict):
        for key, item in value.items():
            step = key_step(key)
            if type(key) is not str:
                yield step, key
            yield step, item
    elif issubclass(kind, (list, tuple)):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif issubclass(kind, (set, frozenset)):
        for item in value:
            yield f"[<{type_name(type(item))} element>]", item


def find_unstorable(value: Any, path: str = "$", around: tuple[int, ...] = ()) -> None:
    """Raise `Unsupported` at the first value of a type that no `type=` brings back, at a cycle, or too deep inside."""
    kind = type(value)
    if kind in _KNOWN or isinstance(value, Enum):
        return
    if not has_fields(kind) and not issubclass(kind, (list, dict, tuple, set, frozenset)):
        raise Unsupported(path, refusal(kind))
    if id(value) in around:
        raise Unsupported(path, f"a {type_name(kind)} that holds itself cannot be stored")
    if len(around) >= MAX_DEPTH:
        raise Unsupported(path, f"nested more than {MAX_DEPTH} deep; store a flatter state")
    inside = (*around, id(value))
    for step, item in parts(value):
        find_unstorable(item, path + step, inside)
