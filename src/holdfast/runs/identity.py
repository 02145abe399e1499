"""The identity of calls: the names of functions, the digests of arguments, and the keys that are made of both.

A call is identified by its function and its key. Without a key, it is identified by its function, its arguments, and
how many calls equal to it came before in the step.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.codec.storable import PLAIN, attributes, has_fields
from holdfast.errors import InvalidArgument, Unsupported
from holdfast.redaction import AS_IS, Redaction
from holdfast.stores.contract_runs import Entry

KEY_SEPARATOR: Final = "/"  # between the identity of a function and the key of its call
DIGEST_SEPARATOR: Final = "#"  # between the identity of a function and the digest of the call's arguments
MODEL: Final = "model "  # before the identity of a function whose call is a model call
STREAM: Final = "run.stream "  # before the identity of a function whose call is a stream
WHOLE: Final = "final "  # after STREAM, if only the whole reply is recorded
_SHOWN: Final = 16  # hex digits of a digest in a key
_SCALARS: Final[tuple[type[Any], ...]] = (str, bytes, int, float)
_FLAT: Final = frozenset((str, int, float, bool, bytes, type(None)))
_SCRIPTS: Final = ("__main__", "__mp_main__")


# -- functions ----------------------------------------------------------------------------------------------------


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function in the journal, for people."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__name__


def short_name_of(function: Callable[..., Any]) -> str:
    """The name of a function without the names around it."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def identity_of(function: Callable[..., Any]) -> str:
    """The qualified name of a function, with its module; for a method, that of the class of its object.

    A partial also has a digest of what it binds. InvalidArgument if that cannot be encoded.
    """
    if isinstance(function, functools.partial):
        bound = [list(function.args), function.keywords]
        try:
            digest = hashlib.sha256(msgpack.encode(bound)).hexdigest()
        except Unsupported as refused:
            raise InvalidArgument(
                f"a partial of {name_of(function)} binds something that cannot be stored, so it has no name by which "
                "its calls are recognised; nothing was called. Declare a name with holdfast.tool(name=…)(partial)."
            ) from refused
        return f"{identity_of(function.func)}({digest[:_SHOWN]})"
    if inspect.ismethod(function):
        owner = function.__self__ if isinstance(function.__self__, type) else type(function.__self__)
        return f"{_module_of(owner)}.{owner.__qualname__}.{function.__name__}"
    if not isinstance(getattr(function, "__qualname__", None), str):
        function = type(function)  # an object that can be called
    name, qualified = short_name_of(function), f"{_module_of(function)}.{function.__qualname__}"
    # A factory may give each function that it makes a name of its own.
    identity = qualified if qualified.endswith(name) else f"{qualified}.{name}"
    return identity.replace(KEY_SEPARATOR, "|").replace(DIGEST_SEPARATOR, "|")


def _module_of(thing: Any) -> str:
    """The module of a function or class. That of a script is the name by which another program imports it."""
    name = getattr(thing, "__module__", None)
    if name not in _SCRIPTS:
        return name if isinstance(name, str) else "builtins"
    script = sys.modules.get(name)
    spec = getattr(script, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(script, "__file__", None)
    return PurePath(file).stem if isinstance(file, str) else "__main__"


def is_same(one: Callable[..., Any], other: Callable[..., Any], *, is_named: bool = False) -> bool:
    """Whether two functions of one identity are the same: equal code and equal closures, or methods of equal objects.

    If their name was declared (`is_named`), only the code is compared.
    """
    one, other = inspect.unwrap(one), inspect.unwrap(other)
    while isinstance(one, functools.partial) and isinstance(other, functools.partial):
        one, other = one.func, other.func  # what they bind is part of their identity
    if one is other or one == other:
        return True
    if is_named:
        return _code_of(one) == _code_of(other)
    if inspect.ismethod(one) and inspect.ismethod(other):
        return one.__func__ is other.__func__ and _are_equal(_vars_of(one.__self__), _vars_of(other.__self__))
    code = getattr(one, "__code__", None)
    if code is None:
        return type(one) is type(other) and _are_equal(_vars_of(one), _vars_of(other))
    return bool(code == getattr(other, "__code__", None)) and _are_equal(_closure_of(one), _closure_of(other))


def _code_of(function: Any) -> object:
    """The code of a function or method; the class of an object that can be called."""
    return getattr(function, "__code__", type(function))


def _vars_of(thing: object) -> object:
    return getattr(thing, "__dict__", thing)


def _closure_of(function: Any) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or ()]


