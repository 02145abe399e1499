"""Convert stored values to JSON text, and text to the same bytes."""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from ormsgpack import Ext, packb, unpackb

from holdfast.codec import extensions as ext
from holdfast.codec.extensions import MALFORMED
from holdfast.codec.msgpack import array_header
from holdfast.errors import Damaged

REFERENCES: Final = {64: "$cell", 65: "$map", 66: "$series", 67: "$text", 68: "$binary", 69: "$any"}
"""The codes of `holdfast.delta` by name, so that skeletons are readable too."""

_CODES: Final = {name: code for code, name in REFERENCES.items()}
_LISTS: Final = {ext.TUPLE: "$tuple", ext.SET: "$set", ext.FROZENSET: "$frozenset"}
_LIST_CODES: Final = {name: code for code, name in _LISTS.items()}

# Bytes that start like a list, a dict or an extension may be packed values. Longer ones are not examined.
_CONTAINER_HEADS: Final = frozenset([*range(0x80, 0xA0), 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9), *range(0xDC, 0xE0)])
_PACKED_MAX: Final = 1 << 20
_MOST_ITEMS: Final = 2  # a key and its value, in the log of a large dict
_QUOTE: Final = ord('"')
_PLAIN: Final = frozenset([str, int, bool, type(None)])  # the same in JSON; some floats are not

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_WRONG: Final = (*MALFORMED, AttributeError, IndexError)


class _Extension(msgspec.Struct, frozen=True):
    """An extension. Making a Struct runs no Python code, in which ormsgpack would drop an interrupt."""

    code: int
    payload: bytes


def to_text(packed: bytes) -> bytes:
    """One line of JSON from which `from_text` makes the same bytes."""
    try:
        value = unpackb(packed)
        if b"\xc4" in packed:  # the start of bytes, which JSON lacks
            # `_shown` compares each part with its bytes, so only the encoding of the whole is compared here.
            if packb(value) == packed:
                return _encode(_shown(value, True))
            return _carefully(packed)
        text = _encode(value)
        # Values that JSON lacks became others (nan is null, bytes are base64), and repeated keys became one.
        if not _has_tag(text) and packb(_decode(text)) == packed:
            return text
    except _WRONG:
        pass  # extensions, or bytes that are not a value
    return _carefully(packed)


def from_text(text: bytes) -> bytes:
    """The bytes of a text. Raises Damaged if `to_text` does not write such a text."""
    try:
        value = _decode(text)
        if not _has_tag(text):
            return packb(value)
        return _bytes_of(value)
    except _WRONG as error:
        raise Damaged("stored text is not a value") from error


def from_texts(texts: Sequence[bytes | memoryview]) -> list[bytes]:
    """The bytes of each text, as `from_text` returns them."""
    whole = b"[%b]" % b",".join(texts)
    if _has_tag(whole):
        return [from_text(bytes(text)) for text in texts]
    try:
        values = _decode(whole)
        if len(values) == len(texts):
            return [packb(value) for value in values]
    except _WRONG as error:
        raise Damaged("stored text is not a value") from error
    raise Damaged("stored text is not a value")


def _has_tag(text: bytes) -> bool:
    """Whether `"$` is in a text. Searching one byte is many times faster than two, and `$` is rare."""
    at = text.find(b"$")
    while at > 0 and text[at - 1] != _QUOTE:
        at = text.find(b"$", at + 1)
    return at > 0


def _bytes_of(value: Any) -> bytes:
    if type(value) is dict and len(value) == 1:
        if "$raw" in value:
            return b64decode(value["$raw"], validate=True)
        if "$items" in value:
            return b"".join([packb(_read(item)) for item in value["$items"]])
    return packb(_read(value))


def _carefully(packed: bytes) -> bytes:
    for count in range(1, _MOST_ITEMS + 1) if packed else [0]:
        try:
            values = unpackb(array_header(count) + packed, ext_hook=_Extension)
        except _WRONG:
            continue
        # Most values have the encoding that this module writes. For them, one comparison of the whole is enough.
        for reads_back in (False, True):
            try:
                items = [_shown(value, reads_back) for value in values]
                shown = items[0] if count == 1 else {"$items": items}
                # It holds nothing that JSON changes.
                if _bytes_of(shown) == packed:
                    return _encode(shown)
            except _WRONG:
                continue
    return _encode({"$raw": b64encode(packed).decode()})


# -- to text ----------------------------------------------------------------------------------------------------------


