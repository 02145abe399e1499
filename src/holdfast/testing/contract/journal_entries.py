"""The journal of a run: numbers, pages, replacing, posting from outside, settling."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from holdfast.errors import Conflict, InvalidArgument, LeaseLost, NotFound
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from holdfast.testing.contract.build import commit, effect, held, journaled, numbered, posted, put_run, saved, settled
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import thread_named
from holdfast.types import Status, Usage

PATIENCE = 60
replace = msgspec.structs.replace


class JournalContract(ContractBase):
    @pytest.fixture
    def thread(self, store: Store) -> int:
        """A thread whose run a worker holds with fence 1."""
        line = saved(store, "a", "x")
        store.claim(None, held(store, line.number))
        return line.number

    # -- appending --------------------------------------------------------------------------------------------------

    def test_entries_are_numbered_per_thread_from_one(self, store: Store, thread: int) -> None:
        assert journaled(store, thread, 1, [effect()]) == [1]
        assert journaled(store, thread, 1, [effect(key="b"), effect(key="c")]) == [2, 3]
        assert journaled(store, thread, 1, []) == []
        other = saved(store, "b", "x").number
        store.claim(None, held(store, other))
        assert journaled(store, other, 1, [effect()]) == [1]
        assert store.entries(thread, after=0, limit=10) == numbered(effect(), effect(key="b"), effect(key="c"))
        assert store.entries(other, after=0, limit=10) == numbered(effect())

    def test_an_entry_is_returned_as_given(self, store: Store, thread: int) -> None:
        whole = Entry(
            branch=7,
            step=1 << 40,
            key="schlüssel \ud800",
            name="charge\0card",
            kind="irreversible",
            status="failed",
            arguments=bytes(range(256)),
            fence=5,
            started_at=1_700_000_000_000_000,
            ended_at=1_700_000_000_000_001,
            result=b"\xff" * 100_000,
            error="no such file: \udcff",
            matches=3,
            by="ännchen \ud800",
            usage=Usage(input=1 << 40, output=3, cost=0.25, currency="EUR"),
            held=1 << 40,
        )
        bare = Entry(
            branch=1, step=0, key="", name="", kind="read", status="started", arguments=b"", fence=1, started_at=0
        )
        journaled(store, thread, 1, [whole, bare])
        assert store.entries(thread, after=0, limit=10) == numbered(whole, bare)

    def test_pages_of_a_journal(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect(key=f"{n}") for n in range(1, 6)])

        def page(after: int, limit: int) -> list[int]:
            return [row.number for row in store.entries(thread, after=after, limit=limit)]

        assert page(0, 10) == [1, 2, 3, 4, 5]
        assert page(0, 2) == [1, 2]
        assert page(2, 2) == [3, 4]
        assert page(4, 2) == [5]
        assert page(5, 2) == page(99, 2) == page(1 << 40, 2) == page(0, 0) == []
        assert page(-3, 1) == [1]

    def test_a_thread_without_a_run_has_no_journal(self, store: Store) -> None:
        line = saved(store, "a", "x")
        assert store.entries(line.number, after=0, limit=10) == []
        assert store.entries(99, after=0, limit=10) == []

    def test_sixteen_writers_of_one_journal(self, store: Store, thread: int) -> None:
        """Every other one posts from outside. All entries are kept, in the order of their writers."""
        start = threading.Barrier(16, timeout=PATIENCE)
        usual = sys.getswitchinterval()

        def write(n: int) -> list[int]:
            start.wait()
            rows = [effect(key=f"{n}-{part}") for part in range(5)]
            if n % 2:
                return [posted(store, thread, row) for row in rows]
            return [number for row in rows for number in journaled(store, thread, 1, [row])]

        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(16) as pool:
                given = list(pool.map(write, range(16), timeout=PATIENCE))
        finally:
            sys.setswitchinterval(usual)
        assert sorted(number for numbers in given for number in numbers) == list(range(1, 81))
        keys = {row.number: row.key for row in store.entries(thread, after=0, limit=100)}
        for n, numbers in enumerate(given):
            assert [keys[number] for number in numbers] == [f"{n}-{part}" for part in range(5)]

    # -- replacing --------------------------------------------------------------------------------------------------

    def test_an_entry_with_a_number_replaces_that_entry(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("started", key=key) for key in "abc"])
        done = effect("done", key="b", number=2, result=b"r" * 3000, started_at=5, ended_at=6)
        assert journaled(store, thread, 1, [done]) == [2]
        first = effect("started", key="a", number=1)
        assert store.entries(thread, after=0, limit=10) == [first, done, effect("started", key="c", number=3)]
        shorter = replace(done, result=None)
        journaled(store, thread, 1, [shorter])
        assert store.entries(thread, after=1, limit=1) == [shorter]

    def test_the_last_of_two_entries_for_one_number_is_kept(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("started", key="a"), effect("started", key="b")])
        twice = [effect("asked", number=1), effect("started", key="c"), effect("done", number=1, result=b"r")]
        assert journaled(store, thread, 1, twice) == [1, 3, 1]
        assert [row.status for row in store.entries(thread, after=0, limit=10)] == ["done", "started", "started"]

    def test_numbers_are_returned_in_the_order_of_the_entries(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("started"), effect("started")])
        rows = [effect(key="new"), effect("done", number=2), effect(key="newer"), effect("failed", number=1)]
        assert journaled(store, thread, 1, rows) == [3, 2, 4, 1]
        found = store.entries(thread, after=0, limit=10)
        assert [(row.key, row.status) for row in found] == [
            ("key", "failed"),
            ("key", "done"),
            ("new", "done"),
            ("newer", "done"),
        ]

    @pytest.mark.parametrize("number", [2, 3, 1 << 33])
    def test_a_missing_entry_is_not_replaced(self, store: Store, thread: int, number: int) -> None:
        journaled(store, thread, 1, [effect("started")])
        other = saved(store, "b", "x").number
        store.claim(None, held(store, other))
        journaled(store, other, 1, [effect()] * 5)
        with pytest.raises(NotFound):
            store.journal(thread, 1, [effect("done", number=1), effect(number=number)], last=None)
        assert store.entries(thread, after=0, limit=10) == [effect("started", number=1)]
        assert journaled(store, thread, 1, [effect()]) == [2]

    @pytest.mark.parametrize("last", [0, 1, 2])
    def test_entries_must_be_numbered(self, store: Store, thread: int, last: int) -> None:
        journaled(store, thread, 1, [effect("started")])
        for numbers in ([0], [-1], [last + 2], [last + 2, last + 1], [last + 1, last + 1], [last + 1, last + 3]):
            with pytest.raises(InvalidArgument):
                store.journal(thread, 1, [effect(number=number) for number in numbers], last=last)
        for number in (0, -1):
            with pytest.raises(InvalidArgument):
                store.journal(thread, 1, [effect(number=number)], last=None)
        assert store.entries(thread, after=0, limit=10) == [effect("started", number=1)]

    # -- an entry is posted while the run writes --------------------------------------------------------------------

    @pytest.mark.parametrize("rows", [[2], [1], [1, 2], []])
    @pytest.mark.parametrize("verb", ["journal", "journal with run", "commit"])
    def test_a_write_after_an_unseen_post_is_refused(
        self, store: Store, thread: int, verb: str, rows: list[int]
    ) -> None:
        journaled(store, thread, 1, [effect("started")])
        row, at = store.run(thread), thread_named(store, "a")
        assert row is not None
        assert at is not None
        store.post(thread, effect(key="posted", number=2))
        entries = tuple([effect(key="mine", number=number) for number in rows])
        changed = replace(row, attempt=7)

        def write(entries: tuple[Entry, ...], last: int) -> None:
            if verb == "commit":
                made = replace(commit("a", at.position), fence=1, run=changed, entries=entries, last_entry=last)
                store.commit(made)
            else:
                run = None if verb == "journal" else changed
                store.journal(thread, 1, entries, last=last, run=run)

        with pytest.raises(Conflict):
            write(entries, 1)
        assert store.run(thread) == row
        assert thread_named(store, "a") == at
        assert store.entries(thread, after=0, limit=10) == [
            effect("started", number=1),
            effect(key="posted", number=2),
        ]
        write((effect(key="mine", number=3),), 2)
        assert [entry.key for entry in store.entries(thread, after=0, limit=10)] == ["key", "posted", "mine"]
        assert list(store.check()) == []

    def test_a_post_after_an_unseen_write_is_refused(self, store: Store, thread: int) -> None:
        store.journal(thread, 1, [effect(key="mine", number=1)], last=0)
        with pytest.raises(Conflict):
            store.post(thread, effect(key="posted", number=1))
        store.post(thread, effect(key="posted", number=2))
        assert [entry.key for entry in store.entries(thread, after=0, limit=10)] == ["mine", "posted"]

    @pytest.mark.parametrize("status", ["running", "completed"])
    def test_entries_are_added_from_outside_the_run(self, store: Store, thread: int, status: Status) -> None:
        row = store.run(thread)
        assert row is not None
        store.journal(thread, 1, [], last=0, run=replace(row, status=status))
        store.journal(thread, None, [effect(key="a", number=1), effect(key="b", number=2)], last=0)
        with pytest.raises(Conflict):
            store.journal(thread, None, [effect(key="c", number=2)], last=1)
        store.journal(thread, None, [effect(key="c", number=3)], last=2)
        with pytest.raises(InvalidArgument):
            store.journal(thread, None, [effect(number=5)], last=3)
        with pytest.raises(InvalidArgument):
            store.journal(thread, None, [], last=3, run=row)
        store.journal(thread, None, [effect(key="changed", number=1)], last=None)
        assert [entry.key for entry in store.entries(thread, after=0, limit=10)] == ["changed", "b", "c"]
        assert store.last_entry(thread) == 3
        assert list(store.check()) == []

    def test_a_thread_without_a_run_takes_no_entries(self, store: Store) -> None:
        line = saved(store, "b", "x")
        with pytest.raises(NotFound):
            store.journal(line.number, None, [effect(number=1)], last=0)

    def test_a_replaced_entry_needs_no_newest_number(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("started")])
        row = store.run(thread)
        assert row is not None
        store.post(thread, effect(key="posted", number=2))
        store.journal(thread, 1, [effect("failed", number=1)], last=None)
        store.journal(thread, 1, [effect("done", number=1)], last=None, run=replace(row, attempt=7))
        assert [entry.status for entry in store.entries(thread, after=0, limit=10)] == ["done", "done"]
        assert store.run(thread) == replace(row, attempt=7)
        assert list(store.check()) == []

    # -- topics -----------------------------------------------------------------------------------------------------

    def test_pages_of_the_entries_with_a_topic(self, store: Store, thread: int) -> None:
        topics = ["a", None, "b", "a", "a", "b"]
        journaled(store, thread, 1, [effect(key=f"{n}", topic=topic) for n, topic in enumerate(topics, 1)])
        other = saved(store, "b", "x").number
        store.claim(None, held(store, other))
        journaled(store, other, 1, [effect(topic="a")])

        def page(topic: str, after: int = 0, limit: int = 10) -> list[int]:
            return [row.number for row in store.entries(thread, after=after, limit=limit, topic=topic)]

        assert page("a") == [1, 4, 5]
        assert page("a", after=1) == page("a", after=3) == [4, 5]
        assert page("a", limit=2) == [1, 4]
        assert page("a", after=4, limit=1) == [5]
        assert page("b") == [3, 6]
        assert page("a", after=5) == page("c") == page("") == page("a", limit=0) == page("a", after=1 << 40) == []
        store.journal(thread, 1, [effect(key="4", topic="b", number=4)], last=None)
        assert (page("a"), page("b")) == ([1, 5], [3, 4, 6])

    # -- posting from outside ---------------------------------------------------------------------------------------

    def test_posting_needs_no_fence_and_replaces_nothing(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("started")])
        found = store.run(thread)
        assert found is not None
        taken = held(store, thread, fence=2)
        store.claim(found, taken)
        with pytest.raises(LeaseLost):
            journaled(store, thread, 1, [effect("done", number=1)])
        assert posted(store, thread, effect("late", number=1, result=b"late")) == 2
        assert posted(store, thread, effect("done", number=99, kind="answer", fence=0, by="ann")) == 3
        assert store.entries(thread, after=0, limit=10) == [
            effect("started", number=1),
            effect("late", number=2, result=b"late"),
            effect("done", number=3, kind="answer", fence=0, by="ann"),
        ]
        assert store.run(thread) == taken
        assert journaled(store, thread, 2, [effect()]) == [4]

    @pytest.mark.parametrize("status", ["waiting", "queued", "idle", "completed", "dead"])
    def test_an_entry_is_posted_while_no_worker_holds_the_run(self, store: Store, thread: int, status: Status) -> None:
        found = store.run(thread)
        assert found is not None
        ended = replace(found, status=status)
        put_run(store, ended)
        assert posted(store, thread, effect("late")) == 1
        assert store.entries(thread, after=0, limit=10) == [effect("late", number=1)]
        assert store.run(thread) == ended

    def test_posting_needs_a_run(self, store: Store) -> None:
        line = saved(store, "a", "x")
        for number in (line.number, 99, 0, -1):
            with pytest.raises(NotFound):
                posted(store, number, effect("late"))
            with pytest.raises(NotFound):
                posted(store, number, effect("late"), last=0)
        assert store.entries(line.number, after=0, limit=10) == []

    def test_posting_after_the_newest_known_entry(self, store: Store, thread: int) -> None:
        with pytest.raises(Conflict):
            posted(store, thread, effect(), last=1)
        assert posted(store, thread, effect(key="a"), last=0) == 1
        for seen in (0, 2):
            with pytest.raises(Conflict):
                posted(store, thread, effect(key="b"), last=seen)
        for seen in (-1, -2):
            with pytest.raises(InvalidArgument):
                posted(store, thread, effect(key="b"), last=seen)
        assert posted(store, thread, effect(key="b"), last=1) == 2
        journaled(store, thread, 1, [effect("failed", key="a", number=1)])
        assert posted(store, thread, effect(key="c"), last=2) == 3, "a replaced entry is not a new one"
        assert [row.key for row in store.entries(thread, after=0, limit=10)] == ["a", "b", "c"]

    def test_only_one_of_many_posts_wins(self, store: Store, thread: int) -> None:
        start = threading.Barrier(8, timeout=PATIENCE)

        def attempt(n: int) -> int | None:
            start.wait()
            try:
                posted(store, thread, effect(key=f"{n}"), last=0)
            except Conflict:
                return None
            return n

        with ThreadPoolExecutor(8) as pool:
            [won] = [n for n in pool.map(attempt, range(8), timeout=PATIENCE) if n is not None]
        assert store.entries(thread, after=0, limit=10) == [effect(key=f"{won}", number=1)]

    # -- the newest entry -------------------------------------------------------------------------------------------

    def test_the_number_of_the_newest_entry(self, store: Store, thread: int) -> None:
        assert store.last_entry(thread) == 0
        journaled(store, thread, 1, [effect("started"), effect("started")])
        assert store.last_entry(thread) == 2
        journaled(store, thread, 1, [effect("done", number=1)])
        assert store.last_entry(thread) == 2
        posted(store, thread, effect())
        assert store.last_entry(thread) == 3
        other = saved(store, "b", "x").number
        assert [store.last_entry(number) for number in (other, 99, 0, -1, 1 << 40)] == [0] * 5

    # -- settling ---------------------------------------------------------------------------------------------------

    def test_settling_needs_no_fence(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("in_doubt", key=key) for key in "ab"])
        found = store.run(thread)
        assert found is not None
        put_run(store, replace(found, status="waiting"))
        outcome = effect("done", key="b", result=b"it happened")
        settled(store, thread, 2, "in_doubt", outcome)
        assert store.entries(thread, after=0, limit=10) == [
            effect("in_doubt", key="a", number=1),
            replace(outcome, number=2),
        ]

    def test_an_entry_is_settled_once(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("in_doubt")])
        settled(store, thread, 1, "in_doubt", effect("not_done", number=1))
        with pytest.raises(Conflict):
            settled(store, thread, 1, "in_doubt", effect("done", number=1))
        with pytest.raises(Conflict):
            settled(store, thread, 1, "started", effect("done", number=1))
        assert store.entries(thread, after=0, limit=10) == [effect("not_done", number=1)]

    @pytest.mark.parametrize("number", [0, 2, -1, 1 << 33])
    def test_a_missing_entry_cannot_be_settled(self, store: Store, thread: int, number: int) -> None:
        journaled(store, thread, 1, [effect("started")])
        with pytest.raises(NotFound if number > 0 else InvalidArgument):
            settled(store, thread, number, "started", effect("done"))
        with pytest.raises(NotFound):
            settled(store, 99, 1, "started", effect("done"))
        assert store.entries(thread, after=0, limit=10) == [effect("started", number=1)]

    def test_only_one_of_many_settlements_wins(self, store: Store, thread: int) -> None:
        journaled(store, thread, 1, [effect("in_doubt")])
        start = threading.Barrier(8, timeout=PATIENCE)

        def attempt(n: int) -> int | None:
            start.wait()
            try:
                settled(store, thread, 1, "in_doubt", effect("done", result=b"%d" % n))
            except Conflict:
                return None
            return n

        with ThreadPoolExecutor(8) as pool:
            [won] = [n for n in pool.map(attempt, range(8), timeout=PATIENCE) if n is not None]
        assert store.entries(thread, after=0, limit=10) == [effect("done", result=b"%d" % won, number=1)]

    # -- with other verbs -------------------------------------------------------------------------------------------

    def test_a_journal_outlives_rewinds_and_deletions(self, store: Store, thread: int) -> None:
        row = store.run(thread)
        found = thread_named(store, "a")
        assert row is not None
        assert found is not None
        at = store.commit(replace(commit("a", found.position), fence=1, entries=(effect(number=1),), last_entry=0))
        put_run(store, replace(row, status="idle"))
        store.rewind(at, to=1, summary=found.summary)
        store.delete(thread, [2])
        assert store.entries(thread, after=0, limit=10) == numbered(effect())
        assert list(store.check()) == []
