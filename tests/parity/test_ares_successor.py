"""What the successor of ares' checkpoints adds: expiry, metadata without states, bytes, typed errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import NOT_LOADED, Checkpoint, Holdfast, HoldfastError, NotFound, Retention
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.states import Message, ToolCall, Work
from tests.parity.covering import covers
from tests.parity.damaging import damage
from tests.parity.defects_scene import WallClock


def key(agent: str, run: str) -> str:
    """The name of a thread for an agent and its run."""
    return f"{agent}/{run}"


def create(hf: Holdfast, agent: str, run: str, step: int = 0, **more: Any) -> Checkpoint:
    work = Work(messages=[Message.user("Hello")], partial_results=["out"])
    work.record(ToolCall("search", "query").done("found it"))
    return hf.thread(key(agent, run), type=Work).save(work, step=step, agent=agent, status="running", **more)


@contextmanager
def ago(monkeypatch: pytest.MonkeyPatch, hours: float) -> Generator[None]:
    """The wall clock, for what is saved here, is some hours back."""
    with monkeypatch.context() as patched:
        WallClock(patched).now = round((datetime.now(UTC).timestamp() - hours * 3600) * 1_000_000_000)
        yield


@covers("ares", "checkpoint_key")
def test_agent_and_run_are_one_name_and_another_for_every_other_pair(hf: Holdfast) -> None:
    for agent, run in (("a1", "r1"), ("a1", "r2"), ("a2", "r1")):
        create(hf, agent, run)
    assert [info.name for info in hf.threads()] == ["a1/r1", "a1/r2", "a2/r1"]
    assert [info.name for info in hf.threads(prefix="a1/")] == ["a1/r1", "a1/r2"]


@covers("ares", "create_checkpoint")
def test_a_checkpoint_is_made_from_all_its_parts(hf: Holdfast) -> None:
    made = create(hf, "researcher", "run-9", 2)
    loaded = hf.thread("researcher/run-9", type=Work).load(made.id)
    assert (loaded.agent, loaded.thread, loaded.step, loaded.status) == (
        "researcher",
        "researcher/run-9",
        2,
        "running",
    )
    assert [each.text for each in loaded.state.messages] == ["Hello"]
    assert loaded.state.tool_calls[0].result == "found it"
    assert loaded.state.partial_results == ["out"]


@covers("ares", "CheckpointMetadata.agent_id", "CheckpointMetadata.run_id", "CheckpointMetadata.step")
@covers("ares", "CheckpointMetadata.timestamp", "CheckpointMetadata.from")
@covers("ares", "CheckpointMetadata.display")
def test_without_its_state_a_checkpoint_tells_all_about_itself(hf: Holdfast) -> None:
    made = create(hf, "test-agent", "run-meta", 3)
    noted = create(hf, "test-agent", "run-meta", 4, metadata={"ticket": 7})
    listed = list(hf.thread("test-agent/run-meta").history())
    assert listed == [noted, made]
    assert made.state is NOT_LOADED
    assert (made.agent, made.thread, made.step) == ("test-agent", "test-agent/run-meta", 3)
    assert [each.metadata for each in listed] == [{"ticket": 7}, {}]
    assert abs((datetime.now(UTC) - made.created_at).total_seconds()) < 60
    assert "run-meta" in str(made)


@covers("ares", "CheckpointMetadata.serde")
def test_a_checkpoint_without_its_state_goes_to_json_and_back(hf: Holdfast) -> None:
    made = create(hf, "agent-x", "run-y", 5, metadata={"ticket": 7})
    fields = msgspec.structs.asdict(made)
    del fields["state"]
    assert msgspec.json.decode(msgspec.json.encode(fields), type=Checkpoint) == made


@covers("ares", "serialize_state", "restore_checkpoint")
def test_a_checkpoint_goes_to_bytes_and_back(hf: Holdfast, tmp_path: Path) -> None:
    made = create(hf, "test-agent", "sym", 1)
    export_jsonl(hf, tmp_path / "sym.jsonl", threads=["test-agent/sym"])
    moved = tmp_path / "moved.jsonl"
    moved.write_bytes((tmp_path / "sym.jsonl").read_bytes())
    with holdfast.open("memory:") as there:
        assert import_from(there, "jsonl", str(moved)).ok
        back = there.thread("test-agent/sym", type=Work).load(made.id)
    assert back == hf.thread("test-agent/sym", type=Work).load(made.id)


@covers("ares", "serialize_state", "restore_checkpoint", "restore_checkpoint.empty", "restore_checkpoint.invalid")
def test_a_state_goes_to_bytes_and_back_and_no_others_do() -> None:
    work = Work(messages=[Message.user("Hello")])
    assert msgspec.json.decode(msgspec.json.encode(work), type=Work) == work
    for wrong in (b"", b"{not json", b'{"messages": 3}'):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(wrong, type=Work)


@covers("ares", "restore_checkpoint.empty", "restore_checkpoint.invalid")
@pytest.mark.parametrize("content", [b"", b"{not json", b'{"crc":"00000000","t":"holdfast-export"}\n'])
def test_an_import_refuses_bytes_that_are_no_export(hf: Holdfast, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "wrong.jsonl").write_bytes(content)
    with pytest.raises(HoldfastError):
        import_from(hf, "jsonl", str(tmp_path / "wrong.jsonl"))
    assert list(hf.threads()) == []


@covers("ares", "CheckpointError.NotFound", "CheckpointError.display")
def test_what_is_not_there_is_an_error_that_says_what_was_asked_for(hf: Holdfast) -> None:
    create(hf, "test-agent", "run")
    with pytest.raises(NotFound, match="has no checkpoint '@99'"):
        hf.thread("test-agent/run").load("@99")
    with pytest.raises(NotFound, match="there is no thread 'sess-1'"):
        hf.thread("sess-1").load("@-1")


@covers("ares", "CheckpointError.Corrupt", "CheckpointError.display")
def test_damage_is_an_error_that_says_where(tmp_path: Path) -> None:
    address = f"dir:{tmp_path}/store"
    with holdfast.open(address, durability="off") as hf:
        hf.thread("sess").save({"messages": ["Hello"]})
    damage(address, "sess", seq=1)
    with holdfast.open(address, durability="off") as hf, pytest.raises(holdfast.Damaged, match="sess"):
        hf.thread("sess").latest()


@covers("ares", "is_expired", "is_expired.without_ttl", "expired_metadata")
def test_what_is_older_than_a_rule_says_is_listed_and_without_a_rule_nothing_is(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step, hours in enumerate((3, 2, 1)):
        with ago(monkeypatch, hours):
            create(hf, "a", "run", step)
    thread = hf.thread("a/run")

    def expired(hours: float) -> list[int]:
        return [each.step for each in thread.prune(Retention(older_than=hours * 3600), dry_run=True).removed]

    # The newest is what an agent goes on from, and stays however old it is.
    assert [expired(hours) for hours in (3.5, 2.5, 1.5, 0)] == [[], [0], [1, 0], [1, 0]]
    hf.maintain()
    assert thread.count() == 3


@covers("ares", "cleanup_expired")
def test_what_is_too_old_is_removed_and_told_and_the_rest_stays(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = hf.thread("test-agent/half")
    with ago(monkeypatch, 2):
        old = create(hf, "test-agent", "half", 0)
        other = create(hf, "test-agent", "other", 0)
    create(hf, "test-agent", "half", 1)
    assert thread.prune(Retention(older_than=3 * 3600)).removed == ()
    assert thread.prune(Retention(older_than=3600)).removed == (old,)
    # Gone for every verb.
    assert [each.step for each in thread.history()] == [1]
    with pytest.raises(NotFound):
        thread.load(old)
    assert hf.thread("test-agent/other").count() == 1
    # A thread as a whole goes by its name; the list tells when each was last saved to.
    [stale] = [info.name for info in hf.threads() if info.updated_at == other.created_at]
    hf.thread(stale).drop()
    assert [info.name for info in hf.threads()] == ["test-agent/half"]
    assert hf.thread(stale).latest() is None
    assert hf.verify().ok


@covers("ares", "cleanup_expired")
def test_a_retention_removes_what_is_too_old_by_itself(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", durability="off", retention=Retention(older_than=0)) as hf:
        for step in range(3):
            create(hf, "test-agent", "run", step)
        hf.maintain()
        assert [each.step for each in hf.thread("test-agent/run").history()] == [2]
    kept = Retention(older_than=timedelta(seconds=60))
    with holdfast.open(tmp_path / "other.db", durability="off", retention=kept) as hf:
        create(hf, "test-agent", "run", 0)
        create(hf, "test-agent", "run", 1)
        hf.maintain()
        assert hf.thread("test-agent/run").count() == 2
