"""The types that LangGraph's serializer may build: those that a program names, and those in the schemas it names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from enum import Enum
from typing import Any, Literal, get_args, get_type_hints

import typing_extensions
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph.serde import Name
from holdfast.errors import InvalidArgument


def serde_for(allow: Iterable[Any] | Literal[True] = ()) -> JsonPlusSerializer:
    """Make LangGraph's serializer for its own safe types and those in `allow`.

    `allow` contains classes, (module, name) tuples, and state schemas (TypedDicts, dataclasses, pydantic models), whose
    annotations are followed to the classes in them. True allows every type, and imports its module. InvalidArgument
    for other entries.
    """
    if allow is True:
        return JsonPlusSerializer(allowed_msgpack_modules=True)
    if isinstance(allow, str | bytes | type) or not isinstance(allow, Iterable):
        raise InvalidArgument("allow= takes a list of classes or (module, name) tuples, or True")
    names: set[Name] = set()
    for entry in allow:
        match entry:
            case (str(module), str(name)):
                names.add((module, name))
            case type() if not typing_extensions.is_typeddict(entry):
                names.add((entry.__module__, entry.__name__))
                _follow(entry, names, set())
            case _ if typing_extensions.is_typeddict(entry) or get_args(entry):
                _follow(entry, names, set())
            case _:
                raise InvalidArgument(
                    f"allow= takes classes and (module, name) tuples; one of its entries is a {type(entry).__name__}"
                )
    return JsonPlusSerializer(allowed_msgpack_modules=names or None)


def _follow(hint: Any, names: set[Name], met: set[int]) -> None:
    """Add the classes in an annotation whose values can be stored."""
    if id(hint) in met:
        return
    met.add(id(hint))
    for part in get_args(hint):
        _follow(part, names, met)
    below = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)
    if below is not None and not isinstance(hint, type):  # NewType, and `type X = ...`
        _follow(below, names, met)
    kind = getattr(hint, "__origin__", hint)
    if not isinstance(kind, type):
        return
    if _is_stored_by_name(kind):
        names.add((kind.__module__, kind.__name__))
        names.add((kind.__module__, getattr(hint, "__name__", kind.__name__)))
    elif not typing_extensions.is_typeddict(kind):
        return
    for part in _hints(kind):
        _follow(part, names, met)


def _is_stored_by_name(kind: type[Any]) -> bool:
    return not typing_extensions.is_typeddict(kind) and (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, Enum)
        or any(hasattr(kind, sign) for sign in ("model_dump", "get_secret_value", "__fields__", "_asdict"))
    )


def _hints(kind: type[Any]) -> list[Any]:
    try:
        return list(get_type_hints(kind, localns=dict(vars(kind))).values())
    except Exception:  # noqa: BLE001 - a name imported only for type checkers may raise anything
        # A class that is missed here is reported by name at the first save, and can then be allowed.
        hints = [hint for hint in getattr(kind, "__annotations__", {}).values() if not isinstance(hint, str)]
        fields = getattr(kind, "model_fields", None)
        found = fields.values() if isinstance(fields, dict) else ()
        return hints + [getattr(field, "annotation", None) for field in found]
