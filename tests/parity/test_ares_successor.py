"""What the successor of ares' checkpoints adds: times to live, metadata without states, bytes, typed errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import NOT_LOADED, Checkpoint, Holdfast, HoldfastError, NotFound, Retention
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.states import Message, ToolCall, Work
from tests.parity.covering import covers
from tests.parity.damaging import damage


def key(agent: str, run: str) -> str:
    """The name of a thread for an agent and its run."""
    return f"{agent}/{run}"


def create(hf: Holdfast, agent: str, run: str, step: int = 0, *, ttl: int | None = None) -> Checkpoint:
    work = Work(messages=[Message.user("Hello")], partial_results=["out"])
    work.record(ToolCall("search", "query").done("found it"))
    thread = hf.thread(key(agent, run), type=Work)
    return thread.save(work, step=step, agent=agent, status="running", metadata={} if ttl is None else {"ttl": ttl})


def is_expired(checkpoint: Checkpoint, now: datetime) -> bool:
    ttl = checkpoint.metadata.get("ttl")
    return ttl is not None and now > checkpoint.created_at + timedelta(seconds=ttl)


def cleanup_expired(hf: Holdfast, now: datetime) -> int:
    """Remove what is expired: older checkpoints of a thread, or all of it with its newest."""
    removed = 0
    for info in list(hf.threads()):
        thread = hf.thread(info.name)
        head, count = thread.head(), thread.count()
        assert head is not None
        if is_expired(head, now):
            thread.drop()
            removed += count
            continue
        for checkpoint in [each for each in thread.history() if is_expired(each, now)]:
            thread.delete(checkpoint)
            removed += 1
    return removed


@covers("ares", "checkpoint_key")
def test_agent_and_run_are_one_name_and_another_for_every_other_pair(hf: Holdfast) -> None:
    for agent, run in (("a1", "r1"), ("a1", "r2"), ("a2", "r1")):
        create(hf, agent, run)
    assert [info.name for info in hf.threads()] == ["a1/r1", "a1/r2", "a2/r1"]
    assert [info.name for info in hf.threads(prefix="a1/")] == ["a1/r1", "a1/r2"]


@covers("ares", "create_checkpoint", "create_checkpoint_with_ttl", "ttl_secs")
def test_a_checkpoint_is_made_from_all_its_parts(hf: Holdfast) -> None:
    made = create(hf, "researcher", "run-9", 2, ttl=60)
    loaded = hf.thread("researcher/run-9", type=Work).load(made.id)
    assert (loaded.agent, loaded.thread, loaded.step, loaded.status) == (
        "researcher",
        "researcher/run-9",
        2,
        "running",
    )
    assert loaded.metadata == {"ttl": 60}
    assert [each.text for each in loaded.state.messages] == ["Hello"]
    assert loaded.state.tool_calls[0].result == "found it"
    assert loaded.state.partial_results == ["out"]


@covers("ares", "CheckpointMetadata.agent_id", "CheckpointMetadata.run_id", "CheckpointMetadata.step")
@covers("ares", "CheckpointMetadata.timestamp", "CheckpointMetadata.ttl_secs", "CheckpointMetadata.from")
@covers("ares", "CheckpointMetadata.display")
def test_without_its_state_a_checkpoint_tells_all_about_itself(hf: Holdfast) -> None:
    made = create(hf, "test-agent", "run-meta", 3)
    timed = create(hf, "test-agent", "run-meta", 4, ttl=60)
    listed = list(hf.thread("test-agent/run-meta").history())
    assert listed == [timed, made]
    assert made.state is NOT_LOADED
    assert (made.agent, made.thread, made.step) == ("test-agent", "test-agent/run-meta", 3)
    assert [each.metadata.get("ttl") for each in listed] == [60, None]
    assert abs((datetime.now(UTC) - made.created_at).total_seconds()) < 60
    assert "run-meta" in str(made)


@covers("ares", "CheckpointMetadata.serde")
def test_a_checkpoint_without_its_state_goes_to_json_and_back(hf: Holdfast) -> None:
    made = create(hf, "agent-x", "run-y", 5, ttl=3600)
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
def test_a_checkpoint_is_expired_when_more_time_has_passed_than_it_had(hf: Holdfast) -> None:
    timed, free = create(hf, "a", "timed", ttl=60), create(hf, "a", "free")
    end = timed.created_at + timedelta(seconds=60)
    assert not is_expired(timed, end)
    assert is_expired(timed, end + timedelta(seconds=1))
    later = free.created_at + timedelta(days=9999)
    heads = [hf.thread(info.name).head() for info in hf.threads()]
    assert [head.thread for head in heads if head is not None and is_expired(head, later)] == ["a/timed"]


@covers("ares", "cleanup_expired")
def test_what_is_expired_is_removed_and_the_rest_stays(hf: Holdfast) -> None:
    create(hf, "test-agent", "expired-run", 0, ttl=60)
    create(hf, "test-agent", "fresh-run", 0)
    create(hf, "test-agent", "half", 0, ttl=60)
    create(hf, "test-agent", "half", 1, ttl=100_000)
    assert cleanup_expired(hf, datetime.now(UTC)) == 0
    assert cleanup_expired(hf, datetime.now(UTC) + timedelta(seconds=10_000)) == 2
    # Gone for every verb: no pointer is left that says otherwise.
    assert hf.thread("test-agent/expired-run").latest() is None
    assert hf.thread("test-agent/expired-run").head() is None
    assert hf.thread("test-agent/fresh-run").latest() is not None
    assert [each.step for each in hf.thread("test-agent/half").history()] == [1]
    assert hf.verify().ok


@covers("ares", "cleanup_expired", "ttl_secs")
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
