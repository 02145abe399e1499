"""Select the types that LangGraph's serializer may load: its own safe types and those that are named.

For other types LangGraph returns the stored dict or list and logs a warning. Here that is an error, because the graph
would continue with a broken state.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, Literal, get_args, get_type_hints

import typing_extensions
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import InvalidArgument, Unsupported

Name = tuple[str, str]
"""The module and name of a type, which is all that the serializer stores of it."""

Allow = Iterable[Any] | Literal[True]

_BLOCKED: Final = frozenset({"msgpack_blocked", "msgpack_method_blocked"})


def serde_for(allow: Allow = ()) -> JsonPlusSerializer:
    """Make LangGraph's serializer for its own safe types and those in `allow`.

    `allow` contains classes, (module, name) tuples, and state schemas (TypedDicts, dataclasses, pydantic models), whose
    annotations are followed to the classes in them. True allows every type, as LangGraph's default does; then anyone
    who can write to the store can run code. InvalidArgument for other entries.
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
                names.add(_name(entry))
                _follow(entry, names, set())
            case _ if typing_extensions.is_typeddict(entry) or get_args(entry):
                _follow(entry, names, set())
            case _:
                raise InvalidArgument(
                    f"allow= takes classes and (module, name) tuples; one of its entries is a {type(entry).__name__}"
                )
    return JsonPlusSerializer(allowed_msgpack_modules=names or None)


def _name(kind: type[Any]) -> Name:
    return kind.__module__, kind.__name__


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
    if typing_extensions.is_typeddict(kind):
        _follow_fields(kind, names, met)
    elif _is_stored_by_name(kind):
        names.add(_name(kind))
        if hint is not kind:
            names.add((kind.__module__, getattr(hint, "__name__", kind.__name__)))
        _follow_fields(kind, names, met)


def _is_stored_by_name(kind: type[Any]) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, Enum)
        or any(hasattr(kind, sign) for sign in ("model_dump", "get_secret_value", "__fields__", "_asdict"))
    )


def _follow_fields(kind: type[Any], names: set[Name], met: set[int]) -> None:
    try:
        hints = list(get_type_hints(kind, localns=dict(vars(kind))).values())
    except Exception:  # noqa: BLE001 - a name imported only for type checkers may raise anything
        # A class that is missed here is reported by name at the first save, and can then be allowed.
        hints = [hint for hint in getattr(kind, "__annotations__", {}).values() if not isinstance(hint, str)]
        fields = getattr(kind, "model_fields", None)
        if isinstance(fields, dict):
            hints.extend(getattr(field, "annotation", None) for field in fields.values())
    for hint in hints:
        _follow(hint, names, met)


# -- loading ----------------------------------------------------------------------------------------------------------


class _Watch(threading.local):
    """The rejected types of the load in this thread. The serializer reports them by events, on the same thread."""

    refused: list[SerdeEvent] | None = None


_watch: Final = _Watch()


def _listen(event: SerdeEvent) -> None:
    if _watch.refused is not None and event["kind"] in _BLOCKED:
        _watch.refused.append(event)


register_serde_event_listener(_listen)


def load(serde: SerializerProtocol, typ: str, data: bytes, path: str) -> Any:
    """Load a value. `Unsupported`, with its name, if it contains a type that is not allowed."""
    outer, _watch.refused = _watch.refused, []
    try:
        value = serde.loads_typed((typ, data))
        refused = _watch.refused
    finally:
        _watch.refused = outer
    if refused:
        raise _not_allowed(path, refused[0])
    return value


def _not_allowed(path: str, event: SerdeEvent) -> Unsupported:
    module, name = event["module"], event["name"]
    if event["kind"] == "msgpack_method_blocked":
        return Unsupported(
            path,
            f"LangGraph's serializer never loads a value of type {module}.{name}; convert it before saving",
        )
    return Unsupported(
        path,
        f"a value of type {module}.{name} is not allowed. Allow it with "
        f"HoldfastSaver(..., allow=[{name}]), or allow=[({module!r}, {name!r})].",
    )
