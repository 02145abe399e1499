"""rust-ai-agents' checkpoint manager: what a checkpoint knows, stores, the manager's verbs, what its tests assert."""

from __future__ import annotations

import asyncio
import io
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast import ANY, NOT_LOADED, Checkpoint, Conflict, Holdfast, HoldfastError, InvalidArgument, NotFound, Thread
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.stores.contract import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import StoreContract
from tests.parity.covering import covers
from tests.parity.damaging import file_address
from tests.parity.processes import Start, told_by


@dataclass
class State:
    messages: list[str]
    counter: int


def newest(thread: Thread) -> Checkpoint:
    latest = thread.latest()
    assert latest is not None
    return latest


def oldest_first(thread: Thread) -> list[Checkpoint]:
    return list(thread.history())[::-1]


@pytest.fixture
def thread(hf: Holdfast) -> Thread:
    return hf.thread("thread1", type=State)


# -- a checkpoint -----------------------------------------------------------------------------------------------------


@covers(
    "cortex",
    "CheckpointMetadata",
    "CheckpointMetadata.id",
    "CheckpointMetadata.thread_id",
    "CheckpointMetadata.created_at",
    "CheckpointMetadata.step",
    "CheckpointMetadata.new",
    "CheckpointId",
    "ThreadId",
)
def test_a_checkpoint_knows_its_id_thread_time_and_step_and_nothing_that_was_not_said(hf: Holdfast) -> None:
    before = datetime.now(UTC)
    saved = hf.thread("any name / at all").save({"n": 1}, step=12)
    assert str(uuid.UUID(saved.id)) == saved.id
    assert (saved.thread, saved.step) == ("any name / at all", 12)
    assert before <= saved.created_at <= datetime.now(UTC)
    assert (saved.parent, saved.label, saved.tags, saved.metadata) == (None, None, (), {})
    assert saved.state is NOT_LOADED


@covers(
    "cortex",
    "CheckpointMetadata.parent_id",
    "CheckpointMetadata.label",
    "CheckpointMetadata.tags",
    "CheckpointMetadata.custom",
    "CheckpointMetadata.with_parent",
    "CheckpointMetadata.with_label",
    "CheckpointMetadata.with_tag",
    "CheckpointMetadata.with_custom",
    "CheckpointBuilder.new",
    "CheckpointBuilder.label",
    "CheckpointBuilder.tag",
    "CheckpointBuilder.custom",
    "CheckpointBuilder.save",
    "CheckpointStore.save",
)
def test_label_tags_and_entries_are_put_together_and_stored_with_the_state_at_once(hf: Holdfast) -> None:
    thread = hf.thread("t")
    first = thread.save({"n": 1})
    more: dict[str, Any] = {"label": "important"}
    more["tags"] = ["draft", "v2"]
    more["metadata"] = {"user": "ann", "cost": "0.3"}
    saved = thread.save({"n": 2}, **more)
    for found in (saved, thread.head(), thread.find(label="important"), thread.load("@important")):
        assert found is not None
        assert (found.id, found.parent, found.label) == (saved.id, first.id, "important")
        assert found.tags == ("draft", "v2")
        assert found.metadata == {"user": "ann", "cost": "0.3"}
    assert thread.load("@important").state == {"n": 2}


@covers("cortex", "CheckpointMetadata.state_size", "Checkpoint.new")
def test_a_checkpoint_knows_how_large_its_state_is(hf: Holdfast) -> None:
    thread = hf.thread("t")
    sizes = [thread.save({"text": "x" * length}).size for length in (0, 1_000, 100_000)]
    assert sizes[0] < 20
    assert 1_000 < sizes[1] < 1_020
    assert 100_000 < sizes[2] < 100_020
    assert [checkpoint.size for checkpoint in oldest_first(thread)] == sizes


