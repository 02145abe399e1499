"""rust-ai-agents' configuration of a manager, and encryption around any store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import ANY, Cipher, Damaged, EveryN, EverySeconds, Holdfast, NotEncrypted, Retention, WrongKey
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from tests.parity.covering import covers
from tests.parity.damaging import file_address

KEY = bytes(range(32))
CIPHER = Cipher(keys={"k": KEY}, current="k")


# -- configuration ----------------------------------------------------------------------------------------------------


@covers(
    "cortex",
    "CheckpointConfig",
    "CheckpointConfig.max_checkpoints_per_thread",
    "CheckpointManager.with_config",
    "test_max_checkpoints_cleanup",
)
def test_of_five_with_a_limit_of_three_the_last_three_are_left_with_their_steps(url: str) -> None:
    with holdfast.open(url, durability="off", retention=Retention(keep_last=3)) as hf:
        thread, other = hf.thread("thread1"), hf.thread("thread2")
        other.save({"n": 0})
        for n in range(5):
            thread.save({"n": n})
        hf.maintain()
        assert [checkpoint.step for checkpoint in thread.history()] == [5, 4, 3]
        assert thread.load("@3").state == {"n": 2}
        assert other.count() == 1


@covers("cortex", "CheckpointConfig.default")
def test_by_default_nothing_is_ever_deleted(hf: Holdfast) -> None:
    thread = hf.thread("t")
    for n in range(120):
        thread.save({"n": n})
    hf.maintain()
    assert thread.count() == 120
    assert thread.load("@1").state == {"n": 0}


@covers("cortex", "CheckpointConfig.auto_checkpoint_interval")
def test_a_run_writes_a_checkpoint_after_every_so_many_steps_without_being_told(hf: Holdfast) -> None:
    with hf.run("t", start={"n": 0}, policy=EveryN(5)) as run:
        for step in run.steps():
            run.state["n"] = step
            if step == 13:
                break
    assert [checkpoint.step for checkpoint in hf.thread("t").history()] == [10, 5, 0]
    assert EverySeconds(30).should_save("step", 1, seconds=30)
    assert not EverySeconds(30).should_save("step", 1, seconds=29)


@covers("cortex", "CheckpointConfig.compress")
def test_what_is_stored_is_compressed(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": f"the quick brown fox jumps over lazy dog number {n}"} for n in range(9000)]
    with holdfast.open(tmp_path / "a.db", durability="off") as hf:
        size = hf.thread("t").save({"messages": messages}).size
        hf.optimize()
    assert (tmp_path / "a.db").stat().st_size < size / 2


@covers("cortex", "CheckpointConfig.ttl")
def test_what_is_older_than_so_long_goes_and_the_head_stays(url: str) -> None:
    with holdfast.open(url, durability="off", retention=Retention(older_than=timedelta(days=1))) as hf:
        thread = hf.thread("t")
        for n in range(4):
            thread.save({"n": n}, label="kept" if n == 1 else None)
        hf.maintain()
        assert thread.count() == 4  # none is that old
        assert thread.prune(Retention(older_than=0)).kept == 2
        assert [checkpoint.step for checkpoint in thread.history()] == [4, 2]


# -- encryption -------------------------------------------------------------------------------------------------------


@dataclass
class Message:
    role: str
    content: str


@dataclass
class Conversation:
    messages: list[Message]


@covers(
    "cortex",
    "EncryptedCheckpointStoreWrapper",
    "EncryptedCheckpointStoreWrapper.new",
    "EncryptedCheckpointStoreWrapper other verbs",
    "EncryptedSessionStoreWrapper",
    "test_encrypted_session_roundtrip",
)
def test_with_a_cipher_every_verb_works_as_without_on_every_store(url: str) -> None:
    said = Conversation([Message("user", "Hello!"), Message("assistant", "Hi there!")])
    with holdfast.open(url, durability="off", cipher=CIPHER) as hf:
        thread = hf.thread("test-session", type=Conversation)
        first = thread.save(said, label="greeted", tags=["a"], metadata={"user": "ann"})
        second = thread.save(Conversation([*said.messages, Message("user", "Bye!")]))
        loaded = thread.load(first.id)
        assert loaded.thread == "test-session"
        assert loaded.state == said
        assert [message.content for message in loaded.state.messages] == ["Hello!", "Hi there!"]
        assert (loaded.label, loaded.tags, loaded.metadata) == ("greeted", ("a",), {"user": "ann"})
        assert [each.id for each in thread.history()] == [second.id, first.id]
        assert [each.id for each in thread.history(tag="a", label="greeted")] == [first.id]
        assert thread.count() == 2
        thread.fork("other", at="@greeted")
        thread.rewind(first)
        thread.delete(second)
        assert [(info.name, info.count) for info in hf.threads()] == [("other", 1), ("test-session", 1)]
        thread.drop()
        assert [info.name for info in hf.threads()] == ["other"]
        assert hf.verify().ok


@covers("cortex", "EncryptedCheckpointStoreWrapper.inner", "EncryptedCheckpointStoreWrapper wrong key")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_what_the_files_hold_cannot_be_read_without_the_key(kind: str, tmp_path: Path) -> None:
    words = ["PLANTED-state", "PLANTED-label", "PLANTED-tag", "PLANTED-value"]
    state, label, tag, value = words
    with holdfast.open(file_address(kind, tmp_path), durability="off", cipher=CIPHER) as hf:
        hf.thread("t").save({"said": state, "large": state * 9000}, label=label, tags=[tag], metadata={"v": value})
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(stored) > 1000
    assert [word for word in words if word.encode() in stored] == []
    other = Cipher(keys={"k": bytes(32)}, current="k")
    for cipher in (None, other):
        with pytest.raises(WrongKey):
            holdfast.open(file_address(kind, tmp_path), cipher=cipher)


@covers("cortex", "EncryptedCheckpointStoreWrapper.encryptor")
def test_the_key_can_be_changed_without_writing_the_history_anew(tmp_path: Path) -> None:
    address, fresh = file_address("sqlite", tmp_path), {"new": bytes(range(32, 64))}
    with holdfast.open(address, durability="off", cipher=CIPHER) as hf:
        hf.thread("t").save({"n": 1})
    with holdfast.open(address, durability="off", cipher=Cipher(keys={"k": KEY, **fresh}, current="new")) as hf:
        assert hf.rekey() > 0
    with holdfast.open(address, durability="off", cipher=Cipher(keys=fresh, current="new")) as hf:
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state == {"n": 1}
    with pytest.raises(WrongKey):
        holdfast.open(address, cipher=CIPHER)


@covers("cortex", "EncryptedCheckpointStoreWrapper associated data")
@pytest.mark.parametrize(("thread", "seq"), [(2, 1), (1, 2)])
def test_what_belongs_to_one_place_cannot_be_put_into_another(tmp_path: Path, thread: int, seq: int) -> None:
    address = file_address("sqlite", tmp_path)
    with holdfast.open(address, durability="off", cipher=CIPHER) as hf:
        for name in ("one", "two"):
            for n in range(2):
                hf.thread(name).save({"of": name, "n": n}, expect=ANY)
    at = (1 << 32) + 1
    with closing(sqlite3.connect(address)) as connection, connection:
        [(moved,)] = connection.execute("SELECT skeleton FROM checkpoint WHERE row_key = ?", ((thread << 32) + seq,))
        changed = connection.execute("UPDATE checkpoint SET skeleton = ? WHERE row_key = ?", (moved, at))
        assert changed.rowcount == 1
    with holdfast.open(address, durability="off", cipher=CIPHER) as hf:
        with pytest.raises(Damaged):
            hf.thread("one").load("@1")
        assert hf.thread("one").load("@2").state == {"of": "one", "n": 1}


@covers("cortex", "EncryptedSessionStoreWrapper.list_for_user", "test_encrypted_session_list")
def test_sessions_are_listed_and_those_of_one_user_alone(url: str) -> None:
    with holdfast.open(url, durability="off", cipher=CIPHER) as hf:
        for user, count in (("ann", 3), ("bob", 1)):
            for n in range(count):
                hf.thread(f"{user}/session-{n}").save({"messages": []})
        assert len(list(hf.threads())) == 4
        assert [info.name for info in hf.threads(prefix="ann/")] == [f"ann/session-{n}" for n in range(3)]


@covers("cortex", "test_encrypted_session_delete")
def test_a_deleted_session_is_gone(url: str) -> None:
    with holdfast.open(url, durability="off", cipher=CIPHER) as hf:
        hf.thread("to-delete").save({"messages": []})
        assert hf.thread("to-delete").latest() is not None
        hf.thread("to-delete").drop()
        assert hf.thread("to-delete").latest() is None


@covers("cortex", "EncryptedSessionStoreWrapper of old data")
def test_what_was_stored_in_clear_is_refused_with_a_cipher_and_moved_into_an_encrypted_store(tmp_path: Path) -> None:
    clear, sealed, carried = tmp_path / "clear.db", tmp_path / "sealed.db", tmp_path / "carried.jsonl"
    state: dict[str, Any] = {"messages": ["from before"]}
    with holdfast.open(clear, durability="off") as hf:
        hf.thread("t").save(state, label="old")
        assert export_jsonl(hf, carried).ok
    with pytest.raises(NotEncrypted):
        holdfast.open(clear, cipher=CIPHER)
    with holdfast.open(sealed, durability="off", cipher=CIPHER) as hf:
        import_from(hf, "jsonl", str(carried))
        assert hf.thread("t").load("@old").state == state
        assert hf.verify().ok
    assert b"from before" not in sealed.read_bytes()
