"""Runs: the clock, claims, renewals, updates, and pages of runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import Conflict, InvalidArgument, LeaseHeld, LeaseLost, NotFound
from holdfast.stores.contract import Claimed, Store
from holdfast.stores.contract_runs import Owner, Progress, RunRow
from holdfast.testing.contract.build import (
    FAR,
    commit,
    effect,
    inside,
    journaled,
    numbered,
    numbers_of,
    posted,
    put_run,
    run_row,
    running,
    saved,
    settled,
    suspended,
)
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import thread_named

PATIENCE = 60
replace = msgspec.structs.replace

ENDED = ("queued", "waiting", "idle", "completed", "failed", "halted", "dead")


class RunContract(ContractBase):
    @pytest.fixture
    def other(self, store: Store, tmp_path: Path) -> Iterator[Store]:
        other = self.open_store(tmp_path, namespace="other")
        yield other
        other.close()

    # -- the clock --------------------------------------------------------------------------------------------------

    def test_the_clock_has_an_id_and_never_goes_back(self, store: Store) -> None:
        seen = [store.clock() for _ in range(100)]
        assert {at.id for at in seen} == {seen[0].id} != {""}
        assert [at.now for at in seen] == sorted(at.now for at in seen)

    @pytest.mark.usefixtures("needs_durable")
    def test_two_handles_have_one_clock(self, store: Store, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as second:
            before, there, after = store.clock(), second.clock(), store.clock()
        assert before.id == there.id
        # Each knows the time only as well as its clock does.
        assert before.latest_certain <= there.now
        assert there.latest_certain <= after.now

    # -- claiming ---------------------------------------------------------------------------------------------------

    def test_listings_of_threads_show_the_status_of_the_run(self, store: Store) -> None:
        line = saved(store, "a", "x")
        row = run_row(line.number, status="running", updated_at=17)
        store.claim(None, row)
        assert [(t.summary.status, t.summary.updated_at) for t in store.threads(prefix="", after=None, limit=9)] == [
            ("running", 17)
        ]
        put_run(store, replace(row, status="failed", updated_at=18))
        thread = thread_named(store, "a")
        assert thread is not None
        assert (thread.summary.status, thread.summary.updated_at) == ("failed", 18)
        assert list(store.check()) == []

    def test_a_thread_that_never_had_a_run_has_none(self, store: Store) -> None:
        line = saved(store, "a", "x")
        assert store.run(line.number) is None
        assert store.run(99) is store.run(0) is store.run(-1) is None

    def test_a_claim_creates_the_run_as_it_is_given(self, store: Store) -> None:
        line = saved(store, "a", "x")
        row = RunRow(
            thread=line.number,
            status="running",
            fence=1,
            attempt=3,
            reason="é \ud800",
            owner=Owner("höst\udcff", "boot", 1 << 40, 42, 1 << 50),
            clock="clock",
            lease_until=1 << 50,
            wake_at=77,
            wake_wall=1_700_000_000_000_002,
            question=5,
            turn="turn \udc80",
            parent="pärent",
            progress=Progress(1.5, None, "half \ud800", 1_700_000_000_000_003),
            handler="invoice",
            version="v1",
            agent="agent\0",
            branch=2,
            start=b"\xff" * 32,
            result=b"\x00result",
            created_at=1_700_000_000_000_000,
            updated_at=1_700_000_000_000_001,
        )
        store.claim(None, row)
        assert store.run(line.number) == row

    def test_a_claim_returns_what_it_has_locked(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        line.rewind(1)
        row = run_row(line.number)
        assert store.claim(None, row) == Claimed(line.at, row, 0)
        journaled(store, line.number, 1, [effect(), effect()])
        posted(store, line.number, effect())
        line.position = store.commit(inside(commit("a", line.at), fence=1))
        taken = replace(row, fence=2, attempt=7)
        assert store.claim(row, taken) == Claimed(line.at, taken, 3)

    def test_a_claim_without_a_clock_counts_the_lease_from_now(self, store: Store) -> None:
        line = saved(store, "a", "x")
        owner = Owner("host", "boot", 1, 2, 3)
        before = store.clock()
        row = run_row(line.number, owner=owner, lease_until=5_000)
        first = store.claim(None, row).run
        assert store.run(line.number) == first
        assert before.now + 5_000 <= first.lease_until <= store.clock().now + 5_000
        assert first == replace(row, clock=before.id, lease_until=first.lease_until, lease_first=first.lease_until)
        again = store.claim(first, replace(row, fence=2)).run
        assert again.clock == before.id
        assert again.lease_until >= first.lease_until
        for given in (replace(row, fence=3, owner=None), replace(row, fence=3, status="waiting")):
            with pytest.raises(Conflict):
                store.claim(first, replace(given, fence=2))
        unheld = replace(row, fence=3, owner=None)
        assert store.claim(again, unheld).run == unheld

    def test_a_claim_replaces_the_whole_record(self, store: Store) -> None:
        line, row = running(store, reason="r", handler="h", result=b"x")
        taken = RunRow(thread=line.number, status="running", fence=2)
        store.claim(row, taken)
        assert store.run(line.number) == taken

    def test_a_claim_needs_the_record_to_be_exactly_as_expected(self, store: Store) -> None:
        line, row = running(store)
        for wrong in (replace(row, lease_until=row.lease_until + 1), replace(row, owner=None), replace(row, reason="")):
            with pytest.raises(Conflict):
                store.claim(wrong, replace(wrong, fence=2))
        with pytest.raises(Conflict):
            store.claim(None, row)
        assert store.run(line.number) == row
        store.renew(line.number, 1, row.lease_until + 5)
        with pytest.raises(Conflict):
            store.claim(row, replace(row, fence=2))
        renewed = replace(row, lease_until=row.lease_until + 5)
        store.claim(renewed, replace(row, fence=2))
        with pytest.raises(Conflict):
            store.claim(renewed, replace(row, fence=2, attempt=9))

    def test_a_claim_of_a_missing_run_conflicts(self, store: Store) -> None:
        line = saved(store, "a", "x")
        row = run_row(line.number)
        with pytest.raises(Conflict):
            store.claim(row, replace(row, fence=2))
        assert store.run(line.number) is None

    @pytest.mark.parametrize("fence", [0, 1, 3])
    def test_a_claims_fence_is_one_higher(self, store: Store, fence: int) -> None:
        line, row = running(store)
        with pytest.raises(InvalidArgument):
            store.claim(row, replace(row, fence=fence))
        other = saved(store, "b", "x")
        with pytest.raises(InvalidArgument):
            store.claim(None, run_row(other.number, fence=2))
        with pytest.raises(InvalidArgument):
            store.claim(row, run_row(other.number, fence=2))
        assert (store.run(line.number), store.run(other.number)) == (row, None)

    def test_a_missing_thread_cannot_be_claimed(self, store: Store) -> None:
        line = saved(store, "a", "x")
        store.drop(line.number)
        for number in (line.number, 99):
            with pytest.raises(NotFound):
                store.claim(None, run_row(number))
        assert store.runs(statuses=["running"], after=(0, 0), limit=10) == []

    def test_a_claim_does_not_check_the_lease(self, store: Store) -> None:
        """An owner that is proven dead is replaced at once. The layer above decides who may claim."""
        _, row = running(store)
        store.claim(row, replace(row, fence=2))

    def test_only_one_of_many_claims_wins(self, store: Store) -> None:
        line, row = running(store, lease_until=0)
        start = threading.Barrier(8, timeout=PATIENCE)

        def attempt(n: int) -> RunRow | None:
            mine = replace(row, fence=2, attempt=n)
            start.wait()
            try:
                store.claim(row, mine)
            except Conflict:
                return None
            return mine

        with ThreadPoolExecutor(8) as pool:
            [won] = [mine for mine in pool.map(attempt, range(8), timeout=PATIENCE) if mine]
        assert store.run(line.number) == won

    # -- renewing and updating --------------------------------------------------------------------------------------

    def test_a_renewal_changes_only_the_end_of_the_lease(self, store: Store) -> None:
        line, row = running(store, lease_until=100)
        store.renew(line.number, 1, 123)
        assert store.run(line.number) == replace(row, lease_until=123)

    def test_a_renewal_stores_the_progress(self, store: Store) -> None:
        line, row = running(store, lease_until=100)
        said = Progress(1.5, 3.0, "hälf \ud800", 1_700_000_000_000_003)
        store.renew(line.number, 1, 123, said)
        assert store.run(line.number) == replace(row, lease_until=123, progress=said)
        store.renew(line.number, 1, 124)
        assert store.run(line.number) == replace(row, lease_until=124, progress=said), "without progress, it stays"
        store.renew(line.number, 1, 100, replace(said, done=2.0))
        assert store.run(line.number) == replace(row, lease_until=124, progress=replace(said, done=2.0))
        with pytest.raises(LeaseLost):
            store.renew(line.number, 2, 125, replace(said, done=3.0))
        assert store.run(line.number) == replace(row, lease_until=124, progress=replace(said, done=2.0))

    def test_an_update_replaces_the_record(self, store: Store) -> None:
        line, row = running(store)
        ended = replace(row, status="completed", owner=None, lease_until=0, result=b"r", updated_at=9)
        put_run(store, ended)
        assert store.run(line.number) == ended

    # -- pages of runs ----------------------------------------------------------------------------------------------

    def test_pages_of_runs_oldest_first(self, store: Store) -> None:
        ages = {"a": 30, "b": 10, "c": 20, "d": 10, "e": 20}
        rows = {name: running(store, name, updated_at=age)[1] for name, age in ages.items()}
        listed = store.runs(statuses=["running"], after=(0, 0), limit=10)
        order = sorted(ages, key=lambda name: (ages[name], rows[name].thread))
        assert listed == [(name, rows[name]) for name in order]
        for size in (1, 2, 3):
            paged: list[str] = []
            after = (0, 0)
            while page := store.runs(statuses=["running"], after=after, limit=size):
                assert len(page) <= size
                paged += [name for name, _ in page]
                after = page[-1][1].updated_at, page[-1][1].thread
            assert paged == order
        assert store.runs(statuses=["running"], after=(0, 0), limit=0) == []
        assert store.runs(statuses=[], after=(0, 0), limit=10) == []

    def test_runs_are_found_by_status(self, store: Store) -> None:
        for at, status in enumerate(("running", *ENDED), 1):
            _, row = running(store, status, updated_at=at)
            put_run(store, replace(row, status=status))
        saved(store, "no run", "x")

        def listed(*statuses: str) -> list[str]:
            return [name for name, _ in store.runs(statuses=statuses, after=(0, 0), limit=20)]

        for status in ("running", *ENDED):
            assert listed(status) == [status]
        assert listed("waiting", "queued") == ["queued", "waiting"]
        assert listed("dead", "running", "completed") == ["running", "completed", "dead"]
        assert listed(*ENDED) == list(ENDED)
        assert listed("no such status", "'; --") == []

    def test_a_run_moves_in_the_pages_when_it_changes(self, store: Store) -> None:
        _, first = running(store, "a", updated_at=1)
        running(store, "b", updated_at=2)
        put_run(store, replace(first, updated_at=3))
        assert [name for name, _ in store.runs(statuses=["running"], after=(0, 0), limit=9)] == ["b", "a"]
        put_run(store, replace(first, status="waiting", updated_at=3))
        assert [name for name, _ in store.runs(statuses=["running"], after=(0, 0), limit=9)] == ["b"]
        assert [name for name, _ in store.runs(statuses=["waiting"], after=(2, FAR), limit=9)] == ["a"]

    # -- namespaces and reopening -----------------------------------------------------------------------------------

    def test_a_namespace_sees_and_moves_no_run_of_another(self, store: Store, other: Store) -> None:
        saved(other, "mine", "x")
        lines = [running(store, f"hidden-{n}") for n in range(3)]
        line, row = next(pair for pair in reversed(lines) if pair[0].number not in numbers_of(other))
        journaled(store, line.number, 1, [effect("started")])
        assert other.run(line.number) is None
        assert other.entries(line.number, after=0, limit=10) == []
        assert other.last_entry(line.number) == 0
        assert other.runs(statuses=("running", *ENDED), after=(0, 0), limit=10) == []
        with pytest.raises(NotFound):
            other.claim(None, row)
        with pytest.raises(Conflict):
            other.claim(row, replace(row, fence=2))
        with pytest.raises(LeaseLost):
            other.renew(line.number, 1, FAR)
        with pytest.raises(LeaseLost):
            put_run(other, replace(row, attempt=9))
        with pytest.raises(LeaseLost):
            journaled(other, line.number, 1, [effect()])
        with pytest.raises(LeaseLost):
            other.commit(inside(commit(line.name, line.at), fence=1))
        with pytest.raises(Conflict):
            other.commit(commit(line.name, line.at))
        with pytest.raises(LeaseLost):
            suspended(other, replace(row, status="waiting"), effect(), 1)
        with pytest.raises(NotFound):
            posted(other, line.number, effect())
        with pytest.raises(NotFound):
            settled(other, line.number, 1, "started", effect())
        with pytest.raises(NotFound):
            settled(other, line.number, 1, "started", effect(), row, replace(row, fence=2, status="queued"))
        assert store.run(line.number) == row
        assert store.entries(line.number, after=0, limit=10) == [effect("started", number=1)]

    @pytest.mark.usefixtures("needs_durable")
    def test_runs_and_journals_survive_reopening(self, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as store:
            line, row = running(store)
            journaled(store, line.number, 1, [effect(result=b"r" * 5000), effect("started")])
        with closing(self.open_store(tmp_path)) as store:
            assert store.run(line.number) == row
            assert store.entries(line.number, after=0, limit=10) == numbered(
                effect(result=b"r" * 5000), effect("started")
            )
            assert store.runs(statuses=["running"], after=(0, 0), limit=10) == [("a", row)]
            with pytest.raises(LeaseHeld):
                store.commit(commit("a", line.at))
            assert journaled(store, line.number, 1, [effect()]) == [3]
            assert list(store.check()) == []
