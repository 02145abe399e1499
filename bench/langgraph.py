"""Measure the LangGraph savers: `python -m bench.langgraph`. Prints tables; writes them, JSON and plots to
bench/results.

It measures LangGraph's own savers and Holdfast's with unchanged graphs, on one disk and one PostgreSQL server, each
conversation in a new process. Only numbers of one execution are compared. A missed bound is reported, not an error.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.langgraph_cases import CROWDS, FULL, QUICK, TITLES, Case, Crowd, CrowdFound, Found, Sizes, cases, samples
from bench.langgraph_numbers import Numbers, savers_table
from bench.langgraph_plan import Plan, settled
from bench.langgraph_plot import Line, plot
from bench.report import Report, as_json, as_markdown, as_text, machine

RESULTS = Path(__file__).resolve().parent / "results"
PEERS = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
COLOURS = {
    "memory": "#8c8c8c",
    "sqlite": "#d9480f",
    "sqlite-async": "#f08c00",
    "postgres": "#1c7ed6",
    "postgres-async": "#15aabf",
    "holdfast-sqlite": "#2f9e44",
    "holdfast-sqlite-async": "#82c91e",
    "holdfast-postgres": "#ae3ec9",
    "holdfast-postgres-async": "#e64980",
}


class Run:
    """The results so far."""

    def __init__(self, plan: Plan, sizes: Sizes) -> None:
        self._plan = plan
        self._sizes = sizes
        self.found: list[Found] = []
        self.crowds: list[CrowdFound] = []
        self.failed: list[str] = []

    def conversations(self, wanted: Sequence[Case]) -> None:
        for case in wanted:
            begin = time.perf_counter()
            name = f"{case.side} {case.graph} {case.turns}"
            try:
                self.found.append(self._plan.conversation(case))
            except Exception:  # noqa: BLE001 - every error is shown, and the other savers are still measured
                traceback.print_exc()
                self.failed.append(name)
            _told(name, begin)

    def together(self, sides: Sequence[str]) -> None:
        """Many threads at once. The savers take turns, so that a disturbance affects all of them."""
        for number in range(self._sizes.rounds):
            for side in [*sides[number % len(sides) :], *sides[: number % len(sides)]]:
                begin = time.perf_counter()
                name = f"crowd {side}"
                try:
                    self.crowds.append(self._plan.crowd(Crowd(side, self._sizes.threads, self._sizes.turns_each)))
                except Exception:  # noqa: BLE001 - as above
                    traceback.print_exc()
                    self.failed.append(name)
                _told(name, begin)


def _told(name: str, begin: float) -> None:
    print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    settled()


def pictures(found: Sequence[Found], sizes: Sizes) -> dict[str, str]:
    """The plots by file name, with the longest conversation of each saver."""
    longest: dict[tuple[str, str], Found] = {}
    for one in found:
        known = longest.get((one.side, one.graph))
        if one.graph != "react" and (known is None or known.turns < one.turns):
            longest[one.side, one.graph] = one
    size: list[Line] = []
    spent: list[Line] = []
    for (side, graph), one in longest.items():
        look = (COLOURS[side], "5 4" if graph == "delta" else "", side.startswith("holdfast") and graph == "plain")
        title = TITLES[side] + (", DeltaChannel" if graph == "delta" else "")
        size.append(Line(title, *look, one.sizes))
        times = [(turn, one.per_turn(turn, max(1, sizes.window // 5))) for turn in samples(one.turns)]
        spent.append(Line(title, *look, times))
    return {
        "langgraph-size.svg": plot("What is stored, by turns", "megabytes", size, lambda y: f"{y / 1e6:g}"),
        "langgraph-time.svg": plot("One turn, the graph included, by turns", "milliseconds", spent, lambda y: f"{y:g}"),
    }


def page(report: Report, run: Run, sizes: Sizes) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in versions().items())
    legend = (
        'Every turn is one `invoke` that adds 600 and 2,000 characters, with `durability="sync"`; '
        "`create_react_agent` also adds a tool result of 600. *Saver per superstep*: the time beyond the same graph "
        f"without a saver, after {sizes.early} turns → at the end. *get_state*, *list*: with the saver that wrote (in "
        f"parentheses: with a new one). *History*: all of `get_state_history`, with a new saver. {peers}."
    )
    parts = [
        as_markdown(report, title="The LangGraph savers in numbers", module="bench.langgraph"),
        "## All savers",
        legend,
        savers_table(run.found, sizes),
        "![What is stored, by turns](langgraph-size.svg)",
        "![One turn, by turns](langgraph-time.svg)",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PEERS}


def write(report: Report, run: Run, sizes: Sizes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plain: dict[str, Any] = msgspec.json.decode(as_json(report))
    plain["peers"] = versions()
    plain["savers"] = [_rounded(one) for one in run.found]
    plain["together"] = Numbers(run.found, run.crowds, sizes).rates()
    data = msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"
    (folder / "langgraph.json").write_bytes(data)
    (folder / "langgraph.md").write_text(page(report, run, sizes), encoding="utf-8")
    # With `--only crowd` there is nothing to plot.
    for name, picture in pictures(run.found, sizes).items() if run.found else ():
        (folder / name).write_text(picture, encoding="utf-8")


def _rounded(one: Found) -> dict[str, Any]:
    """The form in the JSON file: rounded to microseconds, without the times of single turns."""
    plain: dict[str, Any] = msgspec.to_builtins(one)
    for name in ("invokes", "bare", "state", "listed", "fresh_state", "fresh_listed"):
        plain[name] = [round(value, 3) for value in plain[name]]
    plain["total"], plain["saver_total"] = round(one.total, 3), round(one.saver_total, 3) if one.bare else None
    return plain


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.langgraph", description="Measure the LangGraph savers.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that the benchmark works")
    parser.add_argument("--only", metavar="sqlite,memory", help=f"some savers of {', '.join(TITLES)}; crowd")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: bench/results, for complete results")
    options = parser.parse_args(arguments)
    wanted = [*TITLES, "crowd"] if options.only is None else options.only.split(",")
    if unknown := set(wanted) - {*TITLES, "crowd"}:
        parser.error(f"no such saver: {', '.join(sorted(unknown))}")
    sizes = QUICK if options.quick else FULL
    begin = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("HOLDFAST_BENCH_DIR") or Path.cwd()))
    try:
        plan = Plan(folder)
        run = Run(plan, sizes)
        try:
            run.conversations(cases(sizes, [side for side in wanted if side != "crowd"]))
            if "crowd" in wanted:
                run.together([*CROWDS])
        finally:
            plan.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = Report(
        machine=machine(),
        quick=options.quick,
        seconds=time.perf_counter() - begin,
        numbers=Numbers(run.found, run.crowds, sizes).all(),
        versus=[],
        failed=run.failed,
    )
    if report.numbers:
        print(as_text(report))
    print(savers_table(run.found, sizes))
    # A partial or quick measurement must not replace complete results.
    whole = options.only is None and not options.quick and not report.failed
    if options.results is not None or whole:
        write(report, run, sizes, options.results or RESULTS)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
