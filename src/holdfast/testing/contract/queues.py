"""The queue of a handler: highest priority first, then oldest; and the limits of claims for a handler."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import Conflict, LimitReached
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import ClaimLimit, Owner, RunRow
from holdfast.testing.contract.build import commit, inside, put_run, run_row, running
from holdfast.testing.contract.fixtures import ContractBase

replace = msgspec.structs.replace

START = (-(1 << 62), 0, 0)
OWNER = Owner("host", "boot", 1, 2, 3)


def queued(store: Store, name: str, **changes: Any) -> RunRow:
    """A thread with a run that is queued for handler "h"."""
    fields: dict[str, Any] = {"status": "queued", "handler": "h"}
    position = store.commit(inside(commit(name), run=run_row(0, **(fields | changes))))
    row = store.run(position.thread)
    assert row is not None
    return row


def names(store: Store, *handlers: str, limit: int = 100, after: tuple[int, int, int] = START) -> list[str]:
    page = store.queue(handlers=handlers or ("h",), after=after, limit=limit)
    return [name for name, _ in page]


def claimed(store: Store, row: RunRow, limit: ClaimLimit, lease: int = 3_600_000) -> RunRow:
    """Claim a run for a lease of so many ms."""
    taken = replace(row, status="running", fence=row.fence + 1, owner=OWNER, lease_until=lease)
    return store.claim(row, taken, limit).run


class QueueContract(ContractBase):
    def test_a_higher_priority_comes_first_then_the_older(self, store: Store) -> None:
        for name, priority, at in (("d", 0, 1), ("b", 7, 5), ("e", -3, 0), ("a", 9, 9), ("c", 7, 6)):
            queued(store, name, priority=priority, updated_at=at)
        assert names(store) == ["a", "b", "c", "d", "e"]
        for limit in (0, 1, 2, 3, 4):
            assert names(store, limit=limit) == ["a", "b", "c", "d", "e"][:limit]
        assert names(store, limit=-1) == []

    def test_pages_follow_each_other(self, store: Store) -> None:
        for number in range(7):
            queued(store, f"{number}", priority=number % 3, updated_at=number)
        whole = names(store)
        for size in (1, 2, 3):
            found: list[str] = []
            after = START
            while page := store.queue(handlers=["h"], after=after, limit=size):
                found += [name for name, _ in page]
                last = page[-1][1]
                after = (-last.priority, last.updated_at, last.thread)
            assert found == whole

    def test_each_handler_has_its_own(self, store: Store) -> None:
        long = "h" * 5_000
        queued(store, "a", handler="one", updated_at=3)
        queued(store, "b", handler="two", updated_at=2)
        queued(store, "c", handler="two", updated_at=1, priority=1)
        queued(store, "d", handler=None, agent="one", updated_at=1)
        queued(store, "e", handler=None)
        queued(store, "f", handler=long)
        queued(store, "g", handler="\ud800\0")
        queued(store, "child", handler=None, parent="a")
        assert names(store, "one") == ["d", "a"]
        assert names(store, "one", "two") == ["c", "d", "b", "a"]
        assert names(store, long) == ["f"]
        assert names(store, "\ud800\0") == ["g"]
        assert names(store, "") == ["child"]
        assert store.queue(handlers=(), after=START, limit=9) == []

    def test_only_runs_that_can_be_claimed_at_once(self, store: Store) -> None:
        for status in ("queued", "released", "failed", "waiting", "running", "idle", "halted", "dead", "completed"):
            queued(store, status, status=status)
        clock = store.clock()
        queued(store, "later", clock=clock.id, wake_at=clock.now + 3_600_000, wake_wall=1 << 60)
        assert sorted(names(store)) == ["failed", "queued", "released"]

    def test_a_run_queued_for_a_time_is_due_then(self, store: Store) -> None:
        clock = store.clock()
        row = queued(store, "now", clock=clock.id, wake_at=clock.latest_certain, wake_wall=0)
        queued(store, "later", clock=clock.id, wake_at=clock.now + 3_600_000, wake_wall=0)
        assert names(store) == []
        assert store.due(limit=9) == [("now", row)]

    def test_due_runs_with_a_higher_priority_come_first(self, store: Store) -> None:
        clock = store.clock()
        wall = time.time_ns() // 1000
        for name, priority, by in (("c", 0, 9_000), ("a", 2, 1_000), ("b", 2, 500), ("d", 0, 100), ("e", -1, 20_000)):
            queued(store, name, status="waiting", priority=priority, clock=clock.id, wake_at=clock.latest_certain - by)
        queued(store, "a2", status="waiting", priority=2, clock="other", wake_at=1, wake_wall=wall - 800_000)
        assert [name for name, _ in store.due(limit=9)] == ["a", "a2", "b", "c", "d", "e"]
        assert [name for name, _ in store.due(limit=2)] == ["a", "a2"]

    def test_it_follows_the_runs(self, store: Store) -> None:
        row = queued(store, "a", priority=3)
        held = store.claim(row, replace(row, status="running", fence=2)).run
        assert names(store) == []
        put_run(store, replace(held, status="released"))
        [(name, found)] = store.queue(handlers=["h"], after=START, limit=9)
        assert (name, found.priority) == ("a", 3)
        store.drop(row.thread)
        assert names(store) == []

    def test_another_namespace_is_not_seen(self, store: Store, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("one handle is one store")
        queued(store, "a")
        other = self.open_store(tmp_path, namespace="other")
        try:
            assert names(other) == []
        finally:
            other.close()


class LimitContract(ContractBase):
    def test_so_many_runs_are_held_at_a_time(self, store: Store) -> None:
        rows = [queued(store, f"{number}") for number in range(4)]
        limit = ClaimLimit("h", held=2)
        first = claimed(store, rows[0], limit)
        claimed(store, rows[1], limit)
        with pytest.raises(LimitReached) as refused:
            claimed(store, rows[2], limit)
        assert refused.value.seconds is None
        assert store.run(rows[2].thread) == rows[2]
        put_run(store, replace(first, status="waiting", owner=None, lease_until=0))
        claimed(store, rows[2], limit)
        with pytest.raises(LimitReached):
            claimed(store, rows[3], limit)

    def test_a_lease_that_ended_holds_no_slot(self, store: Store) -> None:
        limit = ClaimLimit("h", held=1)
        held = claimed(store, queued(store, "a"), limit, lease=300)
        second = queued(store, "b")
        while not store.clock().has_reached(held.lease_until):
            try:
                claimed(store, second, limit)
            except LimitReached:
                time.sleep(0.02)
            else:
                assert store.clock().has_reached(held.lease_until)
                return
        claimed(store, second, limit)

    def test_a_run_does_not_stand_in_its_own_way(self, store: Store) -> None:
        limit = ClaimLimit("h", held=1)
        held = claimed(store, queued(store, "a"), limit)
        claimed(store, replace(held), limit)

    def test_other_handlers_and_children_do_not_count(self, store: Store) -> None:
        running(store, "other", handler="other")
        running(store, "child", agent="h", parent="other")
        claimed(store, queued(store, "a"), ClaimLimit("h", held=1))

    def test_a_run_of_the_agent_counts(self, store: Store) -> None:
        running(store, "by hand", agent="h")
        with pytest.raises(LimitReached):
            claimed(store, queued(store, "a"), ClaimLimit("h", held=1))

    def test_so_many_claims_within_a_time(self, store: Store) -> None:
        limit = ClaimLimit("h", claims=2, within=600)
        rows = [queued(store, f"{number}") for number in range(3)]
        clock = store.clock()
        before, unsure = clock.now, (0 if clock.certain is None else clock.now - clock.certain + 1) / 1000
        claimed(store, rows[0], limit)
        claimed(store, rows[1], limit)
        refused: list[float | None] = []
        while store.run(rows[2].thread) == rows[2]:
            try:
                claimed(store, rows[2], limit)
            except LimitReached as reached:
                refused.append(reached.seconds)
                time.sleep(reached.seconds or 0)
        assert all(seconds is not None and 0 < seconds <= 0.6 + unsure for seconds in refused)
        assert store.clock().now - before >= 600

    def test_a_claim_that_fails_is_not_counted(self, store: Store) -> None:
        limit = ClaimLimit("h", claims=1, within=3_600_000)
        row = queued(store, "a")
        for _ in range(3):
            with pytest.raises(Conflict):
                claimed(store, replace(row, attempt=9), limit)
        claimed(store, row, limit)
        with pytest.raises(LimitReached):
            claimed(store, queued(store, "b"), limit)
        claimed(store, queued(store, "c"), ClaimLimit("another", claims=1, within=3_600_000))

    def test_claims_at_the_same_time_are_counted_exactly(self, store: Store) -> None:
        limit = ClaimLimit("h", held=3, claims=50, within=3_600_000)
        rows = [queued(store, f"{number}") for number in range(12)]
        claims: list[int] = []

        def claim(row: RunRow) -> None:
            try:
                claims.append(claimed(store, row, limit).thread)
            except LimitReached:
                return

        threads = [threading.Thread(target=claim, args=(row,)) for row in rows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(claims) == 3
