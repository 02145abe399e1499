"""An encrypted store: nothing of what was said is on the disk, and nothing opens with other keys or in other places."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Cipher, Damaged, Run
from holdfast.crypto.sealed_store import SealedStore
from holdfast.errors import NotEncrypted, WrongKey
from holdfast.stores.contract import Cells, Span
from holdfast.threads.scan import checkpoint_at, thread_named
from tests.covers import covers
from tests.selection import every_store

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
CIPHER = Cipher(keys={"2025": OLD}, current="2025")
ROTATED = Cipher(keys={"2025": OLD, "2026": NEW}, current="2026")

# Each is planted in one place where a user's words can be.
SECRETS = {
    place: f"PLANTED-{place}-SECRET"
    for place in (
        "message",
        "key",
        "large",
        "binary",
        "label",
        "tag",
        "metadata",
        "metadata-key",
        "reason",
        "agent",
        "trigger",
        "hint",
        "model-result",
        "model-argument",
        "tool-argument",
        "tool-result",
        "tool-name",
        "tool-key",
        "question",
        "payload",
        "answer",
        "answerer",
        "note",
        "failure",
        "turn",
        "result",
        "version",
    )
}


@holdfast.tool(effect="irreversible", name=SECRETS["tool-name"])
def act(word: str) -> str:
    return f"{word} {SECRETS['tool-result']}"


@holdfast.tool(effect="idempotent")
def fail(idempotency_key: str) -> str:
    raise holdfast.ToolNotDone(SECRETS["failure"])


def use_everything(hf: holdfast.Holdfast) -> None:
    """Put every secret where it belongs."""
    said = SECRETS
    thread = hf.thread("plain")
    state: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"{said['message']} {n} " + "word " * 60} for n in range(40)],
        said["key"]: 1,
        "large": said["large"] * 2000,
        "binary": said["binary"].encode() * 2000,
    }
    thread.save(
        state,
        label=said["label"],
        tags=[said["tag"]],
        metadata={said["metadata-key"]: said["metadata"]},
        reason=said["reason"],
        agent=said["agent"],
        trigger=said["trigger"],
        resume_hint=said["hint"],
    )
    thread.fork("fork")
    options: dict[str, Any] = {"tools": [act, fail], "turn": said["turn"], "version": said["version"]}
    with hf.run("run", start={"m": [said["message"]]}, agent=said["agent"], **options) as run:
        steps(run)
    hf.answer("run", said["question"], said["answer"], by=said["answerer"])
    with hf.run("run", **options) as run:
        steps(run)
    assert run.result == said["result"]


def answered(prompt: str) -> str:
    return f"{prompt} {SECRETS['model-result']}"


def steps(run: Run) -> None:
    said = SECRETS
    run.progress(1, 2, said["note"])
    run.model(answered, said["model-argument"])
    run.tool(said["tool-name"], {"word": said["tool-argument"]}, key=said["tool-key"])
    with pytest.raises(holdfast.ToolNotDone):
        run.tool("fail", {}, key="f")
    run.wait(said["question"], {"payload": said["payload"]})
    run.state["m"].append(said["result"])
    run.finish(said["result"])


def latest(hf: holdfast.Holdfast, thread: str) -> holdfast.Checkpoint:
    found = hf.thread(thread).latest()
    assert found is not None
    return found


def bytes_on_disk(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.fixture(params=["sqlite", "directory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store.db") if request.param == "sqlite" else f"dir:{tmp_path / 'store'}"


@pytest.fixture
def hf(address: str) -> Iterator[holdfast.Holdfast]:
    with holdfast.open(address, cipher=CIPHER) as opened:
        yield opened


@covers("G9", "cortex/EncryptedCheckpointStoreWrapper.inner")
@every_store("each store leaves other files")
def test_no_secret_is_on_the_disk(address: str, tmp_path: Path) -> None:
    with holdfast.open(address, cipher=CIPHER) as hf:
        use_everything(hf)
        written = bytes_on_disk(tmp_path)  # before the WAL is gone
        hf.optimize()
    written += bytes_on_disk(tmp_path)
    found = [place for place, secret in SECRETS.items() if secret.encode() in written]
    assert found == []


def test_the_search_finds_what_is_not_encrypted(tmp_path: Path) -> None:
    """Otherwise the test above could not fail. A file of lines is searched, as SQLite's are compressed."""
    with holdfast.open(f"dir:{tmp_path / 'clear'}") as hf:
        use_everything(hf)
    written = bytes_on_disk(tmp_path)
    assert [place for place, secret in SECRETS.items() if secret.encode() not in written] == []


