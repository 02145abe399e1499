"""The time of concurrent runs, for every system that is measured. It needs only the standard library."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 50  # steps


def side_by_side(work: Callable[[int], object], runs: int) -> tuple[float, int]:
    """Seconds from the start of the first run to the end of the last, and how many runs failed."""
    ended: list[float] = []

    def one(i: int) -> None:
        work(i)
        ended.append(time.perf_counter())

    threads = [threading.Thread(target=one, args=(i,)) for i in range(runs)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(ended) - begin, runs - len(ended)


def measure(work: Callable[[str, int], object], made: list[int], runs: int, steps: int) -> dict[str, Any]:
    """Time runs of `work`, which takes a name and a number of steps. Every step appends to `made`.

    As many runs warm up, so that pools have their connections. The steps of a run that failed count.
    """
    side_by_side(lambda i: work(f"warm-up-{i}", math.ceil(WARM_UP / runs)), runs)
    made.clear()
    seconds, failed = side_by_side(lambda i: work(f"run-{i}", steps), runs)
    assert failed or len(made) == runs * steps, f"{len(made)} of {runs * steps} steps were made"
    return {"seconds": seconds, "steps": len(made), "failed": failed}
