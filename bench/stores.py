"""Measure the stores: `python -m bench.stores`. Prints a table; writes JSON and markdown to bench/results.

A folder of text beside a bare file; PostgreSQL beside bare inserts and beside DBOS, on one server. Each is compared
with what was measured in turn with it, within one run. A bound that is missed is said, and is no error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import stores_directory, stores_postgres
from bench.report import Number, Report, as_json, as_markdown, as_text, machine
from bench.runs_plan import has_dbos
from bench.stores_plan import FULL, QUICK, Plan

GROUPS: dict[str, Callable[[Plan], list[Number]]] = {
    "D1": stores_directory.measure_save,
    "D2": stores_directory.measure_log,
    "P1": stores_postgres.measure_save,
    "P2": stores_postgres.measure_one,
    "P3": stores_postgres.measure_many,
    "P4": stores_postgres.measure_claims,
}
RESULTS = Path(__file__).resolve().parent / "results"


def run(plan: Plan, groups: Sequence[str], *, quick: bool) -> Report:
    """Measure the groups, in order."""
    begin = time.perf_counter()
    numbers: list[Number] = []
    failed: list[str] = []
    for group in groups:
        started = time.perf_counter()
        try:
            numbers += GROUPS[group](plan)
        except Exception:  # noqa: BLE001 - whatever it is, it is shown, and the other groups are worth measuring
            traceback.print_exc()
            failed.append(f"number {group}")
        print(f"number {group}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    return Report(
        machine=machine(),
        quick=quick,
        seconds=time.perf_counter() - begin,
        numbers=numbers,
        versus=[],
        failed=failed,
    )


def write(report: Report, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stores.json").write_bytes(as_json(report))
    page = as_markdown(report, title="The stores in numbers", module="bench.stores")
    (folder / "stores.md").write_text(page, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description="Measure the stores, DBOS beside them.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the bench runs, measures nothing")
    parser.add_argument("--only", metavar="D1,P2", help=f"some groups of {', '.join(GROUPS)}")
    parser.add_argument(
        "--peer",
        metavar="PYTHON",
        default=os.environ.get("HOLDFAST_BENCH_PEER") or sys.executable,
        help="the Python that has DBOS installed; default: $HOLDFAST_BENCH_PEER, else this one",
    )
    parser.add_argument("--alone", action="store_true", help="without DBOS: only what needs no comparison")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: bench/results, for a whole run only")
    options = parser.parse_args(arguments)
    wanted = [*GROUPS] if options.only is None else options.only.split(",")
    if unknown := set(wanted) - {*GROUPS}:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    if not options.alone and not has_dbos(options.peer):
        parser.error(f"{options.peer} has no DBOS: name a Python that has it with --peer, or measure --alone")
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("HOLDFAST_BENCH_DIR") or Path.cwd()))
    try:
        plan = Plan(folder, QUICK if options.quick else FULL, None if options.alone else options.peer)
        try:
            report = run(plan, wanted, quick=options.quick)
        finally:
            plan.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(as_text(report))
    # Part of a run, or a quick one, must not replace what a whole one found.
    whole = options.only is None and not options.quick and not options.alone and not report.failed
    if options.results is not None or whole:
        write(report, options.results or RESULTS)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
