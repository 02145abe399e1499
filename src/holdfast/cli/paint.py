"""Colour and width of what is written to stdout: as the terminal, NO_COLOR and COLUMNS say."""

from __future__ import annotations

import os
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
    "failed": "red",
    "dead": "red",
    "halted": "magenta",
    "queued": "blue",
}
_WIDEST: Final = 1 << 20


def is_coloured() -> bool:
    """Whether stdout is a terminal that shows colours, and nobody forbids them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def painted(text: str, colour: Colour | None) -> str:
    """A text in a colour, where that is shown."""
    return text if colour is None or not text or not is_coloured() else f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def columns() -> int:
    """How many columns there are: $COLUMNS, else those of the terminal; into a pipe, as many as it takes."""
    return shutil.get_terminal_size((_WIDEST, 24)).columns or _WIDEST


def cells(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(each) for each in text)


def cut(text: str, width: int) -> str:
    """A text in at most so many columns."""
    if cells(text) <= width:
        return text
    room = width - 1
    kept: list[str] = []
    for each in text:
        room -= _cells(each)
        if room < 0:
            break
        kept.append(each)
    return f"{''.join(kept)}…" if width > 0 else ""


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
