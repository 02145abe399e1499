"""Write docs/benchmarks.md and its plots from bench/results: `python -m bench.page`, the last step of `make bench`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.bars import Bar, Panel, chart
from bench.report import figure

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
IMAGES: Final = ROOT / "docs" / "images"
PEERS: Final = {"D": "DBOS", "R": "Restate", "A": "Absurd"}
# The letters of numbers 6 and 7: the store, and what each step calls.
KINDS: Final = {
    "a": "a model",
    "b": "an irreversible tool",
    "c": "an irreversible tool with a probe",
    "d": "an idempotent tool",
}
ON_SERVER: Final = dict(zip("abcd", "efgh", strict=True))
TITLES: Final = {
    "engine": "The engine",
    "runs": "Runs",
    "stores": "Stores",
    "langgraph": "LangGraph savers",
}

Report = dict[str, Any]


def results() -> dict[str, Report]:
    """The reports of all benchmarks that have run."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    # A report without a date was made before reports had one, by older code.
    return {name: found[name] for name in TITLES if name in found and "date" in found[name]["machine"]}


def written(reports: dict[str, Report]) -> dict[Path, str]:
    """The files to write: the page and its plots."""
    files = {PAGE: page(reports)}
    if "runs" in reports:
        files[IMAGES / "bench-steps.svg"] = steps_plot(reports["runs"])
        files[IMAGES / "bench-restart.svg"] = restart_plot(reports["runs"])
    if "langgraph" in reports:
        for name in ("langgraph-size.svg", "langgraph-time.svg"):
            files[IMAGES / f"bench-{name}"] = (RESULTS / name).read_text("utf-8")
    return files


