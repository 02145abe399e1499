"""Shared code of the benchmarks of runs and stores: groups of numbers, comparison with DBOS, output."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from bench.report import Number, Report, as_json, as_markdown, as_text, machine
from bench.runs_plan import has_dbos

RESULTS = Path(__file__).resolve().parent / "results"
P = TypeVar("P")


class Bench(NamedTuple, Generic[P]):
    """One benchmark. `plan` makes what its groups measure with, from a folder, `quick` and the peers' Python."""

    name: str
    title: str
    about: str
    example: str
    groups: dict[str, Callable[[P], list[Number]]]
    plan: Callable[[Path, bool, str | None], AbstractContextManager[P]]

    @property
    def module(self) -> str:
        return f"bench.{self.name}"


def run(bench: Bench[P], plan: P, groups: Sequence[str], *, quick: bool) -> Report:
    """Measure the groups, in order."""
    begin = time.perf_counter()
    numbers: list[Number] = []
    failed: list[str] = []
    for group in groups:
        started = time.perf_counter()
        try:
            numbers += bench.groups[group](plan)
        except Exception:  # noqa: BLE001 - every error is shown, and the other groups are still measured
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


def write(bench: Bench[P], report: Report, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{bench.name}.json").write_bytes(as_json(report))
    page = as_markdown(report, title=bench.title, module=bench.module)
    (folder / f"{bench.name}.md").write_text(page, encoding="utf-8")


def main(bench: Bench[P], arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {bench.module}", description=bench.about)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that the benchmark works")
    parser.add_argument("--only", metavar=bench.example, help=f"some groups of {', '.join(bench.groups)}")
    parser.add_argument(
        "--peer",
        metavar="PYTHON",
        default=os.environ.get("HOLDFAST_BENCH_PEER") or sys.executable,
        help="the Python with DBOS and the other peers installed; default: $HOLDFAST_BENCH_PEER, else this one",
    )
    parser.add_argument("--alone", action="store_true", help="without peers, only numbers that need no comparison")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: bench/results, for complete results")
    options = parser.parse_args(arguments)
    wanted = [*bench.groups] if options.only is None else options.only.split(",")
    if unknown := set(wanted) - {*bench.groups}:
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    if not options.alone and not has_dbos(options.peer):
        parser.error(f"{options.peer} has no DBOS: name a Python that has it with --peer, or measure --alone")
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("HOLDFAST_BENCH_DIR") or Path.cwd()))
    try:
        with bench.plan(folder, options.quick, None if options.alone else options.peer) as plan:
            report = run(bench, plan, wanted, quick=options.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(as_text(report))
    # A partial or quick measurement must not replace complete results.
    whole = options.only is None and not options.quick and not options.alone and not report.failed
    if options.results is not None or whole:
        write(bench, report, options.results or RESULTS)
    return 1 if report.failed else 0
