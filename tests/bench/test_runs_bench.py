"""The bench of runs measures Holdfast where there is nothing to compare it with, and its peers where they are."""

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

from bench import runs, runs_holdfast, runs_peers
from bench.runs_plan import FULL, HOLDFAST, QUICK, Plan, has_absurd, has_dbos, restate_server
from tests.selection import in_full
from tests.waiting import DEADLINE

BESIDE_PEERS = [f"{group}{side}" for group in "67" for side in "abcdefgh"]
ALONE = ["1+", "2+", "3+", "4", "4+", "5a", "5b", "5c", "W"]
BOUNDS = {
    "1": (4.0, None),
    "2": (8.0, None),
    "3": (None, 0.333),
    "4": (None, 100.0),
    "4+": (None, 100.0),
    "6a/R": (0.8, None),
    "7a/R": (2.0, None),
    **{f"{group}{side}/D": (3.0, None) for group in "67" for side in "bcd"},
    **{f"{group}{side}/D": (2.0, None) for group in "67" for side in "fgh"},
}
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
def folder() -> Iterator[Path]:
    """Not a folder of pytest's: those are closed to the user that the server runs as."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def alone(folder: Path) -> tuple[dict[str, Any], str, str]:
    """A quick run without peers: its JSON, its markdown, what it printed."""
    done = bench(folder, "--alone", "--only", "1,2,3,4,5,W")
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


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_steps_beside_peers_need_no_peers(folder: Path) -> None:
    done = bench(folder, "--alone", "--only", "6,7")
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "results" / "runs.json").read_bytes())
    assert [number["number"] for number in report["numbers"]] == [f"{side}+" for side in BESIDE_PEERS]
    assert all(number["measured"] > 0 for number in report["numbers"])


@pytest.mark.parametrize("kind", runs_peers.KINDS)
def test_steps_of_every_kind_are_made(kind: str, tmp_path: Path) -> None:
    found = runs_holdfast.checkpointed(kind, str(tmp_path), 2, 3)
    assert (found["steps"], found["failed"]) == (6, 0)


def test_the_peers_have_their_own_python(tmp_path: Path) -> None:
    assert restate_server(str(tmp_path / "bin" / "python")) is None
    assert not has_absurd(str(tmp_path / "bin" / "python"))


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
    assert (FULL.peer_steps, FULL.peer_steps_each, FULL.peer_rounds) == (300, 30, 3)


@pytest.mark.skipif(has_absurd(sys.executable), reason="every peer may be here")
def test_without_every_peer_steps_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"has no .*Absurd"):
        runs_peers.measure_one(Plan(tmp_path, QUICK, sys.executable))


@pytest.mark.skipif(not has_dbos(PEER), reason="no DBOS: name a Python that has it in HOLDFAST_BENCH_PEER")
def test_with_a_peer_each_is_compared(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "1,2,3")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "results" / "runs.json").read_bytes())
    assert [number["number"] for number in report["numbers"]] == ["1", "1+", "2", "2+", "3", "3+"]
    for number in report["numbers"]:
        assert (number["at_least"], number["at_most"]) == BOUNDS.get(number["number"], (None, None))


@pytest.mark.skipif(
    not (has_dbos(PEER) and restate_server(PEER) and has_absurd(PEER)),
    reason="no DBOS, Restate or Absurd: name a Python that has them in HOLDFAST_BENCH_PEER",
)
def test_with_every_peer_steps_are_compared(folder: Path) -> None:
    done = bench(folder, "--only", "6,7")
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "results" / "runs.json").read_bytes())
    own = {side: "DR+" if side[1] in "abcd" else "DA+" for side in BESIDE_PEERS}
    expected = [side + ("+" if which == "+" else f"/{which}") for side in BESIDE_PEERS for which in own[side]]
    assert [number["number"] for number in report["numbers"]] == expected
    for number in report["numbers"]:
        assert number["measured"] > 0
        assert (number["at_least"], number["at_most"]) == BOUNDS.get(number["number"], (None, None))
