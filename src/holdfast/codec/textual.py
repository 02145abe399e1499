"""Extensions that hold no other values, in words: dates, times, numbers. From payload to text and back, structurally.

No datetime is built on the way: a time zone that this machine does not know is text like any other. What a text does
not say (a fold, the name of a fixed offset) has no text here, and is shown as an extension in base64.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from holdfast.codec import extension as ext

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
    raise ValueError("a zone without a text")


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
        raise ValueError("not a text of ours")
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
"""By code: the name, and what shows a payload. Either may raise ValueError, TypeError or struct.error."""

READ: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "$int": (ext.INT, _read_int),
    "$datetime": (ext.DATETIME, _read_datetime),
    "$date": (ext.DATE, _read_date),
    "$time": (ext.TIME, _read_time),
    "$timedelta": (ext.TIMEDELTA, lambda held: _TIMEDELTA.pack(*held)),
    "$uuid": (ext.UUID_, lambda held: UUID(held).bytes),
    "$decimal": (ext.DECIMAL, lambda held: held.encode("ascii")),
}
"""The way back, by name."""
