"""How a thread stands, in a word or two and a colour."""

from __future__ import annotations

from holdfast.cli.paint import STANDINGS, Colour

_SAVED = "saved"


def stands(standing: str, *, has_run: bool) -> str:
    """What a run is doing; of a thread that has none, what was said when it was saved: nothing goes on there."""
    if has_run:
        return standing
    return _SAVED if standing == "running" else f"{_SAVED} as {standing}"


def colour_of(standing: str) -> Colour | None:
    """The colour of what `stands` gives, with or without something in brackets after it."""
    return "dim" if standing.startswith(_SAVED) else STANDINGS.get(standing.partition(" (")[0])
