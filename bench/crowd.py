"""Number 6: reading from a store with very many threads."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import holdfast
from bench.plan import Plan
from bench.report import Number
from bench.text import Writer
from bench.timing import interleaved, ratio, spread, timed

_CHECKPOINTS = 10
_WRITERS = 4


class Crowd:
    """A store with many threads of ten small checkpoints each, read at random by a handle with an empty cache."""

    def __init__(self, path: Path, threads: int) -> None:
        self._rng = random.Random(threads)
        self._threads = threads
        begin = time.perf_counter()
        with holdfast.open(path, durability="off", base_bytes=1 << 20) as hf, ThreadPoolExecutor(_WRITERS) as pool:
            for work in [pool.submit(_fill, hf, range(first, threads, _WRITERS)) for first in range(_WRITERS)]:
                work.result()
        self.rate = threads * _CHECKPOINTS / (time.perf_counter() - begin)
        self._hf = holdfast.open(path, durability="off", base_bytes=0)

    def latest(self) -> float:
        return timed(self._hf.thread(self._name()).latest)

    def history(self) -> float:
        thread = self._hf.thread(self._name())
        return timed(lambda: list(thread.history(limit=20)))

    def listing(self) -> float:
        # Not among the last 50 names, because only full pages are comparable.
        after = _name(self._rng.randrange(max(1, self._threads - 50)))
        return timed(lambda: list(self._hf.threads(limit=50, after=after)))

    def close(self) -> None:
        self._hf.close()

    def _name(self) -> str:
        return _name(self._rng.randrange(self._threads))


def _name(number: int) -> str:
    return f"customer-{number:07}"


def _fill(hf: holdfast.Holdfast, numbers: range) -> None:
    writer = Writer(numbers.start)
    texts = [writer.sentence() for _ in range(200)]
    for number in numbers:
        thread = hf.thread(_name(number))
        state = {"customer": number, "step": 0, "messages": [texts[number % len(texts)]]}
        for step in range(_CHECKPOINTS):
            state["step"] = step
            thread.save(state)


def measure(plan: Plan) -> list[Number]:
    sizes = plan.sizes
    small = Crowd(plan.folder / "few.db", sizes.few)
    try:
        large = Crowd(plan.folder / "many.db", sizes.many)
        try:
            return [
                _compared(plan, "6a", "latest", small.latest, large.latest, f"; built at {large.rate:,.0f} saves/s"),
                _compared(plan, "6b", "history(limit=20)", small.history, large.history),
                _compared(plan, "6c", "threads(limit=50)", small.listing, large.listing),
            ]
        finally:
            large.close()
    finally:
        small.close()


def _compared(
    plan: Plan, number: str, verb: str, few: Callable[[], float], many: Callable[[], float], note: str = ""
) -> Number:
    times = interleaved(2 * plan.sizes.rounds, few, many)
    relation = ratio(times[1], times[0])
    return Number(
        number=number,
        what=f"{verb} at {plan.sizes.many:,} threads x {_CHECKPOINTS} / at {plan.sizes.few}",
        measured=relation.median,
        unit="x",
        at_most=3,
        low=relation.low,
        high=relation.high,
        note=f"{spread(times[1]).median * 1e6:,.0f} us against {spread(times[0]).median * 1e6:,.0f} us{note}",
    )
