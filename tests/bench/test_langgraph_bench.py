"""The bench of the LangGraph savers: what it makes of what it measured, its plots, and that it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import langgraph
from bench.langgraph_cases import FULL, LONG, QUICK, TITLES, CrowdFound, Found, Sizes, around, cases, samples
from bench.langgraph_numbers import Numbers, savers_table
from bench.langgraph_plot import HEIGHT, WIDTH, Line, plot
from bench.report import Number
from tests.selection import in_full
from tests.waiting import DEADLINE

BOUNDS = {
    "1a": (None, 0.01),
    "1b": (None, 0.25),
    "2": (None, 1.5),
    "3a": (None, 0.5),
    "3b": (None, 0.2),
    "4": (None, 1.2),
    "5": (None, 0.5),
    "6": (None, 0.5),
    "7": (None, 0.02),
    "8": (3.0, None),
}
SIZES = Sizes(short=4, long=10, react=2, early=2, window=2, reads=1, fresh=1, threads=5, turns_each=1, rounds=1)
SVG = "{http://www.w3.org/2000/svg}"


def found(side: str, graph: str, turns: int, *, size: int = 1_000, saver: float = 6.0) -> Found:
    """A saver that takes as long in every turn, beside a graph that takes 4 ms."""
    return Found(
        side,
        graph,
        turns,
        supersteps=3,
        invokes=[4 + saver] * turns,
        bare=[] if graph == "react" else [4.0] * turns,
        sizes=[(turn, size * turn) for turn in samples(turns)],
        size=size,
        state=[2.0],
        listed=[8.0],
        fresh_state=[3.0],
        fresh_listed=[9.0],
        history=0.5,
    )


def everything() -> list[Found]:
    return [found(case.side, case.graph, case.turns) for case in cases(SIZES, [*TITLES])]


def numbers(every: list[Found], rates: dict[str, float] | None = None) -> dict[str, Number]:
    crowds = [CrowdFound(side, rate) for side, rate in (rates or {}).items()]
    return {number.number: number for number in Numbers(every, crowds, SIZES).all()}


def test_every_promised_number_comes_with_its_bound() -> None:
    made = numbers(everything(), {"postgres-pool": 10.0, "holdfast-postgres-async": 40.0})
    bounds = {name: (number.at_least, number.at_most) for name, number in made.items() if number.bound}
    assert bounds == BOUNDS


def test_the_whole_bench_measures_what_was_promised() -> None:
    assert (FULL.short, FULL.long, FULL.react, FULL.early, FULL.threads) == (300, 1_000, 100, 50, 50)
    whole = {(case.side, case.graph, case.turns) for case in cases(FULL, [*TITLES])}
    assert whole >= {(side, graph, 300) for side in TITLES for graph in ("plain", "delta")}
    assert whole >= {(side, graph, 1_000) for side, graph in LONG}
    assert whole >= {("sqlite", "plain", 1_000), ("holdfast-sqlite", "plain", 1_000)}
    assert whole >= {("sqlite", "react", 100), ("holdfast-sqlite", "react", 100)}


def test_a_size_is_compared_with_that_of_the_same_conversation() -> None:
    every = [
        found("sqlite", "plain", SIZES.short, size=50_000),
        found("sqlite", "delta", SIZES.short, size=2_000),
        found("holdfast-sqlite", "plain", SIZES.short, size=400),
    ]
    made = numbers(every)
    assert made["1a"].measured == pytest.approx(0.008)
    assert made["1a"].verdict == "ok"
    assert made["1b"].measured == pytest.approx(0.2)
    assert "1+" not in made, "the conversation on a DeltaChannel was not measured"


def test_the_time_of_a_saver_is_what_its_graph_takes_longer_with_it() -> None:
    one = found("sqlite", "plain", 4, saver=6.0)
    assert one.per_superstep(2, 2) == [2.0, 2.0]
    assert one.total == pytest.approx(0.040)
    assert one.saver_total == pytest.approx(0.024)


def test_growth_compares_the_end_of_a_conversation_with_its_youth() -> None:
    own = found("holdfast-sqlite", "plain", SIZES.long)
    own.invokes[-2:] = [4 + 12.0] * 2
    number = numbers([own])["2"]
    assert number.measured == pytest.approx(2.0)
    assert number.verdict == "MISSED"


def test_the_total_is_of_whole_invokes() -> None:
    every = [
        found("sqlite", "plain", SIZES.short, saver=16.0),
        found("holdfast-sqlite", "plain", SIZES.short, saver=4.0),
    ]
    made = numbers(every)
    assert made["3a"].measured == pytest.approx(8 / 20)
    assert made["3a+"].measured == pytest.approx(4 / 16)


def test_many_threads_are_compared_with_the_best_form_of_the_peer() -> None:
    made = numbers([], {"bare": 90.0, "postgres-async": 20.0, "postgres-pool": 10.0, "holdfast-postgres-async": 50.0})
    assert made["8"].measured == pytest.approx(2.5)
    assert made["8"].verdict == "MISSED"


def test_what_was_not_measured_is_left_out() -> None:
    assert numbers([found("sqlite", "plain", SIZES.short)]) == {}
    assert "8" not in numbers([], {"postgres-pool": 10.0})


def test_the_table_has_a_row_for_every_conversation() -> None:
    every = everything()
    lines = savers_table(every, SIZES).splitlines()
    assert len(lines) == len(every) + 2
    assert {line.count("|") for line in lines} == {10}


def test_a_window_stays_within_the_conversation() -> None:
    values = [float(turn) for turn in range(1, 11)]
    assert around(values, 5, 4) == [4.0, 5.0, 6.0, 7.0]
    assert around(values, 10, 4) == [7.0, 8.0, 9.0, 10.0]
    assert around(values, 1, 4) == [1.0, 2.0, 3.0, 4.0]
    assert around(values, 5, 40) == values


def test_the_last_turn_is_among_those_shown() -> None:
    for turns in (1, 8, 300, 1_000):
        assert samples(turns)[-1] == turns
        assert samples(turns) == sorted(set(samples(turns)))
        assert samples(turns)[0] > 0


def test_a_plot_draws_every_line_and_names_it() -> None:
    lines = [
        Line("first & best", "#ff0000", "", strong=True, points=[(10, 2.0), (100, 30.0)]),
        Line("second", "#00ff00", "5 4", strong=False, points=[(10, 200.0), (100, 3_000.0)]),
    ]
    root = ET.fromstring(plot("Title", "bytes", lines, str))  # noqa: S314 - written a line above
    drawn = {line.get("stroke"): _points(line) for line in root.iter(f"{SVG}polyline")}
    assert {*drawn} == {"#ff0000", "#00ff00"}
    for way in drawn.values():
        assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in way)
        assert way[1][0] > way[0][0]
        assert way[1][1] < way[0][1], "a larger value is not drawn higher"
    first, second = drawn["#ff0000"], drawn["#00ff00"]
    assert first[0][1] - first[1][1] == pytest.approx(second[0][1] - second[1][1], abs=0.2), "not logarithmic"
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Title", "bytes", "turns", "first & best", "second", "100"} <= {*texts}
    assert texts.index("second") < texts.index("first & best"), "the legend is not in the order of the ends"


def test_a_plot_is_readable_on_light_and_on_dark_pages() -> None:
    svg = plot("Title", "ms", [Line("one", "#ff0000", "", strong=False, points=[(1, 1.0)])], str)
    light, dark = svg.split("@media (prefers-color-scheme: dark)")
    for part in (light, dark):
        assert re.search(r"\.page { fill: #", part)
        assert re.search(r"text { .*fill: #", part)


def test_a_plot_refuses_what_it_cannot_show() -> None:
    with pytest.raises(ValueError, match="nothing to plot"):
        plot("Title", "ms", [Line("one", "#ff0000", "", strong=False, points=[])], str)
    with pytest.raises(ValueError, match="zero"):
        plot("Title", "ms", [Line("one", "#ff0000", "", strong=False, points=[(1, 0.0)])], str)


def test_a_saver_is_plotted_with_its_longest_conversation() -> None:
    size = ET.fromstring(langgraph.pictures(everything(), SIZES)["langgraph-size.svg"])  # noqa: S314 - our own
    lengths = {line.get("stroke"): len(_points(line)) for line in size.iter(f"{SVG}polyline")}
    assert lengths[langgraph.COLOURS["sqlite"]] == len(samples(SIZES.long))
    assert lengths[langgraph.COLOURS["memory"]] == len(samples(SIZES.short))


def _points(line: ET.Element) -> list[tuple[float, float]]:
    pairs = (line.get("points") or "").split()
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in pairs)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not a folder of pytest's: those are closed to the user that the server runs as."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def bench(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """A quick run of some savers: its JSON and its markdown."""
    results = folder / "results"
    done = subprocess.run(
        [sys.executable, "-m", "bench.langgraph", "--quick", "--results", str(results), *arguments],
        env={**os.environ, "HOLDFAST_BENCH_DIR": str(folder)},
        cwd=Path(langgraph.__file__).parent.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["results"], "the bench leaves its scratch folder behind"
    return json.loads((results / "langgraph.json").read_bytes()), (results / "langgraph.md").read_text("utf-8")


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_a_quick_run_measures_every_conversation_of_a_saver(folder: Path) -> None:
    side = "holdfast-sqlite"
    report, page = bench(folder, "--only", side)
    wanted = [(case.graph, case.turns) for case in cases(QUICK, [side])]
    assert [(one["graph"], one["turns"]) for one in report["savers"]] == wanted
    assert all(one["size"] > 0 and len(one["invokes"]) == one["turns"] for one in report["savers"])
    assert page.startswith("# The LangGraph savers in numbers\n\nWritten by `python -m bench.langgraph`.\n")
    assert {path.name for path in (folder / "results").iterdir()} == {
        *("langgraph.json", "langgraph.md", "langgraph-size.svg", "langgraph-time.svg"),
    }
