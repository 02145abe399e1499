"""Encode and decode values as MessagePack."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NoReturn

import ormsgpack
from ormsgpack import Ext, packb, unpackb

from holdfast.codec.extensions import (
    CONTAINERS,
    DICT,
    FIRST_RESERVED,
    FROZENSET,
    MALFORMED,
    PACK,
    SET,
    TUPLE,
    UNPACK,
    pack_surrogates,
)
from holdfast.codec.storable import MAX_DEPTH, check
from holdfast.errors import Damaged, Unsupported

__all__ = [
    "CODEC",
    "FIRST_RESERVED",
    "FORMAT",
    "MAX_DEPTH",
    "array_header",
    "binary_header",
    "check",
    "counted",
    "decode",
    "decode_items",
    "decode_parts",
    "encode",
    "encode_items",
    "encode_sorted",
    "extension",
    "map_header",
    "text_header",
]

FORMAT: Final = 1
CODEC: Final = f"packed-{FORMAT}"
"""The name of this encoding in records."""

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_SORTED: Final = _OPTIONS | ormsgpack.OPT_SORT_KEYS

# A tuple or set is decoded by an unpackb call inside another, and ormsgpack counts its recursion limit per call. This
# many may nest before the bytes of deeper ones are scanned first. Without the bound, 50 kB of forged bytes overflow the
# C stack, and no exception reports that.
_FREE_NESTING: Final = 3

# unpackb ignores bytes after the value. So a random item is appended that no stored data can hold: it is decoded as the
# next item only if the data ends where it should.
_END: Final = os.urandom(16)
_TAIL: Final = packb(_END)

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1

_ALWAYS_NATIVE: Final = frozenset((type(None), bool, float, bytes))
"""Types of which ormsgpack encodes every value as it is stored."""
_NATIVE: Final = _ALWAYS_NATIVE | {int, str}
"""The same, with types of which it refuses rare values."""
_CONTAINERS: Final = frozenset((dict, list, tuple, set, frozenset))

_Resolve = Callable[[int, bytes], Any]


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """The bytes of a value. Raises Unsupported, with its path, for a value that would not be decoded equal.

    bytearray, memoryview and the types of ormsgpack are not noticed here; `check` finds them. A save encodes every
    value, and must not look at each of them in Python.
    """
    try:
        return packb(value, None, _OPTIONS)
    except TypeError:
        return _encode_copy(value)


def encode_items(values: list[Any]) -> bytes:
    """The bytes of the items in order, without a header. Raises as `encode` does."""
    if type(values) is not list:
        values = list(values)
    count = len(values)
    try:
        packed = packb(values, None, _OPTIONS)
    except TypeError:
        packed = _encode_copy(values, depth=-1)
    return packed[1 if count < 16 else 3 if count < 65536 else 5 :]


def encode_sorted(value: Any) -> bytes:
    """Bytes that are equal for values whose dicts differ only in the order of their keys. Raises as `encode` does."""
    try:
        return packb(value, None, _SORTED)
    except TypeError:
        return encode(_sorted(value))


def _sorted(value: Any) -> Any:
    """A value whose dicts are in one order, for keys that ormsgpack cannot sort."""
    if type(value) is dict:
        return {key: _sorted(item) for key, item in sorted(value.items(), key=_encoded_key)}
    if type(value) in (list, tuple):
        return type(value)([_sorted(item) for item in value])
    return value


def _encoded_key(item: tuple[Any, Any]) -> bytes:
    return encode(item[0])


def _encode_copy(value: Any, depth: int = 0) -> bytes:
    """Encode a value that ormsgpack cannot encode alone.

    ormsgpack never calls Python code. Otherwise another thread could change a container while it is encoded: the bytes
    would not be a value, or the process would crash. And an interrupt would be reported as a bare TypeError.
    """
    try:
        try:
            return packb(_rewritten(value, _NATIVE, MAX_DEPTH - depth), None, _OPTIONS)
        except TypeError:
            return packb(_rewritten(value, _ALWAYS_NATIVE, MAX_DEPTH - depth), None, _OPTIONS)
    except (TypeError, RecursionError) as error:
        check(value, depth)
        if isinstance(error, RecursionError):
            raise
        raise Unsupported("$", "cannot be encoded: it changed while it was being saved, or it is too large") from error


def _rewritten(value: Any, native: frozenset[type], room: int) -> Any:
    """A copy of a value, which no other thread has, with extensions for everything that is not of a native type.

    TypeError if more containers than `room` are nested in one another: an extension hides its depth from ormsgpack.
    """
    kind = type(value)
    if room <= 0 and kind in _CONTAINERS:
        raise TypeError
    if kind is dict:
        value = value.copy()
        if native is _ALWAYS_NATIVE and not all(type(key) is str and _is_utf8(key) for key in value):
            flat = [x for entry in value.items() for x in entry]
            return Ext(DICT, packb(_rewritten(flat, native, room), None, _OPTIONS))
        for key, item in value.items():
            if type(item) not in native:
                value[key] = _rewritten(item, native, room - 1)
        return value
    if kind is list or kind is tuple:
        items = list(value)
        if not native.issuperset(map(type, items)):
            items = [item if type(item) in native else _rewritten(item, native, room - 1) for item in items]
        return items if kind is list else Ext(TUPLE, packb(items, None, _OPTIONS))
    if kind is set or kind is frozenset:
        # Equal sets may differ in order, also between processes.
        parts = sorted([packb(_rewritten(item, native, room - 1), None, _OPTIONS) for item in tuple(value)])
        return Ext(SET if kind is set else FROZENSET, array_header(len(parts)) + b"".join(parts))
    if kind is str:
        return value if _is_utf8(value) else pack_surrogates(value)
    if kind is int and _INT_MIN <= value <= _INT_MAX:
        return value
    pack = PACK.get(kind)
    return value if pack is None else pack(value)


def _is_utf8(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> Any:
    """The value of these bytes. Raises Damaged if `encode` does not write such bytes. Nothing in them names code."""
    return _Reader().read((data,), 1)[0]


def decode_items(data: bytes | Sequence[bytes | memoryview], count: int) -> list[Any]:
    """The `count` values of these bytes, which may be cut anywhere.

    Raises Damaged if `encode_items` does not write such bytes for that many values.
    """
    return _Reader().read((data,) if isinstance(data, bytes) else data, count)


def decode_parts(data: bytes, resolve: Callable[[int, bytes], Any]) -> Any:
    """Like `decode`, but extensions with codes from `FIRST_RESERVED` on are passed to `resolve`, at any depth.

    An error that `resolve` raises is raised unchanged. An interrupt may be raised as Damaged. To find
    out, call it again with an equal `resolve`: after an interrupt, the second call succeeds.
    """
    reader = _Reader()
    reader.resolve = resolve
    return reader.read((data,), 1)[0]


class _Reader:
    """One call of unpackb and the calls inside it."""

    resolve: _Resolve | None = None
    _nesting = 0
    _failure: BaseException | None = None  # ormsgpack drops what an ext_hook raises, with its cause

    def read(self, buffers: Sequence[bytes | memoryview], count: int) -> list[Any]:
        header = _HEADERS[count] if count < len(_HEADERS) else array_header(count + 1)
        data = b"".join((header, *buffers, _TAIL))
        try:
            items: list[Any] = unpackb(data, ext_hook=self._hook)
        except ValueError as error:
            self._fail(error, data)
        if items.pop() != _END:
            raise Damaged("stored bytes are not a value: more bytes follow its end")
        return items

    def _fail(self, error: ValueError, data: bytes) -> NoReturn:
        failure, self._failure = self._failure, None
        if self.resolve is None and (failure is None or isinstance(failure, Damaged)):
            again = _Reader()
            try:
                unpackb(data, ext_hook=again._hook)
            except ValueError:
                failure = again._failure or failure
            else:
                raise KeyboardInterrupt  # raised before the first line of `_hook`; ormsgpack dropped it
        if failure is not None:
            raise failure from failure.__cause__
        raise Damaged(f"stored bytes are not a value: {error}") from error

    def _hook(self, code: int, payload: bytes) -> Any:
        try:
            unpack = UNPACK.get(code)
            if unpack is not None:
                return _guarded(unpack, payload)
            if code in CONTAINERS:
                return self._container(code, payload)
            if code >= FIRST_RESERVED and self.resolve is not None:
                return self.resolve(code, payload)
            raise Damaged(f"stored bytes are not a value: extension code {code} is unknown")
        except BaseException as error:  # kept for `_fail` to raise
            if self._failure is None:
                self._failure = error
            raise

    def _container(self, code: int, payload: bytes) -> Any:
        self._nesting += 1
        if self._nesting == _FREE_NESTING + 1 and deeper_than(payload, 2 * MAX_DEPTH, CONTAINERS):
            raise Damaged("stored bytes are not a value: nested too deeply")
        try:
            items, end = unpackb(b"".join((b"\x92", payload, _TAIL)), ext_hook=self._hook)
            if type(items) is not list or end != _END:
                raise Damaged("stored bytes are not a value: a container is malformed")
            value = _contain(code, items)
        except MALFORMED as error:
            raise Damaged("stored bytes are not a value: a container is malformed") from error
        self._nesting -= 1
        return value


def _guarded(unpack: Callable[[bytes], Any], payload: bytes) -> Any:
    try:
        return unpack(payload)
    except MALFORMED as error:
        # An unknown time zone has the same effect as damaged bytes.
        raise Damaged(
            "stored bytes are not a value: an extension is malformed, or its time zone is unknown here (install tzdata)"
        ) from error


def _contain(code: int, items: list[Any]) -> Any:
    if code == TUPLE:
        return tuple(items)
    value: Any
    if code == DICT:
        value = dict(zip(items[::2], items[1::2], strict=True))
        size = len(items) // 2
    else:
        value = set(items) if code == SET else frozenset(items)
        size = len(items)
    if len(value) != size:
        raise ValueError("a key or element occurs twice")
    return value


# -- headers ----------------------------------------------------------------------------------------------------------

_FIXED_EXTENSIONS: Final = {1: b"\xd4", 2: b"\xd5", 4: b"\xd6", 8: b"\xd7", 16: b"\xd8"}

# First byte -> (bytes of the length that follows it, bytes between the length and the data: an extension's code).
_SIZED: Final = {
    **{0xC4 + i: (1 << i, 0) for i in range(3)},
    **{0xC7 + i: (1 << i, 1) for i in range(3)},
    **{0xD9 + i: (1 << i, 0) for i in range(3)},
}
_PLAIN: Final = {
    0xCA: 4,
    0xCB: 8,
    **{0xCC + i: 1 << i for i in range(4)},
    **{0xD0 + i: 1 << i for i in range(4)},
}
_HEADER_WIDTHS: Final = {
    0xDC: 2,
    0xDD: 4,
    **{0xC4 + i: 1 << i for i in range(3)},
    **{0xD9 + i: 1 << i for i in range(3)},
}


def array_header(count: int) -> bytes:
    """The header of a list of `count` items, in its shortest form."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


