"""Convert states of a user's classes to plain values, and restore them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Final, get_origin, is_typeddict
from uuid import UUID

import msgspec

from holdfast.codec.members import members
from holdfast.codec.models import PRIVATE, Adapter, adapter_of, builds_itself, dumped, fields_of, restored
from holdfast.codec.msgpack import encode
from holdfast.codec.registry import Registered, encoding_of, is_secret, on_register
from holdfast.codec.storable import (
    LEAVES,
    MAX_DEPTH,
    PLAIN,
    attributes,
    find_unstorable,
    has_fields,
    is_pydantic,
    key_step,
    parts,
    type_name,
)
from holdfast.errors import InvalidArgument, Unsupported

_NATIVE: Final = (bytes, datetime, date, time, timedelta, UUID, Decimal)
_PLACE: Final = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")


class Misfit(Exception):
    """Stored data does not fit a type. `path` says where."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path: Final = path


class StateType:
    """Converts states of one type. Raises InvalidArgument for a type that cannot be stored."""

    __slots__ = ("_adapter", "_class", "_exact", "_type", "has_secrets", "name")
    schema: str | None = None  # recorded with each value, for a type that is not known by the program alone

    def __init__(self, type: Any) -> None:
        self._type = type
        self._class = type if _is_class(type) else None
        self.name = type_name(type) if isinstance(type, _TYPE) else str(type)
        self._adapter = self._probe()
        self.has_secrets = any(isinstance(each, _TYPE) and is_secret(each) for each in members(type))
        from holdfast.codec.exact import exact_check  # noqa: PLC0415 - only typed states pay for its import

        self._exact = None if self._adapter is not None else exact_check(type)

    def _probe(self) -> Adapter | None:
        """Inspect the whole type before a state is saved with it. Return an adapter if only pydantic understands it."""
        try:
            with suppress(msgspec.ValidationError):
                msgspec.convert(_PROBE, self._type, builtin_types=_NATIVE, str_keys=False, dec_hook=_probe_hook)
            unknown = [kind for kind in members(self._type, of_models=False) if _is_unknown(kind)]
        except (TypeError, NameError) as error:  # not a type, an ambiguous union, an unknown name
            adapter = adapter_of(self._type)
            if adapter is None:
                raise InvalidArgument(f"type= cannot be used: {_reason(self._type, error)}") from error
            return adapter
        if unknown:
            raise InvalidArgument(
                f"type= cannot be used: {type_name(unknown[0])} is not a dataclass, msgspec.Struct, attrs class, "
                "pydantic model, TypedDict, enum, path, or a list or dict of those. Register a class of your own with "
                "holdfast.codec.register."
            )
        return None

    def to_plain(self, state: Any, hidden: str | None = None) -> Any:
        """The state as plain values. Raises Unsupported, with its path, for a value that would not be restored equal.

        A secret is stored as the text `hidden`, and refused without one. The result may still hold values that the
        codec refuses, as any state may.
        """
        if self._class is not None and type(state) is not self._class:
            raise Unsupported("$", f"this is a {type_name(type(state))}, and the declared type is {self.name}")
        if self._is_exact(state):
            return _exact_plain(state)
        if self.has_secrets and hidden is None:
            find_secret(state)
        try:
            plain = self._dump(state, hidden)
            back = self._restore(plain)
        except Exception as error:  # the user's validators and constructors may raise anything
            find_unstorable(state, is_whole=_is_whole)
            raise Unsupported(_place(error), f"cannot be restored: it does not fit {self.name}") from error
        difference(state, back)
        return plain

    def _dump(self, state: Any, hidden: str | None) -> Any:
        given = state if self._adapter is None else self._adapter.dumped(state)
        hook = functools.partial(_to_builtin, hidden)
        return msgspec.to_builtins(given, builtin_types=_NATIVE, str_keys=False, enc_hook=hook)

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
            return self.fitted(plain)
        except Misfit as misfit:
            raise InvalidArgument(
                f"the stored state does not fit type={self.name} at {misfit.path}; "
                "load it without type=, or give a type that takes it"
            ) from misfit.__cause__

    def fitted(self, plain: Any) -> Any:
        """As `from_plain`, but raises Misfit."""
        try:
            state = self._restore(plain)
        except Exception as error:  # the user's validators and constructors may raise anything
            raise Misfit(_place(error)) from error
        if self._is_exact(state) and plain == _exact_plain(state):
            return state  # no field is left over: what was read is what would be saved
        left = left_over(plain, state)
        if left is not None and not self._is_saved_again(plain, state):
            raise Misfit(left)
        return state

    def _is_saved_again(self, plain: Any, state: Any) -> bool:
        """Whether the next save stores every key again. A type of pydantic's may store keys that are not fields."""
        return self._adapter is not None and not _misses(plain, self._dump(state, hidden=""))

    def _restore(self, plain: Any) -> Any:
        if self._adapter is not None:
            return self._adapter.restored(plain)
        return msgspec.convert(plain, self._type, builtin_types=_NATIVE, str_keys=False, dec_hook=_from_builtin)


@functools.lru_cache(maxsize=256)
def _known_type(kind: Any) -> StateType:
    return StateType(kind)


on_register(_known_type.cache_clear)


def state_type(kind: Any) -> StateType:
    """The StateType of a type, made once. Use it where the same type is needed again and again."""
    try:
        return _known_type(kind)
    except TypeError:  # not hashable
        return StateType(kind)


def _exact_plain(state: Any) -> Any:
    """The plain values of a state that consists of its fields: no model in it has private attributes."""
    return msgspec.to_builtins(state, builtin_types=_NATIVE, str_keys=False, enc_hook=fields_of)


_TYPE: Final = type
_PROBE: Final = object()


def _probe_hook(*_: Any) -> Any:
    raise ValueError


def _is_class(kind: Any) -> bool:
    """Whether a state of this type must be an instance of exactly it."""
    return isinstance(kind, type) and not is_typeddict(kind) and has_fields(kind) and encoding_of(kind) is None


def _is_whole(kind: type[Any]) -> bool:
    """Whether values of a class are stored whole, not by field."""
    return encoding_of(kind) is not None


def _is_unknown(kind: Any) -> bool:
    """Whether a class in a type has values that cannot be stored."""
    if not isinstance(kind, type) or is_typeddict(kind) or kind in PLAIN or kind is bytearray:
        return False
    if has_fields(kind) or issubclass(kind, (Enum, tuple, list, dict, set, frozenset)) or _is_whole(kind):
        return False
    info = msgspec.inspect.type_info(kind)
    return isinstance(info, msgspec.inspect.CustomType)


def _to_builtin(hidden: str | None, value: Any) -> Any:
    kind = type(value)
    encoding = encoding_of(kind)
    if encoding is not None:
        if is_secret(kind):
            if hidden is None:
                raise NotImplementedError
            return hidden
        return encoding.encode(value)
    if is_pydantic(kind):
        return _with_plain_zones(dumped(value))
    raise NotImplementedError


def _from_builtin(kind: type[Any], value: Any) -> Any:
    encoding = encoding_of(kind)
    if encoding is not None:
        back = encoding.decode(value)
        if not isinstance(back, kind):
            raise TypeError
        return back
    if is_pydantic(kind):
        return restored(kind, value)
    raise NotImplementedError


def _with_plain_zones(value: Any) -> Any:
    """The dump of a model with time zones of pydantic's class replaced (see `with_plain_zone`)."""
    kind = type(value)
    if kind is dict:
        return {_with_plain_zones(key): _with_plain_zones(item) for key, item in value.items()}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return kind(_with_plain_zones(item) for item in value)
    return with_plain_zone(value)


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


def find_secret(value: Any, path: str = "$", around: tuple[int, ...] = ()) -> None:
    """Raise Unsupported for the first secret in a value."""
    kind = type(value)
    if is_secret(kind):
        raise Unsupported(
            path,
            f"a {type_name(kind)} is a secret and would be stored as readable text; open the store with redact=, "
            "which stores [redacted] instead, or keep the secret outside of what is stored",
        )
    if kind not in LEAVES and id(value) not in around and len(around) < MAX_DEPTH:
        for step, item in parts(value):
            find_secret(item, path + step, (*around, id(value)))


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
            "that the type declares. Classes of a union need a discriminator if one may be taken for another.",
        )
    if state is back:
        return
    encoding = None if kind in PLAIN else encoding_of(kind)
    if encoding is not None:
        same = is_secret(kind) or _is_restored(encoding, state, back, path)
    elif kind in LEAVES or kind in _CLOCKS:
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


def _is_restored(encoding: Registered, state: Any, back: Any, path: str) -> bool:
    """Whether a value that is stored whole is restored: both are encoded alike, and they or their attributes are equal.

    An array, for example, has no single answer to whether it is equal.
    """
    if _bytes(encoding.encode(state), path) != _bytes(encoding.encode(back), path):
        return False
    kind: Any = type(state)
    by_identity = kind.__eq__ is object.__eq__
    with suppress(Exception):
        return bool(vars(state) == vars(back)) if by_identity else bool(state == back)
    return True


def _bytes(value: Any, path: str) -> bytes:
    try:
        return encode(with_plain_zone(value))
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


def with_plain_zone(value: Any) -> Any:
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


def _misses(plain: Any, other: Any) -> bool:
    """Whether plain values have a key that others of the same form do not have."""
    if type(plain) is dict and type(other) is dict:
        return any(key not in other or _misses(item, other[key]) for key, item in plain.items())
    if isinstance(plain, list | tuple) and isinstance(other, list | tuple):
        return any(_misses(item, again) for item, again in zip(plain, other, strict=False))
    return False


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
    unknown = next((key for key in plain if key not in fields and key != PRIVATE), None)
    if unknown is not None:
        return path + key_step(unknown)
    return _first((item, fields[key], path + key_step(key)) for key, item in plain.items() if key != PRIVATE)


def _decides_itself(model: Any) -> bool:
    """Whether a pydantic model may accept older fields: a validator runs before its fields, or it builds itself."""
    if builds_itself(model):
        return True
    found = model.__pydantic_decorators__
    validators = (*found.model_validators.values(), *found.field_validators.values())
    return any(validator.info.mode in _BEFORE for validator in validators)


def _first(pairs: Iterable[tuple[Any, Any, str]]) -> str | None:
    for item, value, path in pairs:
        found = left_over(item, value, path)
        if found is not None:
            return found
    return None
