"""Recognize typed values that are certainly restored equal, by their exact types alone.

A typed state must be restored as it was given. The proof is to restore it from its plain values and to compare. Most
states need no such proof: each field holds a value of exactly its declared type, and no code of the user runs during
the conversion (no validator, converter or `__post_init__`). `exact_check` compiles a type to a test for this. The test
may reject a value that would be restored equal. It never accepts one that would not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Flag
from operator import attrgetter
from typing import Any, Final, TypeAlias
from uuid import UUID

from msgspec import inspect

from holdfast.codec.storable import is_pydantic

Check: TypeAlias = Callable[[Any], bool]

_LEAVES: Final[dict[type[inspect.Type], type]] = {
    inspect.NoneType: type(None),
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.DateTimeType: datetime,
    inspect.DateType: date,
    inspect.TimeType: time,
    inspect.TimeDeltaType: timedelta,
    inspect.UUIDType: UUID,
    inspect.DecimalType: Decimal,
}
# Members of a union that keep their type whatever the other members are.
_DISTINCT: Final = frozenset({type(None), bool, int, float, str, bytes})
_STR: Final = frozenset({str})
# Settings of a pydantic model that change no value.
_HARMLESS: Final = frozenset({"frozen", "title", "strict", "validate_default", "validate_assignment"})
_CONTENT: Final = frozenset({"item_type", "key_type", "value_type"})

_contains = frozenset[type].__contains__


def exact_check(type: Any) -> Check | None:
    """Return a test for whether a value is certainly restored equal; None if it must be restored to find out."""
    try:
        return _Compiler().check(inspect.type_info(type))
    except (_Unsure, TypeError, NameError):
        return None


class _Unsure(Exception):
    """A type for which exact types do not prove that a value is restored equal."""


class _Compiler:
    """Compiles one type. Classes are remembered, because a class may contain itself."""

    def __init__(self) -> None:
        self._classes: dict[type, list[Check]] = {}
        self._in_model = False  # inside a model, pydantic restores values by its own rules

    def check(self, info: inspect.Type) -> Check:
        leaves = self._leaves(info)
        if leaves is not None:
            return lambda value: type(value) in leaves
        match info:
            case inspect.AnyType():
                return _is_plain
            case inspect.ListType() if _is_free(info):
                return _sequence(list, self.check(info.item_type))
            case inspect.VarTupleType() if _is_free(info):
                return _sequence(tuple, self.check(info.item_type))
            case inspect.DictType() if _is_free(info):
                return self._dict(info)
            case inspect.UnionType():
                return self._union(info)
            case inspect.LiteralType():
                members = frozenset((type(value), value) for value in info.values)
                return lambda value: type(value) in _DISTINCT and (type(value), value) in members
            case inspect.EnumType() if not self._in_model and not issubclass(info.cls, Flag):
                cls = info.cls
                return lambda value: type(value) is cls
            case inspect.CustomType() if is_pydantic(info.cls):
                return self._class(info.cls, lambda: self._model(info.cls))
            case inspect.TypedDictType() if not self._in_model:
                return self._typed_dict(info)
            case inspect.StructType() if not self._in_model:
                return self._class(info.cls, lambda: self._struct(info))
            case inspect.DataclassType() if not self._in_model:
                return self._class(info.cls, lambda: self._dataclass(info))
            case _:
                raise _Unsure

    def _leaves(self, info: inspect.Type) -> frozenset[type] | None:
        """The exact types of a field that holds no other value; None if it holds a container or an instance."""
        leaf = _LEAVES.get(type(info))
        if leaf is not None:
            if not _is_free(info) or (self._in_model and leaf not in _DISTINCT):
                raise _Unsure
            return frozenset({leaf})
        if isinstance(info, inspect.UnionType):
            kinds = [self._leaves(member) for member in info.types]
            found = frozenset[type]().union(*filter(None, kinds))
            # A datetime or a number of another class may be taken for a str or an int, but not for None.
            if all(kinds) and (found <= _DISTINCT or found - {type(None)} in kinds):
                return found
        return None

    def _dict(self, info: inspect.DictType) -> Check:
        keys, value_check = self._leaves(info.key_type), self.check(info.value_type)
        if keys is None:
            raise _Unsure
        return lambda value: (
            type(value) is dict and keys.issuperset(map(type, value)) and all(map(value_check, value.values()))
        )

    def _union(self, info: inspect.UnionType) -> Check:
        """A union of one kind of container or instance with simple values, or of tagged structs."""
        simple: set[type] = set()
        structured: list[inspect.Type] = []
        for member in info.types:
            leaves = self._leaves(member)
            if leaves is None:
                structured.append(member)
            elif leaves <= _DISTINCT:
                simple |= leaves
            else:
                raise _Unsure
        others = [self.check(member) for member in structured]
        # Structs in one union have tags that tell them apart. Other members could be mistaken for each other.
        if len(structured) > 1 and not all(isinstance(member, inspect.StructType) for member in structured):
            raise _Unsure
        # A str may be the value of an enum.
        if any(isinstance(member, inspect.EnumType | inspect.LiteralType) for member in structured) and simple > {
            type(None)
        }:
            raise _Unsure
        allowed = frozenset(simple)
        return lambda value: type(value) in allowed or any(check(value) for check in others)

    def _typed_dict(self, info: inspect.TypedDictType) -> Check:
        checks = {field.name: self.check(field.type) for field in info.fields}
        required = frozenset(field.name for field in info.fields if field.required)

        def check(value: Any) -> bool:
            if type(value) is not dict or not required <= value.keys() <= checks.keys():
                return False
            return all(checks[key](item) for key, item in value.items())

        return check

    # -- classes ------------------------------------------------------------------------------------------------------

    def _class(self, cls: type, compiled: Callable[[], Check]) -> Check:
        found = self._classes.get(cls)
        if found is None:
            found = self._classes[cls] = []
            found.append(compiled())
            return found[0]
        return lambda value: found[0](value)  # noqa: PLW0108 - the class is still being compiled

    def _struct(self, info: inspect.StructType) -> Check:
        cls = info.cls
        config = cls.__struct_config__
        if config.omit_defaults or config.dict or hasattr(cls, "__post_init__") or "__dict__" in dir(cls):
            raise _Unsure
        return self._fields(cls, [(field.name, field.type) for field in info.fields], count=0)

    def _dataclass(self, info: inspect.DataclassType) -> Check:
        cls = info.cls
        if not dataclasses.is_dataclass(cls) or hasattr(cls, "__post_init__") or cls.__new__ is not object.__new__:
            raise _Unsure
        names = [field.name for field in dataclasses.fields(cls)]
        described = {field.name: field.type for field in info.fields}
        if names != list(described) or len(names) != len(cls.__dataclass_fields__):
            raise _Unsure  # InitVar, ClassVar or init=False
        if any(isinstance(getattr(cls, name, None), property) for name in names):
            raise _Unsure
        if not _is_frozen(cls) and cls.__setattr__ is not object.__setattr__:
            raise _Unsure
        count = len(names) if cls.__dictoffset__ else 0
        return self._fields(cls, list(described.items()), count=count)

    def _model(self, model: Any) -> Check:
        if not _only_has_fields(model):
            raise _Unsure
        fields = [(name, inspect.type_info(field.annotation)) for name, field in model.model_fields.items()]
        outer, self._in_model = self._in_model, True
        check = self._fields(model, fields, count=len(fields))
        self._in_model = outer
        return lambda value: check(value) and not value.__pydantic_extra__ and not value.__pydantic_private__

    def _fields(self, cls: type, fields: list[tuple[str, inspect.Type]], *, count: int) -> Check:
        """Test an instance by its fields. `count` is how many entries its `__dict__` must have, 0 if it has none."""
        leaves = {name: found for name, info in fields if (found := self._leaves(info)) is not None}
        others = [(attrgetter(name), self.check(info)) for name, info in fields if name not in leaves]
        allowed = list(leaves.values())
        values = _getter(list(leaves))

        def check(value: Any) -> bool:
            if type(value) is not cls or (count and len(value.__dict__) != count):
                return False
            if not all(map(_contains, allowed, map(type, values(value)))):
                return False
            for get, inner in others:  # noqa: SIM110 - all() of a generator takes twice the time
                if not inner(get(value)):
                    return False
            return True

        return check


_is_frozen = attrgetter("__dataclass_params__.frozen")


def _getter(names: list[str]) -> Callable[[Any], Iterable[Any]]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _sequence(kind: type[list[Any] | tuple[Any, ...]], check: Check) -> Check:
    def check_all(value: Any) -> bool:
        return type(value) is kind and all(map(check, value))

    return check_all


def _is_plain(value: Any) -> bool:
    """A value that `Any` restores as it is: None, a bool, a number, a str, bytes, or lists and dicts of these."""
    kind = type(value)
    if kind in _DISTINCT:
        return True
    if kind is list:
        return all(map(_is_plain, value))
    return kind is dict and _STR.issuperset(map(type, value)) and all(map(_is_plain, value.values()))


def _is_free(info: inspect.Type) -> bool:
    """Whether a type has no constraint, such as a largest value."""
    return all(getattr(info, name) is None for name in info.__struct_fields__ if name not in _CONTENT)


def _only_has_fields(model: Any) -> bool:
    """Whether a pydantic model consists of plain fields: no validators, settings or methods that change values."""
    (base,) = [
        found for found in model.__mro__ if found.__module__ == "pydantic.main" and found.__name__ == "BaseModel"
    ]
    decorators = model.__pydantic_decorators__
    return (
        not any(getattr(decorators, name) for name in decorators.__slots__)
        and set(model.model_config) <= _HARMLESS
        and not model.__private_attributes__
        and all(getattr(model, name) is getattr(base, name) for name in ("__init__", "model_post_init", "model_dump"))
        and not any("__get_pydantic_core_schema__" in vars(found) for found in model.__mro__ if found is not base)
        and not any(
            field.metadata or field.exclude or field.discriminator is not None or field.init is False
            for field in model.model_fields.values()
        )
    )
