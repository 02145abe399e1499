"""The history of a thread: pages of checkpoints, rewinds, deletions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.errors import Conflict, Damaged, NotFound, Protected
from holdfast.stores.contract import NO_REFS, CheckpointRow, Position, Refs, Span, Store
from holdfast.testing.contract.build import FAR, Line, commit, everything, saved, summary, texts_of
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import checkpoint_at, last_of


def seqs(rows: Sequence[CheckpointRow | Damaged]) -> list[int]:
    return [row.seq for row in rows if not isinstance(row, Damaged)]


class HistoryContract(ContractBase):
    # -- pages ------------------------------------------------------------------------------------------------------

    def test_checkpoints_are_listed_newest_first(self, store: Store) -> None:
        line = saved(store, "a", *"vwxyz")
        assert seqs(store.checkpoints(line.number, before=None, limit=10)) == [5, 4, 3, 2, 1]

    def test_pages_of_checkpoints(self, store: Store) -> None:
        line = saved(store, "a", *"vwxyz")
        assert seqs(store.checkpoints(line.number, before=None, limit=2)) == [5, 4]
        assert seqs(store.checkpoints(line.number, before=4, limit=2)) == [3, 2]
        assert seqs(store.checkpoints(line.number, before=2, limit=2)) == [1]
        assert seqs(store.checkpoints(line.number, before=1, limit=2)) == []
        assert seqs(store.checkpoints(line.number, before=FAR, limit=1)) == [5]

    def test_a_listing_leaves_out_refs_and_skeletons(self, store: Store) -> None:
        made = commit("a", refs=Refs(blobs=(b"d" * 32,)), meta=b'{"m":1}', skeleton=b"[2]", step=7)
        position = store.commit(made)
        assert store.checkpoints(position.thread, before=None, limit=1) == [
            msgspec.structs.replace(made.row, refs=NO_REFS, skeleton=b"")
        ]

    def test_listing_by_label_and_step(self, store: Store) -> None:
        line = Line(store, "a")
        for label, step in [("x", 1), ("y", 1), ("x", 2), (None, 2), ("X", 2), ("x", 2)]:
            line.save(label=label, step=step)

        def listed(label: str | None, step: int | None, *, before: int | None = None, limit: int = 10) -> list[int]:
            return seqs(store.checkpoints(line.number, before=before, limit=limit, label=label, step=step))

        assert listed("x", None) == [6, 3, 1]
        assert listed(None, 2) == [6, 5, 4, 3]
        assert listed("x", 2) == [6, 3]
        assert listed("x", None, limit=2) == [6, 3]
        assert listed("x", None, before=6) == [3, 1]
        assert listed(None, 1, before=2) == [1]
        assert listed("z", None) == listed(None, 3) == listed("", None) == []

    def test_pages_of_a_walk(self, store: Store) -> None:
        line = saved(store, "a", *"vwxyz")
        for refs_only in (False, True):

            def walked(after: int, limit: int, refs_only: bool = refs_only) -> list[int]:
                return seqs(store.walk(line.number, after=after, limit=limit, refs_only=refs_only))

            assert walked(0, 10) == walked(-1, 5) == [1, 2, 3, 4, 5]
            assert [walked(after, 2) for after in (0, 2, 4, 5)] == [[1, 2], [3, 4], [5], []]
            assert walked(0, 0) == []

    def test_a_walk_returns_complete_checkpoints_or_only_their_refs(self, store: Store) -> None:
        refs = Refs(spans=(Span(0, 1, 0, 2, 1, 1), Span(0, 3, 4, 5, 1, 1)), blobs=(b"d" * 32, b"e" * 32))
        made = commit("a", refs=refs, meta=b'{"m":1}', skeleton=b"[2]", step=7)
        position = store.commit(made)
        assert store.walk(position.thread, after=0, limit=1) == [made.row]
        assert store.walk(position.thread, after=0, limit=1, refs_only=True) == [
            msgspec.structs.replace(made.row, meta=b"", skeleton=b"")
        ]

    def test_a_missing_thread_has_no_history(self, store: Store) -> None:
        assert store.checkpoints(99, before=None, limit=10) == []
        assert store.walk(99, after=0, limit=10) == store.walk(99, after=0, limit=10, refs_only=True) == []

    def test_the_last_seq_assigned(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        assert last_of(store, line.number) == 3
        line.rewind(1)
        store.delete(line.number, [2, 3])
        assert last_of(store, line.number) == 3
        line.save("w")
        assert last_of(store, line.number) == 4

    def test_a_missing_thread_has_no_last_seq(self, store: Store) -> None:
        line = saved(store, "a", "x")
        assert last_of(store, line.number + 100) == 0
        store.drop(line.number)
        assert last_of(store, line.number) == 0

    # -- rewinding --------------------------------------------------------------------------------------------------

    def test_a_rewind_is_a_move_of_its_own(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        before = checkpoint_at(store, line.number, 1)
        shows = summary(1, status="halted", agent="b")
        position = store.rewind(line.at, to=1, summary=shows)
        assert position == Position(line.number, head=1, move=4, last=3)
        stored = line.stored()
        assert (stored.position, stored.summary, stored.count) == (position, shows, 3)
        assert before is not None
        assert stored.head_id == before.id
        assert checkpoint_at(store, line.number, 1) == before
        assert seqs(store.checkpoints(line.number, before=None, limit=10)) == [3, 2, 1]

    def test_a_commit_after_a_rewind_takes_the_next_seq(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        line.rewind(1)
        assert line.save("w") == Position(line.number, head=4, move=5, last=4)
        made = checkpoint_at(store, line.number, 4)
        assert made is not None
        assert (made.parent, made.move) == ((0, 1), 5)
        assert texts_of(store, line.span()) == [["x", "y", "z", "w"]]

    def test_a_rewind_forward_again(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        line.rewind(1)
        assert line.rewind(2) == Position(line.number, head=2, move=4, last=2)

    @pytest.mark.parametrize("field", ["head", "move", "last"])
    def test_a_rewind_of_a_thread_that_moved_conflicts(self, store: Store, field: str) -> None:
        line = saved(store, "a", "x", "y", "z")
        stale = msgspec.structs.replace(line.at, **{field: getattr(line.at, field) - 1})
        before = everything(store)
        with pytest.raises(Conflict):
            store.rewind(stale, to=1, summary=summary())
        assert everything(store) == before

    def test_a_rewind_to_a_missing_checkpoint(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        store.delete(line.number, [1])
        before = everything(store)
        for to in (0, 1, 4):
            with pytest.raises(NotFound):
                store.rewind(line.at, to=to, summary=summary())
        assert everything(store) == before

    def test_a_rewind_of_a_dropped_thread(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        store.drop(line.number)
        with pytest.raises((Conflict, NotFound)):
            store.rewind(line.at, to=1, summary=summary())

    # -- deleting ---------------------------------------------------------------------------------------------------

    def test_a_deleted_checkpoint_leaves_a_tombstone(self, store: Store) -> None:
        line = Line(store, "a")
        line.save("x", label="l", step=7)
        line.save("y", label="l", step=7)
        line.save("z")
        whole = checkpoint_at(store, line.number, 2)
        assert whole is not None
        assert store.delete(line.number, [2]) == 1
        stone = checkpoint_at(store, line.number, 2)
        assert stone is not None
        assert stone.deleted
        assert (stone.seq, stone.id, stone.parent, stone.digest) == (2, whole.id, (0, 1), whole.digest)
        assert (stone.step, stone.move) == (7, whole.move)
        assert (stone.label, stone.meta, stone.refs, stone.skeleton) == (None, b"", NO_REFS, b"")

    def test_tombstones_are_not_listed_and_take_no_room_in_a_page(self, store: Store) -> None:
        line = Line(store, "a")
        for _ in range(7):
            line.save(label="l", step=3)
        store.delete(line.number, [1, 2, 5, 6])
        assert seqs(store.checkpoints(line.number, before=None, limit=2)) == [7, 4]
        assert seqs(store.checkpoints(line.number, before=7, limit=2)) == [4, 3]
        assert seqs(store.checkpoints(line.number, before=None, limit=10, label="l", step=3)) == [7, 4, 3]

    def test_tombstones_are_part_of_a_walk(self, store: Store) -> None:
        line = saved(store, "a", *"wxyz")
        store.delete(line.number, [1, 3])
        stones = [checkpoint_at(store, line.number, seq) for seq in (1, 3)]
        for refs_only in (False, True):
            walked = store.walk(line.number, after=0, limit=3, refs_only=refs_only)
            assert seqs(walked) == [1, 2, 3]
            assert [walked[0], walked[2]] == stones

    def test_delete_counts_what_it_deleted(self, store: Store) -> None:
        line = saved(store, "a", *"uvwxyz")
        assert store.delete(line.number, []) == 0
        assert store.delete(line.number, [1, 2, 2]) == 2
        assert store.delete(line.number, {2, 3}) == 1
        assert store.delete(line.number, (1, 2, 3)) == 0
        assert store.delete(line.number, range(1, 6)) == 2
        stored = line.stored()
        assert (stored.count, stored.position) == (1, line.at)

    def test_the_head_is_protected_and_nothing_else_is_deleted(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        before = everything(store)
        with pytest.raises(Protected):
            store.delete(line.number, [1, 3, 2])
        assert everything(store) == before

    def test_the_head_after_a_rewind_is_protected(self, store: Store) -> None:
        line = saved(store, "a", "x", "y", "z")
        line.rewind(2)
        with pytest.raises(Protected):
            store.delete(line.number, [2])
        assert store.delete(line.number, [1, 3]) == 2

    def test_a_seq_is_not_reused(self, store: Store) -> None:
        line = saved(store, "a", "x", "y")
        line.rewind(1)
        store.delete(line.number, [2])
        assert line.stored().position.last == 2
        assert line.save("z").head == 3

    def test_deleting_affects_no_other_checkpoint(self, store: Store) -> None:
        line, other = saved(store, "a", "x", "y", "z"), saved(store, "b", "x", "y")
        kept = checkpoint_at(store, line.number, 3), checkpoint_at(store, other.number, 1)
        store.delete(line.number, [1, 2])
        assert (checkpoint_at(store, line.number, 3), checkpoint_at(store, other.number, 1)) == kept
        assert texts_of(store, line.span()) == [["x", "y", "z"]]
