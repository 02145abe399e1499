"""Convert records and states to JSON data.

Bytes become {"$bytes": base64}. Dates and times become ISO 8601 strings, durations seconds. Decimals, UUIDs, NaN and
infinities become strings; integers over 4,300 digits become hexadecimal strings. Sets become sorted lists. Keys that
are not strings are written as Python reprs. A lost value becomes {"$lost": reason}.
"""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from typing import Any, Final

import msgspec

from holdfast.inspect.tree import shown
from holdfast.types import ABSENT, NOT_LOADED, MissingValue

_BITS: Final = 2000  # integers up to this size can be converted whatever Python's digit limit is set to


def data_of(value: Any) -> Any:
    """Return a record or a state as JSON data. States that were not loaded are left out."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() <= _BITS else _number(value)
    if kind is str:
        return value.encode("utf-8", "backslashreplace").decode() if not value.isascii() else value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is dict:
        return {_key(key): data_of(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [data_of(item) for item in value]
    if kind is set or kind is frozenset:
        return [data_of(item) for item in sorted(value, key=shown)]
    if isinstance(value, MissingValue):
        return {"$lost": value.why}
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: data_of(item) for name, item in fields if item is not NOT_LOADED and item is not ABSENT}
    return _spelled(value)


def _number(value: int) -> int | str:
    """Return an integer, or its hexadecimal string if it has more digits than Python converts."""
    try:
        str(value)
    except ValueError:
        return hex(value)
    return value


def _spelled(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def _key(key: Any) -> str:
    return str(data_of(key)) if type(key) is str else shown(key)
