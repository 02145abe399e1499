"""Commits: creating threads, compare-and-set, all or nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import Conflict, Damaged, HoldfastError, InvalidArgument
from holdfast.stores.contract import Commit, Position, Refs, Span, Store
from holdfast.testing.contract.build import commit, everything, numbers_of, run, saved, summary, value
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import checkpoint_at, thread_named


def refuse(store: Store, refused: Commit, error: type[HoldfastError] = Conflict) -> None:
    """Assert that the commit raises and stores no rows, cells or blobs."""
    seq = max(refused.row.seq, 1)
    cells = [Span(thread, 77, 0, 1, seq, seq) for thread in (*numbers_of(store), 1)]
    brought = value(b'"refused"', by=store.hashing)
    refused = msgspec.structs.replace(refused, appends=(run("x", log=77),), blobs=(brought,))
    before = everything(store)
    with pytest.raises(error):
        store.commit(refused)
    assert everything(store) == before
    with pytest.raises(Damaged):
        store.blob(brought.digest)
    for span in cells:
        with pytest.raises(Damaged):
            store.cells([span])


class CommitContract(ContractBase):
    def test_a_thread_that_was_never_saved_is_none(self, store: Store) -> None:
        assert thread_named(store, "a") is None

    def test_the_first_commit_creates_the_thread(self, store: Store) -> None:
        first = commit("a", shows=summary(3, status="running", agent="planner", size=2**40, updated_at=2**52))
        position = store.commit(first)
        assert position == Position(thread=position.thread, head=1, move=1, last=1)
        assert position.thread > 0
        head = store.head("a")
        assert head is not None
        assert head.checkpoint == first.row
        stored = head.thread
        assert (stored.name, stored.position, stored.head_id) == ("a", position, first.row.id)
        assert (stored.count, stored.summary) == (1, first.summary)

    def test_each_commit_moves_the_head(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        second = commit("a", line.at, step=9)
        assert store.commit(second) == Position(line.number, head=3, move=3, last=3)
        stored = line.stored()
        assert (stored.position.head, stored.head_id, stored.count) == (3, second.row.id, 3)
        assert stored.summary == second.summary

    def test_a_commit_without_cells(self, store: Store) -> None:
        assert store.commit(commit("a")).last == 1

    def test_an_empty_append_stores_nothing(self, store: Store) -> None:
        line = saved(store, "a", "x y")
        assert store.commit(commit("a", line.at, appends=[run(start=2), run(log=5)])).last == 2
        with pytest.raises(Damaged):
            store.cells([Span(line.number, 5, 0, 1, 2, 2)])

    def test_a_checkpoint_is_returned_complete(self, store: Store) -> None:
        origin = saved(store, "origin", "x")
        refs = Refs(spans=(Span(0, 1, 0, 3, 1, 1), Span(origin.number, 2**33, 5, 2**20, 1, 1)), blobs=(b"d" * 32,))
        made = commit("a", parent=(origin.number, 1), step=2**40, label="né\0w", refs=refs, meta=b"{}", skeleton=b"[1]")
        position = store.commit(made)
        assert checkpoint_at(store, position.thread, 1) == made.row

    @pytest.mark.parametrize("label", [None, "", "x"])
    def test_labels_are_returned_as_given(self, store: Store, label: str | None) -> None:
        position = store.commit(commit("a", label=label))
        [listed] = store.checkpoints(position.thread, before=None, limit=10)
        assert listed.label == label

    def test_an_unassigned_seq_returns_none(self, store: Store) -> None:
        line = saved(store, "a", "x")
        assert [checkpoint_at(store, line.number, seq) for seq in (0, 2, 10**9)] == [None] * 3
        assert checkpoint_at(store, line.number + 1, 1) is None

    # -- compare-and-set --------------------------------------------------------------------------------------------

    def test_a_thread_that_exists_is_not_created_again(self, store: Store) -> None:
        saved(store, "a", "x")
        refuse(store, commit("a"))

    @pytest.mark.parametrize(
        "wrong",
        [{"head": 1}, {"head": 3}, {"move": 3}, {"move": 5}, {"last": 2}, {"last": 4}],
        ids=lambda wrong: "-".join(f"{key}-{number}" for key, number in wrong.items()),
    )
    def test_a_position_that_differs_in_anything_conflicts(self, store: Store, wrong: dict[str, int]) -> None:
        line = saved(store, "a", "x", "y", "z")
        line.rewind(2)
        assert line.at == Position(line.number, head=2, move=4, last=3)
        refuse(store, commit("a", msgspec.structs.replace(line.at, **wrong)))

    def test_the_number_of_another_thread_conflicts(self, store: Store) -> None:
        line, other = saved(store, "a", "x"), saved(store, "b", "x")
        refuse(store, commit("a", msgspec.structs.replace(line.at, thread=other.number)))
        refuse(store, commit("a", msgspec.structs.replace(line.at, thread=other.number + 100)))

    def test_a_position_of_a_missing_thread_conflicts(self, store: Store) -> None:
        refuse(store, commit("a", Position(1, 1, 1, 1)))

    def test_a_position_from_before_a_drop_conflicts(self, store: Store) -> None:
        line = saved(store, "a", "x")
        store.drop(line.number)
        refuse(store, commit("a", line.at))

    def test_a_position_from_before_a_drop_conflicts_with_a_new_thread(self, store: Store) -> None:
        line = saved(store, "a", "x")
        store.drop(line.number)
        saved(store, "a", "x")
        refuse(store, commit("a", line.at))

    def test_saving_and_rewinding_back_is_noticed(self, store: Store) -> None:
        line = saved(store, "a", "x")
        stale = line.at
        line.save("y")
        line.rewind(1)
        assert line.at.head == stale.head
        refuse(store, commit("a", stale))

    @pytest.mark.parametrize("wrong", [{"seq": 0}, {"seq": 2}, {"move": 0}, {"move": 2}])
    def test_a_first_commit_is_seq_1_and_move_1(self, store: Store, wrong: dict[str, int]) -> None:
        refuse(store, _changed(commit("a"), **wrong), InvalidArgument)

    @pytest.mark.parametrize("step", [-1, 2**63, 2**64])
    def test_a_step_that_no_store_can_hold_is_refused(self, store: Store, step: int) -> None:
        line = saved(store, "a", "x")
        refuse(store, commit("a", line.at, step=step), InvalidArgument)
        line.save("y", step=2**63 - 1)

    @pytest.mark.parametrize("wrong", [{"seq": 2}, {"seq": 4}, {"move": 2}, {"move": 3}, {"move": 5}])
    def test_a_commit_follows_what_it_expects(self, store: Store, wrong: dict[str, int]) -> None:
        line = saved(store, "a", "x", "y")
        line.rewind(1)
        assert line.at == Position(line.number, head=1, move=3, last=2)
        refuse(store, _changed(commit("a", line.at), **wrong), InvalidArgument)

    # -- bases ------------------------------------------------------------------------------------------------------

    def test_existing_bases(self, store: Store) -> None:
        line, other = saved(store, "a", "x", "y"), saved(store, "b", "x")
        line.save("z", bases=[(line.number, 1), (line.number, 2), (other.number, 1)])
        assert line.at.last == 3

    def test_a_deleted_base_conflicts(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        store.delete(line.number, [1])
        refuse(store, commit("a", line.at, bases=[(line.number, 2), (line.number, 1)]))
        refuse(store, commit("b", bases=[(line.number, 1)]))

    def test_a_base_that_never_existed_conflicts(self, store: Store) -> None:
        line = saved(store, "a", "x")
        for base in [(line.number, 2), (line.number, 0), (line.number + 100, 1)]:
            refuse(store, commit("b", bases=[base]))

    def test_a_base_in_a_dropped_thread_conflicts(self, store: Store) -> None:
        line = saved(store, "a", "x")
        store.drop(line.number)
        refuse(store, commit("b", bases=[(line.number, 1)]))

    def test_a_base_in_a_dropped_thread_that_holds_cells_for_a_fork_conflicts(self, store: Store) -> None:
        line = saved(store, "a", "x")
        saved(store, "fork").save("y", origins=[line.number], bases=[(line.number, 1)])
        store.drop(line.number)
        refuse(store, commit("b", bases=[(line.number, 1)]))


def _changed(made: Commit, **changes: Any) -> Commit:
    return msgspec.structs.replace(made, row=msgspec.structs.replace(made.row, **changes))
