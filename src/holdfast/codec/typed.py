"""Convert states of a user's classes to plain values, and restore them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, get_origin, is_typeddict
from uuid import UUID

import msgspec

from holdfast.codec.msgpack import encode
from holdfast.codec.storable import LEAVES, attributes, find_unstorable, has_fields, is_pydantic, key_step, type_name
from holdfast.errors import InvalidArgument, Unsupported

_NATIVE: Final = (bytes, datetime, date, time, timedelta, UUID, Decimal)
_PLACE: Final = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")


class StateType:
    """Converts states of one type. Raises InvalidArgument for a type that cannot be stored."""

    __slots__ = ("_class", "_exact", "_type", "name")

    def __init__(self, type: Any) -> None:
        self._type = type
        self._class = type if _is_class(type) else None
        self.name = type_name(type) if isinstance(type, _TYPE) else str(type)
        self._probe()
        from holdfast.codec.exact import exact_check  # noqa: PLC0415 - only typed states pay for its import

        self._exact = exact_check(type)

    def _probe(self) -> None:
        """Let msgspec inspect the whole type before a state is saved with it."""
        unknown: list[type] = []

        def hook(kind: type[Any], _: Any) -> Any:
            if not is_pydantic(kind):
                unknown.append(kind)
            raise ValueError

        try:
            msgspec.convert(_PROBE, self._type, builtin_types=_NATIVE, str_keys=False, dec_hook=hook)
        except msgspec.ValidationError:
            pass
        except (TypeError, NameError) as error:  # not a type, an ambiguous union, an unknown name
            raise InvalidArgument(f"type= cannot be used: {_reason(self._type, error)}") from error
        if unknown:
            raise InvalidArgument(
                f"type= cannot be used: {type_name(unknown[0])} is not a dataclass, msgspec.Struct, attrs class, "
                "pydantic model, TypedDict, enum, or a list or dict of those"
            )

    def to_plain(self, state: Any) -> Any:
        """The state as plain values. Raises Unsupported, with its path, for a value that would not be restored equal.

        The result may still hold values that the codec refuses, as any state may.
        """
        if self._class is not None and type(state) is not self._class:
            raise Unsupported("$", f"the state is a {type_name(type(state))}, and type= is {self.name}")
        if self._is_exact(state):
            return msgspec.to_builtins(state, builtin_types=_NATIVE, str_keys=False, enc_hook=_dump)
        try:
            plain = msgspec.to_builtins(state, builtin_types=_NATIVE, str_keys=False, enc_hook=_to_builtin)
            back = self._restore(plain)
        except Exception as error:  # the user's validators and constructors may raise anything
            find_unstorable(state)
            raise Unsupported(_place(error), f"cannot be restored: it does not fit {self.name}") from error
        difference(state, back)
        return plain

    def _is_exact(self, state: Any) -> bool:
        """Whether the state needs no comparison: it is certainly restored equal."""
        try:
            return self._exact is not None and self._exact(state)
        except RecursionError:  # it contains itself, or is nested too deep: the comparison says where
            return False

    def from_plain(self, plain: Any) -> Any:
        """The state of these plain values. Raises InvalidArgument, with the path, if they do not fit the type.

        That includes fields which the type does not have: the next save would lose them.
        """
        try:
            state = self._restore(plain)
        except Exception as error:  # the user's validators and constructors may raise anything
            raise self._misfit(_place(error)) from error
        if self._is_exact(state) and plain == msgspec.to_builtins(
            state, builtin_types=_NATIVE, str_keys=False, enc_hook=_dump
        ):
            return state  # no field is left over: what was read is what would be saved
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
    return _settle(_dump(value))


def _dump(value: Any) -> Any:
    if is_pydantic(type(value)):
        # By field name in both directions: an alias may be for one direction only. Without warnings: the comparison
        # finds values that the model does not expect in its fields.
        return value.model_dump(mode="python", round_trip=True, by_alias=False, warnings=False)
    raise NotImplementedError


def _from_builtin(kind: type[Any], value: Any) -> Any:
    if is_pydantic(kind):
        return _validate(kind, value)
    raise NotImplementedError


def _validate(model: Any, value: Any) -> Any:
    return model.model_validate(value, by_alias=False, by_name=True)


def _settle(value: Any) -> Any:
    """The dump of a model with time zones of pydantic's class replaced (see `settled`)."""
    kind = type(value)
    if kind is dict:
        return {_settle(key): _settle(item) for key, item in value.items()}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return kind(_settle(item) for item in value)
    return settled(value)


def _reason(kind: Any, error: Exception) -> str:
    # msgspec quotes its argument, which may be a state passed by mistake.
    if isinstance(kind, type) or get_origin(kind) is not None:
        return str(error).partition("\n")[0]
    return f"a {type_name(type(kind))} is not a type"


def _place(error: BaseException) -> str:
    """The path at which a conversion failed. Nothing else is taken from the error: its text may quote the state."""
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


# -- a restored state equals the one given ----------------------------------------------------------------------------

_ZONES_OF_PYDANTIC: Final = "pydantic_core._pydantic_core"
_CLOCKS: Final[frozenset[type]] = frozenset({datetime, time})


