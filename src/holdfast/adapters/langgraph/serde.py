"""Values of a graph as plain data: LangGraph's serializer, the form in which its bytes are stored, allowed types.

LangGraph's serializer writes msgpack. It is parsed, so that each value in it can be stored once, compared and shown. An
extension (an object) becomes `{"$ext": code, "payload": tree}`. A dict that has a key `$ext` itself becomes
`{"$ext": "dict", "payload": [[key, value], …]}`. The bytes of any other serde are kept whole:
`{"$ext": "typed", "payload": [type, bytes]}`. Parsing builds no objects; only the serde does, when it loads them.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections import deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import SendProtocol
from ormsgpack import packb, unpackb

from holdfast.codec.msgpack import array_header, deeper_than, extension, map_header
from holdfast.codec.storable import MAX_DEPTH, key_step, type_name
from holdfast.errors import Damaged, HoldfastError, Unsupported

EXT: Final = "$ext"
PAYLOAD: Final = "payload"
DICT: Final = "dict"
TYPED: Final = "typed"

Name = tuple[str, str]
"""The module and the name of a class, which is all that the serializer stores of it."""

_MARK: Final = packb(EXT)  # in the encoding of every dict with the key `$ext`, and rarely elsewhere
_FEW: Final = 16
_CODES: Final = range(-128, 128)
_DEEPEST: Final = MAX_DEPTH // 2  # each nested object is a nested call, and at least two levels of plain data
_READING: Final = ormsgpack.OPT_NON_STR_KEYS
# Without a `default`, so that data which `read` never returns is rejected.
_WRITING: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_HOLDING: Final = frozenset(range(256))  # every extension may contain values
_REFUSALS: Final = (TypeError, ValueError, AttributeError, OverflowError, RecursionError)  # of a serde that cannot save


# -- bytes ⇄ plain data -----------------------------------------------------------------------------------------------


def may_be_marked(data: bytes) -> bool:
    """Whether the bytes contain `$ext` as a string."""
    # Searching one byte is a thousand times faster than five, and there are few dollar signs; check each of them.
    at = -1
    for _ in range(_FEW):
        at = data.find(b"$", at + 1)
        if at < 0:
            return False
        if data.startswith(_MARK, at - 1):
            return True
    return data.find(_MARK, at) >= 0


class _Object:
    """An extension, for values in which a dict may look like one."""

    __slots__ = ("code", "payload")

    def __init__(self, code: int, payload: Any) -> None:
        self.code = code
        self.payload = payload


class Reader:
    """Parses msgpack to plain data, and collects the names of the classes in it.

    ValueError if the bytes are not msgpack, RecursionError if objects are nested too deeply.
    """

    __slots__ = ("_nesting", "_odd", "failure", "names")

    def __init__(self) -> None:
        self.names: set[Name] = set()
        self.failure: BaseException | None = None
        self._nesting = 0
        self._odd = False

    def read(self, data: bytes) -> Any:
        self._odd = may_be_marked(data)
        try:
            tree = unpackb(data, ext_hook=self._hook, option=_READING)
        except ValueError:
            # ormsgpack hides exceptions of an ext_hook.
            if self.failure is not None:
                raise self.failure from None
            # One that is raised before the first line of the hook is not noted. Then a second attempt succeeds.
            with suppress(ValueError, RecursionError):
                again = Reader()
                again._odd = self._odd
                unpackb(data, ext_hook=again._hook, option=_READING)
                raise KeyboardInterrupt from None
            raise
        return _spelled(tree) if self._odd else tree

    def _hook(self, code: int, body: bytes) -> Any:
        try:
            self._nesting += 1
            if self._nesting > _DEEPEST:
                raise RecursionError
            payload = unpackb(body, ext_hook=self._hook, option=_READING)
            self._nesting -= 1
            _note(self.names, payload)
            return _Object(code, payload) if self._odd else {EXT: code, PAYLOAD: payload}
        except BaseException as error:
            if self.failure is None:
                self.failure = error
            raise


def _note(names: set[Name], payload: Any) -> None:
    """Add the name of the class of an object."""
    if type(payload) is list and len(payload) > 2 and type(payload[0]) is type(payload[1]) is str:
        names.add((payload[0], payload[1]))


def _spelled(tree: Any) -> Any:
    kind = type(tree)
    if kind is list:
        return [_spelled(item) for item in tree]
    if kind is dict:
        if EXT in tree:
            return {EXT: DICT, PAYLOAD: [[key, _spelled(item)] for key, item in tree.items()]}
        return {key: _spelled(item) for key, item in tree.items()}
    if kind is _Object:
        return {EXT: tree.code, PAYLOAD: _spelled(tree.payload)}
    return tree


def damaged(reason: str) -> Damaged:
    """The error for plain data that this module cannot have written."""
    return Damaged(f"a stored value was not written by a LangGraph serde: {reason}")


class Packer:
    """Writes plain data as the bytes it was read from, and collects the names of the classes in it."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: set[Name] = set()

    def pack(self, plain: Any, room: int = MAX_DEPTH) -> bytes:
        """Convert plain data to bytes. TypeError for data that msgpack cannot contain, RecursionError if too deep."""
        kind = type(plain)
        if kind is dict and EXT in plain:
            return self._object(plain, room - 1)
        # A list of objects is recognised by its first item.
        if kind is not list or not plain or type(plain[0]) is not dict or EXT not in plain[0]:
            data = packb(plain, option=_WRITING)
            if not may_be_marked(data):
                return data
            if kind is dict:
                return self._map(list(plain.items()), room - 1)
            if kind is not list:
                return data
        if room <= 0:
            raise RecursionError
        return array_header(len(plain)) + b"".join([self.pack(item, room - 1) for item in plain])

    def _map(self, items: list[Any], room: int) -> bytes:
        if room < 0:
            raise RecursionError
        pieces = [map_header(len(items))]
        for key, item in items:
            # A tuple can only be a key: as a value it is never read.
            pieces += (packb({key: None}, option=_WRITING)[1:-1], self.pack(item, room))
        return b"".join(pieces)

    def _object(self, plain: dict[Any, Any], room: int) -> bytes:
        if room < 0:
            raise RecursionError
        if len(plain) != 2 or PAYLOAD not in plain:
            raise damaged("an object is malformed")
        code, payload = plain[EXT], plain[PAYLOAD]
        if type(code) is int and code in _CODES:
            _note(self.names, payload)
            return extension(code, self.pack(payload, room))
        if code == DICT:
            if type(payload) is not list or not all(type(pair) is list and len(pair) == 2 for pair in payload):
                raise damaged("a dict is malformed")
            return self._map(payload, room)
        if code == TYPED and _typed(plain)[0] == "bytearray":
            return packb(_typed(plain)[1])
        raise damaged("an object has an unknown type")


