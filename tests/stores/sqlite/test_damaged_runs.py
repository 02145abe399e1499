"""Damaged runs and journals: nobody gets in, nothing is believed to have never been, nothing wakes too early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores import rows
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import (
    commit,
    effect,
    journaled,
    posted,
    put_run,
    run_row,
    saved,
    settled,
    summary,
    suspended,
)
from tests.checksums import checksum_of
from tests.covers import covers
from tests.stores.sqlite.conftest import Open, alter, damage


@covers("E8")
@pytest.mark.parametrize(
    "lost",
    [
        "UPDATE run SET record = zeroblob(length(record))",
        "UPDATE run SET status = CAST('idle' AS BLOB)",
        "UPDATE run SET clock = x'7a'",
        "UPDATE run SET wake_at = 1",
        "UPDATE run SET wake_wall = 1",
        "UPDATE run SET fence = fence + 1",
        "UPDATE run SET lease_until = lease_until + 1",
    ],
)
def test_a_damaged_run_lets_nobody_in(path: Path, store: SQLiteStore, lost: str) -> None:
    line = saved(store, "t", "a")
    row = run_row(1)
    store.claim(None, row)
    alter(path, lost)
    calls: list[Callable[[], object]] = [
        lambda: store.run(1),
        lambda: store.entries(1, after=0, limit=1),
        lambda: store.claim(row, replace(row, fence=2)),
        lambda: store.claim(None, row),
        lambda: store.renew(1, 1, 5),
        lambda: put_run(store, row),
        lambda: journaled(store, 1, 1, [effect()]),
        lambda: suspended(store, row, effect("asked"), 0),
        lambda: posted(store, 1, effect()),
        lambda: store.last_entry(1),
        lambda: line.save("b"),
        lambda: store.commit(replace(commit("t", line.at), fence=1)),
        lambda: store.rewind(line.at, to=1, summary=summary()),
        lambda: store.drop(1),
    ]
    for call in calls:
        with pytest.raises(Damaged):
            call()


def test_a_run_that_vanished_is_not_believed_to_have_never_been(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "a")
    store.claim(None, run_row(1))
    journaled(store, 1, 1, [effect()])
    alter(path, "DELETE FROM run")
    for call in (lambda: store.run(1), lambda: store.entries(1, after=0, limit=1), lambda: store.last_entry(1)):
        with pytest.raises(Damaged):
            call()


def test_the_newest_entry_of_a_journal_cannot_be_lost_unnoticed(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "a")
    store.claim(None, run_row(1))
    journaled(store, 1, 1, [effect(), effect(), effect("started")])
    alter(path, "DELETE FROM entry WHERE row_key = 1 << 32 | 3")
    calls: list[Callable[[], object]] = [
        lambda: store.entries(1, after=0, limit=10),
        lambda: store.entries(1, after=2, limit=10),
        lambda: journaled(store, 1, 1, [effect()]),
        lambda: journaled(store, 1, 1, [effect("done", number=3)]),
        lambda: settled(store, 1, 3, "started", effect()),
        lambda: store.last_entry(1),
        lambda: posted(store, 1, effect(), last=2),
        lambda: suspended(store, run_row(1, status="waiting"), effect("asked"), 2),
    ]
    for call in calls:
        with pytest.raises(Damaged):
            call()
    assert len(store.entries(1, after=0, limit=2)) == 2, "what is whole can be read"


def test_a_damaged_entry_hurts_only_itself(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "a")
    store.claim(None, run_row(1))
    journaled(store, 1, 1, [effect("started", key=key) for key in "abc"])
    alter(path, "UPDATE entry SET record = (SELECT record FROM entry LIMIT 1) WHERE row_key = 1 << 32 | 2")
    with pytest.raises(Damaged, match="journal entry 2"):
        store.entries(1, after=0, limit=10)
    with pytest.raises(Damaged, match="journal entry 2"):
        settled(store, 1, 2, "started", effect())
    assert [row.key for row in store.entries(1, after=2, limit=10)] == ["c"]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "queued"},
        {"updated_at": 9},
        {"wake_at": 9},
        {"wake_wall": 9},
        {"clock": "another"},
        {"wake_at": 0},
        {"thread": 9},
    ],
)
def test_a_check_finds_columns_that_do_not_repeat_their_record(
    path: Path, store: SQLiteStore, changes: dict[str, object]
) -> None:
    """Even if their checksum is right: somebody wrote them so."""
    row = run_row(1, status="waiting", clock="boot", wake_at=7, wake_wall=7)
    store.commit(replace(commit("t"), run=replace(row, thread=0)))
    record = rows.store_run(b"default", replace(row, **changes), 0)[-2]
    checksum = checksum_of(b"default", record)
    assert list(store.check()) == []
    alter(path, "UPDATE run SET record = ?, checksum = ?", record, checksum)
    assert "does not match its index columns" in next(problem.what for problem in store.check())


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE run SET clock = x'746f6f62'",
        "UPDATE run SET wake_at = 8",
        "UPDATE run SET wake_wall = 8",
    ],
)
def test_a_run_whose_wake_time_was_changed_is_damaged(path: Path, store: SQLiteStore, sql: str) -> None:
    asleep = run_row(0, status="waiting", clock="boot", wake_at=7, wake_wall=7)
    store.commit(replace(commit("t"), run=asleep))
    assert [run.wake_at for _, run in store.due(limit=1)] == [7]
    alter(path, sql)
    for call in (lambda: store.run(1), lambda: store.due(limit=1)):
        with pytest.raises(Damaged):
            call()


def test_a_run_that_an_index_has_at_another_time_is_not_woken(path: Path, open_store: Open) -> None:
    store = open_store()
    asleep = run_row(0, status="waiting", clock=store.clock().id, wake_at=(1 << 60) + 0x5A5A, wake_wall=1 << 60)
    store.commit(replace(commit("t"), run=asleep))
    assert store.due(limit=10) == []
    store.reclaim()
    store.close()
    damage(path, "run_waking", ((1 << 60) + 0x5A5A).to_bytes(8, "big"), (7).to_bytes(8, "big"))
    store = open_store()
    with pytest.raises(Damaged):
        store.due(limit=10)
    assert list(store.check())
