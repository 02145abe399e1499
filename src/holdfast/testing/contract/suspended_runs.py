"""Waiting runs: the question is visible as soon as the run waits, the answer as soon as it is queued again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import Conflict, InvalidArgument, LeaseLost, NotFound
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import RunRow
from holdfast.testing.contract.build import (
    commit,
    effect,
    everything,
    held,
    inside,
    journaled,
    numbered,
    posted,
    put_run,
    running,
    saved,
    settled,
    suspended,
)
from holdfast.testing.contract.fixtures import ContractBase

PATIENCE = 60
ROUNDS = 30
replace = msgspec.structs.replace


def waits(row: RunRow) -> RunRow:
    return replace(row, status="waiting", owner=None, lease_until=0, updated_at=9)


def all_of(store: Store, thread: int) -> tuple[object, ...]:
    """All that a store shows of a run and its surroundings."""
    return store.run(thread), store.entries(thread, after=0, limit=100), store.last_entry(thread), everything(store)


class SuspendedRunContract(ContractBase):
    # -- suspending -------------------------------------------------------------------------------------------------

    def test_a_run_suspends_with_its_question(self, store: Store) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect(key="a")])
        assert suspended(store, waits(row), effect("asked", key="b"), 1) == 2
        assert store.run(line.number) == replace(waits(row), question=2)
        assert store.entries(line.number, after=0, limit=10) == numbered(effect(key="a"), effect("asked", key="b"))
        assert store.last_entry(line.number) == 2
        assert (line.stored().summary.status, line.stored().summary.updated_at) == ("waiting", 9)
        assert list(store.check()) == []

    def test_an_existing_entry_becomes_the_question(self, store: Store) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect("started", key="a"), effect(key="b")])
        asked = effect("asked", key="a", number=1, result=b"r" * 3000)
        assert suspended(store, waits(row), asked, 2) == 1
        assert store.run(line.number) == replace(waits(row), question=1)
        assert store.entries(line.number, after=0, limit=10) == [asked, effect(key="b", number=2)]

    def test_a_run_suspends_without_a_question(self, store: Store) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect()])
        assert suspended(store, replace(waits(row), question=7, wake_at=5), None, 1) == 0
        assert store.run(line.number) == replace(waits(row), question=0, wake_at=5)
        assert store.entries(line.number, after=0, limit=10) == numbered(effect())

    def test_a_run_suspends_in_the_given_status(self, store: Store) -> None:
        line, row = running(store)
        suspended(store, replace(row, status="failed", reason="why"), effect("failed"), 0)
        assert store.run(line.number) == replace(row, status="failed", reason="why", question=1)
        assert line.stored().summary.status == "failed"

    @pytest.mark.parametrize("last", [0, 1, 3, 1 << 30])
    def test_a_run_does_not_suspend_after_an_unseen_entry(self, store: Store, last: int) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect("started")])
        posted(store, line.number, effect("done", key="answer"))
        before = all_of(store, line.number)
        for entry in (effect("asked"), effect("asked", number=1), None):
            with pytest.raises(Conflict):
                suspended(store, waits(row), entry, last)
        assert all_of(store, line.number) == before
        assert suspended(store, waits(row), effect("asked"), 2) == 3

    @pytest.mark.parametrize("number", [2, 1 << 33])
    def test_a_missing_question_suspends_nothing(self, store: Store, number: int) -> None:
        line, row = running(store)
        journaled(store, line.number, 1, [effect("started")])
        before = all_of(store, line.number)
        with pytest.raises(NotFound):
            store.journal(line.number, 1, [effect("asked", number=number)], last=None, run=waits(row))
        assert all_of(store, line.number) == before

    def test_a_lost_lease_is_reported_before_a_new_journal_entry(self, store: Store) -> None:
        line, row = running(store)
        store.claim(row, held(store, line.number, fence=2))
        posted(store, line.number, effect())
        with pytest.raises(LeaseLost):
            suspended(store, waits(row), effect("asked"), 0)

    def test_a_suspended_run_needs_a_claim_to_be_written(self, store: Store) -> None:
        line, row = running(store)
        suspended(store, waits(row), effect("asked"), 0)
        before = all_of(store, line.number)
        calls: list[Callable[[], object]] = [
            lambda: suspended(store, waits(row), effect("asked"), 1),
            lambda: journaled(store, line.number, 1, [effect()]),
            lambda: put_run(store, row),
            lambda: store.commit(inside(commit("a", line.at), fence=1)),
        ]
        for call in calls:
            with pytest.raises(LeaseLost):
                call()
        assert all_of(store, line.number) == before

    # -- an answer that queues the run ------------------------------------------------------------------------------

    @pytest.fixture
    def asking(self, store: Store) -> RunRow:
        """The run of thread "a", which waits for an answer to its journal entry 1."""
        line, row = running(store)
        suspended(store, waits(row), effect("asked"), 0)
        found = store.run(line.number)
        assert found is not None
        return found

    def test_an_answer_queues_the_run(self, store: Store, asking: RunRow) -> None:
        queued = replace(asking, status="queued", fence=2, question=0, updated_at=12)
        settled(store, asking.thread, 1, "asked", effect("done", by="ann"), asking, queued)
        assert store.run(asking.thread) == queued
        assert store.entries(asking.thread, after=0, limit=10) == numbered(effect("done", by="ann"))
        [listed] = store.threads(prefix="", after=None, limit=9)
        assert (listed.summary.status, listed.summary.updated_at) == ("queued", 12)
        store.claim(queued, held(store, asking.thread, fence=3))
        assert journaled(store, asking.thread, 3, [effect()]) == [2]
        assert list(store.check()) == []

    def test_an_answer_that_does_not_queue_the_run_leaves_it_as_it_is(self, store: Store, asking: RunRow) -> None:
        settled(store, asking.thread, 1, "asked", effect("done"), asking)
        assert store.run(asking.thread) == asking

    def test_a_rejected_answer_queues_nothing(self, store: Store, asking: RunRow) -> None:
        queued = replace(asking, status="queued", fence=2)
        before = all_of(store, asking.thread)
        with pytest.raises(Conflict):
            settled(store, asking.thread, 1, "in_doubt", effect("done"), asking, queued)
        with pytest.raises(Conflict):
            settled(store, asking.thread, 1, "asked", effect("done"), replace(asking, attempt=9), queued)
        with pytest.raises(NotFound):
            settled(store, asking.thread, 2, "asked", effect("done"), asking, queued)
        for number in (0, -1):
            with pytest.raises(InvalidArgument):
                settled(store, asking.thread, number, "asked", effect("done"), asking, queued)
        with pytest.raises(NotFound):
            settled(store, 99, 1, "asked", effect("done"), asking, queued)
        assert all_of(store, asking.thread) == before

    @pytest.mark.parametrize("fence", [0, 1, 3])
    def test_the_fence_of_then_is_one_higher(self, store: Store, asking: RunRow, fence: int) -> None:
        other = saved(store, "b", "x")
        before = all_of(store, asking.thread)
        with pytest.raises(InvalidArgument):
            settled(store, asking.thread, 1, "asked", effect("done"), asking, replace(asking, fence=fence))
        with pytest.raises(InvalidArgument):
            settled(store, asking.thread, 1, "asked", effect("done"), None, replace(asking, fence=2))
        with pytest.raises(InvalidArgument):
            settled(
                store, asking.thread, 1, "asked", effect("done"), asking, replace(asking, fence=2, thread=other.number)
            )
        assert all_of(store, asking.thread) == before
        assert store.run(other.number) is None

    def test_then_cannot_be_running(self, store: Store, asking: RunRow) -> None:
        """A lease starts with a claim. A posted entry starts none."""
        before = all_of(store, asking.thread)
        for then in (
            replace(asking, fence=2, status="running"),
            replace(held(store, asking.thread, fence=2), clock="", lease_until=5_000),
        ):
            with pytest.raises(InvalidArgument):
                settled(store, asking.thread, 1, "asked", effect("done"), asking, then)
            with pytest.raises(InvalidArgument):
                store.post(asking.thread, effect(number=2), run=asking, then=then)
        assert all_of(store, asking.thread) == before

    def test_only_one_of_many_answers_wins(self, store: Store, asking: RunRow) -> None:
        start = threading.Barrier(8, timeout=PATIENCE)

        def attempt(n: int) -> int | None:
            queued = replace(asking, status="queued", fence=2, attempt=n)
            start.wait()
            try:
                settled(store, asking.thread, 1, "asked", effect("done", result=b"%d" % n), asking, queued)
            except Conflict:
                return None
            return n

        with ThreadPoolExecutor(8) as pool:
            [won] = [n for n in pool.map(attempt, range(8), timeout=PATIENCE) if n is not None]
        assert store.run(asking.thread) == replace(asking, status="queued", fence=2, attempt=won)
        assert store.entries(asking.thread, after=0, limit=10) == numbered(effect("done", result=b"%d" % won))

    # -- suspending and posting at once -----------------------------------------------------------------------------

    @pytest.fixture
    def outside(self, store: Store, tmp_path: Path) -> Iterator[Store]:
        """Another handle on the same data, if the store allows one."""
        if not self.durable:
            yield store
            return
        with closing(self.open_store(tmp_path)) as second:
            yield second

    def test_an_early_answer_and_a_question_are_ordered(self, store: Store, outside: Store) -> None:
        """A post always succeeds. The run either was waiting before it, or is refused and does not suspend."""
        for round_ in range(ROUNDS):
            line, row = running(store, f"{round_}")
            start = threading.Barrier(2, timeout=PATIENCE)

            def suspend(row: RunRow = row, start: threading.Barrier = start) -> int | None:
                start.wait()
                try:
                    return suspended(store, waits(row), effect("asked", key="q"), 0)
                except Conflict:
                    return None

            def post(thread: int = line.number, start: threading.Barrier = start) -> int:
                start.wait()
                return posted(outside, thread, effect("done", key="answer"))

            with ThreadPoolExecutor(2) as pool:
                suspending, posting = pool.submit(suspend), pool.submit(post)
                question, answer = suspending.result(PATIENCE), posting.result(PATIENCE)
            found = store.run(line.number)
            keys = [entry.key for entry in store.entries(line.number, after=0, limit=10)]
            if question is None:
                assert (answer, keys, found) == (1, ["answer"], row)
            else:
                assert (question, answer, keys) == (1, 2, ["q", "answer"])
                assert found == replace(waits(row), question=1)

    def test_either_the_question_or_the_post_wins(self, store: Store, outside: Store) -> None:
        for round_ in range(ROUNDS):
            line, row = running(store, f"{round_}")
            start = threading.Barrier(2, timeout=PATIENCE)

            def attempt(verb: Callable[[], int], start: threading.Barrier = start) -> int | None:
                start.wait()
                try:
                    return verb()
                except Conflict:
                    return None

            def suspend(row: RunRow = row) -> int:
                return suspended(store, waits(row), effect("asked", key="q"), 0)

            def post(thread: int = line.number) -> int:
                return posted(outside, thread, effect("done", key="answer"), last=0)

            with ThreadPoolExecutor(2) as pool:
                question, answer = pool.map(attempt, (suspend, post), timeout=PATIENCE)
            assert {question, answer} == {1, None}
            [entry] = store.entries(line.number, after=0, limit=10)
            assert entry.key == ("q" if question else "answer")
            found = store.run(line.number)
            assert found == (replace(waits(row), question=1) if question else row)

    def test_a_run_that_waits_for_a_time_does_not_miss_a_post(self, store: Store) -> None:
        line, row = running(store)
        store.post(line.number, effect("asked", kind="cancel", number=1))
        with pytest.raises(Conflict):
            store.journal(line.number, 1, (), last=0, run=waits(row))
        assert store.run(line.number) == row
        store.journal(line.number, 1, (), last=1, run=waits(row))
        assert store.run(line.number) == waits(row)

    # -- opening again ----------------------------------------------------------------------------------------------

    @pytest.mark.usefixtures("needs_durable")
    def test_questions_and_answers_survive_reopening(self, tmp_path: Path) -> None:
        with closing(self.open_store(tmp_path)) as store:
            line, row = running(store)
            suspended(store, waits(row), effect("asked"), 0)
        with closing(self.open_store(tmp_path)) as store:
            asking = replace(waits(row), question=1)
            assert store.run(line.number) == asking
            assert store.entries(line.number, after=0, limit=10) == numbered(effect("asked"))
            assert posted(store, line.number, effect(kind="cancel"), last=1) == 2
            queued = replace(asking, status="queued", fence=2)
            settled(store, line.number, 1, "asked", effect("done"), asking, queued)
        with closing(self.open_store(tmp_path)) as store:
            assert store.run(line.number) == queued
            assert store.last_entry(line.number) == 2
            assert store.entries(line.number, after=0, limit=10) == numbered(effect("done"), effect(kind="cancel"))
            assert line.name in [thread.name for thread in store.threads(prefix="", after=None, limit=9)]
            assert list(store.check()) == []
