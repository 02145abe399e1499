"""Measure runs: `python -m bench.runs`. Prints a table; writes JSON and markdown to bench/results.

Holdfast and its peers use the same disk and take turns. Only numbers of one execution are compared. A missed bound is
reported and is not an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import beside_dbos, runs_inside, runs_peers, runs_versus
from bench.runs_plan import FULL, QUICK, Plan


@contextmanager
def planned(folder: Path, quick: bool, peer: str | None) -> Iterator[Plan]:
    plan = Plan(folder, QUICK if quick else FULL, peer)
    try:
        yield plan
    finally:
        plan.stop()


BENCH = beside_dbos.Bench(
    name="runs",
    title="Runs in numbers",
    about="Measure runs, and compare with DBOS, Restate and Absurd.",
    example="1,3",
    groups={
        "1": runs_versus.measure_one,
        "2": runs_versus.measure_many,
        "3": runs_versus.measure_restart,
        "4": runs_inside.measure_reads,
        "5": runs_inside.measure_journal,
        "6": runs_peers.measure_one,
        "7": runs_peers.measure_many,
        "W": runs_inside.measure_wal,
    },
    plan=planned,
)

if __name__ == "__main__":
    sys.exit(beside_dbos.main(BENCH))
