"""Forks and drops: cells stay as long as a fork uses them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.errors import AlreadyExists, Damaged, InvalidArgument
from holdfast.stores.contract import NO_REFS, KeyRow, NumberedThread, Refs, Store
from holdfast.testing.contract.build import FAR, Line, names_of, numbers_of, saved, texts_of
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import checkpoint_at, thread_named


def fork(origin: Line, name: str, *texts: str, key: KeyRow | None = None) -> Line:
    """A thread whose first checkpoint reuses the cells of another thread's head."""
    line = Line(origin.store, name)
    at = (origin.number, origin.at.head)
    line.save(*texts, parent=at, bases=[at], origins=[origin.number], refs=Refs(spans=(origin.span(),)), key=key)
    return line


class ForkContract(ContractBase):
    def test_a_thread_without_forks(self, store: Store) -> None:
        line = saved(store, "a", "x")
        saved(store, "b", "x")
        assert store.forks(line.number) == []
        assert store.forks(line.number + 100) == []

    def test_a_commit_registers_the_thread_with_its_origins(self, store: Store) -> None:
        one, two, three = saved(store, "one", "x"), saved(store, "two", "y"), saved(store, "three", "z")
        line = Line(store, "fork")
        line.save(origins=[one.number, two.number])
        assert [store.forks(origin.number) for origin in (one, two, three)] == [[line.number], [line.number], []]

    def test_a_later_commit_registers_too(self, store: Store) -> None:
        origin, line = saved(store, "origin", "x"), saved(store, "fork", "y")
        line.save(origins=[origin.number])
        line.save(origins=[origin.number])
        assert store.forks(origin.number) == [line.number]

    def test_a_fork_of_a_fork_is_a_fork_of_both(self, store: Store) -> None:
        first = saved(store, "first", "x")
        second = fork(first, "second", "y")
        third = fork(second, "third", "z")
        fourth = fork(third, "fourth")
        assert sorted(store.forks(first.number)) == sorted([second.number, third.number, fourth.number])
        assert sorted(store.forks(second.number)) == sorted([third.number, fourth.number])
        assert sorted(store.forks(third.number)) == [fourth.number]

    def test_a_fork_reads_the_cells_of_its_origin(self, store: Store) -> None:
        origin = saved(store, "origin", "x y", "z")
        line = fork(origin, "fork", "w")
        origin.save("later")
        stored = checkpoint_at(store, line.number, 1)
        assert stored is not None
        assert stored.parent == (origin.number, 2)
        assert texts_of(store, *stored.refs.spans, line.span()) == [["x", "y", "z"], ["w"]]

    # -- dropping ---------------------------------------------------------------------------------------------------

    def test_a_dropped_thread_is_gone(self, store: Store) -> None:
        line, other = saved(store, "a", "x", "y"), saved(store, "b", "z")
        store.drop(line.number)
        assert thread_named(store, "a") is None
        assert names_of(store) == ["b"]
        assert [checkpoint_at(store, line.number, seq) for seq in (1, 2)] == [None, None]
        assert store.checkpoints(line.number, before=None, limit=10) == []
        assert store.walk(line.number, after=0, limit=10) == []
        assert numbers_of(store) == [other.number]
        with pytest.raises(Damaged):
            store.cells([line.span()])
        assert texts_of(store, other.span()) == [["z"]]

    def test_the_name_is_free_at_once_and_the_number_is_not_reused(self, store: Store) -> None:
        seen: list[int] = []
        for n in range(4):
            line = saved(store, "a", f"{n}")
            assert (line.at.head, line.at.move, line.at.last) == (1, 1, 1)
            assert texts_of(store, line.span()) == [[f"{n}"]]
            seen.append(line.number)
            store.drop(line.number)
        assert len(set(seen)) == 4

    def test_the_cells_of_a_dropped_thread_stay_for_its_fork(self, store: Store) -> None:
        origin = saved(store, "origin", "x", "y")
        line = fork(origin, "fork", "z")
        store.drop(origin.number)
        assert thread_named(store, "origin") is None
        assert checkpoint_at(store, origin.number, 1) is None
        assert sorted(numbers_of(store)) == sorted([origin.number, line.number])
        assert store.forks(origin.number) == [line.number]
        assert NumberedThread(origin.number, None, 2) in store.numbered(after=None, limit=FAR)
        assert texts_of(store, origin.span()) == [["x", "y"]]

    def test_the_name_of_an_origin_is_free_while_its_cells_stay(self, store: Store) -> None:
        origin = saved(store, "origin", "x")
        fork(origin, "fork")
        store.drop(origin.number)
        again = saved(store, "origin", "new")
        assert again.number != origin.number
        assert texts_of(store, origin.span(), again.span()) == [["x"], ["new"]]
        assert store.forks(again.number) == []

    def test_what_no_fork_uses_can_be_swept_from_a_dropped_thread(self, store: Store) -> None:
        origin = saved(store, "origin", "x", "y")
        line = fork(origin, "fork")
        origin.save("late")
        store.drop(origin.number)
        assert store.sweep(origin.number, origin.live(origin.span(0, 2))).dropped == 1
        assert texts_of(store, origin.span(0, 2)) == [["x", "y"]]
        with pytest.raises(Damaged):
            store.cells([origin.span(2, 1)])
        store.sweep(origin.number, origin.live())
        assert numbers_of(store) == [line.number]

    def test_after_the_last_fork_nothing_of_a_dropped_origin_is_left(self, store: Store) -> None:
        origin = saved(store, "origin", "x")
        one, two = fork(origin, "one", "y"), fork(origin, "two", "z")
        store.drop(origin.number)
        store.drop(one.number)
        assert store.forks(origin.number) == [two.number]
        assert texts_of(store, origin.span()) == [["x"]]
        store.drop(two.number)
        store.sweep(origin.number, origin.live())
        assert numbers_of(store) == []
        assert store.forks(origin.number) == []
        with pytest.raises(Damaged):
            store.cells([origin.span()])

    def test_the_key_of_a_thread_is_removed_with_its_last_cells(self, store: Store) -> None:
        others = len(store.keys(limit=FAR))  # of an encrypted store, which makes the keys of threads, too
        keys = (KeyRow(bytes([number]) * 8, "k", b"wrapped") for number in range(9))
        origin = Line(store, "origin")
        origin.save("x", key=next(keys))
        one, two = fork(origin, "one", "y", key=next(keys)), fork(origin, "two", "z", key=next(keys))
        assert len(store.keys(limit=FAR)) == others + 3
        with pytest.raises(AlreadyExists):
            fork(origin, "one", key=next(keys))
        assert len(store.keys(limit=FAR)) == others + 3, "nothing is stored of a commit that failed"
        store.drop(origin.number)
        store.drop(one.number)
        assert len(store.keys(limit=FAR)) == others + 2, "a fork uses the cells of the origin"
        for row in store.keys(limit=FAR)[-2:]:
            changed = replace(row, wrapped=b"wrapped again")
            assert store.put_key(row.id, row, changed) == changed
        store.drop(two.number)
        store.sweep(origin.number, origin.live())
        store.reclaim()
        assert len(store.keys(limit=FAR)) == others

    def test_only_a_commit_that_creates_a_thread_has_a_key(self, store: Store) -> None:
        line = saved(store, "a", "x")
        before = store.keys(limit=FAR)
        with pytest.raises(InvalidArgument):
            line.save("y", key=KeyRow(bytes(8), "k", b"wrapped"))
        assert store.keys(limit=FAR) == before

    def test_a_dropped_fork_is_not_listed(self, store: Store) -> None:
        origin = saved(store, "origin", "x")
        line = fork(origin, "fork", "y")
        store.drop(line.number)
        assert store.forks(origin.number) == []
        assert numbers_of(store) == [origin.number]
        assert texts_of(store, origin.span()) == [["x"]]

    def test_a_fork_of_a_dropped_fork_keeps_both(self, store: Store) -> None:
        first = saved(store, "first", "x")
        second = fork(first, "second", "y")
        third = fork(second, "third", "z")
        for dropped in (second, first):
            store.drop(dropped.number)
            assert third.number in store.forks(first.number)
            assert store.forks(second.number) == [third.number]
            assert texts_of(store, first.span(), second.span(), third.span()) == [["x"], ["y"], ["z"]]
        store.drop(third.number)
        for dropped in (first, second):
            store.sweep(dropped.number, dropped.live(horizon=FAR))
        assert numbers_of(store) == []

    def test_a_fork_of_cells_whose_thread_was_dropped(self, store: Store) -> None:
        first = saved(store, "first", "x")
        second = fork(first, "second", "y")
        third = fork(second, "third")
        store.drop(second.number)
        at = (third.number, 1)
        fourth = Line(store, "fourth")
        fourth.save(parent=at, bases=[at], origins=[second.number], refs=NO_REFS)
        assert fourth.number in store.forks(first.number)
        store.drop(third.number)
        store.drop(first.number)
        assert texts_of(store, first.span(), second.span()) == [["x"], ["y"]]
