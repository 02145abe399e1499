"""How records are spelled before they are sealed, and how what is sealed is shown where only a text can stand."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.crypto.sealing import Seal, key_id
from holdfast.errors import Damaged, NotEncrypted
from holdfast.records import UNREADABLE

S = TypeVar("S", bound=msgspec.Struct)

# What begins a text that is sealed: no text that a store is given in clear starts so.
_TEXT: Final = "\x01sealed:"

_MIN: Final = -(1 << 63)
_MAX: Final = (1 << 64) - 1

_encode = msgspec.msgpack.Encoder().encode


def encode(value: object) -> bytes:
    """`Damaged` for numbers that no store takes: they are from one that somebody forged."""
    try:
        return _encode(value)
    except OverflowError as error:
        raise Damaged("a record holds a number that is none of ours") from error


# -- texts in fields that hold nothing else --------------------------------------------------------------------------


def shown(sealed: bytes) -> str:
    return _TEXT + base64.b64encode(sealed).decode()


def hidden(text: str, seal: Seal, place: bytes) -> bytes:
    if not text.startswith(_TEXT):
        raise NotEncrypted("the store holds a text that is not encrypted, which is refused with a cipher")
    try:
        sealed = base64.b64decode(text[len(_TEXT) :], validate=True)
    except ValueError as error:
        raise Damaged("an encrypted text cannot be read") from error
    if key_id(sealed) != seal.id:
        raise Damaged("an encrypted text was put in another one's place")
    return seal.open(sealed, place)


# -- structs ---------------------------------------------------------------------------------------------------------

_PLAIN: Final = b"\0"
_ESCAPED: Final = b"\1"


def packed(said: msgspec.Struct) -> bytes:
    try:
        return _PLAIN + encode(said)
    except UnicodeEncodeError:
        # Lone surrogates, as in the message of an error that names a file: rare, so only they pay for it.
        return _ESCAPED + encode(_each_text(said, _escape))


def unpacked(packed: bytes, decode: Callable[[bytes], S]) -> S:
    try:
        said = decode(packed[1:])
        return _each_text(said, _unescape) if packed[:1] == _ESCAPED else said
    except UNREADABLE as error:
        raise Damaged("an encrypted record cannot be read") from error


def _each_text(said: S, change: Callable[[str], str]) -> S:
    texts = {name: change(value) for name in said.__struct_fields__ if isinstance(value := getattr(said, name), str)}
    return replace(said, **texts)


def _escape(text: str) -> str:
    return utf8(text).decode("latin-1")


def _unescape(text: str) -> str:
    return text_of(text.encode("latin-1"))


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


# -- what is in clear ------------------------------------------------------------------------------------------------


def clear_fields(kind: type[msgspec.Struct], *without: str) -> tuple[tuple[str, Any], ...]:
    fields = msgspec.structs.fields(kind)
    return tuple([(field.name, field.default) for field in fields if field.name not in without])


def clear(row: msgspec.Struct, fields: tuple[tuple[str, Any], ...]) -> bytes:
    """The fields that are not as they are by default: one that comes to be later leaves older records as they are."""
    said = [(name, _spelled(value)) for name, default in fields if (value := getattr(row, name)) != default]
    return encode(said)


def _spelled(value: object) -> object:
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, int) and not _MIN <= value <= _MAX:
        return b"%d" % value  # the store is to refuse it
    if isinstance(value, msgspec.Struct):
        return [_spelled(each) for each in msgspec.structs.astuple(value)]
    return value
