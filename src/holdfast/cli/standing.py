"""The status of a thread as text and colour."""

from __future__ import annotations

from holdfast.cli.paint import STANDINGS, Colour

_SAVED = "saved"


def stands(standing: str, *, has_run: bool) -> str:
    """Return the status of a run; for a thread without a run, "saved" and the status given to its last save."""
    if has_run:
        return standing
    return _SAVED if standing == "running" else f"{_SAVED} as {standing}"


def colour_of(standing: str) -> Colour | None:
    """Return the colour of a status from `stands`; a remark in brackets after it is ignored."""
    return "dim" if standing.startswith(_SAVED) else STANDINGS.get(standing.partition(" (")[0])
