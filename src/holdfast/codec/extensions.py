"""Extensions for value types that msgpack lacks. The table below is the stored format: codes are never reused.

| code | type | payload |
|---|---|---|
| 1 | dict with a key that is not a plain str | a list: key, value, key, value … in the order of the dict |
| 2 | tuple | a list |
| 3 | set | a list, ordered by the bytes of the elements |
| 4 | frozenset | the same |
| 5 | int beyond 64 bits | two's complement, big-endian, shortest |
| 6 | str with lone surrogates | UTF-8, surrogates encoded like any other code point |
| 7 | datetime | year 2 bytes, month, day, hour, minute, second 1 each, microsecond 4, flags 1, zone |
| 8 | date | year 2, month 1, day 1 |
| 9 | time | hour, minute, second 1 each, microsecond 4, flags 1, zone |
| 10 | timedelta | days 4 (signed), seconds 4, microseconds 4 |
| 11 | UUID | its 16 bytes |
| 12 | Decimal | its digits as text |
| 13-31 | kept free for value types | |
| 64-127 | used by `holdfast.delta`, never in plain data | |

Flags: bit 0 is fold, the rest is the kind of zone: 0 none (naive), 1 UTC, 2 a fixed offset (microseconds, 8 bytes,
signed), 3 the same followed by its name in UTF-8, 4 the key of a `ZoneInfo`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from operator import methodcaller
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from ormsgpack import Ext

from holdfast.text import from_utf8, to_utf8

DICT: Final = 1
TUPLE: Final = 2
SET: Final = 3
FROZENSET: Final = 4
INT: Final = 5
STR: Final = 6
DATETIME: Final = 7
DATE: Final = 8
TIME: Final = 9
TIMEDELTA: Final = 10
UUID_: Final = 11
DECIMAL: Final = 12

FIRST_RESERVED: Final = 64
"""Codes from here on belong to `holdfast.delta`."""

CONTAINERS: Final = frozenset({DICT, TUPLE, SET, FROZENSET})
"""Extensions whose payload is encoded values."""

_NAIVE: Final = 0
_UTC: Final = 1
_FIXED: Final = 2
_NAMED: Final = 3
_ZONE: Final = 4

_DATETIME: Final = struct.Struct(">HBBBBBIB")
_DATE: Final = struct.Struct(">HBB")
_TIME: Final = struct.Struct(">BBBIB")
_TIMEDELTA: Final = struct.Struct(">iII")
_OFFSET: Final = struct.Struct(">q")
_timezone_arguments: Final = methodcaller("__getinitargs__")
_MICROSECOND: Final = timedelta(microseconds=1)

# `ZoneInfo(key)` opens a file and may import a data package, both named by the key. Only relative names of plain words
# are accepted.
_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*", re.ASCII)

# str(Decimal) and Decimal(str) depend on the thread's current context (letter case, traps). The stored form must not.
_CONTEXT: Final = Context(capitals=1, traps=[InvalidOperation])


def zone_problem(zone: tzinfo | None) -> str | None:
    """The reason why a datetime or time in this zone cannot be stored; None if it can be."""
    if zone is None or type(zone) is timezone:
        return None
    if type(zone) is ZoneInfo:
        # Decoding uses ZoneInfo(key). A zone made from a file (its key may be None) or without the cache may have other
        # rules, and zones compare by identity.
        key = zone.key
        if _ZONE_KEY.fullmatch(key or "") and _known_zone(key) is zone:
            return None
        return "its ZoneInfo is not the object that ZoneInfo(key) returns"
    return (
        f"its time zone is a {type(zone).__module__}.{type(zone).__qualname__}; "
        "use timezone.utc, a fixed datetime.timezone or zoneinfo.ZoneInfo"
    )


def _known_zone(key: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):  # the name is unknown here, or its file is not a zone
        return None


def _pack_zone(zone: tzinfo | None) -> tuple[int, bytes]:
    if zone is None:
        return _NAIVE, b""
    if zone is UTC:
        return _UTC << 1, b""
    if type(zone) is timezone:
        # tzname() invents a name if none was given, so it does not show whether there was one.
        offset, *name = _timezone_arguments(zone)
        packed = _OFFSET.pack(offset // _MICROSECOND)
        return (_NAMED << 1, packed + to_utf8(name[0])) if name else (_FIXED << 1, packed)
    if type(zone) is ZoneInfo and zone_problem(zone) is None:
        return _ZONE << 1, zone.key.encode()
    raise TypeError("a time zone that cannot be stored")


def _unpack_zone(kind: int, data: bytes) -> tzinfo | None:
    if kind == _ZONE:
        key = data.decode("ascii")
        if not _ZONE_KEY.fullmatch(key):
            raise ValueError("not the name of a time zone")
        return ZoneInfo(key)
    if kind == _NAMED or (kind == _FIXED and len(data) == 8):
        offset = timedelta(microseconds=_OFFSET.unpack_from(data)[0])
        return timezone(offset, from_utf8(data[8:])) if kind == _NAMED else timezone(offset)
    if data or kind not in (_NAIVE, _UTC):
        raise ValueError("not a time zone")
    return UTC if kind == _UTC else None


def _pack_datetime(value: datetime) -> Ext:
    flags, zone = _pack_zone(value.tzinfo)
    return Ext(
        DATETIME,
        _DATETIME.pack(
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond,
            flags | value.fold,
        )
        + zone,
    )


def _unpack_datetime(data: bytes) -> datetime:
    year, month, day, hour, minute, second, microsecond, flags = _DATETIME.unpack_from(data)
    zone = _unpack_zone(flags >> 1, data[_DATETIME.size :])
    return datetime(year, month, day, hour, minute, second, microsecond, zone, fold=flags & 1)


def _pack_time(value: time) -> Ext:
    flags, zone = _pack_zone(value.tzinfo)
    fields = _TIME.pack(value.hour, value.minute, value.second, value.microsecond, flags | value.fold)
    return Ext(TIME, fields + zone)


def _unpack_time(data: bytes) -> time:
    hour, minute, second, microsecond, flags = _TIME.unpack_from(data)
    zone = _unpack_zone(flags >> 1, data[_TIME.size :])
    return time(hour, minute, second, microsecond, zone, fold=flags & 1)


def _pack_int(value: int) -> Ext:
    return Ext(INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _unpack_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def pack_surrogates(value: str) -> Ext:
    """A str that is not valid UTF-8."""
    return Ext(STR, to_utf8(value))


def _unpack_surrogates(data: bytes) -> str:
    return from_utf8(data)


def _pack_date(value: date) -> Ext:
    return Ext(DATE, _DATE.pack(value.year, value.month, value.day))


def _unpack_date(data: bytes) -> date:
    return date(*_DATE.unpack(data))


def _pack_timedelta(value: timedelta) -> Ext:
    return Ext(TIMEDELTA, _TIMEDELTA.pack(value.days, value.seconds, value.microseconds))


def _unpack_timedelta(data: bytes) -> timedelta:
    return timedelta(*_TIMEDELTA.unpack(data))


def _pack_uuid(value: UUID) -> Ext:
    return Ext(UUID_, value.bytes)


def _unpack_uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


def _pack_decimal(value: Decimal) -> Ext:
    return Ext(DECIMAL, _CONTEXT.to_sci_string(value).encode())


def _unpack_decimal(data: bytes) -> Decimal:
    text = data.decode("ascii")
    value = Decimal(text, _CONTEXT)
    # Decimal() accepts more spellings (spaces, underscores) than are ever written.
    if _CONTEXT.to_sci_string(value) != text:
        raise ValueError("not a decimal")
    return value


PACK: Final[dict[type, Callable[[Any], Ext]]] = {
    int: _pack_int,
    datetime: _pack_datetime,
    date: _pack_date,
    time: _pack_time,
    timedelta: _pack_timedelta,
    UUID: _pack_uuid,
    Decimal: _pack_decimal,
}
"""Encoders of types that hold no other values, by exact type. An int gets here only if it is beyond 64 bits."""

UNPACK: Final[dict[int, Callable[[bytes], Any]]] = {
    INT: _unpack_int,
    STR: _unpack_surrogates,
    DATETIME: _unpack_datetime,
    DATE: _unpack_date,
    TIME: _unpack_time,
    TIMEDELTA: _unpack_timedelta,
    UUID_: _unpack_uuid,
    DECIMAL: _unpack_decimal,
}
"""Decoders, by code."""

MALFORMED: Final = (
    ValueError,
    TypeError,
    ArithmeticError,
    struct.error,
    RecursionError,
    # ZoneInfo: no such zone, a folder of zones, a name that is not a module of the data package.
    KeyError,
    OSError,
    ImportError,
)
"""Errors that decoding malformed bytes raises."""