def difference(state: Any, back: Any, path: str = "$") -> None:
    """Raise Unsupported, with its path, for the first value that was not restored as it was given."""
    kind = type(state)
    if type(back) is not kind:
        raise Unsupported(
            path,
            f"a {type_name(kind)} would be restored as {type_name(type(back))}; change the type, or store the value "
            "that the type declares",
        )
    if state is back:
        return
    if kind in LEAVES or kind in _CLOCKS:
        same = _bytes(state, path) == _bytes(back, path)
    elif kind is bytearray:
        same = state == back
    elif has_fields(kind):
        same = _compare_fields(state, back, path)
    elif issubclass(kind, dict):
        same = _compare_dicts(state, back, path)
    elif issubclass(kind, (list, tuple)):
        same = len(state) == len(back)
        for index, (left, right) in enumerate(zip(state, back, strict=False)):
            difference(left, right, f"{path}[{index}]")
    elif issubclass(kind, (set, frozenset)):
        same = _compare_sets(state, back, path)
    else:  # a member of an enum is restored as itself, or as another one
        same = False
    if not same:
        raise Unsupported(path, f"a {type_name(kind)} would not be restored equal")


def _bytes(value: Any, path: str) -> bytes:
    try:
        return encode(settled(value))
    except Unsupported as error:
        raise Unsupported(path, error.problem) from error


def _compare_fields(state: Any, back: Any, path: str) -> bool:
    before, after = attributes(state), attributes(back)
    for name, item in before.items():
        if name not in after:
            raise Unsupported(path + key_step(name), "would be lost: the type does not store it")
        difference(item, after[name], path + key_step(name))
    return len(before) == len(after)


def _compare_dicts(state: dict[Any, Any], back: dict[Any, Any], path: str) -> bool:
    if len(state) != len(back):
        return False
    for (key, item), (other, again) in zip(state.items(), back.items(), strict=True):
        step = path + key_step(key)
        difference(key, other, step)
        difference(item, again, step)
    return True


def _compare_sets(state: Any, back: Any, path: str) -> bool:
    if len(state) != len(back):
        return False
    # Two equal sets may differ in order. A NaN, alone or in a tuple, equals nothing: what is left on both sides is
    # compared in its order.
    others = {item: item for item in back}
    left: list[Any] = []
    for item in state:
        if item in others:
            difference(item, others.pop(item), path)
        else:
            left.append(item)
    for item, other in zip(left, others, strict=True):
        difference(item, other, path)
    return True


def settled(value: Any) -> Any:
    """A datetime or time from pydantic's parser in a form that can be stored.

    pydantic parses zones to a private class with a fixed offset. To refuse it would refuse most models read from JSON,
    so it is replaced by the `datetime.timezone` with the same offset.
    """
    if type(value) in _CLOCKS and type(value.tzinfo).__module__ == _ZONES_OF_PYDANTIC:
        offset: timedelta | None = value.tzinfo.utcoffset(None)
        if offset is not None:
            return value.replace(tzinfo=timezone(offset))
    return value


# -- a restored state has every stored field --------------------------------------------------------------------------

_BEFORE: Final = ("before", "wrap", "plain")


def left_over(plain: Any, state: Any, path: str = "$") -> str | None:
    """The path of the first field of `plain` that `state`, restored from it, does not have; None if it has all."""
    kind = type(state)
    if kind in LEAVES:
        return None
    if has_fields(kind):
        return _of_fields(plain, state, path)
    if type(plain) is dict and issubclass(kind, dict):
        if len(plain) > len(state):
            return path + key_step(next(key for key in plain if key not in state))
        return _first((item, state[key], path + key_step(key)) for key, item in plain.items() if key in state)
    if isinstance(plain, list | tuple) and issubclass(kind, list | tuple):
        return _first((item, state[at], f"{path}[{at}]") for at, item in enumerate(plain) if at < len(state))
    return None


def _of_fields(plain: Any, state: Any, path: str) -> str | None:
    kind = type(state)
    if is_pydantic(kind):
        if getattr(kind, "__pydantic_root_model__", False):
            return left_over(plain, state.root, path)
        if _decides_itself(kind):
            return None
    if isinstance(state, msgspec.Struct):
        tag = state.__struct_config__.tag_field
        fields = dict(zip(state.__struct_encode_fields__, msgspec.structs.astuple(state), strict=True))
        fields = fields if tag is None else {tag: None, **fields}
        if isinstance(plain, list | tuple):  # array_like: its fields are stored in order, without names
            if len(plain) > len(fields):
                return f"{path}[{len(fields)}]"
            values = zip(plain, fields.values(), strict=False)
            return _first((item, value, f"{path}[{at}]") for at, (item, value) in enumerate(values))
    else:
        fields = attributes(state)
    if type(plain) is not dict:
        return None
    unknown = next((key for key in plain if key not in fields), None)
    if unknown is not None:
        return path + key_step(unknown)
    return _first((item, fields[key], path + key_step(key)) for key, item in plain.items())


def _decides_itself(model: Any) -> bool:
    """Whether a pydantic model has a validator that runs before its fields: it may accept older fields."""
    found = model.__pydantic_decorators__
    validators = (*found.model_validators.values(), *found.field_validators.values())
    return any(validator.info.mode in _BEFORE for validator in validators)


def _first(pairs: Iterable[tuple[Any, Any, str]]) -> str | None:
    for item, value, path in pairs:
        found = left_over(item, value, path)
        if found is not None:
            return found
    return None
