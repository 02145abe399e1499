"""Packed bytes as JSON text that a person can read, and back: for stores that keep text.

What JSON can say is written as it is. What it cannot say is an object of one key that begins with `$`:

| text | what it stands for |
|---|---|
| `{"$bytes": "…"}` | bytes, in base64 |
| `{"$packed": …}` | bytes that are themselves a packed list, dict or extension |
| `{"$float": "nan"}` | nan, inf, -inf |
| `{"$int": "…"}` | an int beyond 64 bits |
| `{"$tuple": […]}`, `{"$set": […]}`, `{"$frozenset": […]}` | what they say |
| `{"$dict": [[key, value], …]}` | a dict with a key that is no plain str |
| `{"$datetime": "…"}`, `{"$date": "…"}`, `{"$time": "…"}` | ISO 8601; `Z` is UTC, `[Europe/Berlin]` a zone's name |
| `{"$timedelta": [days, seconds, microseconds]}` | a timedelta |
| `{"$uuid": "…"}`, `{"$decimal": "…"}` | what they say |
| `$cell`, `$map`, `$series`, `$text`, `$binary`, `$any` | references of the state layer, with their payloads |
| `{"$ext": [code, "…"]}` | any other extension, in base64 |
| `{"$items": […]}` | not one value but several (or none), one behind the other |
| `{"$object": {…}}` | a dict whose one key begins with `$` |
| `{"$raw": "…"}` | bytes that are not packed, or not as we pack them, in base64 |

The bytes that come back are those that were given, whatever they were: each text is read again before it is used.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from ormsgpack import Ext, packb, unpackb

from holdfast.codec import extension as ext
from holdfast.codec.extension import MALFORMED
from holdfast.codec.framing import array_header
from holdfast.codec.textual import READ, SHOWN
from holdfast.errors import Damaged

REFERENCES: Final = {64: "$cell", 65: "$map", 66: "$series", 67: "$text", 68: "$binary", 69: "$any"}
"""The state layer's codes, in words: a skeleton is to be read as well."""

_CODES: Final = {name: code for code, name in REFERENCES.items()}
_LISTS: Final = {ext.TUPLE: "$tuple", ext.SET: "$set", ext.FROZENSET: "$frozenset"}
_LIST_CODES: Final = {name: code for code, name in _LISTS.items()}

# Bytes that begin like a list, a dict or an extension may be packed. Longer ones are not looked at.
_CONTAINER_HEADS: Final = frozenset([*range(0x80, 0xA0), 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9), *range(0xDC, 0xE0)])
_PACKED_MAX: Final = 1 << 20
_MOST_ITEMS: Final = 2  # a key and its value, in the log of a large dict
_QUOTE: Final = ord('"')
_PLAIN: Final = frozenset([str, int, bool, type(None)])  # as they are in JSON; floats are not all

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_WRONG: Final = (*MALFORMED, AttributeError, IndexError)


class _Extension(NamedTuple):
    code: int
    payload: bytes


def to_text(packed: bytes) -> bytes:
    """One line of JSON from which `from_text` makes the same bytes again."""
    try:
        text = _encode(unpackb(packed))
        # What json has no word for became something else (nan is null, bytes are base64), and so did what is repeated.
        if not _has_tag(text) and packb(_decode(text)) == packed:
            return text
    except _WRONG:
        pass  # extensions, or not a value at all
    return _carefully(packed)


def from_text(text: bytes) -> bytes:
    """The bytes. `Damaged` if it is not what `to_text` writes."""
    try:
        value = _decode(text)
        if not _has_tag(text):
            return packb(value)
        return _bytes_of(value)
    except _WRONG as error:
        raise Damaged("stored text is not a value") from error


def from_texts(texts: Sequence[bytes | memoryview]) -> list[bytes]:
    """As `from_text`, of each."""
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
    """Whether `"$` is in a text. A single byte is looked for many times faster than two, and this one is rare."""
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
        # Most are spelled as we spell them, in all their parts: then one look at the whole will do.
        for tries in (False, True):
            try:
                shown = [_shown(value, tries) for value in values]
                text = _encode(shown[0] if count == 1 else {"$items": shown})
                if _bytes_of(_decode(text)) == packed:
                    return text
            except _WRONG:
                continue
    return _encode({"$raw": b64encode(packed).decode()})


# -- to text ----------------------------------------------------------------------------------------------------------


def _shown(value: Any, tries: bool) -> Any:
    """What stands for a value. With `tries`, each part is read again, and in base64 where it comes back otherwise."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        shown = {key: item if type(item) in _PLAIN else _shown(item, tries) for key, item in value.items()}
        return {"$object": shown} if len(shown) == 1 and next(iter(shown)).startswith("$") else shown
    if kind is list:
        return [item if type(item) in _PLAIN else _shown(item, tries) for item in value]
    if kind is _Extension:
        return _shown_extension(value, tries)
    if kind is bytes:
        return _shown_bytes(value, tries)
    return {"$float": repr(value)} if kind is float and not math.isfinite(value) else value


def _shown_bytes(value: bytes, tries: bool) -> Any:
    if 1 < len(value) <= _PACKED_MAX and value[0] in _CONTAINER_HEADS:
        try:
            shown = _shown(unpackb(value, ext_hook=_Extension), tries)
            if not tries or packb(_read(shown)) == value:
                return {"$packed": shown}
        except _WRONG:
            pass  # only looked like it
    return {"$bytes": b64encode(value).decode()}


def _shown_extension(value: _Extension, tries: bool) -> Any:
    code, payload = value
    try:
        shown = _in_words(code, payload, tries)
        # Payloads that were never written by us have more than one spelling.
        if shown is not None and (not tries or packb(_read(shown)) == packb(Ext(code, payload))):
            return shown
    except _WRONG:
        pass
    return {"$ext": [code, b64encode(payload).decode()]}


def _in_words(code: int, payload: bytes, tries: bool) -> Any:
    if code in SHOWN:
        name, show = SHOWN[code]
        return {name: show(payload)}
    if code in _LISTS:
        return {_LISTS[code]: _shown(unpackb(payload, ext_hook=_Extension), tries)}
    if code == ext.DICT:
        flat = [_shown(item, tries) for item in unpackb(payload, ext_hook=_Extension)]
        return {"$dict": [[key, item] for key, item in zip(flat[::2], flat[1::2], strict=True)]}
    if code in REFERENCES:
        return {REFERENCES[code]: _shown(unpackb(payload, ext_hook=_Extension), tries)}
    return None


# -- from text --------------------------------------------------------------------------------------------------------


def _read(shown: Any) -> Any:
    if type(shown) is list:
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


class TextForm:
    """The transcoding as a store takes it (`holdfast.stores.directory.form.Form`)."""

    def to_text(self, packed: bytes) -> bytes:
        return to_text(packed)

    def from_text(self, text: bytes) -> bytes:
        return from_text(text)

    def from_texts(self, texts: Sequence[bytes | memoryview]) -> list[bytes]:
        return from_texts(texts)