def _whole(typ: str, data: bytes) -> Any:
    """Keep data whole, with its type. Null and bytes need no type."""
    if typ == "null" and not data:
        return None
    if typ == "bytes":
        return bytes(data)
    return {EXT: TYPED, PAYLOAD: [typ, bytes(data)]}


def _typed(plain: dict[Any, Any]) -> tuple[str, bytes]:
    match plain.get(PAYLOAD):
        case [str(typ), bytes(data)] if len(plain) == 2:
            return typ, data
        case _:
            raise damaged("a type and its bytes are expected")


# -- values ⇄ plain data ----------------------------------------------------------------------------------------------


class Values:
    """Converts the values of a graph with one serde.

    With the default serde (`is_default`), a class is built if it was named (`allow=`, or the schema of the graph), if
    this process has saved it, or if its module is already imported. No module is imported because stored
    data names it.
    `strict`: only the classes that were named are built, and a value with any other one is refused.
    """

    def __init__(self, serde: SerializerProtocol, *, strict: bool = False, is_default: bool = False) -> None:
        self.serde: Final = serde
        self.is_plain: Final = _is_plain(serde)
        """Whether the serde is LangGraph's own without changes, whose bytes can be parsed."""
        self._strict = strict and self.is_plain
        self._is_open = is_default and not strict
        # Replaced together: other threads add classes at the same time.
        self._building: tuple[frozenset[Name], SerializerProtocol] = frozenset(), serde

    def to_plain(self, value: Any, path: str = "$") -> Any:
        """Convert a value to plain data. `path` is the path of the value, for errors.

        `Unsupported` if the serde rejects the value, or, if strict, would load something else.
        """
        typ, data = self._dump(value, path)
        if typ != "msgpack" or not self.is_plain:
            return _whole(typ, data)
        reader = Reader()
        try:
            tree = reader.read(data)
        except RecursionError as error:
            raise Unsupported(path, "objects are nested too deeply; save a flatter value") from error
        if self._strict:
            _require_same(value, self._load(self.serde, "msgpack", data, path), path)
        elif not reader.names <= self._building[0]:
            self._allow(reader.names)
        return tree

    def from_plain(self, plain: Any, path: str = "$") -> Any:
        """The inverse of `to_plain`. The value is new and shares nothing with `plain`.

        `Damaged` if `plain` does not have the form that `to_plain` returns, or the serde cannot read it.
        """
        if plain is None:
            return self._load(self.serde, "null", b"", path)
        if type(plain) is bytes:
            return self._load(self.serde, "bytes", plain, path)
        if type(plain) is dict and plain.get(EXT) == TYPED:
            typ, data = _typed(plain)
            if typ == "msgpack" and deeper_than(data, MAX_DEPTH, _HOLDING):
                raise damaged("it is nested too deeply")
            return self._load(self._building[1], typ, data, path)
        packer = Packer()
        try:
            data = packer.pack(plain)
        except (TypeError, RecursionError) as error:
            raise damaged("it contains data that no serde writes") from error
        return self.load(data, packer.names, path)

    def load(self, data: bytes, names: AbstractSet[Name] = frozenset(), path: str = "$") -> Any:
        """Load msgpack that contains objects of these classes."""
        known, serde = self._building
        if not names <= known:
            serde = self._allow({(module, name) for module, name in names if module in sys.modules})
        return self._load(serde, "msgpack", data, path)

    def _allow(self, names: set[Name]) -> SerializerProtocol:
        """Build these classes from now on. Returns the serde that does."""
        known, serde = self._building
        if self._is_open and isinstance(serde, JsonPlusSerializer):
            serde = serde.with_msgpack_allowlist(names)
        self._building = known | names, serde
        return serde

    def _load(self, serde: SerializerProtocol, typ: str, data: bytes, path: str) -> Any:
        try:
            with _refusals as refused:
                value = serde.loads_typed((typ, data))
        except HoldfastError:
            raise
        except NotImplementedError as error:
            raise Unsupported(
                path, "the value was saved by another serde, in a form that this one cannot read"
            ) from error
        except Exception as error:  # a serde may raise anything
            raise damaged("the serde cannot read it: another serde or key saved it, or it was changed") from error
        if refused and self._strict:
            raise _not_allowed(path, refused[0])
        return value

    def _dump(self, value: Any, path: str) -> tuple[str, bytes]:
        try:
            return self.serde.dumps_typed(value)
        except HoldfastError:
            raise
        except _REFUSALS as error:
            place, part = _refused_part(self.serde, value, path)
            # The message of another serde may quote the value.
            reason = f": {error}" if isinstance(self.serde, JsonPlusSerializer) else ""
            raise Unsupported(place, f"the serde rejects type {type_name(type(part))}{reason}") from error


