"""What Smooth's stores do, in memory, in files, in SQLite and in PostgreSQL, done by Holdfast's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import holdfast
from holdfast import Checkpoint, Holdfast, NotFound, Retention, StoreError
from holdfast.states import Conversation, Message
from tests.parity.covering import covers
from tests.parity.processes import Start, told_by
from tests.stores.postgres.server import address_at


def save(hf: Holdfast, agent: str, iteration: int) -> Checkpoint:
    conversation = Conversation(prompt="sys-prompt", messages=[Message.user(f"iteration {iteration}")])
    return hf.thread(agent, type=Conversation).save(conversation, step=iteration, expect=holdfast.ANY)


def load(hf: Holdfast, agent: str, id: str) -> Checkpoint:
    return hf.thread(agent, type=Conversation).load(id)


def prune(hf: Holdfast, agent: str, keep: int) -> int:
    return len(hf.thread(agent).prune(Retention(keep_last=keep)).removed)


def ids(hf: Holdfast, agent: str) -> list[str]:
    return [each.id for each in hf.thread(agent).history()]


@covers("smooth", "CheckpointStore.save", "CheckpointStore.load_latest")
def test_the_newest_of_an_agent(hf: Holdfast) -> None:
    save(hf, "agent-1", 1)
    made = save(hf, "agent-1", 5)
    save(hf, "agent-2", 9)
    latest = hf.thread("agent-1", type=Conversation).latest()
    assert latest is not None
    assert (latest.id, latest.thread, latest.step) == (made.id, "agent-1", 5)
    assert [each.text for each in latest.state.window()] == ["sys-prompt", "iteration 5"]


@covers("smooth", "CheckpointStore.load_latest.none", "CheckpointStore.load.none")
def test_what_is_not_there(hf: Holdfast) -> None:
    assert hf.thread("nonexistent").latest() is None
    save(hf, "agent-1", 1)
    for id in ("bad-id", "00000000-0000-7000-8000-000000000001"):
        with pytest.raises(NotFound):
            load(hf, "agent-1", id)


@covers("smooth", "CheckpointStore.load")
def test_one_by_its_id_in_its_thread(hf: Holdfast) -> None:
    made = [save(hf, agent, n) for agent in ("agent-1", "agent-2") for n in (1, 2)]
    for each in made:
        loaded = load(hf, each.thread, each.id)
        assert (loaded.id, loaded.thread, loaded.step) == (each.id, each.thread, each.step)
        assert loaded.state.messages[0].text == f"iteration {each.step}"
    with pytest.raises(NotFound):
        load(hf, "agent-2", made[0].id)


@covers("smooth", "CheckpointStore.list", "CheckpointStore.list.agent", "CheckpointStore.list.states")
@covers("smooth", "SqliteCheckpointStore.list_newest_first")
def test_those_of_an_agent_newest_first_with_their_states(hf: Holdfast) -> None:
    for iteration in range(5):
        save(hf, "agent-1", iteration)
    save(hf, "agent-2", 0)
    thread = hf.thread("agent-1", type=Conversation)
    listed = [thread.load(each) for each in thread.history()]
    assert [each.step for each in listed] == [4, 3, 2, 1, 0]
    assert [each.state.messages[0].text for each in listed[:2]] == ["iteration 4", "iteration 3"]
    times = [each.created_at for each in listed]
    assert times == sorted(times, reverse=True)


@covers("smooth", "CheckpointStore.prune")
def test_pruning_keeps_the_newest(hf: Holdfast) -> None:
    for iteration in range(10):
        save(hf, "agent-1", iteration)
    assert prune(hf, "agent-1", 3) == 7
    assert [each.step for each in hf.thread("agent-1").history()] == [9, 8, 7]
    assert prune(hf, "agent-1", 3) == 0


@covers("smooth", "CheckpointStore.prune.isolated")
def test_pruning_one_agent_leaves_the_others(hf: Holdfast) -> None:
    for iteration in range(5):
        save(hf, "agent-1", iteration)
        save(hf, "agent-2", iteration)
    assert prune(hf, "agent-1", 2) == 3
    assert (hf.thread("agent-1").count(), hf.thread("agent-2").count()) == (2, 5)


@covers("smooth", "CheckpointStore.upsert")
def test_the_checkpoint_of_an_iteration_is_replaced(hf: Holdfast) -> None:
    old, newer = save(hf, "a", 1), save(hf, "a", 2)
    changed = save(hf, "a", 1)
    hf.thread("a").delete(old)
    assert hf.thread("a").load("@1").id == changed.id
    assert ids(hf, "a") == [changed.id, newer.id]


@covers("smooth", "CheckpointStore.sync", "SqliteCheckpointStore.concurrent_saves", "PostgresCheckpointStore.pool")
def test_threads_that_save_at_the_same_time_lose_nothing(hf: Holdfast) -> None:
    together, failures = threading.Barrier(5), list[BaseException]()

    def work(number: int) -> None:
        try:
            together.wait(30)
            for n in range(10):
                hf.thread("agent-1").save({"by": number, "n": n}, expect=holdfast.ANY)
        except BaseException as error:  # noqa: BLE001 - told by the test, which runs elsewhere
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert failures == []
    thread = hf.thread("agent-1")
    assert [each.seq for each in thread.history()] == list(range(50, 0, -1))
    stored = [thread.load(each).state for each in thread.history()]
    assert sorted((each["by"], each["n"]) for each in stored) == [(by, n) for by in range(5) for n in range(10)]


@covers("smooth", "MemoryCheckpointStore.new", "MemoryCheckpointStore.default", "SqliteCheckpointStore.in_memory")
def test_a_store_in_memory_begins_empty_and_ends_with_its_handle() -> None:
    with holdfast.open("memory:") as hf:
        assert list(hf.threads()) == []
        save(hf, "mem-agent", 7)
        assert hf.thread("mem-agent").step() == 7
    with holdfast.open("memory:") as other:
        assert other.thread("mem-agent").latest() is None


@covers("smooth", "MemoryCheckpointStore.clones")
def test_what_is_stored_cannot_be_changed_from_outside(hf: Holdfast) -> None:
    state = {"messages": [{"text": "saved"}]}
    hf.thread("agent").save(state)
    state["messages"][0]["text"] = "changed"
    loaded = hf.thread("agent").load("@-1").state
    assert loaded == {"messages": [{"text": "saved"}]}
    loaded["messages"].clear()
    assert hf.thread("agent").load("@-1").state == {"messages": [{"text": "saved"}]}


@covers("smooth", "FileCheckpointStore.new", "FileCheckpointStore.save.creates_file")
@covers("smooth", "FileCheckpointStore.nested_agent_dirs", "FileCheckpointStore.missing_dir_created")
def test_a_store_of_files_has_a_folder_for_each_agent(tmp_path: Path) -> None:
    nested = tmp_path / "deep" / "nested" / "store"
    with holdfast.open(f"dir:{nested}") as hf:
        made = save(hf, "agent-a", 1)
        save(hf, "agent-b", 1)
        assert hf.thread("agent-a").count() == 1
    folders = [path for path in nested.rglob("agent-?") if path.is_dir()]
    assert sorted(path.name for path in folders) == ["agent-a", "agent-b"]
    texts = {path.parent.name: path.read_text() for folder in folders for path in folder.iterdir()}
    assert made.id.replace("-", "") in texts["agent-a"]
    assert made.id.replace("-", "") not in texts["agent-b"]


@covers("smooth", "FileCheckpointStore.load_roundtrip")
def test_files_are_read_by_another_process(tmp_path: Path, start: Start) -> None:
    with holdfast.open(f"dir:{tmp_path}/store") as hf:
        made = save(hf, "agent-1", 42)
    found = told_by(start("reading", store=f"dir:{tmp_path}/store", thread="agent-1"))
    assert (found["id"], found["thread"], found["step"]) == (made.id, "agent-1", 42)
    assert found["state"]["messages"][0]["content"] == "iteration 42"


@covers("smooth", "FileCheckpointStore.missing")
def test_a_folder_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/nothing") as hf:
        assert list(hf.threads()) == []
        assert list(hf.thread("agent-1").history()) == []
        with pytest.raises(NotFound):
            load(hf, "agent-1", "01a1e074-15b1-784c-bb06-814a00000001")


@covers("smooth", "SqliteCheckpointStore.open.parents")
def test_a_folder_that_was_mistyped_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist; nothing was changed. Create it first."):
        holdfast.open(tmp_path / "dep" / "agent.db")
    assert list(tmp_path.iterdir()) == []


@covers("smooth", "SqliteCheckpointStore.open", "SqliteCheckpointStore.wal")
def test_a_file_is_made_ready_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as writer, holdfast.open(path) as reader:
        save(writer, "agent-1", 1)
        assert (tmp_path / "agent.db-wal").stat().st_size > 0
        assert reader.thread("agent-1").step() == 1
    with holdfast.open(path) as again:
        assert again.thread("agent-1").step() == 1


@covers("smooth", "PostgresCheckpointStore.connect", "PostgresCheckpointStore.contract")
def test_the_same_in_postgresql(tmp_path: Path) -> None:
    with holdfast.open(address_at(tmp_path)) as hf:
        assert hf.thread("a").latest() is None
        with pytest.raises(NotFound):
            load(hf, "a", "missing")
        assert ids(hf, "a") == []
        first, second = save(hf, "a", 1), save(hf, "a", 2)
        save(hf, "b", 1)
        latest = hf.thread("a", type=Conversation).latest()
        assert latest is not None
        assert (latest.id, latest.step) == (second.id, 2)
        assert latest.state.window()
        assert load(hf, "a", first.id).step == 1
        assert ids(hf, "a") == [second.id, first.id]
        assert prune(hf, "a", 1) == 1
        assert ids(hf, "a") == [second.id]
        assert hf.thread("b").count() == 1
