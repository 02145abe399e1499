"""Many threads on one store: every verb is atomic."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest

from holdfast.errors import Conflict
from holdfast.stores.contract import Commit, Position, Refs, Span, Store
from holdfast.testing.contract.build import Line, commit, names_of, numbers_of, run, saved, texts_of, value
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import checkpoint_at, thread_named

# Long enough for the slowest disk; a store that hangs fails the test instead of blocking the suite.
PATIENCE = 60


def race(store: Store, commits: list[Commit]) -> list[Position]:
    """Commit all at once; return the positions of those that won."""
    start = threading.Barrier(len(commits), timeout=PATIENCE)

    def attempt(one: Commit) -> Position | None:
        start.wait()
        try:
            return store.commit(one)
        except Conflict:
            return None

    with ThreadPoolExecutor(len(commits)) as pool:
        return [won for won in pool.map(attempt, commits, timeout=PATIENCE) if won is not None]


def await_next(event: threading.Event) -> None:
    """Wait until a reader has read once more, so that readers see what lies between writes however fast those are."""
    event.clear()
    assert event.wait(PATIENCE), "no reader reads"


class ConcurrencyContract(ContractBase):
    @pytest.fixture
    def restless(self) -> Iterator[None]:
        """Switch threads so often that a verb that is not atomic is seen half done."""
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(usual)

    @pytest.mark.usefixtures("restless")
    def test_sixteen_writers_on_separate_threads(self, store: Store) -> None:
        start = threading.Barrier(16, timeout=PATIENCE)

        def write(name: str) -> Line:
            start.wait()
            return saved(store, name, *(f"{name}-{n}" for n in range(12)))

        names = [f"t{n:02}" for n in range(16)]
        with ThreadPoolExecutor(16) as pool:
            lines = list(pool.map(write, names, timeout=PATIENCE))
        assert names_of(store) == names
        assert len({line.number for line in lines}) == 16
        for line in lines:
            assert line.stored().position == Position(line.number, 12, 12, 12)
            assert line.stored().count == 12
            assert texts_of(store, line.span()) == [[f"{line.name}-{n}" for n in range(12)]]
        assert list(store.check()) == []

    @pytest.mark.usefixtures("restless")
    def test_one_of_many_creates_a_thread(self, store: Store) -> None:
        for name in "abc":
            commits = [commit(name, appends=[run(f"{n}")]) for n in range(8)]
            [won] = race(store, commits)
            stored = thread_named(store, name)
            assert stored is not None
            assert (stored.position, stored.count) == (won, 1)
            winner = next(n for n, one in enumerate(commits) if one.row.id == stored.head_id)
            assert texts_of(store, Span(won.thread, 1, 0, 1, 1, 1)) == [[f"{winner}"]]
        assert len(numbers_of(store)) == 3

    @pytest.mark.usefixtures("restless")
    def test_one_of_many_wins_each_position(self, store: Store) -> None:
        at = store.commit(commit("a", appends=[run("0")]))
        for seq in range(2, 12):
            commits = [commit("a", at, appends=[run(f"{n}", start=seq - 1)]) for n in range(8)]
            [at] = race(store, commits)
            assert at == Position(at.thread, seq, seq, seq)
            stored = checkpoint_at(store, at.thread, seq)
            winner = next(n for n, one in enumerate(commits) if one.row == stored)
            assert texts_of(store, Span(at.thread, 1, seq - 1, 1, seq, seq)) == [[f"{winner}"]]
        assert len(store.checkpoints(at.thread, before=None, limit=100)) == 11

    @pytest.mark.usefixtures("restless")
    def test_readers_see_whole_commits(self, store: Store) -> None:
        done, was_read = threading.Event(), threading.Event()
        line = Line(store, "a")
        last = 40

        def write() -> None:
            try:
                for n in range(1, last + 1):
                    brought = value(b'"value %d"' % n, by=store.hashing)
                    refs = Refs(spans=(Span(0, 1, 0, 3 * n, 1, n),), blobs=(brought.digest,))
                    line.save(f"{n}a", f"{n}b", f"{n}c", refs=refs, blobs=[brought])
                    await_next(was_read)
            finally:
                done.set()

        def read() -> int:
            seen = 0
            while True:
                finished = done.is_set()
                if (found := store.head("a")) is not None:
                    thread, head = found.thread, found.row
                    at = thread.position
                    assert at.head == at.move == at.last == thread.count == thread.summary.step
                    assert at.head >= seen
                    seen = at.head
                    assert head == checkpoint_at(store, at.thread, seen)
                    assert head.id == thread.head_id
                    [span] = head.refs.spans
                    [texts] = texts_of(store, msgspec.structs.replace(span, thread=at.thread))
                    assert texts == [f"{n}{part}" for n in range(1, seen + 1) for part in "abc"]
                    assert store.blob(head.refs.blobs[0]) == [b'"value %d"' % seen]
                    listed = store.checkpoints(at.thread, before=None, limit=100)
                    assert [row.seq for row in listed] == list(range(listed[0].seq, 0, -1))
                    was_read.set()
                if finished:
                    return seen

        with ThreadPoolExecutor(5) as pool:
            readers = [pool.submit(read) for _ in range(4)]
            pool.submit(write).result(PATIENCE)
            assert [reader.result(PATIENCE) for reader in readers] == [last] * 4

    @pytest.mark.usefixtures("restless")
    def test_a_thread_and_its_head_are_read_in_one_snapshot(self, store: Store) -> None:
        line = saved(store, "a", "x")
        done, was_read = threading.Event(), threading.Event()

        def write() -> None:
            try:
                for _ in range(60):
                    await_next(was_read)
                    before = line.at.head
                    line.save("y")
                    # In two snapshots, this may be the head of the first, and a tombstone in the second.
                    store.delete(line.number, [before])
            finally:
                done.set()

        def read() -> int:
            seen = 0
            while not done.is_set() or not seen:
                found = store.head("a")
                assert found is not None
                at, row = found.thread.position, found.row
                assert (row.seq, row.id, row.move, row.deleted) == (at.head, found.thread.head_id, at.move, False)
                assert found.thread.count in (1, 2)
                assert at.head >= seen
                seen = at.head
                was_read.set()
            return seen

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            pool.submit(write).result(PATIENCE)
            assert all(reader.result(PATIENCE) for reader in readers)

    @pytest.mark.usefixtures("restless")
    def test_compacting_and_sweeping_with_readers_and_a_writer(self, store: Store) -> None:
        line = saved(store, "a", *(f"{n}" for n in range(20)))
        kept = line.span(5, 10)
        done, was_read = threading.Event(), threading.Event()

        def maintain() -> None:
            while not done.is_set():
                store.sweep(line.number, line.whole(kept, horizon=20))
                store.sweep(line.number, line.live(kept, horizon=20))
                store.reclaim()

        def read() -> int:
            reads = 0
            while not done.is_set() or not reads:
                assert texts_of(store, kept) == [[f"{n}" for n in range(5, 15)]]
                reads += 1
                was_read.set()
            return reads

        with ThreadPoolExecutor(3) as pool:
            others: list[Future[None] | Future[int]] = [pool.submit(maintain), pool.submit(read), pool.submit(read)]
            try:
                for n in range(20, 50):
                    line.save(f"{n}")
                    await_next(was_read)
            finally:
                done.set()
            for other in others:
                other.result(PATIENCE)
        assert texts_of(store, kept, line.span(20)) == [
            [f"{n}" for n in range(5, 15)],
            [f"{n}" for n in range(20, 50)],
        ]
        assert list(store.check()) == []