@covers("cortex", "Checkpoint", "Checkpoint.metadata", "Checkpoint.state", "Checkpoint.id", "Checkpoint.thread_id")
@covers("cortex", "Checkpoint.step", "CheckpointManager.load", "CheckpointStore.load")
def test_a_loaded_checkpoint_is_what_is_known_of_it_and_the_state_in_its_type(thread: Thread) -> None:
    state = State(["hello"], 1)
    saved = thread.save(state, label="first")
    thread.save(State([], 2))
    loaded = thread.load(saved.id)
    assert loaded.state == state
    assert type(loaded.state) is State
    assert (loaded.id, loaded.thread, loaded.step, loaded.label) == (saved.id, "thread1", 1, "first")


@covers("cortex", "Checkpoint serialized")
def test_checkpoints_are_bytes_and_from_these_bytes_they_are_the_same_elsewhere(url: str, tmp_path: Path) -> None:
    with holdfast.open(url, durability="off") as hf:
        thread = hf.thread("t")
        for n in range(3):
            thread.save({"n": n, "data": b"\x00\xff", "pair": (1, 2.5)}, label=f"at {n}", tags=["t"], metadata={"n": n})
        known = [(each, thread.load(each).state) for each in thread.history()]
        written = io.BytesIO()
        assert export_jsonl(hf, written, threads=["t"]).ok
    (tmp_path / "carried").write_bytes(written.getvalue())
    with holdfast.open("memory:") as hf:
        import_from(hf, "jsonl", str(tmp_path / "carried"))
        assert [(each, hf.thread("t").load(each).state) for each in hf.thread("t").history()] == known


# -- errors -----------------------------------------------------------------------------------------------------------


@covers("cortex", "CheckpointError", "CheckpointError.NotFound", "CheckpointError.ThreadNotFound")
def test_what_is_not_there_is_told_by_one_class_and_says_whether_it_is_the_thread(hf: Holdfast) -> None:
    hf.thread("t").save({"n": 1})
    with pytest.raises(NotFound, match="thread 't' has no checkpoint"):
        hf.thread("t").load(str(uuid.uuid4()))
    with pytest.raises(NotFound, match="there is no thread 'u'"):
        hf.thread("u").load(str(uuid.uuid4()))
    with pytest.raises(NotFound, match="there is no thread 'u'"):
        hf.thread("u").rewind("@1")
    assert issubclass(NotFound, HoldfastError)


@covers("cortex", "CheckpointError.Serialization")
def test_what_cannot_be_stored_or_is_not_of_the_type_is_told_and_the_head_stays(hf: Holdfast) -> None:
    thread = hf.thread("t")
    thread.save({"messages": ["a"], "counter": 1})
    with pytest.raises(holdfast.Unsupported, match=r"\$\.messages\[1\]"):
        thread.save({"messages": ["a", object()], "counter": 2})
    assert newest(hf.thread("t", type=State)).state == State(["a"], 1)
    with pytest.raises(InvalidArgument, match="does not fit"):
        hf.thread("t", type=list[int]).latest()
    assert thread.count() == 1


@covers("cortex", "CheckpointError.Storage", "DurableError.StorageError")
def test_a_store_that_cannot_work_is_told_by_a_class_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(holdfast.StoreError):
        holdfast.open(tmp_path / "no" / "such" / "folder" / "a.db")
    (tmp_path / "text").write_text("not a store, but of some length " * 200)
    with pytest.raises(holdfast.NotAStore):
        holdfast.open(tmp_path / "text")
    assert issubclass(holdfast.NotAStore, holdfast.StoreError)


@covers("cortex", "CheckpointError.InvalidState")
def test_what_does_not_fit_where_the_thread_is_is_a_conflict_and_changes_nothing(hf: Holdfast) -> None:
    one, other = hf.thread("t"), hf.thread("t")
    first = one.save({"n": 1})
    other.latest()
    one.save({"n": 2})
    for wrong in (
        lambda: other.save({"n": "lost"}),
        lambda: one.save({}, expect=holdfast.NEW),
        lambda: one.delete("@-1"),
        lambda: one.save({}, expect=first),
    ):
        with pytest.raises(Conflict):
            wrong()
    assert [checkpoint.step for checkpoint in one.history()] == [2, 1]


# -- stores -----------------------------------------------------------------------------------------------------------


