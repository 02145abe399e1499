"""JSON values on the command line: given directly, in a file, or on stdin."""

from __future__ import annotations

import json
import sys
from typing import Any

from holdfast.codec import msgpack
from holdfast.codec.jsontext import from_text
from holdfast.errors import Damaged, InvalidArgument

FORM = "JSON, @FILE to read a file, or - to read stdin"


def given(text: str, what: str) -> Any:
    """Parse a value in the form that `FORM` describes. Raises InvalidArgument if it is not JSON."""
    if text == "-":
        return _read(_stdin(what), what)
    if text.startswith("@"):
        return in_file(text[1:], what)
    return _read(text.encode("utf-8", "surrogateescape"), what, hint=text)


def in_file(path: str, what: str) -> Any:
    """Read the value in a file; "-" is stdin."""
    if path == "-":
        return _read(_stdin(what), what)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidArgument(f"{what}: cannot read {path} ({error.strerror})") from error
    return _read(data, f"{what} in {path}")


def _stdin(what: str) -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidArgument(f"{what}: stdin is a terminal or closed; pipe the JSON to it")
    return sys.stdin.buffer.read()


def _read(data: bytes, what: str, hint: str | None = None) -> Any:
    try:
        json.loads(data)
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deeply") from None
    except ValueError as error:
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        quoted = "" if hint is None or not _is_word(hint) else f"; write a string as '\"{hint}\"'"
        raise InvalidArgument(f"{what} is not JSON{place}{quoted}") from None
    try:
        # Also accept the $ forms that a directory store uses for values that JSON cannot express.
        return msgpack.decode(from_text(data.strip()))
    except Damaged:
        raise InvalidArgument(
            f"{what} holds an invalid $ form, a number that is too large, or NaN; docs/format.md describes the forms"
        ) from None


def _is_word(text: str) -> bool:
    return text.isprintable() and '"' not in text and "'" not in text and len(text) <= 60
