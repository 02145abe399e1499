"""Types that are stored by functions of the program, and the names by which recorded results find their class.

Stored data never chooses what is imported or called. A name in it is looked up among the registered classes, and among
the response classes of the clients listed here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.codec.storable import PLAIN, is_pydantic, type_name
from holdfast.errors import InvalidArgument
from holdfast.text import quoted

CLIENTS: Final = ("anthropic", "openai")
"""Packages whose response classes can be found by name."""

Encode: TypeAlias = Callable[[Any], Any]
Decode: TypeAlias = Callable[[Any], Any]


class Registered(msgspec.Struct, frozen=True):
    """A class that is stored as what `encode` returns, and restored by `decode`."""

    type: type[Any]
    encode: Encode
    decode: Decode
    name: str


_by_type: dict[type[Any], Registered] = {}
_by_name: dict[str, Registered] = {}
_listeners: list[Callable[[], None]] = []


def register(type: type[Any], encode: Encode, decode: Decode, *, name: str | None = None) -> None:
    """Register a class of your own, so that its values can be stored where a type is declared.

    `encode` takes a value and returns data that can be stored. `decode` takes that data and returns the value. `name`
    identifies the class in recorded results of calls; the default is its qualified name. Register a class before it is
    used in a type. A class registered again is replaced. InvalidArgument if another class has the name.

    >>> from fractions import Fraction
    >>> register(Fraction, str, Fraction)
    """
    if not isinstance(type, _TYPE):
        raise InvalidArgument("the type to register must be a class; nothing was registered")
    if type in PLAIN or type is object:
        raise InvalidArgument(f"{type_name(type)} is stored as it is; nothing was registered")
    if not callable(encode) or not callable(decode):
        raise InvalidArgument("encode and decode must be functions of one argument; nothing was registered")
    if name is not None and (_TYPE(name) is not str or not name):
        raise InvalidArgument("name must be a non-empty string; nothing was registered")
    called = name or type_name(type)
    if called.partition(".")[0] in CLIENTS and called != type_name(type):
        raise InvalidArgument(
            f"the name {quoted(called)} belongs to a client; nothing was registered. Use another one."
        )
    known = _by_name.get(called)
    # A module that is loaded again defines its classes again.
    if known is not None and known.type is not type and type_name(known.type) != type_name(type):
        raise InvalidArgument(f"another class is registered as {quoted(called)}; nothing was registered. Pass name=.")
    before = _by_type.get(type) or known
    if before is not None:
        _by_name.pop(before.name, None)
        _by_type.pop(before.type, None)
    _by_type[type] = _by_name[called] = Registered(type, encode, decode, called)
    for listener in _listeners:
        listener()


_TYPE: Final = type


def on_register(listener: Callable[[], None]) -> None:
    """Call a function after each registration."""
    _listeners.append(listener)


# -- classes whose values are stored whole ------------------------------------------------------------------------


def encoding_of(kind: type[Any]) -> Registered | None:
    """The encoding of a class whose values are stored whole; None if they are stored by field, or not at all."""
    found = _by_type.get(kind)
    if found is not None:
        return found
    if issubclass(kind, PurePath):
        return Registered(kind, str, kind, "")
    if hasattr(kind, "__get_pydantic_core_schema__") and not is_pydantic(kind):
        return _of_pydantic(kind)
    return None


def is_secret(kind: type[Any]) -> bool:
    """Whether a class is one of pydantic's secrets, such as SecretStr."""
    return hasattr(kind, "get_secret_value")


_adapted: dict[type[Any], Registered] = {}


def _of_pydantic(kind: type[Any]) -> Registered:
    """The encoding of a class that tells pydantic how to validate and to serialize it, such as HttpUrl."""
    found = _adapted.get(kind)
    if found is None:
        from pydantic import TypeAdapter  # noqa: PLC0415 - the class comes from it, or supports it

        adapter: TypeAdapter[Any] = TypeAdapter(kind)

        def encode(value: Any) -> Any:
            return value.get_secret_value() if is_secret(kind) else adapter.dump_python(value, mode="json")

        found = _adapted[kind] = Registered(kind, encode, adapter.validate_python, "")
    return found


# -- names --------------------------------------------------------------------------------------------------------


def name_for(kind: type[Any]) -> str | None:
    """The name by which `class_named` finds a class; None if it does not."""
    found = _by_type.get(kind)
    if found is not None:
        return found.name
    if kind.__module__.partition(".")[0] in CLIENTS and _of_client(type_name(kind)) is kind:
        return type_name(kind)
    return None


def class_named(name: str) -> type[Any]:
    """The class of a recorded result, by its name. InvalidArgument if the name is unknown."""
    found = _by_name.get(name)
    kind = _of_client(name) if found is None else found.type
    if kind is None:
        raise InvalidArgument(
            f"{quoted(name)} is neither registered with holdfast.codec.register nor a response class of "
            f"{' or '.join(CLIENTS)}"
        )
    return kind


def _of_client(name: str) -> type[Any] | None:
    """A response class of a client. Only the client's package is imported, by a name that is not from stored data."""
    module, _, called = name.rpartition(".")
    package = next((each for each in CLIENTS if module.startswith(f"{each}.")), None)
    if package is None:
        return None
    if package not in sys.modules:
        try:
            importlib.import_module(package)
        except ImportError:
            return None
    found = getattr(sys.modules.get(module), called, None)
    is_response = isinstance(found, type) and found.__module__ == module and is_pydantic(found)
    return found if is_response else None