_HEADERS: Final = tuple([array_header(count + 1) for count in range(65)])
"""The headers of up to 64 values and `_END`, which most decodings need."""


def text_header(size: int) -> bytes:
    """The header of a string whose UTF-8 has `size` bytes, in its shortest form."""
    if size < 32:
        return bytes((0xA0 | size,))
    return _sized_header(0xD9, size)


def binary_header(size: int) -> bytes:
    """The header of `size` bytes, in its shortest form."""
    return _sized_header(0xC4, size)


def _sized_header(first: int, size: int) -> bytes:
    width = 0 if size < 1 << 8 else 1 if size < 1 << 16 else 2
    return bytes((first + width,)) + size.to_bytes(1 << width, "big")


def counted(data: bytes, header: Callable[[int], bytes]) -> tuple[int, int]:
    """The count in the header of a list or string that `header` writes, and the length of the header.

    Raises Damaged if `header` does not write such a header.
    """
    first = data[0] if data else 0
    size = 1 if first < 0xC0 else 1 + _HEADER_WIDTHS.get(first, 0)
    count = first & (0x0F if first < 0xA0 else 0x1F) if size == 1 else int.from_bytes(data[1:size], "big")
    if data[:size] != header(count):
        raise Damaged("stored bytes are not a value: a piece has another header")
    return count, size


