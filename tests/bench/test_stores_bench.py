"""The bench of the stores measures what needs no DBOS without it, and both where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import stores
from bench.runs_plan import has_dbos
from bench.stores_plan import FULL
from tests.selection import in_full
from tests.waiting import DEADLINE

ALONE = ["D1", "D1+", "D2", "D2+", "D3", "P1", "P1+", "P2+", "P3+", "P4", "P4+"]
BOUNDS = {
    "D1": (None, 1.5),
    "D2": (None, 3.0),
    "D3": (None, 1.5),
    "P1": (0.6, None),
    "P2": (2.5, None),
    "P3": (5.0, None),
    "P4": (None, 20.0),
}
PEER = os.environ.get("HOLDFAST_BENCH_PEER") or sys.executable


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.stores", "--quick", "--results", str(folder / "results"), *arguments],
        env={**os.environ, "HOLDFAST_BENCH_DIR": str(folder)},
        cwd=Path(stores.__file__).parent.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not a folder of pytest's: those are closed to the user that the server runs as."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def alone(folder: Path) -> tuple[dict[str, Any], str]:
    """A quick run without DBOS: its JSON and its markdown."""
    done = bench(folder, "--alone")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["results"], "the bench leaves its scratch folder behind"
    results = folder / "results"
    return json.loads((results / "stores.json").read_bytes()), (results / "stores.md").read_text("utf-8")


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_what_needs_no_comparison_is_measured(alone: tuple[dict[str, Any], str]) -> None:
    report, _ = alone
    assert [number["number"] for number in report["numbers"]] == ALONE
    assert report["failed"] == []
    for number in report["numbers"]:
        assert number["measured"] > 0
        assert (number["at_least"], number["at_most"]) == BOUNDS.get(number["number"], (None, None))


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_the_page_shows_every_number(alone: tuple[dict[str, Any], str]) -> None:
    _, markdown = alone
    assert markdown.startswith("# The stores in numbers\n\nWritten by `python -m bench.stores`.\n")
    for number in ALONE:
        assert f"\n| {number} | " in markdown


def test_the_whole_bench_measures_what_was_promised() -> None:
    assert (FULL.messages, FULL.steps, FULL.writers, FULL.workflows, FULL.waiting) == (3_000, 1_000, 16, 8, 10_000)


@pytest.mark.skipif(not has_dbos(PEER), reason="no DBOS: name a Python that has it in HOLDFAST_BENCH_PEER")
def test_with_a_peer_each_is_compared(folder: Path) -> None:
    done = bench(folder, "--only", "P2,P3")
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "results" / "stores.json").read_bytes())
    assert [number["number"] for number in report["numbers"]] == ["P2", "P2+", "P3", "P3+"]