def _shown(value: Any, reads_back: bool) -> Any:
    """The JSON form of a value.

    With `reads_back`, bytes and extensions are read back, and written in base64 if the result differs.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        shown = {key: item if type(item) in _PLAIN else _shown(item, reads_back) for key, item in value.items()}
        return {"$object": shown} if len(shown) == 1 and next(iter(shown)).startswith("$") else shown
    if kind is list:
        if _PLAIN.issuperset(map(type, value)):
            return value
        return [item if type(item) in _PLAIN else _shown(item, reads_back) for item in value]
    if kind is _Extension:
        return _shown_extension(value, reads_back)
    if kind is bytes:
        return _shown_bytes(value, reads_back)
    return {"$float": repr(value)} if kind is float and not math.isfinite(value) else value


def _shown_bytes(value: bytes, reads_back: bool) -> Any:
    if 1 < len(value) <= _PACKED_MAX and value[0] in _CONTAINER_HEADS:
        # Most values have the encoding that this module writes. For them, one comparison of the whole is enough.
        for each_reads_back in (False, True) if reads_back else (False,):
            try:
                shown = _shown(unpackb(value, ext_hook=_Extension), each_reads_back)
                if not reads_back or packb(_read(shown)) == value:
                    return {"$packed": shown}
            except _WRONG:
                continue  # it only looked like packed values
    return {"$bytes": b64encode(value).decode()}


def _shown_extension(value: _Extension, reads_back: bool) -> Any:
    code, payload = value.code, value.payload
    try:
        shown = _in_words(code, payload, reads_back)
        # Payloads that Holdfast did not write may have another spelling.
        if shown is not None and (not reads_back or packb(_read(shown)) == packb(Ext(code, payload))):
            return shown
    except _WRONG:
        pass
    return {"$ext": [code, b64encode(payload).decode()]}


def _in_words(code: int, payload: bytes, reads_back: bool) -> Any:
    if code in SHOWN:
        name, show = SHOWN[code]
        return {name: show(payload)}
    if code in _LISTS:
        return {_LISTS[code]: _shown(unpackb(payload, ext_hook=_Extension), reads_back)}
    if code == ext.DICT:
        flat = [_shown(item, reads_back) for item in unpackb(payload, ext_hook=_Extension)]
        return {"$dict": [[key, item] for key, item in zip(flat[::2], flat[1::2], strict=True)]}
    if code in REFERENCES:
        return {REFERENCES[code]: _shown(unpackb(payload, ext_hook=_Extension), reads_back)}
    return None


# -- from text --------------------------------------------------------------------------------------------------------


def _read(shown: Any) -> Any:
    if type(shown) is list:
        if _PLAIN.issuperset(map(type, shown)):
            return shown
        return [item if type(item) in _PLAIN else _read(item) for item in shown]
    if type(shown) is not dict:
        return shown
    if len(shown) == 1:
        [(name, held)] = shown.items()
        if name.startswith("$"):
            return _read_tagged(name, held)
    return {key: item if type(item) in _PLAIN else _read(item) for key, item in shown.items()}


def _read_tagged(name: str, held: Any) -> Any:
    known = _TAGS.get(name)
    if known is not None:
        return known(held)
    if name in READ:
        code, read = READ[name]
        return Ext(code, read(held))
    if name in _LIST_CODES:
        return Ext(_LIST_CODES[name], packb(_read(held)))
    return Ext(_CODES[name], packb(_read(held)))


def _read_dict(pairs: list[Any]) -> Ext:
    return Ext(ext.DICT, packb([_read(item) for key, value in pairs for item in (key, value)]))


def _read_object(held: dict[str, Any]) -> Any:
    return {key: _read(item) for key, item in held.items()}


_TAGS: Final[dict[str, Callable[[Any], Any]]] = {
    "$bytes": lambda held: b64decode(held, validate=True),
    "$packed": lambda held: packb(_read(held)),
    "$float": float,
    "$ext": lambda held: Ext(held[0], b64decode(held[1], validate=True)),
    "$dict": _read_dict,
    "$object": _read_object,
}


# -- dates and numbers as text ----------------------------------------------------------------------------------------

_DATETIME: Final = struct.Struct(">HBBBBBIB")
_DATE: Final = struct.Struct(">HBB")
_TIME: Final = struct.Struct(">BBBIB")
_TIMEDELTA: Final = struct.Struct(">iII")
_OFFSET: Final = struct.Struct(">q")
_MINUTE: Final = 60_000_000

_NAIVE: Final = 0
_UTC: Final = 1 << 1
_FIXED: Final = 2 << 1
_ZONE: Final = 4 << 1

_DAY: Final = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK: Final = r"(\d\d):(\d\d):(\d\d)\.(\d{6})(.*)"
_DATE_TEXT: Final = re.compile(_DAY, re.ASCII)
_TIME_TEXT: Final = re.compile(_CLOCK, re.ASCII)
_DATETIME_TEXT: Final = re.compile(f"{_DAY}T{_CLOCK}", re.ASCII)


def _show_zone(flags: int, zone: bytes) -> str:
    if flags == _NAIVE and not zone:
        return ""
    if flags == _UTC and not zone:
        return "Z"
    if flags == _ZONE:
        return f"[{zone.decode('ascii')}]"
    if flags == _FIXED and len(zone) == _OFFSET.size:
        (microseconds,) = _OFFSET.unpack(zone)
        minutes, rest = divmod(abs(microseconds), _MINUTE)
        if not rest:
            return f"{'-' if microseconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    raise ValueError("a zone that has no text form")


def _read_zone(text: str) -> tuple[int, bytes]:
    if text in ("", "Z"):
        return (_UTC if text else _NAIVE), b""
    if text[0] == "[" and text[-1] == "]":
        return _ZONE, text[1:-1].encode("ascii")
    hours, _, minutes = text[1:].partition(":")
    offset = (int(hours) * 60 + int(minutes)) * _MINUTE
    return _FIXED, _OFFSET.pack(-offset if text[0] == "-" else offset)


def _show_datetime(payload: bytes) -> str:
    year, month, day, hour, minute, second, microsecond, flags = _DATETIME.unpack_from(payload)
    zone = _show_zone(flags, payload[_DATETIME.size :])
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microsecond:06}{zone}"


def _read_datetime(text: str) -> bytes:
    *numbers, zone = _matched(_DATETIME_TEXT, text)
    flags, named = _read_zone(zone)
    return _DATETIME.pack(*map(int, numbers), flags) + named


def _show_time(payload: bytes) -> str:
    hour, minute, second, microsecond, flags = _TIME.unpack_from(payload)
    return f"{hour:02}:{minute:02}:{second:02}.{microsecond:06}{_show_zone(flags, payload[_TIME.size :])}"


def _read_time(text: str) -> bytes:
    *numbers, zone = _matched(_TIME_TEXT, text)
    flags, named = _read_zone(zone)
    return _TIME.pack(*map(int, numbers), flags) + named


def _show_date(payload: bytes) -> str:
    year, month, day = _DATE.unpack(payload)
    return f"{year:04}-{month:02}-{day:02}"


def _read_date(text: str) -> bytes:
    return _DATE.pack(*map(int, _matched(_DATE_TEXT, text)))


def _show_int(payload: bytes) -> str:
    return str(int.from_bytes(payload, "big", signed=True))


def _read_int(text: str) -> bytes:
    value = int(text)
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _matched(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError("not a text of this format")
    return found.groups()


SHOWN: Final[dict[int, tuple[str, Callable[[bytes], Any]]]] = {
    ext.INT: ("$int", _show_int),
    ext.DATETIME: ("$datetime", _show_datetime),
    ext.DATE: ("$date", _show_date),
    ext.TIME: ("$time", _show_time),
    ext.TIMEDELTA: ("$timedelta", lambda payload: list(_TIMEDELTA.unpack(payload))),
    ext.UUID_: ("$uuid", lambda payload: str(UUID(bytes=payload))),
    ext.DECIMAL: ("$decimal", lambda payload: payload.decode("ascii")),
}
"""By code: the name, and the function that shows a payload. It may raise ValueError, TypeError or struct.error."""

READ: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "$int": (ext.INT, _read_int),
    "$datetime": (ext.DATETIME, _read_datetime),
    "$date": (ext.DATE, _read_date),
    "$time": (ext.TIME, _read_time),
    "$timedelta": (ext.TIMEDELTA, lambda held: _TIMEDELTA.pack(*held)),
    "$uuid": (ext.UUID_, lambda held: UUID(held).bytes),
    "$decimal": (ext.DECIMAL, lambda held: held.encode("ascii")),
}
"""By name: the code, and the function that reads a payload. It raises the same errors."""