def map_header(count: int) -> bytes:
    """The header of a dict of `count` entries, in its shortest form."""
    if count < 16:
        return bytes((0x80 | count,))
    if count < 1 << 16:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")


def extension(code: int, payload: bytes) -> bytes:
    """An extension value, in its shortest form."""
    size = len(payload)
    kind = code.to_bytes(1, "big", signed=True)
    fixed = _FIXED_EXTENSIONS.get(size)
    if fixed is not None:
        return fixed + kind + payload
    if size < 1 << 8:
        return b"\xc7" + size.to_bytes(1, "big") + kind + payload
    if size < 1 << 16:
        return b"\xc8" + size.to_bytes(2, "big") + kind + payload
    return b"\xc9" + size.to_bytes(4, "big") + kind + payload


def deeper_than(data: bytes, limit: int, containers: Collection[int]) -> bool:
    """Whether lists, dicts and extensions with the codes `containers` (which hold values) nest deeper than `limit`.

    Reads headers only, without recursion, and builds nothing. Malformed data is not reported here: the scan stops where
    the decoder will stop too.
    """
    ranges = [(0, len(data), 0)]
    while ranges:
        at, end, base = ranges.pop()
        open_counts: list[int] = []
        while at < end:
            while open_counts and not open_counts[-1]:
                open_counts.pop()
            if open_counts:
                open_counts[-1] -= 1
            first = data[at]
            at += 1
            size = 0
            children = -1
            code = -1
            if first < 0x80 or first >= 0xE0:
                pass
            elif first < 0x90:
                children = 2 * (first & 0x0F)
            elif first < 0xA0:
                children = first & 0x0F
            elif first < 0xC0:
                size = first & 0x1F
            elif first in _PLAIN:
                size = _PLAIN[first]
            elif first in _SIZED:
                width, has_code = _SIZED[first]
                size = int.from_bytes(data[at : at + width], "big")
                at += width
                if has_code:
                    code = data[at] if at < end else -1
                    at += 1
            elif 0xD4 <= first <= 0xD8:
                size = 1 << (first - 0xD4)
                code = data[at] if at < end else -1
                at += 1
            elif first >= 0xDC:
                width = 2 if first in (0xDC, 0xDE) else 4
                children = int.from_bytes(data[at : at + width], "big") * (1 if first < 0xDE else 2)
                at += width
            if children >= 0:
                open_counts.append(children)
                if base + len(open_counts) > limit:
                    return True
            elif code in containers:
                depth = base + len(open_counts) + 1
                if depth > limit:
                    return True
                ranges.append((at, min(at + size, end), depth))
            at += size
    return False