class Noted:
    """A store of somebody else's: it notes which of its verbs are called."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._store, name)


@covers("cortex", "CheckpointStore", "CheckpointManager.new")
def test_a_store_of_somebody_elses_is_used_like_any_other_and_awaited_too() -> None:
    store = Noted(MemoryStore(namespace="default"))
    with Holdfast(cast("Store", store)) as hf:

        async def agent() -> None:
            thread = hf.aio.thread("t", type=State)
            saved = await thread.save(State(["a"], 1))
            assert (await thread.load(saved.id)).state == State(["a"], 1)

        asyncio.run(agent())
        assert newest(hf.thread("t")).state == {"messages": ["a"], "counter": 1}
    assert store.called >= {"commit", "thread", "close"}
    # And whether it keeps what a store has to is a suite that it can be given to.
    assert len([name for name in dir(StoreContract) if name.startswith("test_")]) > 50


@covers("cortex", "CheckpointStore.load_latest", "CheckpointManager.load_latest", "test_load_latest")
def test_the_second_state_is_the_newest(thread: Thread) -> None:
    thread.save(State(["first"], 1))
    thread.save(State(["second"], 2))
    latest = newest(thread)
    assert latest.state == State(["second"], 2)
    assert latest.step == 2


@covers("cortex", "CheckpointStore.list", "CheckpointManager.history", "test_checkpoint_history")
def test_the_history_has_every_save_in_order_and_no_states(hf: Holdfast, thread: Thread) -> None:
    for _ in range(3):
        thread.save(State([], 0))
    history = oldest_first(thread)
    assert [checkpoint.step for checkpoint in history] == [1, 2, 3]
    assert all(checkpoint.state is NOT_LOADED for checkpoint in history)
    assert list(hf.thread("unknown").history()) == []


@covers("cortex", "CheckpointStore.delete", "CheckpointStore.count")
def test_one_checkpoint_goes_and_the_count_tells(hf: Holdfast, thread: Thread) -> None:
    saved = [thread.save(State([], n)) for n in range(3)]
    assert thread.count() == 3
    thread.delete(saved[1].id)
    assert thread.count() == 2
    assert [checkpoint.id for checkpoint in oldest_first(thread)] == [saved[0].id, saved[2].id]
    assert hf.thread("unknown").count() == 0


@covers("cortex", "CheckpointStore.delete_thread", "CheckpointManager.delete_thread", "test_delete_thread")
def test_a_dropped_thread_has_no_history_and_begins_anew(hf: Holdfast, thread: Thread) -> None:
    hf.thread("other").save({"n": 1})
    thread.save(State([], 0))
    thread.save(State([], 0))
    thread.drop()
    assert list(thread.history()) == []
    assert (thread.latest(), thread.step(), thread.count()) == (None, 0, 0)
    assert thread.save(State([], 7)).step == 1
    assert newest(thread).state == State([], 7)
    assert hf.thread("other").count() == 1


@covers("cortex", "CheckpointStore.list_threads", "CheckpointManager.list_threads", "test_list_threads")
def test_three_threads_are_three_names(hf: Holdfast) -> None:
    assert list(hf.threads()) == []
    for name in ("thread2", "thread1", "thread3"):
        hf.thread(name).save({"n": 1})
    assert [info.name for info in hf.threads()] == ["thread1", "thread2", "thread3"]


@covers("cortex", "MemoryCheckpointStore", "MemoryCheckpointStore.new", "MemoryCheckpointManager.in_memory")
def test_a_store_in_memory_is_one_call_begins_empty_and_serves_every_thread_of_the_process() -> None:
    with holdfast.open("memory:") as hf:
        assert list(hf.threads()) == []

        def save(number: int) -> None:
            for n in range(10):
                hf.thread(f"t{number}").save({"n": n}, expect=ANY)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(save, range(8)))
        assert [(info.name, info.count) for info in hf.threads()] == [(f"t{n}", 10) for n in range(8)]
    with holdfast.open("memory:") as hf:
        assert list(hf.threads()) == []


# -- the manager ------------------------------------------------------------------------------------------------------


@covers("cortex", "CheckpointManager.save", "test_save_and_load_checkpoint")
def test_a_state_comes_back_equal_and_the_first_step_is_one(thread: Thread) -> None:
    state = State(["hello"], 1)
    loaded = thread.load(thread.save(state).id)
    assert loaded.state == state
    assert loaded.step == 1


@covers("cortex", "CheckpointManager.save_with_label", "CheckpointManager.find_by_label", "test_checkpoint_with_label")
def test_what_was_labelled_is_found_by_its_label_the_newest_where_there_are_more(thread: Thread) -> None:
    thread.save(State([], 0), label="important")
    found = thread.find(label="important")
    assert found is not None
    assert found.label == "important"
    again = thread.save(State([], 1), label="important")
    thread.save(State([], 2))
    found = thread.find(label="important")
    assert found is not None
    assert found.id == again.id
    assert thread.load("@important").state == State([], 1)
    assert [checkpoint.step for checkpoint in thread.history(label="important")] == [2, 1]
    assert thread.find(label="unknown") is None


@covers("cortex", "CheckpointManager.find_by_tag")
def test_all_with_a_tag_are_found(thread: Thread) -> None:
    for n, tags in enumerate([["a"], ["a", "b"], [], ["b"], ["ab"]]):
        thread.save(State([], n), tags=tags)
    assert [checkpoint.step for checkpoint in thread.history(tag="a")] == [2, 1]
    assert [checkpoint.step for checkpoint in thread.history(tag="b")] == [4, 2]
    assert list(thread.history(tag="c")) == []


@covers("cortex", "test_parent_chain")
def test_the_first_has_no_parent_and_each_other_the_one_before(thread: Thread) -> None:
    ids = [thread.save(State([], 0)).id for _ in range(3)]
    assert [checkpoint.parent for checkpoint in oldest_first(thread)] == [None, ids[0], ids[1]]


@covers("cortex", "CheckpointManager.fork", "test_fork_thread")
def test_a_fork_begins_with_the_state_of_its_origin_and_goes_its_own_way(hf: Holdfast, thread: Thread) -> None:
    origin = thread.save(State(["original"], 5))
    thread.save(State(["original", "more"], 6))
    fork = thread.fork("thread2", at=origin.id)
    assert newest(hf.thread("thread2", type=State)).state == State(["original"], 5)
    fork.save(State(["other"], 9))
    assert newest(thread).state == State(["original", "more"], 6)
    thread.drop()
    assert [hf.thread("thread2", type=State).load(each).state.counter for each in fork.history()] == [9, 5]


@covers("cortex", "CheckpointManager.rewind", "CheckpointManager.rewind drops what came after", "test_rewind")
@covers("cortex", "CheckpointMetadata.with_parent")
def test_rewound_to_the_third_of_five_it_goes_on_from_there(thread: Thread) -> None:
    saved = [thread.save(State([f"msg{n}"], n)) for n in range(5)]
    thread.rewind(saved[2].id)
    assert newest(thread).state.counter == 2
    assert thread.step() == 3
    # What came after is kept until somebody deletes it, and no part of the thread's line any more.
    assert [thread.load(f"@-{back}").state.counter for back in (1, 2, 3)] == [2, 1, 0]
    with pytest.raises(NotFound):
        thread.load("@-4")
    for abandoned in saved[3:]:
        thread.delete(abandoned)
    assert [checkpoint.step for checkpoint in oldest_first(thread)] == [1, 2, 3]
    branch = thread.save(State(["another way"], 30))
    assert (branch.step, branch.parent) == (4, saved[2].id)


@covers("cortex", "CheckpointManager.current_step", "test_current_step")
def test_the_step_is_nought_then_one_then_two(thread: Thread) -> None:
    assert thread.step() == 0
    thread.save(State([], 0))
    assert thread.step() == 1
    thread.save(State([], 0))
    assert thread.step() == 2


@covers("cortex", "CheckpointManager.current_step after a restart")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_new_process_counts_on(kind: str, tmp_path: Path, start: Start) -> None:
    address = file_address(kind, tmp_path)
    steps = [told_by(start("counting", store=address, thread="t")) for _ in range(3)]
    assert steps == [[0, 1, 1], [1, 2, 2], [2, 3, 3]]
    with holdfast.open(address, durability="off") as hf:
        assert hf.thread("t").step() == 3
