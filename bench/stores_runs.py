"""Holdfast's side of the comparison on PostgreSQL, a process per measurement: prints what it measured as JSON.

Every step is one journaled result, which is one durable commit, and no checkpoint is written before the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import holdfast
from bench.runs_holdfast import WARM_UP, work


def measure(url: str, runs: int, steps: int) -> dict[str, float]:
    """Seconds from before the first of some runs starts until the last is complete."""
    with holdfast.open(url) as hf:
        work(hf, "warm-up", WARM_UP)
        threads = [threading.Thread(target=work, args=(hf, f"run-{i}", steps)) for i in range(runs)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begin
        assert all(len(hf.effects(f"run-{i}")) == steps for i in range(runs)), "a run failed"
    return {"seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), flush=True)
