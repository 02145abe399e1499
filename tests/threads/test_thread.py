"""The verbs of a thread, on every store."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import ANY, NEW, Conflict, Holdfast, InvalidArgument, NotFound, Usage
from tests.covers import covers
from tests.selection import every_store

HOSTILE_NAMES = [
    "a" * 10_000,
    "nul\0inside",
    "../../etc/passwd",
    "'; DROP TABLE thread; --",
    "\u202eright to left",
    "lone \ud800 surrogate",
    " ",
    "case",
    "CASE",
    "e\u0301",
    "\u00e9",
    "%_*?[a]",
    "a@b@-1",
    "😀" * 100,
]


def state_of(thread: holdfast.Thread) -> Any:
    latest = thread.latest()
    assert latest is not None
    return latest.state


class TestSave:
    @covers("ares/CheckpointManager.save", "ares/CheckpointManager.load_latest", "smooth/CheckpointStore.save")
    @covers("smooth/CheckpointStore.load_latest", "smooth/Checkpoint.conversation")
    @covers("continuum/CheckpointSystemTrait.save", "continuum/CheckpointSystemTrait.load")
    @covers("continuum/test_save_and_load_checkpoint", "continuum/save creates the session")
    @covers("cortex/CheckpointStore.load_latest", "cortex/CheckpointManager.load_latest")
    @covers("cortex/graph Checkpoint.state", "cortex/graph Checkpoint.next_node", "cortex/Session.messages")
    @covers("cortex/Session.new", "cortex/MemoryBackend", "cortex/MemoryBackend.save_session")
    @covers("cortex/MemoryBackend.load_session", "cortex/MemoryBackend.session_exists")
    @covers("cortex/SessionManager.create_session", "cortex/SessionManager.save_session")
    @covers("cortex/session test_session_manager_add_message", "cortex/test_save_and_load_checkpoint")
    def test_a_saved_state_is_the_latest(self, hf: Holdfast) -> None:
        thread = hf.thread("research-42")
        assert thread.latest() is None
        saved = thread.save({"messages": ["hello"]})
        latest = thread.latest()
        assert latest is not None
        assert latest.state == {"messages": ["hello"]}
        assert latest.id == saved.id

    @covers("E2", "F1", "ares/Checkpoint.agent_name", "ares/Checkpoint.session_id", "ares/Checkpoint.timestamp")
    @covers("ares/test_restore_preserves_all_checkpoint_fields", "ares/create_checkpoint")
    @covers("ares/CheckpointMetadata.agent_id", "ares/CheckpointMetadata.run_id", "ares/CheckpointMetadata.step")
    @covers("ares/CheckpointMetadata.timestamp", "smooth/Checkpoint.agent_id", "smooth/Checkpoint.iteration")
    @covers("smooth/Checkpoint.metadata", "smooth/Checkpoint.created_at", "smooth/Checkpoint.with_metadata")
    @covers("continuum/CheckpointData", "continuum/CheckpointData.session_id", "continuum/CheckpointData.created_at")
    @covers("continuum/CheckpointData.trigger", "continuum/CheckpointData.iteration")
    @covers("continuum/CheckpointData.tokens_used", "continuum/CheckpointData.cost_estimate")
    @covers("continuum/CheckpointData.resume_hint", "continuum/CheckpointMeta")
    @covers("continuum/CheckpointMeta.checkpoint_id", "continuum/CheckpointMeta.session_id")
    @covers("continuum/CheckpointMeta.created_at", "continuum/CheckpointMeta.trigger")
    @covers("continuum/CheckpointMeta.iteration", "continuum/CheckpointMeta.checksum", "continuum/AgentId")
    @covers("continuum/ChecksumUtils.add_checksum", "cortex/CheckpointMetadata", "cortex/CheckpointMetadata.thread_id")
    @covers("cortex/CheckpointMetadata.created_at", "cortex/CheckpointMetadata.step", "cortex/CheckpointMetadata.label")
    @covers("cortex/CheckpointMetadata.tags", "cortex/CheckpointMetadata.custom")
    @covers("cortex/CheckpointMetadata.with_label", "cortex/CheckpointMetadata.with_tag")
    @covers("cortex/CheckpointMetadata.with_custom", "cortex/Checkpoint", "cortex/Checkpoint.metadata")
    @covers("cortex/Checkpoint.id", "cortex/Checkpoint.thread_id", "cortex/Checkpoint.step")
    @covers("cortex/CheckpointStore.save", "cortex/CheckpointBuilder.new", "cortex/CheckpointBuilder.label")
    @covers("cortex/CheckpointBuilder.tag", "cortex/CheckpointBuilder.custom", "cortex/CheckpointBuilder.save")
    @covers("cortex/ExecutionState.metadata", "cortex/graph Checkpoint.created_at", "cortex/Session.agent_id")
    @covers("cortex/Session.metadata", "cortex/session test_in_memory_backend_basic")
    def test_a_checkpoint_carries_all_that_was_said_about_it(self, hf: Holdfast) -> None:
        before = datetime.now(UTC)
        usage = Usage(input=10, output=20, cached=5, total=30, cost=0.25, currency="EUR")
        saved = hf.thread("t").save(
            {"x": 1},
            step=7,
            label="plan-ready",
            tags=("a", "b"),
            metadata={"who": "me", "when": date(2026, 1, 1), "n": (1, 2)},
            status="waiting",
            reason="needs a human",
            trigger="tool",
            agent="planner",
            usage=usage,
            resume_hint="ask again",
        )
        latest = hf.thread("t").latest()
        assert latest is not None
        for checkpoint in (saved, latest, *hf.thread("t").history(), hf.thread("t").load(saved.id)):
            assert (checkpoint.thread, checkpoint.seq, checkpoint.step, checkpoint.parent) == ("t", 1, 7, None)
            assert (checkpoint.label, checkpoint.tags) == ("plan-ready", ("a", "b"))
            assert checkpoint.metadata == {"who": "me", "when": date(2026, 1, 1), "n": (1, 2)}
            assert (checkpoint.status, checkpoint.reason) == ("waiting", "needs a human")
            assert (checkpoint.trigger, checkpoint.agent, checkpoint.resume_hint) == ("tool", "planner", "ask again")
            assert checkpoint.usage == usage
            assert before - timedelta(seconds=1) <= checkpoint.created_at <= datetime.now(UTC)
            assert checkpoint.created_at.tzinfo is UTC
            assert checkpoint.size > 0
            assert len(bytes.fromhex(checkpoint.digest)) == 32
            assert checkpoint.schema_version is None

    @covers("cortex/CheckpointMetadata.parent_id", "cortex/CheckpointMetadata.with_parent")
    @covers("cortex/CheckpointManager.save", "cortex/test_save_and_load_checkpoint", "cortex/test_parent_chain")
    @covers("cortex/CheckpointManager.rewind", "cortex/CheckpointManager.current_step", "cortex/test_load_latest")
    @covers("cortex/test_current_step")
    def test_seq_counts_and_step_goes_on_from_the_head(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        made = [thread.save({"n": n}) for n in range(3)]
        assert [c.seq for c in made] == [1, 2, 3]
        assert [c.step for c in made] == [1, 2, 3]
        assert [c.parent for c in made] == [None, made[0].id, made[1].id]
        assert thread.save({}, step=20).step == 20
        assert thread.save({}).step == 21
        thread.rewind(made[1].id)
        again = thread.save({})
        assert (again.step, again.seq, again.parent) == (3, 6, made[1].id)
        assert thread.fork("f", at=made[0].id).save({}).step == 2

    @covers("C8", "G10", "smooth/Checkpoint.new", "smooth/MemoryCheckpointStore.clones")
    @covers("continuum/save keeps what was before")
    def test_what_is_saved_later_does_not_change_what_was_saved(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        state = {"list": [{"n": n, "pad": "x" * 100} for n in range(100)]}
        first = thread.save(state)
        state["list"][5]["n"] = -1
        thread.save(state)
        assert thread.load(first.id).state["list"][5]["n"] == 5

    @covers("G10", "smooth/MemoryCheckpointStore.clones")
    def test_a_loaded_state_is_the_callers_own(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        thread.save({"list": [{"n": n} for n in range(1_000)], "x": {"y": [1]}})
        mine = state_of(thread)
        mine["list"][0]["n"] = "changed"
        mine["x"]["y"].append(2)
        assert state_of(thread)["list"][0]["n"] == 0
        assert state_of(thread)["x"] == {"y": [1]}

    @covers("C7")
    def test_identical_saves_are_checkpoints_of_their_own(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        first, second = thread.save({"a": 1}), thread.save({"a": 1})
        assert first.id != second.id
        assert first.digest != second.digest

    @covers("E7", "G3", "continuum/ErrorCategory.Logic")
    @pytest.mark.parametrize(
        "bad",
        [
            {"step": -1},
            {"step": True},
            {"step": 1.5},
            {"status": "happy"},
            {"status": None},
            {"label": ""},
            {"label": 3},
            {"tags": "abc"},
            {"tags": [1]},
            {"tags": 5},
            {"metadata": {1: 2}},
            {"metadata": {"x": 1j}},
            {"metadata": [1]},
            {"usage": {"inputs": 1}},
            {"usage": {"input": -1}},
            {"usage": {"cost": float("nan")}},
            {"usage": 5},
            {"reason": 5},
            {"agent": b"x"},
            {"label": "\ud800"},
            {"expect": ""},
            {"expect": 5},
        ],
        ids=str,
    )
    def test_bad_arguments_are_refused_and_nothing_is_stored(self, hf: Holdfast, bad: dict[str, Any]) -> None:
        thread = hf.thread("t")
        thread.save({"n": 1})
        with pytest.raises(InvalidArgument):
            thread.save({"n": 2}, **bad)
        assert thread.count() == 1
        assert state_of(thread) == {"n": 1}

    @covers("G3", "smooth/Agent.save_error", "cortex/CheckpointError.Serialization")
    def test_a_refused_state_leaves_the_head(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        thread.save({"n": 1})
        with pytest.raises(holdfast.Unsupported, match=r"^\$\.when"):
            thread.save({"when": object()})
        assert state_of(thread) == {"n": 1}
        assert thread.save({"n": 2}).seq == 2

    @covers("continuum/ErrorCategory.Resource")
    def test_a_state_over_the_limit_is_refused(self, url: str) -> None:
        with holdfast.open(url, durability="off", max_state_bytes=10_000) as hf:
            thread = hf.thread("t")
            thread.save({"text": "x" * 9_000})
            with pytest.raises(holdfast.errors.TooLarge, match="10000"):
                thread.save({"text": "x" * 11_000})
            assert thread.count() == 1

    @covers("continuum/SessionId", "cortex/ThreadId", "cortex/Session.with_id", "cortex/Session.resume_token")
    @covers("cortex/MemoryBackend.load_by_resume_token", "cortex/SessionManager.resume_session")
    @covers("cortex/session test_resume_token", "cortex/ExecutionId", "cortex/Session.id")
    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
    def test_any_text_is_a_name(self, hf: Holdfast, name: str) -> None:
        hf.thread("other").save({"n": 0})
        thread = hf.thread(name)
        saved = thread.save({"name is": name[:50]})
        assert thread.latest() == hf.thread(name).load(saved.id)
        assert sorted(info.name for info in hf.threads()) == sorted(["other", name])
        thread.fork(name + "'", at="@-1").drop()
        thread.drop()
        assert [info.name for info in hf.threads()] == ["other"]

    @pytest.mark.parametrize("name", ["", None, 5, b"x"])
    def test_a_name_must_be_a_text(self, hf: Holdfast, name: Any) -> None:
        with pytest.raises(InvalidArgument):
            hf.thread(name)


@every_store("two writers meet in the store")
class TestExpect:
    @covers("D1", "cortex/CheckpointError.InvalidState")
    def test_a_stale_handle_conflicts_and_stores_nothing_until_it_looks(self, hf: Holdfast) -> None:
        mine, other = hf.thread("t"), hf.thread("t")
        mine.save({"n": 1})
        other.save({"n": 2})
        with pytest.raises(Conflict, match="'t'"):
            mine.save({"n": 3})
        assert state_of(other) == {"n": 2}
        assert state_of(mine) == {"n": 2}
        assert mine.save({"n": 3}).seq == 3

    def test_a_rewind_by_another_is_a_conflict_even_if_the_head_is_the_same(self, hf: Holdfast) -> None:
        mine, other = hf.thread("t"), hf.thread("t")
        first = mine.save({"n": 1})
        other.save({"n": 2})
        other.rewind(first.id)
        with pytest.raises(Conflict):
            mine.save({"n": 3})

    @covers("C7", "cortex/CheckpointError.InvalidState")
    def test_new_expects_no_thread(self, hf: Holdfast) -> None:
        hf.thread("t").save({}, expect=NEW)
        with pytest.raises(holdfast.errors.AlreadyExists, match="'t'"):
            hf.thread("t").save({}, expect=NEW)
        assert hf.thread("t").count() == 1

    def test_any_saves_on_whatever_is_there(self, hf: Holdfast) -> None:
        mine, other = hf.thread("t"), hf.thread("t")
        assert mine.save({"n": 1}, expect=ANY).seq == 1
        head = other.save({"n": 2}, expect=ANY)
        saved = mine.save({"n": 3}, expect=ANY)
        assert (saved.seq, saved.parent) == (3, head.id)

    @covers("D2", "cortex/CheckpointError.InvalidState")
    def test_an_id_expects_that_head(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        first = thread.save({"n": 1})
        second = hf.thread("t").save({"n": 2}, expect=first.id)
        with pytest.raises(Conflict, match=second.id):
            hf.thread("t").save({"n": 3}, expect=first)
        with pytest.raises(Conflict, match="does not exist"):
            hf.thread("unknown").save({}, expect=first.id)

    def test_a_fresh_handle_adopts_the_head(self, hf: Holdfast) -> None:
        hf.thread("t").save({"n": 1})
        assert hf.thread("t").save({"n": 2}).seq == 2

    def test_a_handle_whose_thread_was_dropped_conflicts(self, hf: Holdfast) -> None:
        mine = hf.thread("t")
        mine.save({"n": 1})
        hf.thread("t").drop()
        with pytest.raises(Conflict):
            mine.save({"n": 2})
        hf.thread("t").save({"n": "new"})
        with pytest.raises(Conflict):
            mine.save({"n": 2})
        assert state_of(hf.thread("t")) == {"n": "new"}

    @covers("smooth/SqliteCheckpointStore.concurrent_saves")
    def test_threads_racing_with_any_all_get_through(self, hf: Holdfast) -> None:
        def work(worker: int) -> None:
            thread = hf.thread("t")
            for n in range(10):
                thread.save({"worker": worker, "n": n}, expect=ANY)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [c.seq for c in hf.thread("t").history()] == list(range(40, 0, -1))


class TestReading:
    @covers("F11", "ares/CheckpointManager.load_latest.none", "ares/test_load_nonexistent")
    @covers("ares/CheckpointManager.has_checkpoint.none", "ares/CheckpointManager.has_checkpoint")
    @covers("ares/CheckpointError.NotFound", "smooth/CheckpointStore.load_latest.none")
    @covers("smooth/CheckpointStore.load.none", "continuum/load of an unknown session")
    @covers("continuum/load of an unknown id", "continuum/list of an unknown session")
    @covers("continuum/delete of an unknown id", "continuum/verify of a missing checkpoint")
    @covers("continuum/AtomicFileWriter.safe_remove", "continuum/Layer2Error.CheckpointNotFound")
    @covers("cortex/CheckpointError.NotFound", "cortex/CheckpointError.ThreadNotFound", "cortex/CheckpointStore.count")
    @covers("cortex/test_current_step", "cortex/CheckpointManager.current_step")
    @covers("cortex/Graph.resume of an unknown checkpoint", "cortex/SessionManager.add_message")
    @covers("cortex/MemoryBackend.session_exists")
    def test_unknown_names_and_ids(self, hf: Holdfast) -> None:
        thread = hf.thread("unknown")
        assert thread.latest() is None
        assert thread.head() is None
        assert thread.step() == 0
        assert thread.count() == 0
        assert list(thread.history()) == []
        assert thread.find(label="x") is None
        for verb in (thread.load, thread.rewind, thread.delete):
            with pytest.raises(NotFound):
                verb("@-1")
        for act in (thread.drop, lambda: thread.fork("f"), lambda: thread.diff("@1", "@2"), lambda: hf.diff("x", "y")):
            with pytest.raises(NotFound):
                act()
        assert list(hf.threads()) == []

    @covers("A17", "F9", "ares/CheckpointManager.list_checkpoints", "ares/test_multiple_steps")
    @covers("ares/CheckpointMetadata.from", "smooth/CheckpointStore.list")
    @covers("smooth/SqliteCheckpointStore.list_newest_first", "continuum/CheckpointSystemTrait.list")
    @covers("continuum/CheckpointMeta", "cortex/CheckpointStore.list", "cortex/CheckpointManager.history")
    @covers("cortex/test_checkpoint_history", "cortex/CheckpointManager.find_by_tag", "cortex/graph CheckpointStore")
    def test_history_is_newest_first_without_states_and_in_pages(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        made = [
            thread.save({"n": n}, tags=("odd",) if n % 2 else (), label="five" if n == 5 else None) for n in range(450)
        ]
        assert [c.id for c in thread.history()] == [c.id for c in reversed(made)]
        first_page = list(thread.history(limit=20))
        assert [c.seq for c in first_page] == list(range(450, 430, -1))
        assert all(c.state is holdfast.NOT_LOADED for c in first_page)
        assert [c.seq for c in thread.history(limit=2, before=first_page[-1])] == [430, 429]
        assert list(thread.history(limit=0)) == []
        assert [c.seq for c in thread.history(limit=3, tag="odd")] == [450, 448, 446]
        assert [c.seq for c in thread.history(label="five")] == [6]
        assert list(thread.history(status="failed")) == []
        for bad in ({"limit": -1}, {"limit": True}, {"status": "odd"}, {"label": 5}, {"tag": 5}):
            with pytest.raises(InvalidArgument):
                thread.history(**bad)

    def test_a_history_goes_on_while_the_thread_is_saved_to(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        for n in range(250):
            thread.save({"n": n})
        history = thread.history()
        assert next(history).seq == 250
        thread.save({"n": 250})
        assert [c.seq for c in history] == list(range(249, 0, -1))

    @covers("B2", "B8", "F1", "cortex/CheckpointManager.find_by_label", "cortex/CheckpointManager.save_with_label")
    @covers("cortex/test_checkpoint_with_label")
    def test_find_gives_the_newest(self, hf: Holdfast) -> None:
        thread = hf.thread("t")
        thread.save({"n": 1}, label="plan", tags=["x"])
        second = thread.save({"n": 2}, label="plan", status="completed")
        thread.save({"n": 3})
        assert thread.find(label="plan") == second
        found = thread.find(tag="x")
        assert found is not None
        assert found.seq == 1
        assert thread.find(status="completed") == second
        with pytest.raises(InvalidArgument):
            thread.find()


class TestTyped:
    @covers("cortex/Checkpoint.state", "cortex/CheckpointManager.load", "cortex/CheckpointStore.load")
    def test_states_come_back_as_their_type(self, hf: Holdfast) -> None:
        thread = hf.thread("t", type=Plan)
        plan = Plan("ship", [Task("build", True), Task("test")])
        thread.save(plan)
        assert state_of(thread) == plan
        assert type(state_of(thread).tasks[0]) is Task
        assert state_of(hf.thread("t")) == {
            "goal": "ship",
            "tasks": [{"name": "build", "done": True}, {"name": "test", "done": False}],
        }
        assert type(state_of(thread.fork("f"))) is Plan

    def test_an_instance_without_a_type_is_refused_with_a_hint(self, hf: Holdfast) -> None:
        with pytest.raises(holdfast.Unsupported, match="type="):
            hf.thread("t").save({"plan": Plan("x", [])})
        with pytest.raises(holdfast.Unsupported):
            hf.thread("t", type=Plan).save({"goal": "x", "tasks": []})

    def test_schema_version_is_kept(self, hf: Holdfast) -> None:
        hf.thread("t", schema_version=3).save({})
        head = hf.thread("t").head()
        assert head is not None
        assert head.schema_version == 3
        with pytest.raises(InvalidArgument):
            hf.thread("t", schema_version=-1)


@dataclasses.dataclass
class Task:
    name: str
    done: bool = False


@dataclasses.dataclass
class Plan:
    goal: str
    tasks: list[Task]


class TestWhatAHandleHasSeen:
    def test_a_save_that_failed_does_not_adopt_the_new_head(self, hf: Holdfast) -> None:
        mine, other = hf.thread("t"), hf.thread("t")
        first = mine.save({"n": 1})
        other.save({"n": 2})
        with pytest.raises(Conflict):
            mine.save({"n": 3}, expect=first.id)
        with pytest.raises(holdfast.Unsupported):
            mine.save({"n": object()}, expect=ANY)
        with pytest.raises(Conflict):
            mine.save({"n": 3})

    def test_a_handle_that_saw_no_thread_does_not_rewind_one(self, hf: Holdfast) -> None:
        mine = hf.thread("t")
        assert mine.latest() is None
        for n in range(2):
            hf.thread("t").save({"n": n}, expect=ANY)
        with pytest.raises(Conflict):
            mine.rewind("@1")
        assert state_of(hf.thread("t")) == {"n": 1}


@pytest.mark.parametrize(
    "bad",
    [
        {"input": 1.5},
        {"input": "5"},
        {"input": 2**70},
        {"currency": 5},
        {"currency": "\ud800"},
        {"currency": "\x1b[31m"},
        {"cost": float("inf")},
    ],
    ids=ascii,
)
def test_usage_is_checked_when_it_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Usage(**bad)


@covers("ares/Checkpoint.clone")
def test_what_users_get_survives_being_copied_and_sent_to_another_process(hf: Holdfast) -> None:
    with pytest.raises(holdfast.Unsupported) as refused:
        hf.thread("t").save({"x": object()})
    again = pickle.loads(pickle.dumps(refused.value))  # noqa: S301 - our own error, as a process pool sends it
    assert (again.path, str(again)) == (refused.value.path, str(refused.value))
    assert copy.deepcopy(hf.thread("t").save({})).state is holdfast.NOT_LOADED


# -- Ctrl-C in the middle of a save -----------------------------------------------------------------------------------


def interrupt_after_next_commit(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C arrive after the next commit is stored, and before the thread object has noted that."""
    store: Any = hf.context.store
    commit = store.commit

    def interrupted(*given: Any) -> Any:
        monkeypatch.setattr(store, "commit", commit)
        commit(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "commit", interrupted)


def test_a_save_follows_the_own_save_that_was_interrupted(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    for thread in (hf.thread("t"), hf.thread("t")):
        interrupt_after_next_commit(hf, monkeypatch)
        if thread.head() is not None:
            thread.latest()
        with pytest.raises(KeyboardInterrupt):
            thread.save({"n": 1})
        interrupted = thread.head()
        assert interrupted is not None
        assert thread.save({"n": 2}).parent == interrupted.id
    assert hf.verify().ok


def test_a_save_after_an_interrupted_one_does_not_follow_another_writer(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = hf.thread("t")
    interrupt_after_next_commit(hf, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        thread.save({"n": 1})
    hf.thread("t").save({"n": "other"}, expect=ANY)
    with pytest.raises(Conflict):
        thread.save({"n": 2})
    with pytest.raises(Conflict):
        thread.save({"n": 2}, expect=NEW)


def test_a_save_after_an_interrupted_one_does_not_follow_a_rewind_to_it(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = hf.thread("t")
    interrupt_after_next_commit(hf, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        thread.save({"n": 1})
    interrupted = thread.latest()
    assert interrupted is not None
    thread.save({"n": 2})
    hf.thread("t").rewind(interrupted)
    with pytest.raises(Conflict):
        thread.save({"n": 3})
