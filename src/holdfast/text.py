"""Texts: quoted and printable text, amounts, ages, money and plurals, and strings that UTF-8 cannot express."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_SPANS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_DECADE: Final = 10


def quoted(name: str) -> str:
    """A name for a message: in quotes, with control and bidi characters escaped, and cut off after 80 characters."""
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known words closest to a word, best first; empty if none is close."""
    import difflib  # noqa: PLC0415 - needed only after a typing error

    return difflib.get_close_matches(word, list(known), n=most)


# -- printable text ---------------------------------------------------------------------------------------------------
# A terminal or a browser would interpret these characters instead of showing them.

# Control characters, invisible and bidirectional formatting, line separators, surrogates and tag characters.
_UNPRINTABLE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_KEPT_IN_TEXT: Final = "\n\t"


def line(text: str) -> str:
    """A text in one line. Control characters, newlines and tabs are escaped."""
    return _UNPRINTABLE.sub(_spelled, text)


def lines(text: str) -> list[str]:
    """The lines of a text. A tab becomes four spaces."""
    return [line(each.replace("\t", "    ")) for each in text.replace("\r\n", "\n").split("\n")]


def block(text: str) -> str:
    """A text in which control characters are escaped, but not newlines and tabs."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in _KEPT_IN_TEXT else _spelled(found), text)


def shortened(text: str, width: int) -> str:
    """At most `width` characters of a text, in one line."""
    shown = line(text[: width + 1])
    return shown if len(shown) <= width and len(text) <= width else f"{shown[: max(width - 1, 0)]}…"


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


# -- amounts ----------------------------------------------------------------------------------------------------------


def counted(number: int, what: str) -> str:
    """A number and its noun, in the plural unless it is 1: 1 entry, 2 entries, 1,000 calls."""
    if number == 1:
        return f"1 {what}"
    plural = f"{what[:-1]}ies" if what.endswith("ry") else f"{what}s"
    return f"{number:,} {plural}"


def now() -> float:
    """The current time in seconds since 1970."""
    return time.time()


def age(moment: datetime) -> str:
    """How long ago a time was: 5s, 12m, 3h, 40d."""
    return span(max(now() - moment.timestamp(), 0.0))


def span(seconds: float) -> str:
    """A duration in one unit; below a second, in milliseconds."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.001 or not seconds else "<1ms"
    size, unit = next((each for each in _SPANS if seconds >= each[0]), _SPANS[-1])
    amount = seconds / size
    return f"{amount:.1f}{unit}" if unit == "s" and amount < _DECADE else f"{int(amount)}{unit}"


def sized(count: int) -> str:
    """A number of bytes: 812 B, 4.2 kB, 17 MB."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= _DECADE else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{count} B"


def money(cost: float | None, currency: str) -> str:
    """A cost; "" for None."""
    if cost is None:
        return ""
    amount = f"{cost:.2f}" if cost >= 1 else f"{cost:.4f}"
    return f"${amount}" if currency == "USD" else f"{amount} {currency}"


def stamp(moment: datetime) -> str:
    """A UTC time as date and time."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


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
