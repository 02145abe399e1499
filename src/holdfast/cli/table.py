"""Text tables that fit the width of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.cli.paint import Colour, cells, columns, cut, painted

_GAP = "  "
_LEAST = 8  # a column is not shrunk below this width


class Column(NamedTuple):
    """A column of a table. If `shrinks`, it may be cut when the table is too wide."""

    title: str
    is_right: bool = False
    shrinks: bool = False
    colour: Callable[[str], Colour | None] | None = None


def table(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, titles first. Columns that are empty in every row are left out.

    If shrinking is not enough, lines are cut at the right.
    """
    kept = [at for at in range(len(heads)) if any(row[at] for row in rows) or not at]
    shown = [heads[at] for at in kept]
    texts = [[row[at] for at in kept] for row in rows]
    widths = [max([cells(head.title), *(cells(row[at]) for row in texts)]) for at, head in enumerate(shown)]
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - columns()
    shrinking = [at for at, head in enumerate(shown) if head.shrinks]
    while over > 0 and shrinking:
        widest = max(shrinking, key=lambda at: widths[at])
        if widths[widest] <= _LEAST:
            break
        # Shrink to the next widest first, so that no column is cut while another has more room.
        beside = max((widths[at] for at in shrinking if at != widest), default=0)
        less = min(over, max(widths[widest] - max(beside, _LEAST), 1))
        widths[widest] -= less
        over -= less
    lines = [_line(shown, widths, [head.title for head in shown], is_title=True)]
    lines += [_line(shown, widths, row) for row in texts]
    return lines


def _line(heads: Sequence[Column], widths: Sequence[int], row: Sequence[str], *, is_title: bool = False) -> str:
    parts: list[str] = []
    for at, (head, width) in enumerate(zip(heads, widths, strict=True)):
        text = cut(row[at], width)
        space = " " * (width - cells(text))
        colour: Colour | None = "bold" if is_title else None if head.colour is None else head.colour(row[at])
        is_last = at == len(heads) - 1
        shown = painted(text, colour)
        parts.append(space + shown if head.is_right else shown if is_last else shown + space)
    return cut(_GAP.join(parts).rstrip(), columns())