def _is_plain(serde: SerializerProtocol) -> bool:
    kind = type(serde)
    return (
        isinstance(serde, JsonPlusSerializer)
        and kind.dumps_typed is JsonPlusSerializer.dumps_typed
        and kind.loads_typed is JsonPlusSerializer.loads_typed
        and not serde.pickle_fallback
        and not getattr(serde, "_custom_unpack_ext_hook", False)
    )


def _refused_part(serde: SerializerProtocol, value: Any, path: str) -> tuple[str, Any]:
    """The innermost part of a value that the serde rejects, with its path."""
    for step, part in _parts(value):
        try:
            serde.dumps_typed(part)
        except _REFUSALS:
            return _refused_part(serde, part, path + step) if len(path) < 1000 else (path, value)
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The members of a container or the fields of an object, each with its step of a path."""
    if isinstance(value, dict):
        yield from ((key_step(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple | deque) and not hasattr(value, "_asdict"):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, SendProtocol):
        yield ".arg", value.arg
    elif dataclasses.is_dataclass(value) or hasattr(value, "model_dump") or hasattr(value, "_asdict"):
        as_dict: Any = getattr(value, "_asdict", None)
        members: Any = getattr(value, "__dict__", {}) if as_dict is None else as_dict()
        fields: Any = getattr(type(value), "model_fields", None) or {}
        for name, item in members.items():
            if not getattr(fields.get(name), "exclude", None):
                yield key_step(name), item


# -- strict -----------------------------------------------------------------------------------------------------------


class _Refusals(threading.local):
    """The types that the serde did not build in the current load. It reports them by events, on the same thread."""

    def __init__(self) -> None:
        self._loads: list[list[SerdeEvent]] = []

    def __enter__(self) -> list[SerdeEvent]:
        self._loads.append([])
        return self._loads[-1]

    def __exit__(self, *_: object) -> None:
        self._loads.pop()

    def listen(self, event: SerdeEvent) -> None:
        if self._loads and event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
            self._loads[-1].append(event)


_refusals: Final = _Refusals()
register_serde_event_listener(_refusals.listen)

# Types that msgpack supports. LangGraph loads subclasses of these as the base type, on purpose.
_NATIVE: Final = (dict, list, str, int, float, bytes, bytearray, memoryview, BaseException)


def _require_same(value: Any, loaded: Any, path: str, room: int = MAX_DEPTH) -> None:
    """Raise `Unsupported`, with the path, if an object in `value` is something else in `loaded`."""
    kind = type(value)
    if room <= 0:
        return
    if kind is str and value != loaded:
        raise Unsupported(path, "this string is not valid Unicode (a lone surrogate) and cannot be saved; replace it")
    if type(loaded) is not kind and (not isinstance(value, (*_NATIVE, tuple)) or isinstance(value, Enum)):
        raise Unsupported(
            path,
            f"a value of type {type_name(kind)} would be loaded as {type_name(type(loaded))}; convert it before "
            "saving, or change the class",
        )
    others = dict(_parts(loaded))
    for step, part in _parts(value):
        if step in others:
            _require_same(part, others[step], path + step, room - 1)


def _not_allowed(path: str, event: SerdeEvent) -> Unsupported:
    module, name = event["module"], event["name"]
    if event["kind"] == "msgpack_method_blocked":
        problem = f"LangGraph's serializer never loads a value of type {module}.{name}; convert it before saving"
        return Unsupported(path, problem)
    return Unsupported(
        path,
        f"a value of type {module}.{name} is not allowed. Allow it with "
        f"HoldfastSaver(..., allow=[{name}]), or allow=[({module!r}, {name!r})].",
    )
