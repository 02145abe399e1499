"""The bench of runs measures Holdfast where there is nothing to compare it with, and both where there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import runs
from bench.runs_plan import FULL, HOLDFAST, QUICK, Plan, has_dbos
from tests.waiting import DEADLINE

ALONE = ["1+", "2+", "3+", "4", "4+", "5a", "5b", "5c", "W"]
BOUNDS = {"1": (4.0, None), "2": (8.0, None), "3": (None, 0.333), "4": (None, 100.0), "4+": (None, 100.0)}
PEER = os.environ.get("HOLDFAST_BENCH_PEER") or sys.executable


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.runs", "--quick", "--results", str(folder / "results"), *arguments],
        env={**os.environ, "HOLDFAST_BENCH_DIR": str(folder)},
        cwd=Path(runs.__file__).parent.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """A quick run without DBOS: its JSON, its markdown, what it printed."""
    folder = tmp_path_factory.mktemp("bench")
    done = bench(folder, "--alone")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["results"], "the bench leaves its scratch folder behind"
    results = folder / "results"
    return json.loads((results / "runs.json").read_bytes()), (results / "runs.md").read_text("utf-8"), done.stdout


def test_what_needs_no_comparison_is_measured(alone: tuple[dict[str, Any], str, str]) -> None:
    report, _, _ = alone
    assert [number["number"] for number in report["numbers"]] == ALONE
    assert report["failed"] == []
    assert report["quick"] is True
    for number in report["numbers"]:
        assert isinstance(number["measured"], float)  # on a busy machine a difference of two times may be below zero
        assert (number["at_least"], number["at_most"]) == BOUNDS.get(number["number"], (None, None))


def test_the_tables_show_every_number(alone: tuple[dict[str, Any], str, str]) -> None:
    _, markdown, printed = alone
    assert markdown.startswith("# Runs in numbers\n\nWritten by `python -m bench.runs`.\n")
    for number in ALONE:
        assert f"\n| {number} | " in markdown
        assert f"\n{number} " in printed


def test_without_a_peer_it_says_how_to_go_on(tmp_path: Path) -> None:
    done = bench(tmp_path, "--peer", str(tmp_path / "python"))
    assert done.returncode == 2
    assert "has no DBOS: name a Python that has it with --peer, or measure --alone" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_not_killed_cannot_be_restarted(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not killed"):
        Plan(tmp_path, QUICK, None).killed_child(HOLDFAST, "one", tmp_path, 2)


def test_a_child_that_fails_is_shown(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        Plan(tmp_path, QUICK, None).child(HOLDFAST, "nothing", tmp_path)


def test_the_whole_bench_measures_what_was_promised() -> None:
    assert (FULL.steps, FULL.runs, FULL.long, FULL.journals) == (1_000, 32, 2_000, (2_000, 100_000))


@pytest.mark.skipif(not has_dbos(PEER), reason="no DBOS: name a Python that has it in HOLDFAST_BENCH_PEER")
def test_with_a_peer_each_is_compared(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "1,2,3")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "results" / "runs.json").read_bytes())
    assert [number["number"] for number in report["numbers"]] == ["1", "1+", "2", "2+", "3", "3+"]
    for number in report["numbers"]:
        assert (number["at_least"], number["at_most"]) == BOUNDS.get(number["number"], (None, None))