def _are_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - objects may compare as they like
        return False


# -- keys ---------------------------------------------------------------------------------------------------------


def unkeyed(identity: str, digest: bytes, occurrence: int) -> str:
    """The key in the journal of a call without a key."""
    if not digest:
        return f"{identity}{DIGEST_SEPARATOR}{occurrence}"
    return f"{identity}{DIGEST_SEPARATOR}{digest.hex()[:_SHOWN]}" + (f".{occurrence}" if occurrence > 1 else "")


def escaped(name: str) -> str:
    """A name as an identity: encoded are the separators of keys, and the start of a name like one of Holdfast's own."""
    name = name.replace("%", "%25").replace(KEY_SEPARATOR, "%2F").replace(DIGEST_SEPARATOR, "%23")
    is_own = name.startswith("run.") or name.partition(" ")[0] == "model"
    return f"%{ord(name[0]):02X}{name[1:]}" if is_own else name


def identity_in(key: str) -> str:
    """The identity of the function in the key of a journal entry."""
    return key.partition(KEY_SEPARATOR)[0].partition(DIGEST_SEPARATOR)[0]


def shown(identity: str) -> str:
    """The function of an identity in a message: without the prefix for the kind of its calls."""
    for prefix in (MODEL, f"{STREAM}{WHOLE}", STREAM):
        if identity.startswith(prefix):
            return identity[len(prefix) :]
    return identity


def own_key(key: str) -> str | None:
    """The key that the program gave a call, from the key of its journal entry; None if it gave none."""
    identity = identity_in(key)
    return key[len(identity) + 1 :] if key[len(identity) : len(identity) + 1] == KEY_SEPARATOR else None


def idempotency_key(run: bytes, entry: Entry) -> str:
    """The idempotency key of a call: the same for every try, and that of no other call. `run` identifies the run."""
    parts = (
        run,
        entry.branch,
        entry.step,
        entry.outside,
        entry.key,
        entry.arguments,
        *((entry.valid_after,) if entry.valid_after else ()),
        *((entry.started_at,) if entry.act is not None else ()),  # the act may have been released in this step
    )
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()


class Started(msgspec.Struct, frozen=True):
    """A call that is under way, as it is found in the journal."""

    key: str
    own_key: str | None  # the key that the program gave
    is_alone: bool  # whether its caller is that of the block, and no other was under way: the order of calls counts
    under_way: Collection[str] = ()  # a live view: the keys of the calls that are under way now

    @property
    def is_last(self) -> bool:
        """Whether no other call has been started meanwhile, so that the step may be closed next."""
        return self.is_alone and len(self.under_way) == 1


# -- arguments ----------------------------------------------------------------------------------------------------


class Given:
    """The arguments of a model call: copies to pass, `digest` of them as they are recorded, `exact` of them as given.

    `exact` must not be stored: it would confirm a guess of a secret. An argument that cannot be encoded, such as a
    client, is passed as it is; lists and dicts around it are copied. In the digests, its fields represent it, or its
    class if it has none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        redaction: Redaction = AS_IS,
    ) -> None:
        given = [_Argument(each, redaction) for each in args]
        named = {name: _Argument(each, redaction) for name, each in kwargs.items()}
        self.args: Final = tuple([each.copied() for each in given])
        self.kwargs: Final = {name: each.copied() for name, each in named.items()}
        while isinstance(function, functools.partial):
            given[:0] = [_Argument(each, redaction) for each in function.args]
            bound = {name: _Argument(each, redaction) for name, each in function.keywords.items()}
            named = {**bound, **named}
            function = function.func
        self.identity: Final = identity_of(function)
        parts = [[each.recorded for each in given], sorted((name, each.recorded) for name, each in named.items())]
        self.digest: Final = hashlib.sha256(msgspec.msgpack.encode(parts)).digest()
        exact = [each.exact for each in (*given, *named.values()) if each.exact is not None]
        self.exact: Final = hashlib.sha256(msgspec.msgpack.encode(exact)).digest() if exact else b""


class _Argument:
    """An argument of a model call as sorted bytes: `recorded` after redaction, and `exact` if redaction changed it."""

    def __init__(self, value: Any, redaction: Redaction) -> None:
        self._value = value
        self._is_stored = False
        self.exact: bytes | None = None
        try:
            msgpack.check(value)
            redacted = redaction.value(value)
            self.recorded = msgpack.encode_sorted(redacted)
            if redacted is not value:
                self.exact = msgpack.encode_sorted(value)
        except Unsupported:
            self.recorded = _Description(redaction).of(value)
            if redaction.placeholder is not None and (exact := _Description(AS_IS).of(value)) != self.recorded:
                self.exact = exact
        else:
            self._is_stored = True

    def copied(self) -> Any:
        """A copy, as a replay would pass it. A text or a number needs none."""
        if type(self._value) in _FLAT:
            return self._value
        if not self._is_stored:
            return _rebuilt(self._value, {})
        return msgpack.decode(msgpack.encode(self._value))


class _Description:
    """Bytes that tell a value apart that cannot be stored: its class and its members, if these can be seen."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._known: dict[int, tuple[Any, bytes]] = {}  # by id, with the object: a value may contain itself
        self._names: dict[type[Any], bytes] = {}

    def of(self, value: Any, room: int = msgpack.MAX_DEPTH) -> bytes:
        kind = type(value)
        if kind in PLAIN:
            with suppress(Unsupported):
                msgpack.check(value)
                return msgpack.encode_sorted(self._redaction.value(value))
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        described = self._names.get(kind) or self._names.setdefault(kind, identity_of(kind).encode())
        self._known[id(value)] = value, described
        with suppress(Exception):  # a class may do as it likes when its members are read
            members = _members(value, kind) if room else None
            if members is not None:
                parts = [[self.of(each, room - 1) for each in member] for member in members]
                if not issubclass(kind, (list, tuple)):
                    parts.sort()
                described = hashlib.sha256(msgspec.msgpack.encode([described, parts])).digest()
                self._known[id(value)] = value, described
        return described


def _members(value: Any, kind: type[Any]) -> Iterable[tuple[Any, ...]] | None:
    """The members of a value, each with its name or key if it has one; None if they cannot be seen."""
    if isinstance(value, Enum):
        return [(value.name,)]
    if has_fields(kind):
        return [(attributes(value),)]
    if issubclass(kind, dict):
        return list(value.items())
    if issubclass(kind, (list, tuple, set, frozenset)):
        return [(each,) for each in value]
    for plain in _SCALARS:
        if issubclass(kind, plain):
            return [(plain(value),)]
    return None


def _rebuilt(value: Any, made: dict[int, Any], room: int = msgpack.MAX_DEPTH) -> Any:
    """A value with new lists and dicts around what cannot be stored, which stays as it is."""
    kind, place = type(value), id(value)
    if place in made:
        return made[place]
    if not room or kind not in (list, dict, tuple):
        return value
    if kind is list:
        items: list[Any] = []
        made[place] = items
        items.extend(_rebuilt(each, made, room - 1) for each in value)
    elif kind is dict:
        entries: dict[Any, Any] = {}
        made[place] = entries
        entries.update({key: _rebuilt(each, made, room - 1) for key, each in value.items()})
    else:
        made[place] = tuple([_rebuilt(each, made, room - 1) for each in value])
    return made[place]
