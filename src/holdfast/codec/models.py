"""Pydantic: models to plain values and back, with private attributes; and types that only a TypeAdapter understands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from holdfast.codec.members import has_pydantic
from holdfast.codec.storable import LEAVES, is_pydantic
from holdfast.errors import InvalidArgument

PRIVATE: Final = "__private__"
"""The key of a model's private attributes in its plain form: a list of [path, name, value]. No field has this name."""

_NAME: Final = re.compile(r"_(?!_)\w*")
_OPTIONS: Final[dict[str, Any]] = {"mode": "python", "warnings": False}


def fields_of(model: Any) -> Any:
    """A model, and the models in it, as dicts of their fields. The values in them may still need a conversion."""
    if builds_itself(type(model)):
        # As the client received it: by the provider's names, without fields that the provider did not send.
        return model.model_dump(**_OPTIONS, by_alias=True, exclude_unset=True)
    # By field name in both directions: an alias may be for one direction only. Without warnings: the comparison
    # finds values that the model does not expect in its fields.
    return model.model_dump(**_OPTIONS, round_trip=True, by_alias=False)


def dumped(model: Any) -> Any:
    """A model as `fields_of` gives it, and its private attributes."""
    plain = fields_of(model)
    private = list(_private(model, ()))
    if private and type(plain) is dict:
        if PRIVATE in plain:
            raise ValueError(f"{PRIVATE} is a field")
        plain[PRIVATE] = private
    return plain


def restored(model: Any, plain: Any) -> Any:
    """Restore what `dumped` returned. Raises what the validators raise; ValueError for forged attributes."""
    private: Any = ()
    if type(plain) is dict and PRIVATE in plain:
        plain = dict(plain)
        private = plain.pop(PRIVATE)
    if builds_itself(model):
        if type(plain) is not dict:
            raise TypeError("not the fields of a response")
        value = model.model_construct(**plain)
    else:
        value = model.model_validate(plain, by_alias=False, by_name=True)
    _set_private(value, private)
    return value


def builds_itself(model: Any) -> bool:
    """Whether a model is a response class of a client. Clients make these without validation, by a method of their own.

    A provider may send values that its client does not know yet. Only that method restores such a response.
    """
    return not model.model_construct.__func__.__module__.startswith("pydantic.")


# -- private attributes -------------------------------------------------------------------------------------------


def _private(value: Any, path: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The private attributes of a model, and of the models in it, that differ from their defaults."""
    kind = type(value)
    if kind in LEAVES:
        return
    if is_pydantic(kind):
        fields = kind.model_fields
        private: dict[str, Any] = value.__pydantic_private__ or {}
        for name, item in private.items():
            if not _is_default(kind, name, item):
                yield [list(path), name, item]
        for name, item in value.__dict__.items():
            if name in fields:
                yield from _private(item, (*path, name))
            elif _NAME.fullmatch(name) and not isinstance(getattr(kind, name, None), cached_property):
                yield [list(path), name, item]
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            yield from _private(item, (*path, index))
    elif kind is dict:
        for key, item in value.items():
            if type(key) is str:
                yield from _private(item, (*path, key))


def _is_default(kind: Any, name: str, value: Any) -> bool:
    try:
        default = kind.__private_attributes__[name].get_default()
        return type(default) is type(value) and bool(default == value)
    except Exception:  # noqa: BLE001 - the default is made by the user's code, and values compare as they like
        return False


def _set_private(model: Any, private: Any) -> None:
    for path, name, value in private:
        target = model
        for step in path:
            target = _part(target, step)
        kind = type(target)
        if not is_pydantic(kind) or not _NAME.fullmatch(name) or name in kind.model_fields:
            raise ValueError("not a private attribute")
        if name in kind.__private_attributes__:
            target.__pydantic_private__[name] = value
        else:
            target.__dict__[name] = value


def _part(value: Any, step: Any) -> Any:
    if is_pydantic(type(value)):
        if step not in type(value).model_fields:
            raise ValueError("not a field")
        return value.__dict__[step]
    if not isinstance(value, list | tuple | dict):
        raise TypeError("nothing is inside this value")
    return value[step]


# -- types that only a TypeAdapter understands --------------------------------------------------------------------


class Adapter:
    """Converts values of a type with pydantic in it, as pydantic does."""

    def __init__(self, type: Any) -> None:
        from pydantic import TypeAdapter  # noqa: PLC0415 - the type has pydantic in it

        self._adapter: TypeAdapter[Any] = TypeAdapter(type)
        if _has_iterator(self._adapter.core_schema):
            raise InvalidArgument("type= cannot be used: an iterator in it cannot be stored")

    def dumped(self, value: Any) -> Any:
        """As `dumped`, for any value of the type."""
        return self._adapter.dump_python(value, **_OPTIONS, round_trip=True, by_alias=False)

    def restored(self, plain: Any) -> Any:
        """As `restored`, for any value of the type."""
        return self._adapter.validate_python(plain, by_alias=False, by_name=True)


def adapter_of(type: Any) -> Adapter | None:
    """An adapter for a type with pydantic in it; None for other types. InvalidArgument if pydantic refuses the type."""
    if "pydantic" not in sys.modules or not has_pydantic(type):
        return None
    try:
        return Adapter(type)
    except (RuntimeError, TypeError, NameError) as error:  # pydantic's errors are of these classes
        reason = str(error).partition("\n")[0].partition(". Set `arbitrary_types_allowed")[0]
        raise InvalidArgument(f"type= cannot be used: {reason}") from error


def _has_iterator(schema: Any) -> bool:
    """Whether a schema has the type of an iterator in it. pydantic accepts one, and reads it only once."""
    left: list[Any] = [schema]
    seen: set[int] = set()
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, dict):
            if found.get("type") == "generator":
                return True
            left += [value for key, value in found.items() if key not in ("metadata", "default", "serialization")]
        elif isinstance(found, list | tuple):
            left += found
    return False
