"""Escape characters that a terminal or a browser would interpret instead of showing."""

from __future__ import annotations

import re
from typing import Final

# Control characters, invisible and bidirectional formatting, line separators, surrogates and tag characters.
_OBEYED: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_KEPT_IN_TEXT: Final = "\n\t"


def line(text: str) -> str:
    """Return a text in one line. Newlines and tabs are escaped too."""
    return _OBEYED.sub(_spelled, text)


def lines(text: str) -> list[str]:
    """Return the lines of a text. A tab becomes four spaces."""
    return [line(each.replace("\t", "    ")) for each in text.replace("\r\n", "\n").split("\n")]


def block(text: str) -> str:
    """Return a text with its newlines and tabs."""
    return _OBEYED.sub(lambda found: found[0] if found[0] in _KEPT_IN_TEXT else _spelled(found), text)


def shortened(text: str, width: int) -> str:
    """Return at most `width` characters of a text, in one line."""
    shown = line(text[: width + 1])
    return shown if len(shown) <= width and len(text) <= width else f"{shown[: max(width - 1, 0)]}…"


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
