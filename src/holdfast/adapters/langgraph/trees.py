"""Convert msgpack bytes to a tree of plain data, and back to the same bytes.

An extension (an object, for LangGraph's serializer) becomes `{"$ext": code, "payload": tree}`. A dict that has a key
`$ext` itself becomes `{"$ext": "dict", "payload": [[key, value], ...]}`, so that the form is unambiguous. Bytes of a
type other than msgpack are kept whole: `{"$ext": "typed", "payload": [type, bytes]}`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

import ormsgpack
from ormsgpack import packb, unpackb

from holdfast.codec.msgpack import array_header, extension, map_header
from holdfast.codec.storable import MAX_DEPTH
from holdfast.errors import Damaged

EXT: Final = "$ext"
PAYLOAD: Final = "payload"
DICT: Final = "dict"
TYPED: Final = "typed"

_MARK: Final = packb(EXT)
"""Bytes that are in the encoding of every dict with the key `$ext`, and rarely elsewhere."""

_FEW: Final = 16

_EXT_CODES: Final = range(-128, 128)

# Each nested object is a nested call, and at least two levels of plain data.
_DEEPEST: Final = MAX_DEPTH // 2

_READING: Final = ormsgpack.OPT_NON_STR_KEYS
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
"""Without a `default`, so that data which `to_plain` never returns is rejected."""


class Built(NamedTuple):
    """An extension that was read or written: an object, for LangGraph's serializer."""

    code: int
    payload: Any
    """The content as plain data."""
    body: bytes
    """The content as bytes."""


# -- bytes to plain data ----------------------------------------------------------------------------------------------


def whole(typ: str, data: bytes) -> Any:
    """Keep data whole, with its type. Null and bytes need no type."""
    if typ == "null" and not data:
        return None
    if typ == "bytes":
        return bytes(data)
    return {EXT: TYPED, PAYLOAD: [typ, bytes(data)]}


def tree_or_whole(typ: str, data: bytes) -> Any:
    """Convert data to a tree if that reproduces exactly these bytes, else keep it whole. The writer is unknown."""
    if typ == "msgpack":
        try:
            tree, _ = read(data)
            if tree is not None and type(tree) is not bytes and Writer().pack(tree, MAX_DEPTH) == data:
                return tree
        except (TypeError, ValueError, RecursionError, Damaged):
            pass
    return whole(typ, data)


def _may_be_marked(data: bytes) -> bool:
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


def read(data: bytes) -> tuple[Any, list[Built]]:
    """Parse msgpack. Returns the tree, and the objects in it, inner ones first.

    ValueError if the bytes are not msgpack, RecursionError if objects are nested too deeply.
    """
    reader = _Reader(odd=_may_be_marked(data))
    try:
        tree = unpackb(data, ext_hook=reader.hook, option=_READING)
    except ValueError:
        # ormsgpack hides exceptions of an ext_hook.
        if reader.failure is not None:
            raise reader.failure from None
        # One that is raised before the first line of the hook is not noted. Then a second attempt succeeds.
        with suppress(ValueError, RecursionError):
            unpackb(data, ext_hook=_Reader(odd=reader.odd).hook, option=_READING)
            raise KeyboardInterrupt from None
        raise
    return (_spelled(tree) if reader.odd else tree), reader.built


class _Object:
    """An extension, for values in which a dict may look like one."""

    __slots__ = ("code", "payload")

    def __init__(self, code: int, payload: Any) -> None:
        self.code = code
        self.payload = payload


class _Reader:
    """The state of one call of unpackb and the nested ones."""

    __slots__ = ("_nesting", "built", "failure", "odd")

    def __init__(self, *, odd: bool) -> None:
        self.odd = odd
        self.built: list[Built] = []
        self.failure: BaseException | None = None
        self._nesting = 0

    def hook(self, code: int, body: bytes) -> Any:
        try:
            self._nesting += 1
            if self._nesting > _DEEPEST:
                raise RecursionError
            payload = unpackb(body, ext_hook=self.hook, option=_READING)
            self._nesting -= 1
            self.built.append(Built(code, payload, body))
            return _Object(code, payload) if self.odd else {EXT: code, PAYLOAD: payload}
        except BaseException as error:
            if self.failure is None:
                self.failure = error
            raise


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


# -- plain data to bytes ----------------------------------------------------------------------------------------------


def is_object(plain: Any) -> bool:
    """Whether plain data represents an object itself, not a container of objects."""
    return type(plain) is dict and type(plain.get(EXT)) is int


def typed_parts(plain: dict[Any, Any]) -> tuple[str, bytes]:
    """The type and bytes of data that was kept whole. `Damaged` if it is malformed."""
    match _payload(plain):
        case [str(typ), bytes(data)]:
            return typ, data
        case _:
            raise damaged("a type and its bytes are expected")


def _payload(plain: dict[Any, Any]) -> Any:
    if len(plain) != 2 or PAYLOAD not in plain:
        raise damaged("an object is malformed")
    return plain[PAYLOAD]


class Writer:
    """Writes one tree as bytes. The objects in it are collected in `built`, inner ones first."""

    __slots__ = ("built",)

    def __init__(self) -> None:
        self.built: list[Built] = []

    def pack(self, plain: Any, room: int) -> bytes:
        """Convert a tree to bytes. TypeError for data that msgpack cannot contain, RecursionError if too deep."""
        kind = type(plain)
        if kind is dict and EXT in plain:
            return self._object(plain, room - 1)
        # A list of objects is recognised by its first item.
        if kind is not list or not plain or type(plain[0]) is not dict or EXT not in plain[0]:
            data = packb(plain, option=_WRITING)
            if not _may_be_marked(data):
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
            pieces.append(_key(key))
            pieces.append(self.pack(item, room))
        return b"".join(pieces)

    def _object(self, plain: dict[Any, Any], room: int) -> bytes:
        if room < 0:
            raise RecursionError
        code, payload = plain[EXT], _payload(plain)
        if type(code) is int and code in _EXT_CODES:
            body = self.pack(payload, room)
            self.built.append(Built(code, payload, body))
            return extension(code, body)
        if code == DICT:
            if type(payload) is not list or not all(type(pair) is list and len(pair) == 2 for pair in payload):
                raise damaged("a dict is malformed")
            return self._map(payload, room)
        if code == TYPED:
            typ, data = typed_parts(plain)
            if typ == "bytearray":
                return packb(data)
        raise damaged("an object has an unknown type")


def _key(key: Any) -> bytes:
    # A tuple can only be a key: as a value it is never read.
    return packb({key: None}, option=_WRITING)[1:-1]
