"""What ares' checkpoints and their manager do, done by Holdfast: a session is a thread, its contents a state."""

from __future__ import annotations

import copy
import json
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from holdfast import AfterModel, Checkpoint, Damaged, Holdfast, NotAStore, Run, Status, StoreError
from holdfast.states import Message, ToolCall, Work
from tests.parity.covering import covers
from tests.parity.damaging import damage
from tests.parity.processes import Start, told_by
from tests.runs.conftest import World


def sample() -> Work:
    """Two messages, a tool call with its result, something worked out."""
    work = Work(messages=[Message.user("Hello"), Message.assistant("Hi there")], partial_results=["partial output"])
    work.record(ToolCall("search", "query").done("found it"))
    return work


def save(hf: Holdfast, session: str, step: int, *, status: Status = "running", reason: str | None = None) -> Checkpoint:
    thread = hf.thread(session, type=Work)
    return thread.save(sample(), step=step, agent="test-agent", status=status, reason=reason, expect=holdfast.ANY)


def newest(hf: Holdfast, session: str) -> Checkpoint:
    found = hf.thread(session, type=Work).latest()
    assert found is not None
    return found


def has_checkpoint(hf: Holdfast, session: str) -> bool:
    return hf.thread(session).head() is not None


def cleanup(hf: Holdfast, session: str) -> int:
    """Remove a session; how many checkpoints it had."""
    count = hf.thread(session).count()
    hf.thread(session).drop()
    return count


@contextmanager
def folder_store(folder: Path) -> Generator[Holdfast]:
    """A store of files that people can read, as ares has them."""
    with holdfast.open(f"dir:{folder}", durability="off") as hf:
        yield hf


@covers("ares", "Checkpoint.id")
def test_each_checkpoint_has_an_id(hf: Holdfast) -> None:
    ids = {save(hf, session, step).id for session in ("sess1", "sess2") for step in range(3)}
    assert len(ids) == 6
    assert newest(hf, "sess2").id in ids


@covers("ares", "Checkpoint.agent_name", "Checkpoint.session_id", "Checkpoint.step", "Checkpoint.timestamp")
@covers("ares", "test_save_and_load", "CheckpointManager.save", "CheckpointManager.load_latest")
def test_a_checkpoint_comes_back_with_agent_session_step_and_time(hf: Holdfast) -> None:
    before = int(datetime.now(UTC).timestamp())
    save(hf, "sess1", 0)
    loaded = newest(hf, "sess1")
    assert (loaded.agent, loaded.thread, loaded.step) == ("test-agent", "sess1", 0)
    assert before <= int(loaded.created_at.timestamp()) <= int(datetime.now(UTC).timestamp())
    assert len(loaded.state.messages) == 2
    assert len(loaded.state.tool_calls) == 1


@covers("ares", "Checkpoint.messages", "CheckpointMessage.role", "CheckpointMessage.content")
def test_the_messages_come_back_in_order(hf: Holdfast) -> None:
    work = Work(messages=[Message.system("Be kind."), Message.user("Hello"), Message.assistant("Hi there")])
    hf.thread("sess1", type=Work).save(work)
    said = [(each.role, each.content) for each in newest(hf, "sess1").state.messages]
    assert said == [("system", "Be kind."), ("user", "Hello"), ("assistant", "Hi there")]


@covers("ares", "Checkpoint.tool_calls", "ToolCallRecord.tool_name", "ToolCallRecord.arguments")
@covers("ares", "ToolCallRecord.result", "ToolCallRecord.success")
def test_tool_calls_come_back_with_results_and_whether_they_succeeded(hf: Holdfast) -> None:
    work = Work()
    work.record(ToolCall("search", "query").done("found it"), ToolCall("fetch", {"url": "x"}).failed("no network"))
    work.record(ToolCall("mail", "to ann"))
    hf.thread("sess1", type=Work).save(work)
    calls = newest(hf, "sess1").state.tool_calls
    assert [(call.name, call.arguments) for call in calls] == [
        ("search", "query"),
        ("fetch", {"url": "x"}),
        ("mail", "to ann"),
    ]
    # What ares cannot tell apart: not made yet, and failed.
    assert [(call.result, call.success) for call in calls] == [("found it", True), (None, False), (None, None)]


