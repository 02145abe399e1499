"""What runs and journals cost: statements, and how open and woken runs are found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.stores.contract_runs import Clock
from holdfast.stores.sqlite import SQLiteStore, schema
from holdfast.testing.contract.build import (
    commit,
    effect,
    inside,
    run_row,
    saved,
    settled,
    suspended,
)
from tests.stores.sqlite.conftest import Open


@contextmanager
def statements(store: SQLiteStore) -> Iterator[list[str]]:
    """The first word of each statement that the store writes with."""
    words: list[str] = []
    assert store.writer.connection is not None
    store.writer.connection.set_trace_callback(lambda statement: words.append(statement.split()[0]))
    yield words
    store.writer.connection.set_trace_callback(None)


def test_a_journal_entry_takes_few_statements(store: SQLiteStore) -> None:
    saved(store, "a", "x")
    store.claim(None, run_row(1))
    with statements(store) as words:
        store.journal(1, 1, [effect("started", number=1)], last=0)
    assert words == ["BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"]
    with statements(store) as words:
        store.journal(1, 1, [effect("done", number=1)], last=1)
    assert words == ["BEGIN", "SELECT", "UPDATE", "COMMIT"]
    with statements(store) as words:
        store.post(1, effect("late", number=2))
    assert words == ["BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"]


def test_parking_and_answering_take_few_statements(store: SQLiteStore) -> None:
    saved(store, "a", "x")
    row = run_row(1)
    store.claim(None, row)
    asking = replace(row, status="waiting", question=1)
    with statements(store) as words:
        suspended(store, asking, effect("asked"), 0)
    assert words == ["BEGIN", "SELECT", "SELECT", "INSERT", "INSERT", "UPDATE", "COMMIT"]
    with statements(store) as words:
        settled(store, 1, 1, "asked", effect("done"), asking, replace(asking, status="queued", fence=2))
    assert words == ["BEGIN", "SELECT", "SELECT", "SELECT", "UPDATE", "INSERT", "UPDATE", "COMMIT"]


def test_a_commit_inside_a_run_takes_few_statements(store: SQLiteStore) -> None:
    line = saved(store, "a", "x")
    row = run_row(1)
    store.claim(None, row)
    with statements(store) as words:
        store.commit(inside(commit("a", line.at), fence=1, run=row, entries=(effect(number=1),), last_entry=0))
    assert words == ["BEGIN", "UPDATE", "SELECT", "INSERT", "INSERT", "INSERT", "COMMIT"]


def plan(path: Path, name: str, *parameters: object) -> list[str]:
    statement = schema.statements()[name]
    reader = sqlite3.connect(path)
    steps = reader.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    reader.close()
    return [detail for *_, detail in steps]


def test_open_runs_are_found_by_their_index(path: Path, store: SQLiteStore) -> None:
    steps = plan(path, "runs", b"", b"queued", 0, 0, 10)
    assert [step for step in steps if "USING INDEX run_by_status (namespace=? AND status=? AND" in step], steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("due", "USING INDEX run_waking (namespace=? AND clock=? AND rank=? AND wake_at>? AND wake_at<?)"),
        ("due_by_wall", "USING INDEX run_waking_by_wall (namespace=? AND clock=? AND rank=? AND wake_wall<?)"),
    ],
)
def test_woken_runs_are_found_by_their_indexes(path: Path, store: SQLiteStore, name: str, search: str) -> None:
    steps = plan(path, name, b"", b"", 0, 0, 10)
    assert [step for step in steps if search in step], steps
    assert not [step for step in steps if "TEMP B-TREE" in step or "SCAN" in step], steps


def test_clocks_and_priorities_are_found_by_steps_in_an_index(path: Path, store: SQLiteStore) -> None:
    steps = plan(path, "waking_groups", b"")
    searches = [step for step in steps if "run" in step.split()]
    assert len(searches) == 4, steps
    by_index = [step for step in searches if "SEARCH run USING COVERING INDEX run_waking (namespace=?" in step]
    assert len(by_index) == 3, steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps


def test_queued_runs_are_found_by_their_index(path: Path, store: SQLiteStore) -> None:
    steps = plan(path, "queue", b"", b"h", 0, 0, 0, 10)
    assert [step for step in steps if "SEARCH run USING INDEX run_queue (namespace=? AND handler=?" in step], steps
    assert not [step for step in steps if "TEMP B-TREE" in step or "SCAN" in step], steps


def test_runs_that_are_not_due_cost_nothing(path: Path, open_store: Open) -> None:
    """Neither on this clock, whatever the wall clock says, nor on another, whatever its own time was."""
    open_store().close()
    with_clock = SQLiteStore(
        path, namespace="default", durability="off", clock=lambda: Clock("here", 1000), wall=lambda: 1000
    )
    made = 0

    def add(count: int, **times: object) -> None:
        nonlocal made
        for _ in range(count):
            made += 1
            row = run_row(0, status="waiting", **times)
            with_clock.commit(inside(commit(f"{made}"), run=row))

    def steps() -> int:
        """How much SQLite does to find the runs that are due, counted in its own instructions."""
        reader = with_clock._readers.take()
        seen = 0

        def count() -> int:
            nonlocal seen
            seen += 1
            return 0

        reader.set_progress_handler(count, 1)
        with_clock._readers.give(reader)
        assert [name for name, _ in with_clock.due(limit=10)] == ["1", "2"]
        assert seen, "another reader was taken"
        reader.set_progress_handler(None, 1)
        return seen

    add(1, clock="here", wake_at=1, wake_wall=2000)
    add(1, clock="another", wake_at=2000, wake_wall=999)
    later_here = {"clock": "here", "wake_at": 1001, "wake_wall": 1}
    later_elsewhere = {"clock": "another", "wake_at": 1, "wake_wall": 1001}
    add(1, **later_here)
    add(1, **later_elsewhere)
    few = steps()
    add(500, **later_here)
    add(500, **later_elsewhere)
    add(500, clock="here", wake_at=0)
    assert steps() <= few + 20
    with_clock.close()


@pytest.mark.parametrize("field", ["wake_at", "wake_wall", "updated_at"])
def test_a_number_that_no_column_holds_is_refused(store: SQLiteStore, field: str) -> None:
    saved(store, "a", "x")
    row = run_row(1)
    store.claim(None, row)
    with pytest.raises(InvalidArgument, match="64 bits"):
        suspended(store, replace(row, **({"status": "waiting", "wake_at": 1} | {field: 1 << 63})), effect("asked"), 0)
    assert (store.run(1), store.last_entry(1)) == (row, 0)
