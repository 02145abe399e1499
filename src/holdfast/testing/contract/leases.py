"""Fences and leases: which writes they allow, and the part of a commit that concerns a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.errors import AlreadyExists, Conflict, InvalidArgument, JournalAhead, LeaseHeld, LeaseLost, NotFound
from holdfast.stores.contract import Position, Store
from holdfast.testing.contract.build import (
    FAR,
    commit,
    effect,
    everything,
    held,
    inside,
    journaled,
    posted,
    put_run,
    run_row,
    running,
    saved,
    settled,
    summary,
    suspended,
)
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import checkpoint_at, thread_named

replace = msgspec.structs.replace

ENDED = ("queued", "waiting", "idle", "completed", "failed", "halted", "dead")


class LeaseContract(ContractBase):
    # -- losing a lease ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("lease", ["held", "expired", "another clock"])
    def test_a_fence_is_valid_until_another_claim(self, store: Store, lease: str) -> None:
        ended: dict[str, Any] = {} if lease == "held" else {"lease_until": store.clock().now - 1}
        line, row = running(store, **ended)
        if lease == "another clock":
            put_run(store, replace(row, clock="another boot"))
        journaled(store, line.number, 1, [effect()])
        store.commit(inside(commit("a", line.at), fence=1))
        put_run(store, row)
        store.renew(line.number, 1, row.lease_until)

    @pytest.mark.parametrize("how", ["taken over", *ENDED])
    def test_who_lost_the_lease_changes_nothing(self, store: Store, how: str) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect()])
        if how == "taken over":
            store.claim(row, held(store, line.number, fence=2))
        else:
            put_run(store, replace(row, status=how))
        before = store.run(line.number), everything(store), store.entries(line.number, after=0, limit=10)
        calls: dict[str, Callable[[], object]] = {
            "renew": lambda: store.renew(line.number, 1, FAR),
            "update_run": lambda: put_run(store, row),
            "journal": lambda: journaled(store, line.number, 1, [effect(), effect(number=1)]),
            "commit": lambda: store.commit(
                inside(commit("a", line.at), fence=1, run=row, entries=(effect(number=2),), last_entry=1)
            ),
            "suspend": lambda: suspended(store, replace(row, status="waiting"), effect("asked"), 1),
        }
        for verb, call in calls.items():
            with pytest.raises(LeaseLost):
                call()
            after = store.run(line.number), everything(store), store.entries(line.number, after=0, limit=10)
            assert after == before, verb

    @pytest.mark.parametrize("fence", [0, 1, 2])
    def test_a_thread_without_a_run_has_no_lease(self, store: Store, fence: int) -> None:
        line = saved(store, "a", "x")
        for number in (line.number, 99, 0):
            with pytest.raises(LeaseLost):
                store.renew(number, fence, FAR)
            with pytest.raises(LeaseLost):
                put_run(store, run_row(number, fence=fence))
            with pytest.raises(LeaseLost):
                journaled(store, number, fence, [effect()])
            with pytest.raises(LeaseLost):
                suspended(store, run_row(number, fence=fence, status="waiting"), None, 0)
        with pytest.raises(LeaseLost):
            store.commit(inside(commit("a", line.at), fence=fence))
        with pytest.raises(LeaseLost):
            store.commit(inside(commit("new"), fence=fence))
        assert store.run(line.number) is None
        assert thread_named(store, "new") is None

    # -- commits inside a run ---------------------------------------------------------------------------------------

    def test_a_commit_creates_a_thread_with_its_run(self, store: Store) -> None:
        row = run_row(0, status="queued", fence=0, start=b"digest")
        at = store.commit(inside(commit("a"), run=row))
        assert store.run(at.thread) == replace(row, thread=at.thread)
        store.claim(replace(row, thread=at.thread), held(store, at.thread))

    def test_a_commit_creates_the_run_of_a_thread_that_has_none(self, store: Store) -> None:
        line = saved(store, "a", "x")
        row = run_row(line.number)
        at = store.commit(inside(commit("a", line.at), run=row, entries=(effect(number=1),), last_entry=0))
        assert store.run(line.number) == row
        assert store.entries(line.number, after=0, limit=10) == [effect(number=1)]
        with pytest.raises(Conflict):
            store.commit(inside(commit("a", at), run=row))
        assert line.stored().position == at

    @pytest.mark.parametrize("status", ["running", *ENDED])
    def test_a_run_is_not_created_over_another(self, store: Store, status: str) -> None:
        line, row = running(store, lease_until=0)
        put_run(store, replace(row, status=status))
        with pytest.raises(Conflict):
            store.commit(inside(commit("a", line.at), run=run_row(line.number, attempt=7)))
        assert store.run(line.number) == replace(row, status=status)
        assert line.stored().position == line.at

    def test_a_thread_that_exists_is_not_created_with_a_run(self, store: Store) -> None:
        line = saved(store, "a", "x")
        with pytest.raises(AlreadyExists):
            store.commit(inside(commit("a"), run=run_row(0)))
        assert store.run(line.number) is None

    def test_a_commit_inside_a_run(self, store: Store) -> None:
        line, row = running(store)
        [number] = journaled(store, line.number, 1, [effect("started", key="k")])
        done = effect("done", key="k", number=number, result=b"r")
        late = replace(row, attempt=0, updated_at=99)
        entries = (effect(key="x", number=2), done, effect(key="y", number=3))
        at = store.commit(inside(commit("a", line.at), fence=1, run=late, entries=entries, last_entry=1))
        assert line.stored().position == at == Position(line.number, 2, 2, 2)
        assert store.run(line.number) == late
        assert store.entries(line.number, after=0, limit=10) == [
            done,
            effect(key="x", number=2),
            effect(key="y", number=3),
        ]
        at = store.commit(inside(commit("a", at), fence=1))
        assert store.run(line.number) == late

    def test_a_rejected_commit_leaves_run_and_journal_unchanged(self, store: Store) -> None:
        line, row = running(store)
        brings = {"fence": 1, "run": replace(row, attempt=9), "entries": (effect(number=1),), "last_entry": 0}
        wrong = replace(line.at, move=9)
        with pytest.raises(Conflict):
            store.commit(inside(commit("a", wrong), **brings))
        with pytest.raises(Conflict):
            store.commit(inside(commit("a", line.at, bases=[(line.number, 9)]), **brings))
        with pytest.raises(NotFound):
            store.commit(inside(commit("a", line.at), **(brings | {"last_entry": None})))
        for entries in ((effect(number=1), effect(number=5)), (effect(),), (effect(number=2),)):
            with pytest.raises(InvalidArgument):
                store.commit(inside(commit("a", line.at), **(brings | {"entries": entries})))
        assert store.run(line.number) == row
        assert store.entries(line.number, after=0, limit=10) == []
        assert line.stored().position == line.at
        assert checkpoint_at(store, line.number, 2) is None

    def test_a_lost_lease_is_reported_before_a_conflict(self, store: Store) -> None:
        line, row = running(store)
        store.claim(row, held(store, line.number, fence=2))
        store.commit(inside(commit("a", line.at), fence=2))
        with pytest.raises(LeaseLost):
            store.commit(inside(commit("a", line.at), fence=1))

    def test_a_commit_that_contradicts_itself(self, store: Store) -> None:
        line, row = running(store)
        other = saved(store, "b", "x")
        for made in (
            inside(commit("a", line.at), fence=1, run=replace(row, fence=2)),
            inside(commit("a", line.at), fence=1, run=replace(row, thread=other.number)),
            inside(commit("b", other.at), entries=(effect(number=1),), last_entry=0),
            inside(commit("new"), run=run_row(other.number)),
        ):
            with pytest.raises(InvalidArgument):
                store.commit(made)
        assert store.run(line.number) == row
        assert store.run(other.number) is None
        assert thread_named(store, "new") is None

    # -- excluding other writers ------------------------------------------------------------------------------------

    def test_a_live_lease_excludes_other_writers(self, store: Store) -> None:
        line, row = running(store)
        line.position = store.commit(inside(commit("a", line.at), fence=1))
        before = everything(store)
        with pytest.raises(LeaseHeld):
            store.commit(commit("a", line.at))
        with pytest.raises(LeaseHeld):
            store.rewind(line.at, to=1, summary=summary())
        with pytest.raises(LeaseHeld):
            store.drop(line.number)
        assert everything(store) == before
        assert store.run(line.number) == row
        assert store.delete(line.number, [1]) == 1, "checkpoints other than the head can be deleted"
        saved(store, "b", "x").save("y")

    def test_a_save_outside_an_unfinished_run_says_which_entries_it_has_seen(self, store: Store) -> None:
        line, row = running(store)
        store.journal(line.number, 1, [effect(number=1)], last=0)
        for status in ("idle", "halted", "waiting", "queued", "failed", "dead"):
            row = store.run(line.number) or row
            left = replace(row, status=status, owner=None, lease_until=0)
            if row.status == "running":
                store.journal(line.number, row.fence, (), last=None, run=left)
            else:
                store.claim(row, replace(left, fence=row.fence + 1))
            before = everything(store)
            with pytest.raises(JournalAhead):
                store.commit(commit("a", line.at))
            with pytest.raises(Conflict):
                store.commit(inside(commit("a", line.at), last_entry=0))
            with pytest.raises(LeaseLost):
                store.commit(inside(commit("a", line.at), fence=row.fence))
            assert everything(store) == before
            line.position = store.commit(inside(commit("a", line.at), last_entry=1))
        row = store.run(line.number) or row
        store.claim(row, replace(row, status="completed", fence=row.fence + 1))
        line.position = store.commit(commit("a", line.at))
        # A save that has read the journal is compared with it, whether or not the run was completed meanwhile.
        before = everything(store)
        for last in (0, 2):
            with pytest.raises(Conflict):
                store.commit(inside(commit("a", line.at), last_entry=last))
        assert everything(store) == before
        line.position = store.commit(inside(commit("a", line.at), last_entry=1))

    def test_a_held_lease_is_reported_before_a_conflict(self, store: Store) -> None:
        line, _ = running(store)
        store.commit(inside(commit("a", line.at), fence=1))
        with pytest.raises(LeaseHeld):
            store.commit(commit("a", line.at))
        with pytest.raises(LeaseHeld):
            store.rewind(line.at, to=1, summary=summary())

    @pytest.mark.parametrize("why", ["expired", "another clock", "no owner", *ENDED])
    def test_an_ended_lease_excludes_no_writer(self, store: Store, why: str) -> None:
        changes: dict[str, dict[str, Any]] = {
            "expired": {"lease_until": store.clock().latest_certain},
            "another clock": {"clock": "another boot"},
            "no owner": {"owner": None},
        }
        line, row = running(store, **changes.get(why, {}))
        if why in ENDED:
            put_run(store, replace(row, status=why))
        line.position = store.commit(inside(commit("a", line.at), last_entry=0))
        line.rewind(1)
        store.drop(line.number)
        assert thread_named(store, "a") is None

    # -- a lease does not move backwards -----------------------------------------------------------------------------

    @pytest.mark.parametrize("verb", ["renew", "update_run", "commit", "suspend"])
    def test_a_write_prepared_before_a_renewal_does_not_undo_it(self, store: Store, verb: str) -> None:
        line, row = running(store)
        renewed = row.lease_until + 5
        store.renew(line.number, 1, renewed)
        slow = replace(row, attempt=7)
        calls: dict[str, Callable[[], object]] = {
            "renew": lambda: store.renew(line.number, 1, row.lease_until),
            "update_run": lambda: put_run(store, slow),
            "commit": lambda: store.commit(inside(commit("a", line.at), fence=1, run=slow)),
            "suspend": lambda: suspended(store, slow, None, 0),
        }
        calls[verb]()
        assert store.run(line.number) == replace(row if verb == "renew" else slow, lease_until=renewed)

    @pytest.mark.parametrize("verb", ["update_run", "commit"])
    @pytest.mark.parametrize("changes", [{"status": "idle", "lease_until": 0}, {"clock": "another", "lease_until": 5}])
    def test_a_lease_ends_with_the_run_and_restarts_on_another_clock(
        self, store: Store, verb: str, changes: dict[str, Any]
    ) -> None:
        line, row = running(store)
        changed = replace(row, **changes)
        if verb == "commit":
            store.commit(inside(commit("a", line.at), fence=1, run=changed))
        else:
            put_run(store, changed)
        assert store.run(line.number) == changed

    def test_a_claim_may_shorten_a_lease(self, store: Store) -> None:
        line, row = running(store)
        taken = replace(row, fence=2, lease_until=5)
        store.claim(row, taken)
        assert store.run(line.number) == taken

    # -- dropping ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("forked", [False, True])
    def test_a_dropped_thread_has_no_run_and_no_journal(self, store: Store, forked: bool) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect()] * 3)
        suspended(store, replace(row, status="waiting", wake_at=1), None, 3)
        if forked:
            saved(store, "fork", "y").save(origins=[line.number], bases=[(line.number, 1)])
        store.drop(line.number)
        assert store.run(line.number) is None
        assert store.entries(line.number, after=0, limit=10) == []
        assert store.last_entry(line.number) == 0
        assert store.runs(statuses=["waiting"], after=(0, 0), limit=10) == []
        assert store.due(limit=10) == []
        with pytest.raises(LeaseLost):
            journaled(store, line.number, 1, [effect()])
        with pytest.raises(LeaseLost):
            suspended(store, row, effect(), 3)
        with pytest.raises(NotFound):
            posted(store, line.number, effect())
        with pytest.raises(NotFound):
            posted(store, line.number, effect(), last=3)
        with pytest.raises(NotFound):
            settled(store, line.number, 1, "done", effect())
        with pytest.raises(Conflict):
            store.claim(row, replace(row, fence=2))
        with pytest.raises(LeaseLost):
            store.commit(inside(commit("a", line.at), fence=1))
        assert list(store.check()) == []
        again = saved(store, "a", "z")
        assert store.run(again.number) is None
        assert store.entries(again.number, after=0, limit=10) == []
