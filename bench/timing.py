"""Comparing times on a machine that does other things too: side by side, many times, by medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Spread(NamedTuple):
    """Median and quartiles."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, statistics.median(values), high)


def interleaved(rounds: int, *actions: Callable[[], float]) -> list[list[float]]:
    """What each action returns, `rounds` times. The actions take turns, and each round begins with another.

    A disturbance then meets all of them alike, and none always runs on what the same other left in the caches.
    """
    results: list[list[float]] = [[] for _ in actions]
    for i in range(rounds):
        for j in range(len(actions)):
            which = (i + j) % len(actions)
            results[which].append(actions[which]())
    return results


def timed(action: Callable[..., Any], *args: Any) -> float:
    """Seconds of one call. What it returns is freed outside the time."""
    begin = time.perf_counter()
    result = action(*args)
    seconds = time.perf_counter() - begin
    del result
    return seconds


def ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """The ratio of the medians, between the quartiles of the ratios of each round."""
    rounds = spread([a / b for a, b in zip(over, under, strict=True)])
    return Spread(rounds.low, statistics.median(over) / statistics.median(under), rounds.high)
