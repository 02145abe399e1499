"""States of the user's own classes: to values the codec takes, and back by the type the user names.

Stored data never names a class; `type=` does, at the call. msgspec converts dataclasses, structs, attrs classes and
enums, pydantic its own models. Both are made for messages from outside, so they coerce, drop and rename as they see
fit; `StateType.to_plain` therefore makes the way back at once and compares, and what differs is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, get_origin, is_typeddict
from uuid import UUID

import msgspec

from holdfast.codec.check import key_step, type_name
from holdfast.codec.fields import find_unstorable, has_fields, is_pydantic
from holdfast.codec.leftover import left_over
from holdfast.codec.sameness import difference, settled
from holdfast.errors import InvalidArgument, Unsupported

_NATIVE: Final = (bytes, datetime, date, time, timedelta, UUID, Decimal)
_PLACE: Final = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")


class StateType:
    """How states of one type are stored. `InvalidArgument` if the type is none that can be."""

    __slots__ = ("_class", "_type", "name")

    def __init__(self, type: Any) -> None:
        self._type = type
        self._class = type if _is_class(type) else None
        self.name = type_name(type) if isinstance(type, _TYPE) else str(type)
        self._probe()

    def _probe(self) -> None:
        """Let msgspec look at the type, whole, before anything is saved by it."""
        unknown: list[type] = []

        def hook(kind: type[Any], _: Any) -> Any:
            if not is_pydantic(kind):
                unknown.append(kind)
            raise ValueError

        try:
            msgspec.convert(_PROBE, self._type, builtin_types=_NATIVE, str_keys=False, dec_hook=hook)
        except msgspec.ValidationError:
            pass
        except (TypeError, NameError) as error:  # no type at all, a union that cannot be told apart, an unknown name
            raise InvalidArgument(f"type= cannot be used: {_reason(self._type, error)}") from error
        if unknown:
            raise InvalidArgument(
                f"type= cannot be used: {type_name(unknown[0])} is no dataclass, msgspec.Struct, attrs class, "
                "pydantic model, TypedDict, enum or a list or dict of those"
            )

    def to_plain(self, state: Any) -> Any:
        """The state in values the codec takes. `Unsupported`, with the path, if it would not come back the same.

        The result may still hold values the codec refuses; it checks, as for any state.
        """
        if self._class is not None and type(state) is not self._class:
            raise Unsupported("$", f"the state is a {type_name(type(state))}, and type= says {self.name}")
        try:
            plain = msgspec.to_builtins(state, builtin_types=_NATIVE, str_keys=False, enc_hook=_to_builtin)
            back = self._restore(plain)
        except Exception as error:  # whatever the user's own validators and constructors raise
            find_unstorable(state)
            raise Unsupported(_place(error), f"would not come back: it does not fit {self.name}") from error
        difference(state, back)
        return plain

    def from_plain(self, plain: Any) -> Any:
        """The state again. `InvalidArgument`, with the path, if what was stored does not fit the type any more.

        So too if the type has no place for something: it would be gone with the next save.
        """
        try:
            state = self._restore(plain)
        except Exception as error:  # whatever the user's own validators and constructors raise
            raise self._misfit(_place(error)) from error
        left = left_over(plain, state)
        if left is not None:
            raise self._misfit(left)
        return state

    def _misfit(self, path: str) -> InvalidArgument:
        return InvalidArgument(
            f"the stored state does not fit type={self.name} at {path}; "
            "load it without type=, or give a type that takes it"
        )

    def _restore(self, plain: Any) -> Any:
        return msgspec.convert(plain, self._type, builtin_types=_NATIVE, str_keys=False, dec_hook=_from_builtin)


_TYPE: Final = type
_PROBE: Final = object()


def _is_class(kind: Any) -> bool:
    """Whether a state of this type must be an instance of exactly it."""
    return isinstance(kind, type) and not is_typeddict(kind) and has_fields(kind)


def _to_builtin(value: Any) -> Any:
    if is_pydantic(type(value)):
        # By field name, both ways: an alias may be for one direction only. Without warnings: what the model does not
        # expect to find in its fields is found by the comparison.
        return _settle(value.model_dump(mode="python", round_trip=True, by_alias=False, warnings=False))
    raise NotImplementedError


def _from_builtin(kind: type[Any], value: Any) -> Any:
    if is_pydantic(kind):
        return _validate(kind, value)
    raise NotImplementedError


def _validate(model: Any, value: Any) -> Any:
    return model.model_validate(value, by_alias=False, by_name=True)


def _settle(value: Any) -> Any:
    """A model's dump with the time zones of pydantic's own class replaced (see `settled`)."""
    kind = type(value)
    if kind is dict:
        return {_settle(key): _settle(item) for key, item in value.items()}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return kind(_settle(item) for item in value)
    return settled(value)


def _reason(kind: Any, error: Exception) -> str:
    # msgspec quotes what it was given, which may be a state put there by mistake.
    if isinstance(kind, type) or get_origin(kind) is not None:
        return str(error).partition("\n")[0]
    return f"a {type_name(type(kind))} is no type"


def _place(error: BaseException) -> str:
    """Where a conversion failed. Only paths are taken from the texts: the rest of them may quote the state."""
    found = _PLACE.search(str(error))
    path = found[1] if found else "$"
    cause: Any = error
    while cause is not None:
        errors = getattr(cause, "errors", None)
        if callable(errors):
            details: Any = errors(include_url=False, include_context=False, include_input=False)
            return path + "".join(_steps(details[0]) if details else ())
        cause = cause.__cause__
    return path


def _steps(detail: Mapping[str, Any]) -> list[str]:
    return [f"[{step}]" if isinstance(step, int) else key_step(step) for step in detail["loc"]]
