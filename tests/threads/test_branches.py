"""Placing: checkpoints saved under any other, on every store; a tree that others keep is one that is whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Conflict, Holdfast, Retention
from holdfast.delta.base import Base
from holdfast.delta.load import load_base, state_of
from holdfast.errors import AlreadyExists, InvalidArgument, NotFound
from holdfast.redaction import Redaction
from holdfast.stores.contract import PLAIN, CheckpointRow, Commit, Position
from holdfast.threads import metadata as metas
from holdfast.threads.branches import Placer
from holdfast.threads.metadata import Parent, checked_details
from holdfast.threads.save import save_of
from holdfast.threads.scan import checkpoint_at
from tests.selection import every_store


def message(number: int) -> str:
    return f"message {number} " * 40


def test_a_first_checkpoint_has_nothing_of_the_parent_of_another() -> None:
    """The details of a stored checkpoint, used for a save without a parent."""
    details = checked_details(Redaction(None))
    stored = replace(details.meta, parent=b"id", parent_digest=b"digest", parent_write_micros=7)
    given: dict[str, Any] = {"base": None, "expect": None, "size_limit": 1000, "hashing": PLAIN}
    save = save_of("t", {}, replace(details, meta=stored), parent=None, **given)
    assert metas.decode(save.commit.row) == save.meta == replace(details.meta, size=save.meta.size)
    under = save_of("t", {}, replace(details, meta=stored), parent=Parent.of(save.commit.row), **given)
    assert (under.meta.parent, under.meta.parent_digest, under.meta.parent_write_micros) == (save.commit.row.id, b"", 0)


class Placed:
    """One thread, with the row and the base of each checkpoint by its seq."""

    def __init__(self, hf: Holdfast, name: str = "t") -> None:
        self.hf = hf
        self.placer = Placer(hf.context, name)
        self.position: Position | None = None
        self.rows: dict[int, CheckpointRow] = {}
        self.bases: dict[int, Base] = {}

    @property
    def number(self) -> int:
        assert self.position is not None
        return self.position.thread

    def place(self, state: Any, under: int | None = None, **details: Any) -> int:
        """Save a state under the checkpoint of that seq; its own seq."""
        said = checked_details(Redaction(None), **details)
        row = None if under is None else self.rows[under]
        base = None if under is None else self.bases[under]
        self.position, made, held = self.placer.place(state, said, expect=self.position, under=row, base=base)
        self.rows[made.seq], self.bases[made.seq] = made, held
        return made.seq

    def grow(self, count: int, under: int | None = None) -> list[int]:
        """A line of checkpoints with one more message each."""
        seqs = []
        messages = [] if under is None else self.state(under)["messages"]
        for _ in range(count):
            messages = [*messages, message(len(messages))]
            under = self.place({"messages": messages}, under)
            seqs.append(under)
        return seqs

    def state(self, seq: int) -> Any:
        """As it is read by one who knows nothing of it."""
        store = self.hf.context.store
        row = checkpoint_at(store, self.number, seq)
        assert row is not None
        return state_of(store, load_base(store, self.number, row))

    def parents(self) -> dict[int, int | None]:
        return {row.seq: _parent(row) for row in self.placer.rows(self.number, 0)}


def _parent(row: CheckpointRow) -> int | None:
    """The seq of the parent, if that is in the same thread."""
    return None if row.parent is None or row.parent[0] else row.parent[1]


@pytest.fixture
def tree(hf: Holdfast) -> Placed:
    return Placed(hf)


def latest(hf: Holdfast, name: str = "t") -> Any:
    found = hf.thread(name).latest()
    assert found is not None
    return found.state


class TestPlace:
    def test_a_checkpoint_stands_under_the_one_that_was_named(self, tree: Placed) -> None:
        one, two, three = tree.grow(3)
        beside = tree.place({"messages": ["another"]}, under=one)
        again = tree.place({"messages": ["a second root"]})
        below = tree.place({"messages": ["below"]}, under=beside)
        assert tree.parents() == {one: None, two: one, three: two, beside: one, again: None, below: beside}

    def test_each_is_the_new_head_and_one_step_below_its_parent(self, tree: Placed) -> None:
        tree.grow(3)
        made = tree.place({"messages": ["x"]}, under=1, label="here", status="waiting")
        head = tree.hf.thread("t").head()
        assert head is not None
        assert (head.seq, head.step, head.label, head.status) == (made, 2, "here", "waiting")
        assert latest(tree.hf) == {"messages": ["x"]}

    def test_every_branch_is_read_back_as_it_was_saved(self, tree: Placed) -> None:
        states: dict[int, Any] = {}
        for turn in range(24):
            under = None if not states else sorted(states)[(turn * 7) % len(states)]
            before = [] if under is None else states[under]["messages"]
            state = {"messages": [*before[: len(before) - turn % 3], message(turn), message(turn + 100)]}
            states[tree.place(state, under)] = state
        assert {seq: tree.state(seq) for seq in states} == states
        report = tree.hf.verify(deep=True)
        assert report.problems == ()

    def test_what_the_parent_has_is_not_stored_again(self, tree: Placed) -> None:
        *_, last = tree.grow(30)
        whole = tree.state(last)["messages"]
        middle = tree.place({"messages": [*whole[:20], "new"]}, under=20)
        (wrote,) = tree.bases[middle].ends[2:]  # of a log of its own
        assert wrote == 1

    def test_a_thread_goes_on_from_what_was_placed(self, tree: Placed) -> None:
        tree.grow(3)
        made = tree.place({"messages": [message(0), "branch"]}, under=1)
        thread = tree.hf.thread("t")
        saved = thread.save({"messages": [message(0), "branch", "and on"]})
        assert saved.seq == made + 1
        assert latest(tree.hf)["messages"][1:] == ["branch", "and on"]
        assert tree.hf.verify(deep=True).problems == ()

    @every_store("two writers meet in the store")
    def test_a_thread_that_moved_meanwhile_is_a_conflict_and_nothing_is_stored(self, tree: Placed) -> None:
        tree.grow(3)
        tree.hf.thread("t").save({"messages": ["somebody else"]})
        for under in (3, 1, None):
            with pytest.raises(Conflict):
                tree.place({"messages": ["late"]}, under=under)
        assert latest(tree.hf) == {"messages": ["somebody else"]}
        assert len(tree.parents()) == 4

    def test_a_rewind_meanwhile_is_a_conflict_too(self, tree: Placed) -> None:
        tree.grow(3)
        tree.hf.thread("t").rewind("@1")
        with pytest.raises(Conflict):
            tree.place({"messages": ["late"]}, under=3)

    @every_store("two writers meet in the store")
    def test_a_thread_that_began_meanwhile_is_not_started_again(self, tree: Placed) -> None:
        tree.hf.thread("t").save({"messages": ["first"]})
        with pytest.raises(AlreadyExists):
            tree.place({"messages": ["me too"]})
        assert latest(tree.hf) == {"messages": ["first"]}

    @every_store("two writers meet in the store")
    def test_a_parent_that_was_deleted_meanwhile_is_a_conflict(self, tree: Placed) -> None:
        tree.grow(5)
        tree.placer.remove(tree.number, [2, 3])
        for gone in (2, 3):
            with pytest.raises(Conflict):
                tree.place({"messages": [message(0), message(1), "under nothing"]}, under=gone)
        assert tree.place({"messages": [message(0), "under the first"]}, under=1) == 6
        assert tree.hf.verify(deep=True).problems == ()

    def test_a_state_that_is_refused_leaves_the_thread_as_it_was(self, tree: Placed) -> None:
        tree.grow(2)
        with pytest.raises(InvalidArgument):
            tree.place({"messages": [object()]}, under=1)
        assert tree.place({"messages": ["fine"]}, under=1) == 3

    def test_each_digest_covers_that_of_the_parent(self, tree: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
        tree.grow(3)
        store = tree.hf.context.store
        seen: list[Commit] = []
        commit = store.commit

        def watched(given: Commit) -> Position:
            seen.append(given)
            return commit(given)

        monkeypatch.setattr(store, "commit", watched)
        made = tree.place({"messages": ["x"]}, under=1)
        row, runs = seen[0].row, seen[0].appends
        assert row.digest == tree.rows[made].digest
        assert metas.digest_of(store.hashing, row, runs, tree.rows[1].digest) == row.digest
        assert metas.digest_of(store.hashing, row, runs, tree.rows[2].digest) != row.digest

    def test_the_base_of_any_row_can_be_had(self, tree: Placed) -> None:
        tree.grow(4)
        fresh = Placer(tree.hf.context, "t")
        for seq, row in tree.rows.items():
            base = fresh.base(tree.number, row)
            assert (base.seq, base.root.size) == (seq, tree.bases[seq].root.size)
            assert fresh.base(tree.number, row) is base


class TestPoint:
    def test_any_checkpoint_can_be_the_head_again(self, tree: Placed) -> None:
        tree.grow(4)
        assert tree.position is not None
        tree.position = tree.placer.point(tree.position, tree.rows[2])
        assert latest(tree.hf) == tree.state(2)
        assert tree.position.last == 4
        made = tree.place({"messages": [message(0), message(1), "on"]}, under=2)
        assert made == 5
        assert tree.parents()[5] == 2
        assert tree.state(4)["messages"] == [message(number) for number in range(4)]
        assert tree.hf.verify(deep=True).problems == ()

    @every_store("two writers meet in the store")
    def test_a_thread_that_moved_is_not_pointed(self, tree: Placed) -> None:
        tree.grow(3)
        assert tree.position is not None
        tree.hf.thread("t").save({"messages": ["somebody else"]})
        with pytest.raises(Conflict):
            tree.placer.point(tree.position, tree.rows[1])
        assert latest(tree.hf) == {"messages": ["somebody else"]}


class TestCopy:
    def copied(self, tree: Placed, name: str = "copy") -> Placed:
        """All checkpoints of a thread in another, each under the copy of its parent."""
        other = Placed(tree.hf, name)
        made: dict[int, CheckpointRow] = {}
        for seq, row in sorted(tree.rows.items()):
            parent = _parent(row)
            under = None if parent is None else made[parent]
            other.position, copy = other.placer.copy(row, tree.number, expect=other.position, under=under)
            made[seq] = other.rows[copy.seq] = copy
        return other

    def branched(self, tree: Placed) -> dict[int, Any]:
        """A tree with lists, a large value and a large dict; its states by seq."""
        tree.grow(40)
        big = {"files": {f"f{number}": message(number) for number in range(100)}, "text": "long " * 5_000}
        tree.place({"messages": tree.state(10)["messages"], **big}, under=10)
        tree.place({"messages": [message(0), "other"], **big}, under=41)
        return {seq: tree.state(seq) for seq in tree.rows}

    def test_a_copy_has_the_same_tree_and_the_same_states_and_stores_no_cell(self, tree: Placed) -> None:
        states = self.branched(tree)
        other = self.copied(tree)
        assert other.parents() == tree.parents()
        assert {seq: other.state(seq) for seq in other.rows} == states
        for seq, row in other.rows.items():
            base = load_base(tree.hf.context.store, other.number, row)
            assert base.ends == (0, 0)
            assert metas.decode(row).trigger == "fork"
            assert row.step == tree.rows[seq].step
        assert tree.hf.verify(deep=True).problems == ()

    def test_a_copy_outlives_its_origin(self, tree: Placed) -> None:
        states = self.branched(tree)
        other = self.copied(tree)
        tree.placer.drop(tree.number)
        tree.hf.optimize()
        assert {seq: other.state(seq) for seq in other.rows} == states
        assert tree.hf.verify(deep=True).problems == ()

    def test_a_copy_outlives_pruning_and_removal_in_its_origin(self, tree: Placed) -> None:
        states = self.branched(tree)
        other = self.copied(tree)
        tree.hf.thread("t").prune(Retention(keep_last=1))
        tree.placer.remove(tree.number, [seq for seq in tree.rows if seq < 42])
        tree.hf.optimize()
        assert {seq: other.state(seq) for seq in other.rows} == states
        assert tree.hf.verify(deep=True).problems == ()

    def test_both_go_on_by_themselves(self, tree: Placed) -> None:
        tree.grow(3)
        other = self.copied(tree)
        whole = tree.state(3)["messages"]
        tree.place({"messages": [*whole, "origin"]}, under=3)
        other.bases[3] = other.placer.base(other.number, other.rows[3])
        other.place({"messages": [*whole, "copy"]}, under=3)
        assert latest(tree.hf, "t")["messages"][3:] == ["origin"]
        assert latest(tree.hf, "copy")["messages"][3:] == ["copy"]
        tree.placer.drop(tree.number)
        tree.hf.optimize()
        assert latest(tree.hf, "copy")["messages"] == [*whole, "copy"]
        assert tree.hf.verify(deep=True).problems == ()

    def test_a_source_that_is_gone_is_a_conflict(self, tree: Placed) -> None:
        tree.grow(3)
        other = Placed(tree.hf, "copy")
        tree.placer.remove(tree.number, [1])
        with pytest.raises((Conflict, NotFound)):
            other.placer.copy(tree.rows[1], tree.number, expect=None, under=None)
        assert other.placer.head() is None
        tree.placer.drop(tree.number)
        with pytest.raises((Conflict, NotFound)):
            other.placer.copy(tree.rows[3], tree.number, expect=None, under=None)
        assert other.placer.head() is None

    def test_a_copy_of_a_copy_outlives_both(self, tree: Placed) -> None:
        states = self.branched(tree)
        second = self.copied(self.copied(tree), "second")
        for name in ("t", "copy"):
            tree.hf.thread(name).drop()
        tree.hf.optimize()
        assert {seq: second.state(seq) for seq in second.rows} == states
        assert tree.hf.verify(deep=True).problems == ()


class TestRemove:
    def test_what_others_use_stays(self, tree: Placed) -> None:
        tree.grow(6)
        kept = {seq: tree.state(seq) for seq in (4, 6)}
        tree.placer.remove(tree.number, [1, 2, 3, 5])
        assert {row.seq for row in tree.placer.rows(tree.number, 0)} == {4, 6}
        assert [tree.placer.row(tree.number, seq) is None for seq in (1, 4)] == [True, False]
        assert {seq: tree.state(seq) for seq in kept} == kept
        tree.placer.remove(tree.number, [])
        assert tree.hf.verify(deep=True).problems == ()

    def test_a_dropped_thread_is_gone_and_can_begin_anew(self, tree: Placed) -> None:
        tree.grow(3)
        first = tree.number
        tree.placer.drop(first)
        assert tree.placer.head() is None
        tree.position = None
        assert tree.place({"messages": ["anew"]}) == 1
        assert tree.number != first
        assert latest(tree.hf) == {"messages": ["anew"]}


def test_rows_are_listed_newest_first_above_a_seq(tree: Placed) -> None:
    tree.grow(7)
    assert [row.seq for row in tree.placer.rows(tree.number, 0)] == [7, 6, 5, 4, 3, 2, 1]
    assert [row.seq for row in tree.placer.rows(tree.number, 4)] == [7, 6, 5]
    assert [*tree.placer.rows(tree.number, 7)] == []
