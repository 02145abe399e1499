"""Records and states as data for JSON: what that does not have is spelled out, so that every state can be written.

bytes are {"$bytes": base64}; dates and times texts of ISO 8601; decimals, UUIDs and numbers that are none (NaN) texts;
ints of more digits than Python converts (4,300) hexadecimal texts; sets sorted lists; keys that are no texts as Python
writes them. Durations are seconds. What is lost is {"$lost": why}.
"""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from typing import Any, Final

import msgspec

from holdfast.looking.tree import shown
from holdfast.threads.diff import ABSENT
from holdfast.types import NOT_LOADED, Lost

_BITS: Final = 2000  # with no more of them, an int has fewer digits than any limit that Python can be given


def data_of(value: Any) -> Any:
    """A record, or a state, as dicts, lists, texts, numbers, booleans and None; without states that were not loaded."""
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
    if isinstance(value, Lost):
        return {"$lost": value.why}
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: data_of(item) for name, item in fields if item is not NOT_LOADED and item is not ABSENT}
    return _spelled(value)


def _number(value: int) -> int | str:
    """An int, or a text of it where JSON could not be written, nor be read by most programs."""
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
