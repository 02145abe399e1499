"""What runs and journals cost: statements, and how open runs are found."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.stores.sqlite import SQLiteStore, schema
from holdfast.testing.contract.build import effect, run_row, saved


def test_a_journal_entry_takes_few_statements(store: SQLiteStore) -> None:
    saved(store, "a", "x")
    store.claim(None, run_row(1))
    statements: list[str] = []
    assert store._writer.connection is not None
    store._writer.connection.set_trace_callback(statements.append)
    [number] = store.journal(1, 1, [effect("begun")])
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"]
    statements.clear()
    store.journal(1, 1, [effect("done", number=number)])
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "SELECT", "UPDATE", "COMMIT"]


def test_open_runs_are_found_by_their_index(path: Path, store: SQLiteStore) -> None:
    saved(store, "a", "x")
    statement = schema.statements("runs.sql")["open_runs"]
    reader = sqlite3.connect(path)
    plan = reader.execute(f"EXPLAIN QUERY PLAN {statement}", (b"", 0, 0, 10, "[]")).fetchall()
    reader.close()
    steps = [detail for *_, detail in plan]
    assert [step for step in steps if "USING INDEX run_open (namespace=? AND" in step], steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps
