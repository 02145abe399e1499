"""Branches of a thread drawn next to its checkpoints, in the style of `git log --graph`."""

from __future__ import annotations

from holdfast.cli.paint import Colour, painted
from holdfast.looking.timeline import Step

_WIDEST = 12  # lanes; lanes further right are not drawn


def joint(step: Step) -> str | None:
    """Return the line above a checkpoint at which newer branches join, or None if none do."""
    joining = [lane for lane in step.joining if lane < _WIDEST]
    if not joining:
        return None
    drawn = _lanes({step.lane, *step.passing}, "|")
    for lane in joining:
        drawn = drawn.ljust(2 * lane)
        for at in range(2 * step.lane + 1, 2 * lane - 1):
            if drawn[at] == " ":
                drawn = f"{drawn[:at]}_{drawn[at + 1 :]}"
        drawn = f"{drawn[: 2 * lane - 1]}/{drawn[2 * lane :]}"
    return drawn


def lead(step: Step) -> str:
    """Return the prefix of a checkpoint's line: its dot, and the lanes that pass."""
    lanes = _lanes(set(step.passing), "|")
    at = 2 * min(step.lane, _WIDEST)
    dot = "@" if step.is_head else "*" if step.is_current else "o"
    lanes = lanes.ljust(at + 1)
    colour: Colour | None = "green" if step.is_head else None if step.is_current else "dim"
    return f"{lanes[:at]}{painted(dot, colour)}{lanes[at + 1 :]}"


def beside(step: Step, *, is_below: bool) -> str:
    """Return the prefix of extra lines about a checkpoint. Below it, its own lane continues if it has a parent."""
    own = {step.lane} if not is_below or step.parent else set()
    return _lanes({*step.passing, *own}, "|").ljust(2 * min(step.lane, _WIDEST) + 1)


def _lanes(lanes: set[int], drawn: str) -> str:
    shown = {lane for lane in lanes if lane < _WIDEST}
    return " ".join(drawn if lane in shown else " " for lane in range(max(shown) + 1)) if shown else ""
