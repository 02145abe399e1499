"""The measurements of Holdfast on PostgreSQL, one process each. Prints the results as JSON.

Every step is one journaled result, which is one durable commit. No checkpoint is written before the end.
"""

from __future__ import annotations

import json
import sys

import holdfast
from bench.runs_holdfast import work
from bench.side_by_side import WARM_UP, side_by_side


def measure(url: str, runs: int, steps: int) -> dict[str, float]:
    """Seconds from the start of the first run to the end of the last."""
    with holdfast.open(url) as hf:
        work(hf, "warm-up", WARM_UP)
        seconds, _ = side_by_side(lambda i: work(hf, f"run-{i}", steps), runs)
        assert all(len(hf.effects(f"run-{i}")) == steps for i in range(runs)), "a run failed"
    return {"seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), flush=True)
