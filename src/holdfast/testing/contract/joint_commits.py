"""Commits of several threads in one call: all of them are stored, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from holdfast.errors import AlreadyExists, Conflict, InvalidArgument, JournalAhead, LeaseHeld
from holdfast.stores.contract import Position, Span, Store
from holdfast.testing.contract.build import (
    commit,
    everything,
    holds,
    names_of,
    prompt,
    run,
    run_row,
    running,
    saved,
    texts_of,
)
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import last_of, thread_named

# Long enough for the slowest disk; a store that hangs fails the test instead of blocking the suite.
PATIENCE = 60
ROUNDS = 20


class JointCommitContract(ContractBase):
    @pytest.fixture
    def joining(self, store: Store) -> Store:
        """A store that commits several threads together."""
        if not self.joint_commits:
            pytest.skip("the store commits one thread at a time")
        return store

    def test_a_list_of_one_commit(self, store: Store) -> None:
        [first] = store.commit([commit("a", appends=[run("x")])])
        assert first == Position(first.thread, 1, 1, 1)
        [second] = store.commit([commit("a", first)])
        assert second == Position(first.thread, 2, 2, 2)

    def test_a_store_that_cannot_says_so_and_changes_nothing(self, store: Store) -> None:
        if self.joint_commits:
            pytest.skip("the store commits several threads together")
        line = saved(store, "a", "x")
        before = everything(store)
        with pytest.raises(InvalidArgument, match="nothing was saved"):
            store.commit([commit("a", line.at), commit("b", appends=[run("y")])])
        assert everything(store) == before

    def test_each_thread_needs_a_commit_of_its_own(self, store: Store) -> None:
        line = saved(store, "a", "x")
        before = everything(store)
        for wrong in ([], [commit("b"), commit("b")], [commit("a", line.at), commit("b"), commit("a", line.at)]):
            with pytest.raises(InvalidArgument):
                store.commit(wrong)
        assert everything(store) == before

    def test_positions_are_in_the_order_of_the_commits(self, joining: Store) -> None:
        old, older = saved(joining, "old", "x"), saved(joining, "a", "x", "y")
        wanted = [
            commit("new", appends=[run("n")]),
            commit("old", old.at, appends=[run("o", start=1)]),
            commit("also new"),
            commit("a", older.at, appends=[run("p", start=2)]),
        ]
        positions = joining.commit(wanted)
        for made, position in zip(wanted, positions, strict=True):
            head = joining.head(made.name)
            assert head is not None
            assert (head.thread.position, head.checkpoint) == (position, made.row)
        assert names_of(joining) == ["a", "also new", "new", "old"]
        assert [position.last for position in positions] == [1, 2, 1, 3]
        old.position, older.position = positions[1], positions[3]
        old.save()
        older.save()
        assert list(joining.check()) == []

    def test_one_that_fails_keeps_the_others_out(self, joining: Store) -> None:
        """The one that fails is first, in the middle or last, in the order of names, of numbers and of the list."""
        lines = [saved(joining, name, "x") for name in ("b", "a", "c")]
        stale = [line.at for line in lines]
        for line in lines:
            line.save("y")
        blob = prompt(joining)
        for wrong in range(3):
            wanted = [
                commit(line.name, stale[at] if at == wrong else line.at, appends=[run("z", start=2)], blobs=[blob])
                for at, line in enumerate(lines)
            ]
            before = everything(joining)
            for order in (wanted, [commit("new", blobs=[blob]), *wanted], [*reversed(wanted), commit("new")]):
                with pytest.raises(Conflict):
                    joining.commit(order)
                assert everything(joining) == before
            assert not holds(joining, blob)
            assert thread_named(joining, "new") is None
        taken = [commit("new"), commit("a")]
        for order in (taken, taken[::-1]):
            with pytest.raises(AlreadyExists):
                joining.commit(order)
        assert thread_named(joining, "new") is None
        assert list(joining.check()) == []

    def test_a_wrong_form_keeps_the_others_out(self, joining: Store) -> None:
        before = everything(joining)
        with pytest.raises(InvalidArgument):
            joining.commit([commit("a"), commit("b", move=7)])
        assert everything(joining) == before

    def test_runs_keep_the_others_out(self, joining: Store) -> None:
        line, _ = running(joining, "held")
        free, open_ = saved(joining, "free", "x"), saved(joining, "open", "x")
        joining.claim(None, run_row(open_.number, status="failed"))
        before = everything(joining)
        with pytest.raises(LeaseHeld):
            joining.commit([commit("free", free.at), commit("held", line.at)])
        with pytest.raises(JournalAhead):
            joining.commit([commit("free", free.at), commit("open", open_.at)])
        assert everything(joining) == before

    def test_one_blob_of_two_threads(self, joining: Store) -> None:
        blob = prompt(joining)
        joining.commit([commit("a", blobs=[blob]), commit("b", blobs=[blob])])
        assert holds(joining, blob)
        assert list(joining.check()) == []

    def test_writers_that_overlap_in_opposite_order(self, joining: Store) -> None:
        """Every pair is stored whole: both threads always have as many checkpoints, and the same texts."""
        positions = joining.commit([commit("left", appends=[run("0")]), commit("right", appends=[run("0")])])
        start = threading.Barrier(2, timeout=PATIENCE)

        def write(names: tuple[str, str], word: str) -> int:
            start.wait()
            won = 0
            while won < ROUNDS:
                heads = [joining.head(name) for name in names]
                at = [head.thread.position for head in heads if head is not None]
                texts = [run(f"{word}{won}", start=position.last) for position in at]
                try:
                    joining.commit(
                        [commit(name, each, appends=[text]) for name, each, text in zip(names, at, texts, strict=True)]
                    )
                except Conflict:
                    continue
                won += 1
            return won

        _both(lambda: write(("left", "right"), "a"), lambda: write(("right", "left"), "b"))
        ends = [thread.position for thread in joining.threads(prefix="", after=None, limit=9)]
        assert [end.last for end in ends] == [1 + 2 * ROUNDS] * 2
        left, right = (list(_texts(joining, at)) for at in positions)
        assert left == right

    def test_writers_that_create_the_same_threads_in_opposite_order(self, joining: Store) -> None:
        start = threading.Barrier(2, timeout=PATIENCE)
        won: list[str] = []

        def create(number: int, word: str, *, backwards: bool) -> None:
            start.wait()
            names = [f"{side}{number}" for side in ("left", "right")]
            made = [commit(name, appends=[run(word)]) for name in names]
            try:
                joining.commit(made[::-1] if backwards else made)
            except Conflict:
                return
            won.append(word)

        for number in range(ROUNDS):
            _both(partial(create, number, "a", backwards=False), partial(create, number, "b", backwards=True))
            heads = [joining.head(f"{side}{number}") for side in ("left", "right")]
            assert len(won) == number + 1
            for head in heads:
                assert head is not None
                assert list(_texts(joining, head.thread.position)) == [won[-1]]


def _texts(store: Store, at: Position) -> Iterator[str]:
    """The text of each checkpoint of a thread, which wrote one cell."""
    last = last_of(store, at.thread)
    for seq in range(1, last + 1):
        [[text]] = texts_of(store, Span(at.thread, 1, seq - 1, 1, seq, seq))
        yield text


def _both(*works: Callable[[], object]) -> None:
    """Run functions at the same time."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result(PATIENCE)
