"""Colours and text widths for the terminal; honours NO_COLOR, FORCE_COLOR and COLUMNS."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from typing import Final, Literal

Colour = Literal["bold", "dim", "red", "green", "yellow", "blue", "magenta", "cyan"]

_CODES: Final[dict[Colour, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
STANDINGS: Final[dict[str, Colour]] = {
    "running": "green",
    "completed": "dim",
    "waiting": "cyan",
    "in doubt": "yellow",
    "interrupted": "red",
    "released": "red",
    "failed": "red",
    "dead": "red",
    "halted": "magenta",
    "queued": "blue",
}
_PLAIN: Final = "\x1b[0m"
_COLOURS: Final = re.compile(r"(\x1b\[\d+m)")  # added by `painted`; stored text is escaped before
_WIDEST: Final = 1 << 20


def is_coloured() -> bool:
    """Whether to write colours: stdout is a terminal that shows them, and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout is not None and sys.stdout.isatty())


def painted(text: str, colour: Colour | None) -> str:
    """Return text in a colour, or unchanged if colours are off."""
    return text if colour is None or not text or not is_coloured() else f"\x1b[{_CODES[colour]}m{text}{_PLAIN}"


def columns() -> int:
    """Return the width to write in: $COLUMNS, else the terminal's; practically unlimited for a pipe."""
    return shutil.get_terminal_size((_WIDEST, 24)).columns or _WIDEST


def cells(text: str) -> int:
    """Return how many columns a text takes, not counting colour codes."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if text.isascii():
        return len(text)
    return sum(_cells(each) for each in text)


def cut(text: str, width: int) -> str:
    """Cut a text to `width` columns, keeping its colours."""
    if cells(text) <= width:
        return text
    room = width - 1
    kept: list[str] = []
    for at, part in enumerate(_COLOURS.split(text)):
        if at % 2:
            kept.append(part)
            continue
        for each in part:
            room -= _cells(each)
            if room < 0:
                colour = next((each for each in reversed(kept) if each.startswith("\x1b")), _PLAIN)
                return f"{''.join(kept)}…{'' if colour == _PLAIN else _PLAIN}" if width > 0 else ""
            kept.append(each)
    return "".join(kept)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
