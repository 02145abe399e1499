"""The types inside a type: arguments of generics, members of unions, and fields of classes."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import abc
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.codec.storable import PLAIN, is_pydantic

_COLLECTIONS: Final = frozenset(
    {abc.Collection, abc.Iterable, abc.Mapping, abc.MutableMapping, abc.Sequence, abc.MutableSequence, abc.Set}
)
_FORMS: Final = (typing.Union, types.UnionType, typing.Annotated)
_ANYTHING: Final = (Any, object, None, ...)


def members(kind: Any, *, of_models: bool = True) -> Iterator[Any]:
    """A type and every type inside it, each once. What is attached with `Annotated` is included.

    Fields of pydantic models are included if `of_models`.
    """
    seen: dict[int, Any] = {}  # by id: an annotation need not be hashable
    left = [kind]
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        seen[id(found)] = found
        yield found
        left += _inside(found, of_models)


def _inside(kind: Any, of_models: bool) -> list[Any]:
    value = getattr(kind, "__value__", None)  # an alias made by a `type` statement
    if value is not None and type(kind).__name__ == "TypeAliasType":
        return [value]
    supertype = getattr(kind, "__supertype__", None)  # a NewType
    if supertype is not None:
        return [supertype]
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return []
    if origin is not None:
        own = () if origin in _FORMS else (origin,)
        return [*own, *typing.get_args(kind), *getattr(kind, "__metadata__", ())]
    if not isinstance(kind, type):
        return []
    return _model_fields(kind) if is_pydantic(kind) and of_models else _fields(kind)


def _model_fields(model: Any) -> list[Any]:
    found: list[Any] = []
    for field in model.model_fields.values():
        found += [field.annotation, *field.metadata]
    return found


def _fields(kind: type[Any]) -> list[Any]:
    if not (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct)
        or typing.is_typeddict(kind)
        or "__attrs_attrs__" in vars(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    ):
        return []
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except Exception:  # noqa: BLE001 - a name that is not defined yet, or an expression that fails
        return []


def has_pydantic(kind: Any) -> bool:
    """Whether pydantic is in a type: a model, a type of pydantic's, or an annotation that it reads."""
    return any(
        hasattr(each, "__get_pydantic_core_schema__")
        or hasattr(each, "__pydantic_validator__")
        or type(each).__module__.partition(".")[0] == "pydantic"
        for each in members(kind)
    )


def is_plain(kind: Any) -> bool:
    """Whether every value of a type is plain data, which is stored without a type."""
    return all(map(_is_plain, members(kind)))


def _is_plain(kind: Any) -> bool:
    if typing.get_origin(kind) is not None or isinstance(kind, typing.TypeVar | types.UnionType):
        return True  # its parts are looked at
    if any(kind is each for each in _ANYTHING) or typing.is_typeddict(kind):
        return True
    if isinstance(kind, type):
        return kind in PLAIN or kind in _COLLECTIONS
    # Metadata of Annotated, a NewType, or an alias: what it stands for is looked at.
    return True