@covers("cortex/EncryptedCheckpointStoreWrapper", "cortex/EncryptedCheckpointStoreWrapper.new")
@covers("cortex/EncryptedSessionStoreWrapper", "cortex/test_encrypted_session_roundtrip")
def test_all_of_it_comes_back(hf: holdfast.Holdfast, address: str) -> None:
    use_everything(hf)
    with holdfast.open(address, cipher=CIPHER) as again:
        found = again.thread("plain").load("@" + SECRETS["label"])
        assert found.state == latest(hf, "plain").state
        assert (found.label, found.tags, found.agent) == (SECRETS["label"], (SECRETS["tag"],), SECRETS["agent"])
        assert found.metadata == {SECRETS["metadata-key"]: SECRETS["metadata"]}
        assert latest(again, "fork").state == found.state
        assert {effect.name for effect in again.effects("run")} >= {SECRETS["tool-name"], SECRETS["question"]}
        assert again.verify().problems == ()
        info = {each.name: each.agent for each in again.threads()}
        assert info["plain"] == SECRETS["agent"]


@covers("cortex/EncryptedCheckpointStoreWrapper wrong key")
@pytest.mark.parametrize(
    "cipher",
    [
        None,
        Cipher(keys={"2026": NEW}, current="2026"),
        Cipher(keys={"2025": NEW}, current="2025"),
    ],
)
def test_other_keys_do_not_open_it(hf: holdfast.Holdfast, address: str, cipher: Cipher | None) -> None:
    hf.thread("t").save({"a": 1})
    with pytest.raises(WrongKey):
        holdfast.open(address, cipher=cipher)


@covers("cortex/EncryptedSessionStoreWrapper of old data")
def test_what_is_in_clear_is_refused(address: str) -> None:
    with holdfast.open(address) as clear:
        clear.thread("t").save({"a": 1})
    with pytest.raises(NotEncrypted):
        holdfast.open(address, cipher=CIPHER)
    with holdfast.open(address) as clear:
        assert latest(clear, "t").state == {"a": 1}, "it was left as it was"


def test_what_comes_in_clear_later_is_refused(address: str) -> None:
    with holdfast.open(address) as clear, holdfast.open(address, cipher=CIPHER) as hf:
        clear.thread("t").save({"a": 1})
        with pytest.raises(NotEncrypted):
            hf.thread("t").latest()
        with pytest.raises(NotEncrypted):
            hf.thread("t").save({"a": 2})


def test_namespaces_are_encrypted_apart(address: str) -> None:
    with holdfast.open(address, namespace="clear") as clear, holdfast.open(address, cipher=CIPHER) as hf:
        hf.thread("t").save({"a": "sealed"})
        clear.thread("t").save({"a": "clear"})
    with holdfast.open(address, namespace="clear") as clear:
        assert latest(clear, "t").state == {"a": "clear"}


