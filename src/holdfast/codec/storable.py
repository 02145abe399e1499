"""Storable values: check them, explain a refusal, and find the fields of a user's class."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.codec.extensions import zone_problem
from holdfast.errors import Unsupported
from holdfast.types import MissingValue

MAX_DEPTH: Final = 200
"""How deep containers may be nested. The limit of the encoder is 255; `holdfast.delta` needs some levels itself."""

LEAVES: Final[frozenset[type]] = frozenset(
    {type(None), bool, int, float, str, bytes, date, timedelta, UUID, Decimal},
)
"""Types of which every value can be stored."""

_CLOCKS: Final[frozenset[type]] = frozenset({datetime, time})
_SEQUENCES: Final[frozenset[type]] = frozenset({list, tuple, set, frozenset})
_STR: Final[frozenset[type]] = frozenset({str})
PLAIN: Final = LEAVES | _CLOCKS | _SEQUENCES | {dict}
"""Types of plain data."""
_FOR_STATES: Final = ", or declare the type of the state: type= of hf.thread, hf.run, run.child or hf.submit"
_LONGEST_KEY: Final = 40
_LONGEST_PATH: Final = 120


def check(value: Any, depth: int = 0, *, is_state: bool = True) -> None:
    """Raise Unsupported, with its path, for the first value in `value` that cannot be stored.

    `depth` is the number of containers around `value`. If `is_state`, the error gives the advice for a state.
    """
    if type(value) not in LEAVES and not _storable(value, MAX_DEPTH - depth):
        try:
            _explain(value, "$", MAX_DEPTH - depth, [])
        except Unsupported as refused:
            if is_state and refused.undeclared is not None:
                raise Unsupported(refused.path, f"{refused.problem}{_FOR_STATES}", refused.undeclared) from None
            raise
        # The second pass found nothing: another thread is changing the value.
        raise Unsupported("$", "changed while it was being saved")


def _storable(value: Any, room: int) -> bool:
    """Whether a value that is not a leaf can be stored. It runs on every new value, so it does not track the path.

    A cycle ends when there is no room left.
    """
    kind = type(value)
    if kind in _CLOCKS:
        return zone_problem(value.tzinfo) is None
    if room <= 0:
        return False
    # A copy: another thread may change the container meanwhile.
    if kind is dict:
        children = [*value.values()]
        if not _STR.issuperset(map(type, value)):
            children += value
    elif kind in _SEQUENCES:
        children = [*value]
    else:
        return False
    for child in children:  # noqa: SIM110 - all() of a generator takes twice the time
        if type(child) not in LEAVES and not _storable(child, room - 1):
            return False
    return True


def _explain(value: Any, path: str, room: int, around: list[int]) -> None:
    """Find the value that `_storable` refused and raise Unsupported with its path."""
    kind = type(value)
    if kind in LEAVES:
        return
    if kind in _CLOCKS:
        problem = zone_problem(value.tzinfo)
        if problem is not None:
            raise Unsupported(path, f"this {kind.__name__} cannot be stored: {problem}")
        return
    if kind is not dict and kind not in _SEQUENCES:
        raise refused_of(path, kind)
    if id(value) in around:
        raise Unsupported(path, f"this {kind.__name__} contains itself and cannot be stored")
    if room <= 0:
        raise Unsupported(_start(path), f"nested more than {MAX_DEPTH} deep; store a flatter state")
    around.append(id(value))
    for step, child in _children(value, kind):
        _explain(child, path + step, room - 1, around)
    around.pop()


def _children(value: Any, kind: type[Any]) -> Iterable[tuple[str, Any]]:
    if kind is dict:
        for key, item in value.copy().items():
            step = key_step(key)
            if type(key) is not str:
                yield step, key
            yield step, item
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            yield f"[{index}]", item
    else:
        for item in value.copy():
            yield f"[<{type_name(type(item))} element>]", item


def _start(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "..."


def key_step(key: Any) -> str:
    """One step of a path. Only str keys are shown, and only the start of a long one."""
    if type(key) is not str:
        return f"[<{type_name(type(key))} key>]"
    if len(key) > _LONGEST_KEY:
        key = key[:_LONGEST_KEY] + "..."
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"


def type_name(kind: type[Any]) -> str:
    """The name of a type for messages."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def refused_of(path: str, kind: type[Any]) -> Unsupported:
    """The error for a value of this type."""
    name = type_name(kind)
    is_declarable = kind is not MissingValue and (
        issubclass(kind, (Enum, msgspec.Struct, PurePath))
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        or hasattr(kind, "__pydantic_validator__")
        or hasattr(kind, "__get_pydantic_core_schema__")
    )
    if is_declarable:
        return Unsupported(path, f"type {name} is not plain data; convert it", name)
    return Unsupported(path, _refusal(kind, name))


def _refusal(kind: type[Any], name: str) -> str:
    """The reason why values of this type cannot be stored, and what to do instead."""
    if kind is MissingValue:
        return "this marks a value that could not be read; replace it before saving"
    if kind is bytearray or kind is memoryview:
        return f"type {name} would be loaded as bytes; convert it with bytes()"
    for base in kind.__mro__[1:]:
        if base in PLAIN:
            return f"type {name} would be loaded as {type_name(base)}; convert it before saving"
    return (
        f"type {name} cannot be stored; convert it to None, bool, int, float, str, bytes, list, dict, tuple, set, "
        "frozenset, datetime, date, time, timedelta, UUID or Decimal"
    )


_KNOWN: Final = LEAVES | {datetime, time, bytearray}


def is_pydantic(kind: type[Any]) -> bool:
    """Whether a class is a pydantic model of version 2. Models of version 1 do not have these attributes."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


def has_fields(kind: type[Any]) -> bool:
    """Whether instances of a class are inspected by field."""
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or "__attrs_attrs__" in vars(kind)
        or is_pydantic(kind)
    )


def attributes(value: Any) -> dict[str, Any]:
    """All attributes of an instance by name: its fields, and others that were set on it."""
    kind = type(value)
    found: dict[str, Any] = {}
    for name in _field_names(kind):
        if hasattr(value, name):
            found[name] = getattr(value, name)
    # A cached property is not part of the state: it is computed again.
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
    """The members of a value, each with its step of the path."""
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


def find_unstorable(
    value: Any, path: str = "$", around: tuple[int, ...] = (), *, is_whole: Callable[[type[Any]], bool]
) -> None:
    """Raise Unsupported for the first value that no declared type can restore: its type, a cycle, or nested too deep.

    `is_whole` tells which classes are stored whole, not by field.
    """
    kind = type(value)
    if kind in _KNOWN or isinstance(value, Enum) or is_whole(kind):
        return
    if not has_fields(kind) and not issubclass(kind, (list, dict, tuple, set, frozenset)):
        raise refused_of(path, kind)
    if id(value) in around:
        raise Unsupported(path, f"a {type_name(kind)} that contains itself cannot be stored")
    if len(around) >= MAX_DEPTH:
        raise Unsupported(path, f"nested more than {MAX_DEPTH} deep; store a flatter state")
    inside = (*around, id(value))
    for step, item in parts(value):
        find_unstorable(item, path + step, inside, is_whole=is_whole)
