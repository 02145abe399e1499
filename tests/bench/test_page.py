"""The page of benchmarks is what its command makes of the committed results."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from bench import page
from bench.report import machine


def number(name: str, measured: float, note: str = "", at_least: float | None = None) -> dict[str, Any]:
    bounds = {"at_least": at_least, "at_most": None, "verdict": "MISSED" if at_least else ""}
    return {"number": name, "what": f"what {name} is", "measured": measured, "unit": "x", "note": note, **bounds}


def report(*numbers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"machine": to_builtins(machine()), "numbers": list(numbers), **more}


def test_the_page_and_its_plots_are_those_of_the_committed_results() -> None:
    for path, text in page.written(page.results()).items():
        assert path.read_text("utf-8") == text, f"{path.name}: run python -m bench.page"


def test_what_has_not_run_is_not_on_the_page() -> None:
    assert page.page({}).count(page.NOT_MEASURED) == 3


def test_peers_that_are_faster_are_on_the_page() -> None:
    runs = report(
        number("3", 0.2, "0.5 s against 2.5 s"),
        number("3+", 500.0),
        number("6a+", 181.0),
        number("6a/D", 2.92, "181 against 62 steps/s"),
        number("6a/R", 0.319, "181 against 569 steps/s", at_least=0.8),
    )
    text = page.page({"runs": runs})
    assert "| one run, SQLite | a model | 2.92 x | 0.319 x | | 181 |" in text
    assert "| Runs | 6a/R | what 6a/R is | 0.319 x | >= 0.8 x |" in text
    plot = page.steps_plot(runs)
    assert plot.index(">Restate<") < plot.index(">Holdfast, a model<") < plot.index(">DBOS<"), "the fastest comes first"
    assert "2.50 s" in page.restart_plot(runs)


def test_savers_are_compared_by_ratio_first() -> None:
    def saver(side: str, size: int, total: float) -> dict[str, Any]:
        return {"side": side, "graph": "plain", "turns": 300, "size": size, "total": total}

    found = report(savers=[saver("sqlite", 400_000_000, 8.0), saver("holdfast-sqlite", 4_000_000, 4.0)])
    row = "| SqliteSaver, 300 turns | 0.010 x | 4.00 MB, not 400 MB | 0.500 x | 4.00 s, not 8.00 s |"
    assert row in page.page({"langgraph": found})
