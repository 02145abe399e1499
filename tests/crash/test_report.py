"""The report of the crash lab: what its parts noted, added up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import ledger
from tests.crash.report import Half, page, totals


def test_what_was_tried_is_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LAB_LEDGER", str(tmp_path / "ledger"))
    ledger.note("kill", "sqlite", fsync=1200, write=3)
    ledger.note("kill", "sqlite", fsync=34)
    ledger.note("bit rot", "directory", flips=5)
    ledger.note("off, as it must be", "sqlite", lost=7, of=9)
    (test,) = {line["test"] for line in map(json.loads, (tmp_path / "ledger").read_text().splitlines())}
    assert totals(ledger.lines_of(tmp_path / "ledger")) == {}, "the test has not passed yet"
    with (tmp_path / "ledger").open("a") as file:
        file.write(json.dumps({"passed": test}) + "\n")
    noted = totals(ledger.lines_of(tmp_path / "ledger"))
    text = page({"stores": Half("2026-01-02", "3.11", "3.40", noted)}, "| a bug |\n")
    assert "Run on 2026-01-02 with Python 3.11 and SQLite 3.40." in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[2:] == [
        "| bit rot | directory | flips: 5 | 5 |",
        "| kill | sqlite | fsync: 1,234, write: 3 | 1,237 |",
        "| off, as it must be | sqlite | lost: 7, of: 9 |  |",
        "| all | | | 1,242 |",
        "| a bug |",
    ]


def test_outside_of_the_lab_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_LAB_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    ledger.note("kill", "sqlite", fsync=1)
    assert list(tmp_path.iterdir()) == []


def test_a_lab_continues_with_what_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os\n"
        "from tests.crash.ledger import note\n"
        "def test_good(): note('kill', 'sqlite', fsync=1)\n"
        "def test_bad():\n"
        "    note('kill', 'sqlite', fsync=10)\n"
        "    assert os.environ['IS_MENDED'] == 'yes'\n"
    )
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.crash.ledger", "-c", os.devnull, "-q")

    def lab(is_mended: str) -> str:
        environment = {
            **os.environ,
            "HOLDFAST_LAB_LEDGER": str(tmp_path / "ledger"),
            "IS_MENDED": is_mended,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        environment.pop("PYTEST_XDIST_WORKER", None)
        command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, cwd=tmp_path)
        return done.stdout

    assert "1 failed, 1 passed" in lab("no")
    assert totals(ledger.lines_of(tmp_path / "ledger")) == {"kill": {"sqlite": {"fsync": 1}}}
    assert "1 passed, 1 deselected" in lab("yes")
    assert totals(ledger.lines_of(tmp_path / "ledger")) == {"kill": {"sqlite": {"fsync": 11}}}
