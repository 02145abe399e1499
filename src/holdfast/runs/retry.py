"""Retry: how often a failed call of a tool or a model is made again, and after which pauses."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from holdfast.errors import InvalidArgument

_MOST_TIMES: Final = 1_000
_MOST_SECONDS: Final = 30 * 86_400


class Retry(msgspec.Struct, frozen=True):
    """Make a failed call again up to `times` times, if its error is one of the classes `on`.

    The first pause takes `first` seconds, each further one `factor` times as long, at most `limit` seconds. Each pause
    is shortened by up to half, depending on the call, so that runs that failed together do not retry together.

    >>> Retry(3, first=1, factor=2, limit=60, on=ConnectionError).pauses()
    [1.0, 2.0, 4.0]
    """

    times: int
    first: float = 1.0
    factor: float = 2.0
    limit: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        if type(self.times) is not int or not 1 <= self.times <= _MOST_TIMES:
            raise InvalidArgument(f"Retry: times must be a whole number from 1 to {_MOST_TIMES}")
        if not _is_number(self.first) or not 0 <= self.first <= _MOST_SECONDS:
            raise InvalidArgument("Retry: first must be seconds, from 0 to 30 days")
        if not _is_number(self.factor) or not 1 <= self.factor < math.inf:
            raise InvalidArgument("Retry: factor must be a number, 1 or more")
        if not _is_number(self.limit) or not self.first <= self.limit <= _MOST_SECONDS:
            raise InvalidArgument("Retry: limit must be seconds, from `first` to 30 days")
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        if not classes or not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
            raise InvalidArgument("Retry: on must be an exception class, or a tuple of them")

    def pauses(self) -> list[float]:
        """The longest pause before each retry, in seconds."""
        return [self._longest(tries) for tries in range(1, self.times + 1)]

    def pause(self, tries: int, spread: float) -> float:
        """The pause after so many tries have failed. `spread`, from 0 to 1: at 1 it is half as long."""
        return self._longest(tries) * (1 - spread / 2)

    def _longest(self, tries: int) -> float:
        try:
            return float(min(self.first * self.factor ** (tries - 1), self.limit))
        except OverflowError:
            return float(self.limit)


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def checked_retry(retry: object) -> Retry | None:
    """A retry policy, or None; InvalidArgument for anything else."""
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidArgument("retry must be a holdfast.Retry, like Retry(3, first=1.0)")
    return retry
