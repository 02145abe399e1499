"""Comparison of times on a busy machine: alternating, many times, by medians."""

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
    """The results of each action, `rounds` times. The actions take turns, and each round starts with another.

    So a disturbance affects all of them, and no action always follows the same other one in the caches.
    """
    results: list[list[float]] = [[] for _ in actions]
    for i in range(rounds):
        for j in range(len(actions)):
            which = (i + j) % len(actions)
            results[which].append(actions[which]())
    return results


def timed(action: Callable[..., Any], *args: Any) -> float:
    """Seconds of one call, without the time to free its result."""
    begin = time.perf_counter()
    result = action(*args)
    seconds = time.perf_counter() - begin
    del result
    return seconds


def ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """The ratio of the medians, with the quartiles of the ratios of each round."""
    rounds = spread([a / b for a, b in zip(over, under, strict=True)])
    return Spread(rounds.low, statistics.median(over) / statistics.median(under), rounds.high)
