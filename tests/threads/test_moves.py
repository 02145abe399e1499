"""Forking, rewinding, referring, comparing, removing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Holdfast, InvalidArgument, NotFound, Retention
from holdfast.errors import AlreadyExists, Ambiguous, Protected
from holdfast.threads.retention import removable
from holdfast.threads.scan import thread_named
from tests.cases import for_each
from tests.covers import covers
from tests.selection import every_store


def grown(hf: Holdfast, name: str = "t", count: int = 5) -> list[holdfast.Checkpoint]:
    """A thread of `count` checkpoints, each with one more message."""
    thread = hf.thread(name)
    messages: list[str] = []
    made = []
    for n in range(count):
        messages.append(f"message {n} " * 20)
        made.append(thread.save({"messages": messages}, label=f"l{n}"))
    return made


def state_of(thread: holdfast.Thread) -> Any:
    latest = thread.latest()
    assert latest is not None
    return latest.state


class TestFork:
    @covers("F2", "cortex/CheckpointManager.fork", "cortex/test_fork_thread", "cortex/CheckpointMetadata.with_parent")
    def test_a_fork_begins_at_the_head_or_at_any_checkpoint(self, hf: Holdfast) -> None:
        made = grown(hf)
        thread = hf.thread("t")
        assert state_of(thread.fork("whole")) == state_of(thread)
        fork = thread.fork("early", at=made[1].id)
        assert len(state_of(fork)["messages"]) == 2
        head = fork.head()
        assert head is not None
        assert (head.parent, head.step, head.label, head.seq, head.trigger) == (made[1].id, 2, "l1", 1, "fork")

    @covers("cortex/CheckpointManager.fork")
    def test_a_fork_and_its_origin_go_separate_ways(self, hf: Holdfast) -> None:
        grown(hf)
        thread = hf.thread("t")
        fork = thread.fork("f", at="@3")
        forked = state_of(fork)
        forked["messages"].append("only in the fork")
        fork.save(forked)
        original = state_of(thread)
        original["messages"].append("only in the origin")
        thread.save(original)
        assert state_of(fork)["messages"][3:] == ["only in the fork"]
        assert len(state_of(thread)["messages"]) == 6

    def test_a_fork_may_begin_at_an_edited_state(self, hf: Holdfast) -> None:
        grown(hf)
        edited = state_of(hf.thread("t"))
        edited["messages"][0] = "another beginning"
        fork = hf.thread("t").fork("f", state=edited)
        assert state_of(fork) == edited
        assert state_of(hf.thread("t"))["messages"][0] != "another beginning"
        assert state_of(hf.thread("t").fork("as it is", state=None)) == state_of(hf.thread("t"))

    @covers("F2")
    def test_a_name_that_exists_is_refused(self, hf: Holdfast) -> None:
        grown(hf)
        hf.thread("taken").save({"mine": True})
        with pytest.raises(AlreadyExists, match="taken"):
            hf.thread("t").fork("taken")
        with pytest.raises(AlreadyExists):
            hf.thread("t").fork("t")
        assert state_of(hf.thread("taken")) == {"mine": True}

    @covers("F2", "F8")
    def test_a_fork_outlives_its_origin(self, hf: Holdfast) -> None:
        grown(hf, count=50)
        fork = hf.thread("t").fork("f", at="@40")
        second = fork.fork("f2")
        hf.thread("t").drop()
        hf.optimize()
        assert len(state_of(fork)["messages"]) == 40
        fork.drop()
        hf.optimize()
        assert len(state_of(hf.thread("f2"))["messages"]) == 40
        assert hf.verify().ok
        second.save({"small": True})
        second.prune(Retention(keep_last=1, keep_labelled=False))
        hf.optimize()
        assert state_of(second) == {"small": True}
        assert hf.verify().ok


class TestRewind:
    @covers("A17", "F3", "cortex/CheckpointManager.rewind", "cortex/test_rewind")
    def test_the_head_moves_and_history_stays(self, hf: Holdfast) -> None:
        made = grown(hf)
        thread = hf.thread("t")
        head = thread.rewind("@2")
        assert head.id == made[1].id
        assert len(state_of(thread)["messages"]) == 2
        assert thread.step() == 2
        assert [c.seq for c in thread.history()] == [5, 4, 3, 2, 1]
        info = next(hf.threads())
        assert (info.step, info.seq, info.head) == (2, 2, made[1].id)
        assert thread.load(made[4].id).state["messages"][4]
        assert thread.rewind(made[4].id).seq == 5

    @every_store("two writers meet in the store")
    def test_a_stale_handle_does_not_rewind(self, hf: Holdfast) -> None:
        mine, other = hf.thread("t"), hf.thread("t")
        first = mine.save({"n": 1})
        other.save({"n": 2})
        with pytest.raises(Conflict):
            mine.rewind(first.id)
        assert state_of(other) == {"n": 2}

    @covers("C8", "F3", "cortex/CheckpointManager.rewind drops what came after")
    @covers("cortex/CheckpointMetadata.with_parent", "cortex/graph Checkpoint.id")
    def test_what_is_saved_after_a_rewind_is_a_branch(self, hf: Holdfast) -> None:
        made = grown(hf)
        thread = hf.thread("t")
        thread.rewind("@2")
        state = state_of(thread)
        state["messages"].append("instead")
        branch = thread.save(state)
        assert (branch.seq, branch.step, branch.parent) == (6, 3, made[1].id)
        assert thread.load("@-2").id == made[1].id
        assert thread.load("@3").id == branch.id
        assert state_of(hf.thread("t"))["messages"][2] == "instead"


class TestReferences:
    @covers("B2", "smooth/CheckpointStore.load")
    @covers("continuum/CheckpointSystemTrait.load", "continuum/CheckpointData.checkpoint_id")
    @covers("cortex/CheckpointStore.load", "cortex/CheckpointManager.load", "cortex/graph Checkpoint.id")
    def test_ways_to_name_a_checkpoint(self, hf: Holdfast) -> None:
        made = grown(hf)
        thread = hf.thread("t")
        for ref in (made[2].id, made[2], made[2].id.upper(), "@3", "@-3", "@l2", made[2].id[-8:], made[2].id[:-1]):
            assert thread.load(ref).seq == 3, ref
        assert thread.load("@-1").seq == 5

    @covers("ares/CheckpointError.NotFound", "smooth/CheckpointStore.load.none", "continuum/load of an unknown id")
    @covers("cortex/CheckpointError.NotFound", "cortex/Graph.resume of an unknown checkpoint")
    @pytest.mark.parametrize(
        "ref", ["@-6", "@-0", "@" + "9" * 5_000, "@99", "@no such label", "@", "ffff", "0" * 36, "x", "abc"]
    )
    def test_what_does_not_exist_is_not_found(self, hf: Holdfast, ref: str) -> None:
        grown(hf)
        with pytest.raises(NotFound):
            hf.thread("t").load(ref)

    @pytest.mark.parametrize("ref", ["", None, 3, b"@1"])
    def test_what_is_no_reference_is_refused(self, hf: Holdfast, ref: Any) -> None:
        grown(hf)
        with pytest.raises(InvalidArgument):
            hf.thread("t").load(ref)

    def test_a_label_that_is_a_number_is_found_where_there_is_no_such_step(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        thread.save({"n": 1}, label="2026")
        thread.save({"n": 2}, label="1")
        assert thread.load("@2026").state == {"n": 1}
        assert thread.load("@1").state == {"n": 1}

    def test_a_short_id_must_be_the_only_one(self, hf: Holdfast) -> None:
        made = grown(hf, count=3)
        with pytest.raises(Ambiguous, match="3 ids"):
            hf.thread("t").load(made[0].id[:6])

    @covers("C7", "C9")
    def test_an_id_of_another_thread_is_not_found(self, hf: Holdfast) -> None:
        mine, other = grown(hf), grown(hf, "other")
        assert mine[0].id != other[0].id
        with pytest.raises(NotFound):
            hf.thread("t").load(other[0].id)


class TestDiff:
    def test_between_checkpoints_and_threads(self, hf: Holdfast) -> None:
        made = grown(hf)
        diff = hf.thread("t").diff(made[0], made[1])
        assert [(c.kind, c.path) for c in diff.changes] == [("added", "$.messages[1]")]
        hf.thread("t").fork("f", at="@2")
        assert not hf.diff("t@2", "f")
        assert [c.path for c in hf.diff("f@-1", "t@3").changes] == ["$.messages[2]"]
        with pytest.raises(NotFound):
            hf.diff("t@1", "nobody@1")
        with pytest.raises(InvalidArgument):
            hf.diff("t", 5)  # type: ignore[arg-type] # what a caller without a type checker may pass


class TestRemoving:
    @covers("F8", "F9", "continuum/CheckpointSystemTrait.delete", "continuum/delete leaves the others")
    @covers("continuum/delete of an unknown id", "cortex/CheckpointStore.delete", "cortex/CheckpointStore.count")
    @covers("cortex/test_rewind", "cortex/graph CheckpointStore")
    def test_deleting_one_leaves_the_others(self, hf: Holdfast) -> None:
        made = grown(hf)
        thread = hf.thread("t")
        thread.delete(made[2].id)
        with pytest.raises(NotFound):
            thread.load(made[2].id)
        with pytest.raises(NotFound):
            thread.delete(made[2].id)
        assert thread.count() == 4
        assert [c.seq for c in thread.history()] == [5, 4, 2, 1]
        assert len(thread.load("@4").state["messages"]) == 4
        assert thread.load("@-3").seq == 2
        assert hf.verify().ok

    @covers("F8", "cortex/CheckpointError.InvalidState")
    def test_the_head_is_protected(self, hf: Holdfast) -> None:
        made = grown(hf)
        with pytest.raises(Protected, match="head"):
            hf.thread("t").delete(made[4])
        assert hf.thread("t").count() == 5

    @covers("H9", "cortex/CheckpointStore.delete_thread", "cortex/CheckpointManager.delete_thread")
    @covers("cortex/test_delete_thread", "cortex/MemoryBackend.delete_session", "cortex/SessionManager.delete_session")
    @covers("cortex/session test_sled_backend_delete")
    def test_a_dropped_name_begins_anew(self, hf: Holdfast) -> None:
        grown(hf)
        thread = hf.thread("t")
        thread.drop()
        assert thread.latest() is None
        assert thread.save({"again": True}).seq == 1

    @covers("F4", "F10", "ares/expired_metadata", "smooth/CheckpointStore.prune")
    @covers("cortex/CheckpointConfig.max_checkpoints_per_thread")
    def test_prune_keeps_what_must_stay(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        made = [
            thread.save({"n": n}, status="completed" if n in (2, 4) else "running", label="keep" if n == 1 else None)
            for n in range(10)
        ]
        thread.fork("f", at=made[3])
        plan = thread.prune(Retention(keep_last=2), dry_run=True)
        assert plan.dry_run
        assert [c.seq for c in plan.removed] == [8, 7, 6, 3, 1]
        assert thread.count() == 10
        done = thread.prune(Retention(keep_last=2))
        assert done.removed == plan.removed
        assert (done.kept, thread.count()) == (5, 5)
        assert [c.seq for c in thread.history()] == [10, 9, 5, 4, 2]
        assert thread.prune(Retention(keep_last=2)).removed == ()
        assert hf.verify().ok

    @covers("F10")
    def test_prune_keeps_a_head_that_was_rewound_to(self, hf: Holdfast) -> None:
        grown(hf)
        thread = hf.thread("t")
        thread.rewind("@1")
        thread.prune(Retention(keep_last=0, keep_labelled=False))
        assert [c.seq for c in thread.history()] == [1]
        assert thread.save({"goes": "on"}).seq == 6

    @covers("F6", "ares/is_expired", "ares/expired_metadata", "ares/cleanup_expired", "cortex/CheckpointConfig.ttl")
    def test_prune_by_age(self, hf: Holdfast) -> None:
        made = grown(hf)
        thread = hf.thread("t")
        assert not thread.prune(Retention(older_than=3_600, keep_labelled=False)).removed
        policy = Retention(older_than=timedelta(days=1), keep_labelled=False)
        tomorrow = datetime.now(UTC) + timedelta(days=2)
        later = removable(policy, thread.history(), head=5, origins=set(), now=tomorrow)
        assert [c.id for c in later] == [c.id for c in made[3::-1]]
        assert not thread.prune(Retention(older_than=1e300, keep_labelled=False)).removed
        assert len(thread.prune(Retention(older_than=0, keep_labelled=False)).removed) == 4

    @covers("F10")
    @for_each(
        "policy",
        [
            {},
            {"keep_last": -1},
            {"keep_last": True},
            {"keep_last": 1.5},
            {"older_than": -1},
            {"older_than": float("inf")},
            {"older_than": float("nan")},
            {"older_than": timedelta(days=-1)},
            {"older_than": "1d"},
        ],
    )
    def test_an_empty_or_impossible_retention_is_refused(self, policy: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            Retention(**policy)

    def test_prune_takes_a_retention(self, hf: Holdfast) -> None:
        grown(hf)
        with pytest.raises(InvalidArgument):
            hf.thread("t").prune(3)  # type: ignore[arg-type] # the same


class TestForkDetails:
    @covers("F2")
    def test_an_edited_fork_is_as_new_as_any_other(self, hf: Holdfast) -> None:
        thread = hf.thread("t", schema_version=1)
        source = thread.save({"n": 1}, tags=["x"], label="l")
        newer = hf.thread("t", schema_version=2)
        # What is only named again is still of the version it was stored with.
        for fork, version in ((newer.fork("plain"), 1), (newer.fork("edited", state={"n": 2}), 2)):
            head = fork.head()
            assert head is not None
            assert head.created_at > source.created_at
            assert (head.trigger, head.schema_version, head.tags, head.label) == ("fork", version, ("x",), "l")


class TestPaging:
    def test_a_page_may_end_at_a_checkpoint_that_is_gone(self, hf: Holdfast) -> None:
        made = grown(hf, count=6)
        thread = hf.thread("t")
        thread.delete(made[3])
        assert [c.seq for c in thread.history(before=made[3])] == [3, 2, 1]
        assert [c.seq for c in thread.history(before=made[3].id)] == [3, 2, 1]

    def test_a_checkpoint_of_a_thread_can_be_named_by_its_id(self, hf: Holdfast) -> None:
        made = grown(hf)
        assert not hf.diff(f"t@{made[1].id}", "t@2")


@every_store("two writers meet in the store")
class TestSweepingBesideForks:
    """A fork made while the live data are being gathered, whose source goes before it is looked at."""

    @pytest.mark.parametrize("gather", ["values", "cells"])
    def test_what_a_new_fork_needs_is_found(self, hf: Holdfast, gather: str, monkeypatch: pytest.MonkeyPatch) -> None:
        state = {"image": "pixel " * 5_000, "messages": [f"m {n} " * 50 for n in range(50)]}
        hf.thread("a").save({"first": True})
        source = hf.thread("source")
        source.save(state)
        source.save({"small": 1})
        store = hf.context.store
        stored = thread_named(store, "source")
        assert stored is not None
        verb = "sweep_blobs" if gather == "values" else "forks"
        real = getattr(store, verb)
        done: list[bool] = []

        def meanwhile(*args: Any, **page: Any) -> Any:
            found = real(*args, **page)
            if not done and (gather == "values" or args[0] == stored.position.thread):
                done.append(True)
                source.fork("fork", at="@1")
                source.delete("@1")
            return found

        monkeypatch.setattr(store, verb, meanwhile)
        hf.optimize()
        monkeypatch.undo()
        assert done
        assert state_of(hf.thread("fork")) == state
        assert hf.verify().ok