@covers("ares", "Checkpoint.partial_results")
def test_partial_results_come_back(hf: Holdfast) -> None:
    hf.thread("sess1", type=Work).save(Work(partial_results=["chunk-a", "chunk-b"]))
    assert newest(hf, "sess1").state.partial_results == ["chunk-a", "chunk-b"]


@covers("ares", "Checkpoint.status", "CheckpointStatus.InProgress", "CheckpointStatus.Completed")
@covers("ares", "CheckpointStatus.Failed", "CheckpointStatus.Halted", "CheckpointStatus.eq")
@covers("ares", "test_checkpoint_status_serialization", "test_completed_and_halted_round_trip")
@pytest.mark.parametrize(
    ("status", "reason"),
    [("running", None), ("completed", None), ("failed", "OOM"), ("failed", "disk"), ("halted", "loop detected")],
)
def test_statuses_come_back_with_their_reasons(hf: Holdfast, status: Status, reason: str | None) -> None:
    save(hf, "sess1", 0, status=status, reason=reason)
    loaded = newest(hf, "sess1")
    assert (loaded.status, loaded.reason) == (status, reason)
    found = hf.thread("sess1").find(status=status)
    assert found is not None
    assert found.reason == reason


@covers("ares", "test_restore_preserves_all_checkpoint_fields", "Checkpoint.clone")
def test_every_field_comes_back(hf: Holdfast) -> None:
    saved = save(hf, "sess-restore", 3, status="completed", reason="all done")
    loaded = newest(hf, "sess-restore")
    assert loaded.state == Work(
        id=loaded.state.id,
        messages=loaded.state.messages,
        tool_calls=loaded.state.tool_calls,
        partial_results=["partial output"],
    )
    for name in set(Checkpoint.__struct_fields__) - {"state"}:
        assert getattr(loaded, name) == getattr(saved, name), name
    assert copy.copy(loaded) == loaded
    assert copy.deepcopy(loaded) == loaded


@covers("ares", "Checkpoint.display", "Checkpoint.debug")
def test_a_checkpoint_as_text_says_what_it_is(hf: Holdfast) -> None:
    text = str(save(hf, "disp", 4, status="failed", reason="OOM"))
    for part in ("Checkpoint(", "'disp'", "'test-agent'", "step=4", "'failed'", "'OOM'"):
        assert part in text


@covers("ares", "CheckpointManager.new", "CheckpointManager.save.readable", "compact_json")
def test_a_folder_that_is_not_there_is_made_and_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "checkpoints"
    with folder_store(folder) as hf:
        save(hf, "sess1", 0)
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert any("Hi there" in line for line in lines)
    for line in lines:
        assert json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False) == line


@covers("ares", "CheckpointManager.new.file", "io::Error", "CheckpointError.IoError")
def test_what_the_disk_refuses_is_an_error_with_its_cause(tmp_path: Path) -> None:
    blocking = tmp_path / "not_a_dir"
    blocking.write_text("blocking file")
    with pytest.raises(NotAStore) as refused:
        holdfast.open(f"dir:{blocking}")
    assert isinstance(refused.value, StoreError)
    assert isinstance(refused.value.__cause__, OSError)
    assert blocking.read_text() == "blocking file"


@covers("ares", "CheckpointManager.default_dir")
def test_without_a_path_the_store_is_in_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with holdfast.open(durability="off") as hf:
        save(hf, "sess1", 0)
    with holdfast.open(durability="off") as again:
        assert has_checkpoint(again, "sess1")
    assert [path.name for path in tmp_path.rglob("*.db")] == ["holdfast.db"]


@covers("ares", "CheckpointManager.save.same_step")
def test_of_a_step_that_is_saved_again_the_newer_counts(hf: Holdfast) -> None:
    save(hf, "sess1", 0)
    again = save(hf, "sess1", 0, status="completed")
    assert newest(hf, "sess1").id == again.id
    assert hf.thread("sess1").load("@0").id == again.id


