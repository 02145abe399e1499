"""The bench runs, and says what it found in a form that others can read."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bench import engine
from bench.plan import QUICK, Plan
from bench.report import Number, figure
from bench.text import Writer
from bench.timing import interleaved, ratio
from bench.wal import WalMeter
from bench.workload import Agent, compact
from tests.selection import in_full
from tests.waiting import DEADLINE

PROMISED = [
    *("1a", "1b", "2a", "2b", "2c", "2d", "3", "3+", "4a", "4b", "5a", "5b", "5c", "5d"),
    *("6a", "6b", "6c", "7a", "7b", "7c", "8", "9a", "9b", "M1", "M2", "M3", "M4", "M5", "M6"),
    *(f"S{n}" for n in range(1, 10)),
]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """A quick run: its JSON, its markdown, what it printed."""
    folder = tmp_path_factory.mktemp("bench")
    environment = {**os.environ, "HOLDFAST_BENCH_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine", "--quick", "--results", str(folder / "results")],
        env=environment,
        cwd=Path(engine.__file__).parent.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["results"], "the bench leaves its scratch folder behind"
    results = folder / "results"
    return json.loads((results / "engine.json").read_bytes()), (results / "engine.md").read_text("utf-8"), done.stdout


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_every_number_is_measured(quick: tuple[dict[str, Any], str, str]) -> None:
    report, _, _ = quick
    assert [number["number"] for number in report["numbers"]] == PROMISED
    assert report["failed"] == []
    assert report["quick"] is True
    assert set(report["machine"]) == {"cores", "system", "python", "sqlite", "date", "load"}


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_a_number_says_its_bound_and_verdict(quick: tuple[dict[str, Any], str, str]) -> None:
    report, _, _ = quick
    for number in report["numbers"]:
        assert isinstance(number["measured"], float)
        assert number["what"]
        assert number["unit"]
        bounded = number["at_least"] is not None or number["at_most"] is not None
        assert number["verdict"] in (("ok", "MISSED") if bounded else ("",))
        assert bounded == (number["number"] != "3+")


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_full_copies_write_and_keep_more(quick: tuple[dict[str, Any], str, str]) -> None:
    report, _, _ = quick
    json_copies, squeezed, own = report["versus"]
    assert json_copies["written"] > squeezed["written"] > own["written"] > 0
    assert json_copies["size"] > squeezed["size"] > own["size"] > 0


@in_full("a quick run of the whole bench takes seconds of processor time")
def test_the_tables_show_every_number(quick: tuple[dict[str, Any], str, str]) -> None:
    _, markdown, printed = quick
    for number in PROMISED:
        assert f"\n| {number} | " in markdown
        assert f"\n{number} " in printed


def test_a_failing_group_is_an_error_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(plan: Plan) -> list[Number]:
        raise ArithmeticError("for the test")

    monkeypatch.setenv("HOLDFAST_BENCH_DIR", str(tmp_path))
    monkeypatch.setitem(engine.GROUPS, "1", failing)
    assert engine.main(["--quick", "--only", "1,2", "--results", str(tmp_path / "results")]) == 1
    report = json.loads((tmp_path / "results" / "engine.json").read_bytes())
    assert report["failed"] == ["number 1"]
    assert [number["number"] for number in report["numbers"]] == ["2a", "2b", "2c", "2d"]
    shown = capsys.readouterr()
    assert "FAILED: number 1" in shown.out
    assert "for the test" in shown.err


def test_a_missed_bound_is_said() -> None:
    number = Number(number="x", what="something", measured=1.4, unit="x", at_least=0.7, at_most=1.3)
    assert (number.bound, number.verdict) == ("0.7 to 1.3 x", "MISSED")
    assert Number(number="x", what="something", measured=0.6, unit="x", at_least=0.7).verdict == "MISSED"
    assert Number(number="x", what="something", measured=1.3, unit="x", at_most=1.3).verdict == "ok"
    assert Number(number="x", what="something", measured=9, unit="x").verdict == ""


def test_figures_are_short() -> None:
    assert [figure(value) for value in (0, 0.1234, 1.234, 12.34, 123.4, 12345.6)] == [
        *("0.00", "0.123", "1.23", "12.3", "123", "12,346"),
    ]


def test_actions_take_turns() -> None:
    calls: list[str] = []

    def action(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds

    results = interleaved(4, lambda: action("a", 1.0), lambda: action("b", 3.0))
    assert calls == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert ratio(results[1], results[0]) == (3, 3, 3)


def test_work_is_the_same_at_every_run() -> None:
    state = random.getstate()
    assert Agent(3, 20).state == Agent(3, 20).state
    assert Agent(3, 20).state != Agent(4, 20).state
    assert random.getstate() == state


def test_work_is_of_the_size_and_kind_it_should_be() -> None:
    agent = Agent()
    compress = zstandard.ZstdCompressor(level=3).compress
    sizes: list[int] = []
    packed = 0
    for _ in range(200):
        before = len(agent.state["messages"])
        agent.step()
        assert len(agent.state["messages"]) == before + 2
        sizes.append(len(agent.changed))
        packed += len(compress(agent.changed))
    assert 3_200 < sum(sizes) / len(sizes) < 4_000
    assert 1.8 < sum(sizes) / packed < 2.6, "does not compress like text"
    assert json.loads(agent.changed)["messages"] == agent.state["messages"][-2:]


def test_text_has_the_length_asked_for() -> None:
    writer = Writer()
    for write in (writer.prose, writer.code, writer.log, writer.records):
        assert 1_000 <= len(write(1_000)) < 1_900


def test_the_meter_counts_frames_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    with WalMeter(path) as meter:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            for setting in ("journal_mode = WAL", "wal_autocheckpoint = 0"):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("CREATE TABLE some (body BLOB)")
            meter.start()
            frame = connection.execute("PRAGMA page_size").fetchone()[0] + 24
            counted = 0
            for _ in range(3):
                connection.execute("INSERT INTO some VALUES (zeroblob(3000))")
                counted += meter.look()
            frames = (path.with_name("some.db-wal").stat().st_size - 32) // frame
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("INSERT INTO some VALUES (zeroblob(3000))")
            after = meter.look()
            again = (path.with_name("some.db-wal").stat().st_size - 32) // frame
        finally:
            connection.close()
    # Two frames were there before the meter: the schema's page and the table's.
    assert counted == (frames - 2) * frame
    assert after == again * frame > 0
    assert meter.written == counted + after


def test_sizes_of_a_quick_run_are_small() -> None:
    assert QUICK.messages * len(compact(Agent(1, 2).state["messages"])) < 1 << 20
