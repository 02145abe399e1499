"""Measure the engine: `python -m bench.engine`. Prints a table; writes JSON and markdown to bench/results.

Everything is compared within one execution, on one machine. A missed bound is reported and is not an error.
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
from typing import TypeVar

from bench import branching, crowd, growth, importing, loading, memory, saving, scale, typed, writers
from bench.plan import FULL, QUICK, Plan
from bench.report import Number, Report, Row, as_json, as_markdown, as_text, machine

T = TypeVar("T")

GROUPS: dict[str, Callable[[Plan], list[Number]]] = {
    "1": saving.measure_length,
    "2": growth.measure,
    "3": saving.measure_durable,
    "4": loading.measure,
    "5": branching.measure,
    "6": crowd.measure,
    "7": writers.measure,
    "8": importing.measure,
    "9": typed.measure,
    "M": memory.measure,
    "S": scale.measure,
}
RESULTS = Path(__file__).resolve().parent / "results"


def run(plan: Plan, groups: Sequence[str], *, versus: bool, quick: bool) -> Report:
    """Measure the groups, in order."""
    begin = time.perf_counter()
    numbers: list[Number] = []
    rows: list[Row] = []
    failed: list[str] = []

    def attempt(name: str, measure: Callable[[Plan], list[T]], found: list[T]) -> None:
        started = time.perf_counter()
        try:
            found += measure(plan)
        except Exception:  # noqa: BLE001 - every error is shown, and the other groups are still measured
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)

    for group in groups:
        attempt(f"number {group}", GROUPS[group], numbers)
    if versus:
        attempt("versus full copies", growth.versus, rows)
    return Report(
        machine=machine(),
        quick=quick,
        seconds=time.perf_counter() - begin,
        numbers=numbers,
        versus=rows,
        failed=failed,
    )


def write(report: Report, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "engine.json").write_bytes(as_json(report))
    (folder / "engine.md").write_text(as_markdown(report), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description="Measure the engine.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that the benchmark works")
    parser.add_argument("--only", metavar="1,3", help=f"some groups of {', '.join(GROUPS)}, or V: versus full copies")
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads in the large store of number 6")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: bench/results, for complete results")
    options = parser.parse_args(arguments)
    wanted = [*GROUPS, "V"] if options.only is None else options.only.split(",")
    if unknown := set(wanted) - {*GROUPS, "V"}:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    sizes = QUICK if options.quick else FULL
    if options.threads is not None:
        sizes = sizes._replace(many=options.threads)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("HOLDFAST_BENCH_DIR") or Path.cwd()))
    try:
        groups = [group for group in wanted if group in GROUPS]
        report = run(Plan(folder, sizes), groups, versus="V" in wanted, quick=options.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(as_text(report))
    # A partial or quick measurement must not replace complete results.
    whole = options.only is None and not options.quick and options.threads is None and not report.failed
    if options.results is not None or whole:
        write(report, options.results or RESULTS)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
