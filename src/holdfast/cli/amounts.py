"""Format ages, durations, byte counts, numbers and money."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

_SPANS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_DECADE: Final = 10


def now() -> float:
    """Return the current time in seconds since 1970."""
    return time.time()


def age(moment: datetime) -> str:
    """Return how long ago a time was: 5s, 12m, 3h, 40d."""
    return span(max(now() - moment.timestamp(), 0.0))


def span(seconds: float) -> str:
    """Format a duration in one unit; below a second, in milliseconds."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.001 or not seconds else "<1ms"
    size, unit = next((each for each in _SPANS if seconds >= each[0]), _SPANS[-1])
    amount = seconds / size
    return f"{amount:.1f}{unit}" if unit == "s" and amount < _DECADE else f"{int(amount)}{unit}"


def sized(count: int) -> str:
    """Format a number of bytes: 812 B, 4.2 kB, 17 MB."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= _DECADE else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{count} B"


def grouped(count: int | None) -> str:
    """Format a number with thousands separators; "" for None."""
    return "" if count is None else f"{count:,}"


def money(cost: float | None, currency: str) -> str:
    """Format a cost; "" for None."""
    if cost is None:
        return ""
    amount = f"{cost:.2f}" if cost >= 1 else f"{cost:.4f}"
    return f"${amount}" if currency == "USD" else f"{amount} {currency}"


def stamp(moment: datetime) -> str:
    """Format a UTC time as date and time."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"
