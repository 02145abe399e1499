"""Numbers S: a store with very many threads and one very long thread, in processor time.

Wall time would depend on the disk and on other processes. All numbers are of one SQLite store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import holdfast
from bench.plan import Plan
from bench.report import Number
from bench.text import Writer
from holdfast.inspect import Filter, stats
from holdfast.inspect import threads as list_threads

_WRITERS = 4
_LONG = "the-long-one"
_ROUNDS = 5


def measure(plan: Plan) -> list[Number]:
    sizes = plan.sizes
    path = plan.folder / "scale.db"
    with holdfast.open(path, durability="off", base_bytes=8 << 20) as hf:
        _fill(hf, sizes.scale_threads, sizes.scale_checkpoints)
        hf.optimize()
    return _measured(path, sizes.scale_threads, sizes.scale_checkpoints)


def _measured(path: Path, threads: int, checkpoints: int) -> list[Number]:
    with holdfast.open(path, durability="off") as hf:
        long = hf.thread(_LONG)
        listed = list(long.history(limit=checkpoints // 2 + 1))
        short_id = listed[-1].id[-8:]
        back = f"@-{min(5_000, checkpoints // 2)}"
        of_threads = f"{threads:,} threads"
        of_long = f"a thread of {checkpoints:,} checkpoints"

        def prune_one() -> None:
            hf.thread(_name(threads // 2)).prune(holdfast.Retention(keep_last=1))

        numbers = [
            _number("S1", f"optimize with nothing to do, {of_threads}", 1_000, hf.optimize),
            _number("S2", "optimize after one thread was pruned", 2_000, hf.optimize, prepare=prune_one),
            _number("S3", "stats", 1_000, lambda: stats(hf)),
            _number("S4", "the newest 50 threads", 50, lambda: list_threads(hf, order="newest", limit=50), _ROUNDS),
            _number("S5", "50 threads by a part of their name", 50, lambda: _named(hf, threads), _ROUNDS),
            _number("S6", f"load({back!r}) in {of_long}", 50, lambda: long.load(back), _ROUNDS),
            _number("S7", "load by a short id, in the same thread", 20, lambda: long.load(short_id), _ROUNDS),
            _number("S8", "erase by metadata", 5_000, lambda: hf.erase(metadata={"customer": "7"})),
        ]
        size = os.path.getsize(path)
        seconds = _processor(hf.verify)
        numbers.append(
            Number(
                number="S9",
                what=f"verify, {of_threads} and {of_long}",
                measured=size / seconds / 1e6,
                unit="MB/s",
                at_least=10,
                note=f"{seconds:.1f} s for {size / 1e6:,.0f} MB",
            )
        )
    return numbers


def _named(hf: holdfast.Holdfast, threads: int) -> Any:
    return list_threads(hf, Filter(contains=_name(threads // 3)[-5:]), limit=50)


def _number(
    number: str,
    what: str,
    at_most: float,
    action: Callable[[], Any],
    rounds: int = 1,
    prepare: Callable[[], None] = lambda: None,
) -> Number:
    times: list[float] = []
    for _ in range(rounds):
        prepare()
        times.append(_processor(action) * 1e3)
    return Number(number=number, what=what, measured=min(times), unit="ms", at_most=at_most)


def _processor(action: Callable[[], Any]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def _name(number: int) -> str:
    return f"customer-{number:07}"


def _fill(hf: holdfast.Holdfast, threads: int, checkpoints: int) -> None:
    with ThreadPoolExecutor(_WRITERS) as pool:
        for work in [pool.submit(_fill_some, hf, range(first, threads, _WRITERS)) for first in range(_WRITERS)]:
            work.result()
    writer = Writer(1)
    long = hf.thread(_LONG)
    messages: list[str] = []
    for step in range(checkpoints):
        messages = [*messages[-20:], writer.sentence()]
        long.save({"step": step, "messages": messages})


def _fill_some(hf: holdfast.Holdfast, numbers: range) -> None:
    writer = Writer(numbers.start)
    texts = [writer.sentence() for _ in range(200)]
    for number in numbers:
        thread = hf.thread(_name(number))
        for step in range(2):
            state = {"customer": number, "step": step, "messages": [texts[number % len(texts)]]}
            thread.save(state, metadata={"customer": str(number % 20_000)} if step else None)
