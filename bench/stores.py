"""Measure the stores: `python -m bench.stores`. Prints a table; writes JSON and markdown to bench/results.

It compares the directory store with a plain file, and PostgreSQL with plain inserts and with DBOS on the same server.
The sides of a comparison take turns within one execution. A missed bound is reported and is not an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import beside_dbos, stores_directory, stores_postgres
from bench.stores_plan import FULL, QUICK, Plan


@contextmanager
def planned(folder: Path, quick: bool, peer: str | None) -> Iterator[Plan]:
    plan = Plan(folder, QUICK if quick else FULL, peer)
    try:
        yield plan
    finally:
        plan.stop()


BENCH = beside_dbos.Bench(
    name="stores",
    title="The stores in numbers",
    about="Measure the stores, and compare with DBOS.",
    example="D1,P2",
    groups={
        "D1": stores_directory.measure_save,
        "D2": stores_directory.measure_log,
        "P1": stores_postgres.measure_save,
        "P2": stores_postgres.measure_one,
        "P3": stores_postgres.measure_many,
        "P4": stores_postgres.measure_claims,
    },
    plan=planned,
)

if __name__ == "__main__":
    sys.exit(beside_dbos.main(BENCH))
