"""Runs that wait for a time: due by the store's clock, or by the wall clock after another boot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import RunRow
from holdfast.testing.contract.build import (
    commit,
    effect,
    held,
    inside,
    posted,
    put_run,
    run_row,
    running,
    settled,
    suspended,
)
from holdfast.testing.contract.fixtures import ContractBase

replace = msgspec.structs.replace

HOUR = 3_600_000
# Large enough to distinguish, and small enough for a clock that started counting recently.
APART = 5_000


def wall() -> int:
    return time.time_ns() // 1000


def sleeping(store: Store, name: str, *, here: int | None = None, elsewhere: int | None = None) -> RunRow:
    """A run that waits for a time, in so many ms, by the store's clock or by that of another boot.

    The clock that does not count gives the opposite answer.
    """
    _, row = running(store, name)
    clock = store.clock()
    changes: dict[str, Any] = {}
    if here is not None:
        changes = {"wake_at": clock.latest_certain + here, "wake_wall": wall() - here * 1000}
    if elsewhere is not None:
        wake_at = 1 if elsewhere > 0 else clock.now + HOUR
        changes = {"clock": "another boot", "wake_at": wake_at, "wake_wall": wall() + elsewhere * 1000}
    row = replace(row, status="waiting", owner=None, lease_until=0, **changes)
    suspended(store, row, None, 0)
    return row


def names(store: Store, limit: int = 100) -> list[str]:
    return [name for name, _ in store.due(limit=limit)]


class DueRunContract(ContractBase):
    def test_a_due_run_is_found(self, store: Store) -> None:
        due = sleeping(store, "due", here=0)
        sleeping(store, "later", here=HOUR)
        assert store.due(limit=10) == [("due", due)]

    def test_on_another_clock_the_wall_clock_counts(self, store: Store) -> None:
        due = sleeping(store, "due", elsewhere=-1)
        sleeping(store, "later", elsewhere=HOUR)
        assert store.due(limit=10) == [("due", due)]

    def test_longest_overdue_first_whatever_the_clock(self, store: Store) -> None:
        sleeping(store, "c", here=-3 * APART)
        sleeping(store, "e", elsewhere=-1 * APART)
        sleeping(store, "a", here=-5 * APART)
        sleeping(store, "d", here=-2 * APART)
        sleeping(store, "b", elsewhere=-4 * APART)
        sleeping(store, "never", here=HOUR)
        assert names(store) == ["a", "b", "c", "d", "e"]
        for limit in (0, 1, 2, 3, 4):
            assert names(store, limit) == ["a", "b", "c", "d", "e"][:limit]
        assert names(store, -1) == []

    def test_several_other_clocks(self, store: Store) -> None:
        now = wall()  # the next threads are stored later, perhaps by seconds
        for n, boot in enumerate(("a boot", "", "z boot", "another \ud800"), 1):
            _, row = running(store, f"due {n}")
            wakes = {"clock": boot, "wake_at": 1 << 50, "wake_wall": now - n * 1_000_000}
            suspended(store, replace(row, status="waiting", **wakes), None, 0)
            _, row = running(store, f"later {n}")
            suspended(store, replace(row, status="waiting", **(wakes | {"wake_wall": wall() + HOUR * 1000})), None, 0)
        assert names(store) == ["due 4", "due 3", "due 2", "due 1"]

    def test_a_run_that_waits_only_for_an_answer_is_not_found(self, store: Store) -> None:
        line, row = running(store)
        suspended(store, replace(row, status="waiting", wake_at=0, wake_wall=1), effect("asked"), 0)
        assert store.due(limit=10) == []
        found = store.run(line.number)
        assert found is not None
        store.claim(found, replace(found, fence=2, clock="another boot"))
        assert store.due(limit=10) == []

    @pytest.mark.parametrize("status", ["running", "idle", "completed", "failed", "halted", "dead"])
    def test_only_waiting_and_queued_runs_are_found(self, store: Store, status: str) -> None:
        _, row = running(store)
        put_run(store, replace(row, status=status, wake_at=1, wake_wall=1))
        assert store.due(limit=10) == []

    def test_a_claimed_run_is_no_longer_found(self, store: Store) -> None:
        sleeping(store, "another", here=HOUR)
        row = sleeping(store, "a", here=0)
        assert names(store) == ["a"]
        store.claim(row, held(store, row.thread, fence=2, wake_at=row.wake_at))
        assert names(store) == []
        found = store.run(row.thread)
        assert found is not None
        suspended(store, replace(found, status="waiting", wake_at=store.clock().now + HOUR), None, 0)
        assert names(store) == []
        later = store.run(row.thread)
        assert later is not None
        store.claim(later, replace(later, fence=3, wake_at=1))
        assert names(store) == ["a"]
        assert list(store.check()) == []

    def test_an_answered_run_is_no_longer_found(self, store: Store) -> None:
        line, row = running(store)
        suspended(store, replace(row, status="waiting", wake_at=1), effect("asked"), 0)
        assert names(store) == ["a"]
        found = store.run(line.number)
        assert found is not None
        queued = replace(found, status="queued", fence=2, wake_at=0)
        settled(store, line.number, 1, "asked", effect("done"), found, queued)
        assert names(store) == []

    def test_a_run_that_a_commit_creates_or_changes(self, store: Store) -> None:
        clock = store.clock().id
        row = run_row(0, status="waiting", clock=clock, wake_at=1)
        at = store.commit(inside(commit("brought"), run=row))
        line, mine = running(store, "changed")
        store.commit(inside(commit("changed", line.at), fence=1, run=replace(mine, status="waiting", wake_at=2)))
        assert names(store) == ["brought", "changed"]
        assert store.due(limit=1) == [("brought", replace(row, thread=at.thread))]

    def test_a_due_run_is_found_until_it_is_claimed(self, store: Store) -> None:
        sleeping(store, "a", here=0)
        assert names(store) == names(store) == ["a"]

    def test_a_due_run_with_a_new_journal_entry_is_found(self, store: Store) -> None:
        row = sleeping(store, "a", here=0)
        posted(store, row.thread, effect())
        assert store.due(limit=10) == [("a", row)]
        assert list(store.check()) == []

    def test_a_dropped_thread_does_not_wake(self, store: Store) -> None:
        gone = sleeping(store, "gone", here=0)
        sleeping(store, "stays", here=0)
        store.drop(gone.thread)
        assert names(store) == ["stays"]
        sleeping(store, "gone", here=HOUR)
        assert names(store) == ["stays"]

    @pytest.fixture
    def other(self, store: Store, tmp_path: Path) -> Iterator[Store]:
        with closing(self.open_store(tmp_path, namespace="other")) as other:
            yield other

    def test_a_namespace_wakes_no_run_of_another(self, store: Store, other: Store) -> None:
        sleeping(store, "a", here=0)
        sleeping(store, "b", elsewhere=-1)
        assert names(other) == []
        sleeping(other, "c", here=0)
        assert names(other) == ["c"]
        assert sorted(names(store)) == ["a", "b"]

    @pytest.mark.usefixtures("needs_durable")
    def test_waiting_runs_survive_reopening(self, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as store:
            rows = [sleeping(store, "here", here=-APART), sleeping(store, "elsewhere", elsewhere=-1)]
            sleeping(store, "later", here=HOUR)
        with closing(self.open_store(tmp_path)) as store:
            assert store.due(limit=10) == [("here", rows[0]), ("elsewhere", rows[1])]
            assert list(store.check()) == []
