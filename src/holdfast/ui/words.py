"""Format numbers, sizes, money, times and statuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from holdfast.ui.html import Html, tag

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_STEP: Final = 1000


def count(number: int) -> str:
    """Format a number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u2009")


def short(number: float) -> str:
    """Format a number in at most five characters: 950, 12.3k, 4.5M."""
    for unit in ("", "k", "M", "G"):
        if abs(number) < _STEP or unit == "G":
            digits = f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"
            return f"{digits}{unit}"
        number /= _STEP
    raise AssertionError


def size(number: float) -> str:
    """Format a number of bytes."""
    for unit in _UNITS:
        if abs(number) < _STEP or unit == _UNITS[-1]:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= _STEP
    raise AssertionError


def money(cost: float, currency: str = "USD") -> str:
    """Format a cost; "" for 0."""
    if not cost:
        return ""
    amount = f"{cost:,.2f}" if cost >= 0.01 else f"{cost:.6f}".rstrip("0")
    return f"${amount}" if currency == "USD" else f"{amount} {currency}"


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds < 0.001:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    if seconds < 48 * 3600:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    return f"{seconds / 86400:.0f} days"


def age(seconds: float) -> str:
    """Format an age in one unit."""
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (86400 * 365, 86400, "d")):
        if seconds < limit:
            return f"{max(seconds, 0) / unit:.0f} {name}"
    return f"{seconds / 86400 / 365:.1f} y"


def ago(moment: datetime, now: datetime | None = None) -> Html:
    """Return the age of a time, with the exact time as a tooltip."""
    passed = ((now or datetime.now(UTC)) - moment).total_seconds()
    exact = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return tag("time", age(passed), datetime=moment.astimezone(UTC).isoformat(), title=exact, data_age=True)


def plural(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


def chip(status: str) -> Html:
    """Return the status of a run or a call as a coloured chip."""
    return tag("span", status, class_=f"chip {status.replace(' ', '-')}")


def standing(status: str, *, has_run: bool) -> Html:
    """Return the status of a thread as a chip. Without a run it has no colour: nothing is running."""
    if has_run:
        return chip(status)
    return tag("span", "saved" if status == "running" else status, class_="chip", title="this thread has no run")
