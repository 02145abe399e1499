"""Texts: names quoted for messages, and strings that UTF-8 cannot express."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def quoted(name: str) -> str:
    """A name for a message: in quotes, with control and bidi characters escaped, and cut off after 80 characters."""
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")


# -- lone surrogates --------------------------------------------------------------------------------------------------
# A str may hold half of a surrogate pair, for example in an error that names a file. Encoders refuse it. It is rare, so
# only records that hold one are escaped: each of their texts becomes its UTF-8 bytes, one character per byte.


def to_utf8(text: str) -> bytes:
    """The bytes of any str. A lone surrogate is encoded like any other code point."""
    return text.encode("utf-8", "surrogatepass")


def from_utf8(data: bytes) -> str:
    """The str that `to_utf8` encoded. Raises UnicodeDecodeError for other bytes."""
    return data.decode("utf-8", "surrogatepass")


def escaped(record: T) -> T:
    """A record, dict or list with every text in it escaped."""
    result: T = _each_text(record, lambda text: to_utf8(text).decode("latin-1"))
    return result


def unescaped(record: T) -> T:
    """Undo `escaped`. Raises UnicodeError if a text is not escaped."""
    result: T = _each_text(record, lambda text: from_utf8(text.encode("latin-1")))
    return result


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: _each_text(getattr(value, name), change) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, dict):
        return {key: _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_each_text(item, change) for item in value)
    return value
