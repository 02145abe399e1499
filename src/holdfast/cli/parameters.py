"""Values of parameters: counts, durations, addresses and JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from holdfast.errors import Damaged, InvalidArgument

APP: Final = "names your handlers, as module:attribute, like app:handlers"
FORM: Final = "JSON, @FILE to read a file, or - to read stdin"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def count(least: int = 0, most: int | None = None) -> Callable[[Any], int]:
    """Return a type: a whole number between two limits."""

    def convert(value: Any) -> int:
        text = str(value)
        is_number = text.isascii() and text.isdecimal() and len(text) <= 15
        if not is_number or not least <= int(text) <= (int(text) if most is None else most):
            limits = f", {least} or more" if most is None else f" from {least} to {most}"
            raise click.BadParameter(f"{text!r} is not a whole number{limits}")
        return int(text)

    return convert


def duration(value: Any) -> float:
    """Parse a duration in seconds, written as 90, 90s, 45m, 12h, 30d or 2w."""
    found = _DURATION.fullmatch(str(value))
    if found is None or not (seconds := float(found[1]) * _SECONDS[found[2]]) < 1e12:
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 45m, 12h, 30d or 2w")
    return seconds


def seconds(least: float, most: float) -> Callable[[Any], float]:
    """Return a type: a number of seconds between two limits."""

    def convert(value: Any) -> float:
        try:
            number = float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number of seconds") from None
        if not least <= number <= most:
            raise click.BadParameter(f"{value!r} is not a number of seconds from {least:g} to {most:g}")
        return number

    return convert


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise click.BadParameter(f"{text!r} is not HOST:PORT, like 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


# -- JSON values -------------------------------------------------------------------------------------------------------


def value_in(text: str, what: str) -> Any:
    """Parse a value in the form that `FORM` describes. Raises InvalidArgument if it is not JSON."""
    if text == "-":
        return _parsed(_stdin(what), what)
    if text.startswith("@"):
        return value_in_file(text[1:], what)
    return _parsed(text.encode("utf-8", "surrogateescape"), what, hint=text)


def value_in_file(path: str, what: str) -> Any:
    """Read the value in a file; "-" is stdin."""
    if path == "-":
        return _parsed(_stdin(what), what)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidArgument(f"{what}: cannot read {path} ({error.strerror})") from error
    return _parsed(data, f"{what} in {path}")


def _stdin(what: str) -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidArgument(f"{what}: stdin is a terminal or closed; pipe the JSON to it")
    return sys.stdin.buffer.read()


def _parsed(data: bytes, what: str, hint: str | None = None) -> Any:
    import json  # noqa: PLC0415 - most commands take no values

    from holdfast.codec import msgpack  # noqa: PLC0415
    from holdfast.codec.jsontext import from_text  # noqa: PLC0415

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
            f"{what} holds an invalid $ form, a number that is too large, or NaN. "
            "docs/reference/format.md describes the forms."
        ) from None


def _is_word(text: str) -> bool:
    return text.isprintable() and '"' not in text and "'" not in text and len(text) <= 60