def page(reports: dict[str, Report]) -> str:
    parts = [INTRODUCTION, machines(reports)]
    parts.append(LANGGRAPH)
    parts += [savers(reports["langgraph"]), PLOTS] if "langgraph" in reports else [NOT_MEASURED]
    parts.append(RUNS)
    runs = reports.get("runs")
    parts += [NOT_MEASURED] if runs is None else [steps_table(runs), STEPS, restart_table(runs), RESTART]
    parts += ["## All numbers", "A bound is what the code is meant to keep. *Missed* is a bound that it does not keep."]
    for name, report in reports.items():
        parts += [f"### {TITLES[name]}, in numbers", numbers_table(report)]
    parts += ["## Bounds that are missed", missed(reports)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


INTRODUCTION = """\
# Benchmarks

<!-- Written by make bench (python -m bench.page), from bench/results. -->

`make bench` measures Holdfast and its peers side by side, in pinned versions, and writes this page. Ratios come first:
they compare two systems in the same minutes on the same disk, so they change less with the machine than times do. Where
Holdfast is slower, the table says so.

If the load average in the next table is far above the number of cores, other programs were running, and times and
ratios are uncertain. Sizes are not. Run `make bench` on a quiet machine before you quote a time."""

LANGGRAPH = """\
## LangGraph savers

Each turn is one `invoke` of an unchanged graph that adds 600 and 2,000 characters, with `durability="sync"`."""

PLOTS = """\
![What is stored, by turns](images/bench-langgraph-size.svg)

![One turn, the graph included, by turns](images/bench-langgraph-time.svg)"""

RUNS = """\
## Runs next to DBOS, Restate and Absurd

Each step makes one call that does nothing. Every system has its default settings, which sync each commit. DBOS, Restate
and Absurd have one kind of step. Holdfast writes an intent before a call that acts, so its kinds of calls differ. A
ratio above 1 means that Holdfast makes more steps per second."""

NOT_MEASURED = "Not measured with this version yet."

STEPS = "![Steps per second](images/bench-steps.svg)"

RESTART = "![From process start to the next new step](images/bench-restart.svg)"


def machines(reports: dict[str, Report]) -> str:
    rows = []
    for name, report in reports.items():
        where = report["machine"]
        system = f"{where['cores']} cores, {where['system']}, Python {where['python']}, SQLite {where['sqlite']}"
        rows.append([TITLES[name], where["date"], system, f"{where['load']:g}"])
    return table(["benchmark", "date", "machine", "load average"], rows)


def savers(report: Report) -> str:
    plain = {(each["side"], each["turns"]): each for each in report["savers"] if each["graph"] == "plain"}
    rows = []
    for own, peer in (("holdfast-sqlite", "sqlite"), ("holdfast-postgres", "postgres")):
        for turns in (300, 1000):
            if (own, turns) in plain and (peer, turns) in plain:
                ours, theirs = plain[own, turns], plain[peer, turns]
                rows.append(
                    [
                        f"{'SqliteSaver' if peer == 'sqlite' else 'PostgresSaver'}, {turns:,} turns",
                        f"{figure(ours['size'] / theirs['size'])} x",
                        f"{figure(ours['size'] / 1e6)} MB, not {figure(theirs['size'] / 1e6)} MB",
                        f"{figure(ours['total'] / theirs['total'])} x",
                        f"{figure(ours['total'])} s, not {figure(theirs['total'])} s",
                    ]
                )
    return table(["Holdfast compared with", "size", "", "time of all invokes", ""], rows)


def by_number(report: Report) -> dict[str, Report]:
    return {each["number"]: each for each in report["numbers"]}


def steps_table(report: Report) -> str:
    known = by_number(report)
    rows = []
    for group, many in (("6", "one run"), ("7", "32 runs")):
        for store, letters in (("SQLite", {k: k for k in KINDS}), ("PostgreSQL", ON_SERVER)):
            for kind, letter in letters.items():
                own = known.get(f"{group}{letter}+")
                if own is None:
                    continue
                cells = []
                for peer in PEERS:
                    found = known.get(f"{group}{letter}/{peer}")
                    cells.append(f"{figure(found['measured'])} x" if found else "")
                rows.append([f"{many}, {store}", KINDS[kind], *cells, f"{figure(own['measured'])}"])
    if not rows:
        return ""
    heads = [f"steps/s / {name}" for name in PEERS.values()]
    return table(["", "each step calls", *heads, "Holdfast, steps/s"], rows)


def restart_table(report: Report) -> str:
    known = by_number(report)
    if "3" not in known:
        return ""
    ratio, own = known["3"], known["3+"]
    return (
        "A run of 2,000 steps is killed half-way. From the start of the next process to the first new step, Holdfast "
        f"takes {figure(ratio['measured'])} x the time of DBOS: {figure(own['measured'])} {own['unit']}."
    )


def steps_plot(report: Report) -> str:
    known = by_number(report)
    panels = []
    for group, many in (("6", "one run"), ("7", "32 runs side by side")):
        for store, letters in (("SQLite; Restate: its own log", {k: k for k in KINDS}), ("PostgreSQL", ON_SERVER)):
            bars: list[Bar] = []
            for kind, letter in letters.items():
                own = known.get(f"{group}{letter}+")
                if own is not None:
                    bars.append(Bar(f"Holdfast, {KINDS[kind]}", own["measured"], figure(own["measured"]), own=True))
            for peer, name in PEERS.items():
                theirs = _theirs(known.get(f"{group}{letters['a']}/{peer}"))
                if theirs is not None:
                    bars.append(Bar(name, theirs, figure(theirs), own=False))
            if bars:
                panels.append(Panel(f"{many}, {store}", sorted(bars, key=lambda bar: -bar.value)))
    return chart("Steps per second: more is better", panels)


def restart_plot(report: Report) -> str:
    known = by_number(report)
    both = re.search(r"([\d.]+) s against ([\d.]+) s", known["3"]["note"])
    assert both is not None
    ours, theirs = float(both[1]), float(both[2])
    bars = [
        Bar("Holdfast", ours, f"{figure(ours)} s", own=True),
        Bar("DBOS", theirs, f"{figure(theirs)} s", own=False),
    ]
    return chart(
        "A killed run of 2,000 steps, from process start to its next step: less is better", [Panel("SQLite", bars)]
    )


def _theirs(number: Report | None) -> float | None:
    """The steps/s of a peer, from the note "181 against 62 steps/s"."""
    found = re.match(r"[\d.,]+ against ([\d.,]+)", number["note"]) if number else None
    return float(found[1].replace(",", "")) if found else None


def numbers_table(report: Report) -> str:
    rows = []
    for each in report["numbers"]:
        verdict = {"MISSED": "**missed**"}.get(each["verdict"], each["verdict"])
        rows.append([each["number"], each["what"], f"{figure(each['measured'])} {each['unit']}", bound(each), verdict])
    return table(["", "what", "measured", "bound", ""], rows)


def bound(number: Report) -> str:
    parts = [
        f"{sign} {number[name]:g} {number['unit']}"
        for sign, name in ((">=", "at_least"), ("<=", "at_most"))
        if number[name] is not None
    ]
    return ", ".join(parts)


def missed(reports: dict[str, Report]) -> str:
    rows = [
        [TITLES[name], each["number"], each["what"], f"{figure(each['measured'])} {each['unit']}", bound(each)]
        for name, report in reports.items()
        for each in report["numbers"]
        if each["verdict"] == "MISSED"
    ]
    return (
        table(["benchmark", "", "what", "measured", "bound"], rows)
        if rows
        else NOT_MEASURED
        if not reports
        else "None."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(line.replace("|  |", "| |") for line in lines)


def main() -> None:
    for path, text in written(results()).items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
