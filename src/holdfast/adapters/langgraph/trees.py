"""The tree that msgpack bytes encode, as plain data, and back to the same bytes.

An extension (an object, to LangGraph's serializer) becomes `{"$ext": code, "payload": tree}`. A dict that has a key
`$ext` of its own becomes `{"$ext": "dict", "payload": [[key, value], ...]}`, so that no two trees look alike. Bytes of
another type than msgpack stay in one piece: `{"$ext": "typed", "payload": [type, bytes]}`.
"""

from __future__ import annotations

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
"""Bytes that are in the encoding of every dict with the key `$ext`, and hardly ever elsewhere."""

_FEW: Final = 16

_EXT_CODES: Final = range(-128, 128)

# Each object within another is a call within a call, and at least two levels of plain data.
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
"""With no `default`, so that whatever `to_plain` does not give is refused."""


class Built(NamedTuple):
    """An extension that was met: an object, to LangGraph's serializer."""

    code: int
    payload: Any
    """As plain data."""
    body: bytes
    """The same as bytes."""


# -- bytes to plain data ----------------------------------------------------------------------------------------------


def whole(typ: str, data: bytes) -> Any:
    """As one piece, with its type. What is null or bytes needs none."""
    if typ == "null" and not data:
        return None
    if typ == "bytes":
        return bytes(data)
    return {EXT: TYPED, PAYLOAD: [typ, bytes(data)]}


def tree_or_whole(typ: str, data: bytes) -> Any:
    """As a tree, if that gives exactly these bytes again: nobody knows who wrote them."""
    if typ == "msgpack":
        try:
            tree, _ = read(data)
            if tree is not None and type(tree) is not bytes and Writer().pack(tree, MAX_DEPTH) == data:
                return tree
        except (TypeError, ValueError, RecursionError, Damaged):
            pass
    return whole(typ, data)


def _may_be_marked(data: bytes) -> bool:
    """Whether `$ext` stands somewhere in these bytes as a text."""
    # One byte is found in a thousandth of the time that five take; so the few dollars are looked at one by one.
    at = -1
    for _ in range(_FEW):
        at = data.find(b"$", at + 1)
        if at < 0:
            return False
        if data.startswith(_MARK, at - 1):
            return True
    return data.find(_MARK, at) >= 0


def read(data: bytes) -> tuple[Any, list[Built]]:
    """The tree that msgpack bytes encode, and the objects in it, inner ones first.

    ValueError if they are no msgpack, RecursionError if objects are nested too deeply.
    """
    reader = _Reader(odd=_may_be_marked(data))
    try:
        tree = unpackb(data, ext_hook=reader.hook, option=_READING)
    except ValueError:
        # ormsgpack drops what an ext_hook raises.
        if reader.failure is not None:
            raise reader.failure from None
        raise
    return (_spelled(tree) if reader.odd else tree), reader.built


class _Object:
    """An extension, where a dict of the value may look like one."""

    __slots__ = ("code", "payload")

    def __init__(self, code: int, payload: Any) -> None:
        self.code = code
        self.payload = payload


class _Reader:
    """One call of unpackb and those within it."""

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
    """The error for plain data that nothing here gave."""
    return Damaged(f"a stored value is not what a LangGraph serde gave: {reason}")


# -- plain data to bytes ----------------------------------------------------------------------------------------------


def is_object(plain: Any) -> bool:
    """Whether this stands for an object, and not for something that holds them."""
    return type(plain) is dict and type(plain.get(EXT)) is int


def typed_parts(plain: dict[Any, Any]) -> tuple[str, bytes]:
    """Type and bytes of what was kept in one piece. `Damaged` if it is malformed."""
    match _payload(plain):
        case [str(typ), bytes(data)]:
            return typ, data
        case _:
            raise damaged("a type and its bytes are expected")


def _payload(plain: dict[Any, Any]) -> Any:
    if len(plain) != 2 or PAYLOAD not in plain:
        raise damaged("an object is not as written")
    return plain[PAYLOAD]


class Writer:
    """The bytes of one tree; the objects in it, inner ones first, are put into `built`."""

    __slots__ = ("built",)

    def __init__(self) -> None:
        self.built: list[Built] = []

    def pack(self, plain: Any, room: int) -> bytes:
        """TypeError if there is something in it that no msgpack gives, RecursionError if it is nested too deeply."""
        kind = type(plain)
        if kind is dict and EXT in plain:
            return self._object(plain, room - 1)
        # A list of objects is known by its first.
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
                raise damaged("a dict is not as written")
            return self._map(payload, room)
        if code == TYPED:
            typ, data = typed_parts(plain)
            if typ == "bytearray":
                return packb(data)
        raise damaged("an object is of no known kind")


def _key(key: Any) -> bytes:
    # A tuple is written as a key only: as a value it is nothing that was read.
    return packb({key: None}, option=_WRITING)[1:-1]