@covers("ares", "CheckpointManager.load_latest.none", "test_load_nonexistent", "CheckpointManager.has_checkpoint.none")
def test_a_session_that_was_never_saved_has_nothing(hf: Holdfast) -> None:
    assert hf.thread("nonexistent").latest() is None
    assert not has_checkpoint(hf, "nonexistent")
    assert list(hf.thread("nonexistent").history()) == []


@covers("ares", "CheckpointManager.load_latest.restart")
@pytest.mark.parametrize("address", ["{}/agent.db", "dir:{}/agents"])
def test_another_process_finds_what_was_saved(tmp_path: Path, address: str, start: Start) -> None:
    with holdfast.open(address.format(tmp_path)) as hf:
        saved = save(hf, "sess1", 2)
    found = told_by(start("reading", store=address.format(tmp_path), thread="sess1"))
    assert (found["id"], found["step"], found["agent"]) == (saved.id, 2, "test-agent")
    assert [message["content"] for message in found["state"]["messages"]] == ["Hello", "Hi there"]


@covers("ares", "crash recovery")
def test_after_a_crash_a_new_process_goes_on_with_what_was_done(world: World) -> None:
    asked: list[int] = []

    def agent(run: Run) -> None:
        for step in run.steps():

            def answer(of: int = step) -> str:
                asked.append(of)
                return f"answer {of}"

            run.state.push(Message.assistant(run.model(answer)))
            if step == 2 and not run.resumed:
                world.kill(run)
            if step == 3:
                return

    with world.dying("sess1", start=Work(), type=Work, policy=AfterModel()) as run:
        agent(run)
    with world.running("sess1", type=Work) as run:
        assert (run.resumed, run.step, run.state.answers()) == (True, 2, 1)
        agent(run)
        assert run.state.last_answer() == "answer 3"
        assert run.state.answers() == 3
    assert asked == [1, 2, 3]


@covers("ares", "CheckpointManager.load_latest.invalid", "test_stale_pointer")
@covers("ares", "CheckpointError.Corrupt", "CheckpointManager.list_checkpoints.corrupt")
def test_damage_is_an_error_and_a_listing_passes_over_it(tmp_path: Path) -> None:
    address = f"dir:{tmp_path}/checkpoints"
    with holdfast.open(address, durability="off") as hf:
        for step in range(3):
            save(hf, "sess-skip", step)
    damage(address, "sess-skip", seq=3)
    with holdfast.open(address, durability="off") as hf:
        thread = hf.thread("sess-skip", type=Work)
        with pytest.raises(Damaged):
            thread.latest()
        assert [each.step for each in thread.history(skip_damaged=True)] == [1, 0]
        older = thread.latest(fallback=True)
        assert older is not None
        assert (older.step, [each.seq for each in older.skipped]) == (1, [3])


@covers("ares", "CheckpointManager.list_checkpoints", "test_multiple_steps")
def test_the_checkpoints_of_a_session_are_listed_by_step(hf: Holdfast) -> None:
    for step in range(3):
        save(hf, "sess1", step)
    save(hf, "sess1_2", 7)
    assert newest(hf, "sess1").step == 2
    listed = list(hf.thread("sess1").history())[::-1]  # the newest is first there
    assert [each.step for each in listed] == [0, 1, 2]
    assert [len(hf.thread("sess1", type=Work).load(each).state.messages) for each in listed] == [2, 2, 2]


@covers("ares", "CheckpointManager.cleanup", "CheckpointManager.has_checkpoint", "test_cleanup")
def test_a_session_is_cleaned_up_and_counted(hf: Holdfast) -> None:
    save(hf, "sess1", 0)
    save(hf, "sess1", 1)
    assert has_checkpoint(hf, "sess1")
    assert cleanup(hf, "sess1") == 2
    assert not has_checkpoint(hf, "sess1")
    assert hf.thread("sess1").latest() is None


@covers("ares", "CheckpointManager.cleanup.other", "test_separate_sessions")
def test_other_sessions_stay_also_one_whose_name_begins_alike(hf: Holdfast) -> None:
    for session in ("sess", "sess_1", "sess2"):
        save(hf, session, 0)
    cleanup(hf, "sess")
    assert [has_checkpoint(hf, session) for session in ("sess", "sess_1", "sess2")] == [False, True, True]
