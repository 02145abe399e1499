"""Checks of arguments: texts, counts, and numbers of seconds."""

from __future__ import annotations

import math
from typing import Final, TypeGuard

from holdfast.codec import msgpack
from holdfast.errors import InvalidArgument, Unsupported

_MOST_SECONDS: Final = 100 * 366 * 86_400


def checked_text(what: str, text: object, nothing: str = "") -> str:
    """A non-empty string. `nothing` ends the message of the error, such as "; nothing was changed"."""
    if type(text) is not str or not text:
        raise InvalidArgument(f"{what} must be a non-empty string{nothing}")
    return text


def checked_count(name: str, count: object) -> int:
    """A number of processes, attempts or the like."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidArgument(f"{name} must be a whole number, 1 or more")
    return count


def checked_seconds(name: str, seconds: object) -> float:
    """A number of seconds that a deadline can be computed from."""
    if not is_number(seconds, 0, _MOST_SECONDS):
        raise InvalidArgument(f"{name} must be a number of seconds, from 0 to 100 years")
    return float(seconds)


def is_number(value: object, least: float, most: float = math.inf) -> TypeGuard[float]:
    """Whether a value is a finite int or float from `least` to `most`, and not of a class derived from these."""
    if not isinstance(value, int | float) or type(value) not in (int, float):
        return False
    return least <= value <= most and value < math.inf


def check_value(what: str, value: object) -> None:
    """Unsupported, with the place in `what`, if a value that is not a state cannot be stored."""
    try:
        msgpack.check(value, is_state=False)
    except Unsupported as refused:
        problem = f"{refused.problem}; nothing was stored"
        raise Unsupported(f"{what}{refused.path[1:]}", problem, refused.undeclared) from None