@covers("cortex/EncryptedCheckpointStoreWrapper.encryptor")
def test_keys_are_rotated_without_rewriting(hf: holdfast.Holdfast, address: str) -> None:
    for n in range(3):
        hf.thread(f"t{n}").save({"n": n})
    with holdfast.open(address, cipher=ROTATED) as rotating:
        digests = [latest(rotating, f"t{n}").digest for n in range(3)]
        rotating.thread("t3").save({"n": 3})
        seen: list[int] = []
        assert rotating.rekey(progress=seen.append) == 4, "three threads, and the key of the namespace"
        assert sum(seen) == 5
        assert rotating.rekey() == 0
        assert [latest(rotating, f"t{n}").digest for n in range(3)] == digests
    with holdfast.open(address, cipher=Cipher(keys={"2026": NEW}, current="2026")) as new:
        assert [latest(new, f"t{n}").state for n in range(4)] == [{"n": n} for n in range(4)]
        assert new.verify().problems == ()
    with pytest.raises(WrongKey, match="'2026'"):
        holdfast.open(address, cipher=CIPHER)


def test_rekeying_what_is_not_encrypted(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "clear.db") as hf, pytest.raises(NotEncrypted):
        hf.rekey()


@covers("H7")
def test_a_large_value_is_stored_once(address: str, tmp_path: Path) -> None:
    large = random.Random(1).randbytes(9 << 20)
    with holdfast.open(address, cipher=CIPHER) as hf:
        hf.thread("a").save({"x": large})
        size = len(bytes_on_disk(tmp_path))
        hf.thread("b").save({"x": bytes(bytearray(large))})
        assert len(bytes_on_disk(tmp_path)) < size + (1 << 20)
    with holdfast.open(address, cipher=CIPHER) as hf:
        assert latest(hf, "b").state == {"x": large}


@covers("G9", "cortex/EncryptedCheckpointStoreWrapper associated data")
def test_records_of_two_threads_are_not_exchanged_unnoticed(
    hf: holdfast.Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sealed for one log opens in no other, though it is whole and by a key that is there."""
    numbers: list[int] = []
    store = hf.context.store
    for name in ("a", "b"):
        hf.thread(name).save({"messages": [{"text": f"{name} {n} " + "x" * 200} for n in range(60)]})
        row = thread_named(store, name)
        assert row is not None
        numbers.append(row.position.thread)
    assert isinstance(store, SealedStore)
    inner = store._store
    saved = checkpoint_at(store, numbers[0], 1)
    assert saved is not None
    span = saved.refs.spans[0]
    real = inner.cells

    def exchanged(spans: Sequence[Span]) -> list[Cells]:
        return real([replace(each, thread=numbers[1]) for each in spans])

    monkeypatch.setattr(inner, "cells", exchanged)
    with pytest.raises(Damaged, match="key of another thread"):
        store.cells([Span(numbers[0], span.log, span.start, span.count, 1, 1)])


def test_a_dropped_thread_takes_its_key_along(hf: holdfast.Holdfast, address: str) -> None:
    store = hf.context.store
    before = len(store.keys(limit=10))
    hf.thread("t").save({"a": 1})
    assert len(store.keys(limit=10)) == before + 1
    hf.thread("t").drop()
    assert len(store.keys(limit=10)) == before


def test_a_fork_keeps_the_key_of_its_origin(hf: holdfast.Holdfast, address: str) -> None:
    hf.thread("t").save({"messages": [{"text": "x" * 300} for _ in range(50)]})
    hf.thread("t").fork("fork")
    hf.thread("t").drop()
    with closing(holdfast.open(address, cipher=CIPHER)) as again:
        assert len(latest(again, "fork").state["messages"]) == 50


@every_store("two writers meet in the store")
def test_a_fork_that_is_made_while_its_origin_is_dropped_keeps_the_key(
    hf: holdfast.Holdfast, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.thread("t").save({"messages": [{"text": "x" * 300} for _ in range(50)]})
    store = hf.context.store
    assert isinstance(store, SealedStore)
    drop = store._store.drop

    def forked_before(thread: int) -> None:
        with holdfast.open(address, cipher=CIPHER) as other:
            other.thread("t").fork("fork")
        drop(thread)

    monkeypatch.setattr(store._store, "drop", forked_before)
    hf.thread("t").drop()
    assert len(latest(hf, "fork").state["messages"]) == 50
