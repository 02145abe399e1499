"""The report of the crash lab: what its parts noted, added up."""

from __future__ import annotations

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
    noted = totals((tmp_path / "ledger").read_text().splitlines())
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
