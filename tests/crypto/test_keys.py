"""The data keys of an encrypted store: lost, damaged, and how often the user's keys are asked for."""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Cipher, Damaged, Holdfast, InvalidArgument
from holdfast.crypto.keyring import Keyring
from holdfast.crypto.sealed_store import SealedStore
from holdfast.errors import NewerFormat, WrongKey
from holdfast.stores.contract import CheckpointRow, KeyRow, Store
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.urls import open_plain
from tests.crypto.keyed import CIPHER, KEY, KINDS, MESSAGES, address_of, key_made_by_saving, opened, rows, state_of
from tests.stores.sqlite.conftest import finished, forked
from tests.threads.wholes import shown
from tests.waiting import DEADLINE

RECORDS = b"records\0"


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return address_of(request.param, tmp_path)


@pytest.fixture
def hf(address: str) -> Iterator[Holdfast]:
    with opened(address) as handle:
        yield handle


@pytest.fixture
def plain(address: str, hf: Holdfast) -> Iterator[Store]:
    """The same store, past the cipher."""
    with closing(open_plain(address, namespace="default", durability="off")) as store:
        yield store


# -- a bad record of one thread's key --------------------------------------------------------------------------------


def flipped(row: KeyRow) -> KeyRow:
    return replace(row, wrapped=row.wrapped[:-1] + bytes((row.wrapped[-1] ^ 1,)))


@pytest.mark.parametrize(
    "change",
    [
        flipped,
        lambda row: replace(row, wrapped=b""),
        lambda row: replace(row, wrapped=row.wrapped[:5]),
        lambda row: replace(row, name="another"),
        lambda row: None,
    ],
    ids=["flipped", "emptied", "cut", "renamed", "gone"],
)
def test_a_bad_key_hurts_its_own_thread_only(
    hf: Holdfast, address: str, plain: Store, tmp_path: Path, change: Any
) -> None:
    with hf.run("bad", start={"n": 1}) as run:
        run.model(lambda: 2)
        run.finish("done")
    before = set(rows(plain))
    bad = next(row for id, row in rows(plain).items() if id != RECORDS)
    hf.thread("bad").fork("fork")
    hf.thread("good").save({"messages": MESSAGES})
    assert before < set(rows(plain))
    changed = change(bad)
    assert plain.put_key(bad.id, bad, changed) == changed
    with opened(address) as again:
        assert state_of(again, "good") == {"messages": MESSAGES}
        with pytest.raises(Damaged):
            again.thread("bad").latest()
        assert {problem.thread for problem in again.verify().problems} == {"bad"}
        done = again.repair(tmp_path / "new.db")
        assert {problem.thread for problem in done.lost} == {"bad"}
        with opened(str(tmp_path / "new.db")) as new:
            assert state_of(new, "good") == {"messages": MESSAGES}
            assert new.verify().ok


def test_a_fork_of_a_thread_with_a_bad_key_is_said_to_be_hurt(hf: Holdfast, address: str, plain: Store) -> None:
    bad = key_made_by_saving(hf, "bad", {"messages": MESSAGES})
    hf.thread("bad").fork("fork")
    hf.thread("good").save({"n": 1})
    plain.put_key(bad.id, bad, flipped(bad))
    with opened(address) as again:
        assert {problem.thread for problem in again.verify().problems} == {"bad", "fork"}


@pytest.mark.parametrize("unreadable", [b"{", b"\xff\xfe", b'{"id": "00"}'])
def test_a_file_of_a_key_that_cannot_be_read(tmp_path: Path, unreadable: bytes) -> None:
    with opened(f"dir:{tmp_path / 'store'}") as hf:
        bad = key_made_by_saving(hf, "bad")
        hf.thread("good").save({"n": 1})
    (file,) = (tmp_path / "store").rglob(f"{bad.id.hex()}.json")
    file.write_bytes(unreadable)
    look_at_one_that_cannot_be_read(f"dir:{tmp_path / 'store'}", tmp_path, bad)


@pytest.mark.parametrize("change", ["name = x'ff'", "name = x''", "wrapped = x''"])
def test_a_row_of_a_key_that_cannot_be_read(tmp_path: Path, change: str) -> None:
    with opened(str(tmp_path / "store.db")) as hf:
        bad = key_made_by_saving(hf, "bad")
        hf.thread("good").save({"n": 1})
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(f"UPDATE data_key SET {change} WHERE id = ?", (bad.id,))  # noqa: S608 - texts of the test
    look_at_one_that_cannot_be_read(str(tmp_path / "store.db"), tmp_path, bad)


def look_at_one_that_cannot_be_read(address: str, tmp_path: Path, bad: KeyRow) -> None:
    both = Cipher(keys={"k": KEY, "new": bytes(32)}, current="new")
    with opened(address, both) as hf:
        assert {problem.thread for problem in hf.verify().problems} == {"bad"}
        assert {problem.thread for problem in hf.repair(tmp_path / "new.db").lost} == {"bad"}
        with pytest.raises(Damaged, match=f"1 could not be: {bad.id.hex()}"):
            hf.rekey()
        hf.thread("bad").drop()
        hf.optimize()
    with opened(address, Cipher(keys={"new": bytes(32)}, current="new")) as hf:
        assert state_of(hf, "good") == {"n": 1}
        assert hf.verify().ok


# -- the key that every encrypted namespace has -----------------------------------------------------------------


@pytest.mark.parametrize("is_empty", [True, False], ids=["before threads", "with threads"])
def test_a_key_of_the_namespace_that_is_lost_is_not_made_anew(
    hf: Holdfast, address: str, plain: Store, is_empty: bool
) -> None:
    if is_empty:
        plain.put_key(b"a thread", None, KeyRow(b"a thread", "k", b"cut off"))
    else:
        hf.thread("t").save({"n": 1})
    kept = rows(plain)[RECORDS]
    plain.put_key(RECORDS, kept, None)
    with pytest.raises(Damaged, match="from a backup"):
        opened(address)
    assert plain.keys(id=RECORDS, limit=1) == []
    plain.put_key(RECORDS, None, kept)
    with opened(address) as again:
        assert again.verify().ok


def test_two_who_begin_a_store_at_once_agree(tmp_path: Path) -> None:
    """One of them looks for a key. Before it looks for anything else, the other has started the store and used it."""
    address = str(tmp_path / "store.db")
    with closing(open_plain(address, namespace="default", durability="off")) as store:
        asked: list[object] = []

        def keys(**page: Any) -> list[KeyRow]:
            asked.append(page)
            found = store.keys(**page)
            if len(asked) == 1:
                with opened(address) as other:
                    other.thread("t").save({"n": 1})
            return found

        late = SealedStore(store, Keyring(shown(store, keys=keys), CIPHER, "default"))
        row = thread_named(late, "t")
        assert row is not None
        assert checkpoint_at(late, row.position.thread, 1) is not None
        assert len(rows(store)) == 2


def test_a_store_that_a_newer_holdfast_encrypted_is_refused(tmp_path: Path) -> None:
    address = str(tmp_path / "store.db")
    opened(address).close()
    with closing(open_plain(address, namespace="default", durability="off")) as store:
        row = rows(store)[RECORDS]
        newer = replace(row, wrapped=row.wrapped[:1] + b"\2" + row.wrapped[2:])
        store.put_key(RECORDS, row, newer)
        with pytest.raises(NewerFormat, match="format 2"):
            opened(address)
        assert rows(store)[RECORDS] == newer


def test_a_wrapped_key_is_bound_to_its_id_its_name_and_its_namespace(tmp_path: Path) -> None:
    address = str(tmp_path / "store.db")
    both = Cipher(keys={"k": KEY, "same": KEY}, current="k")
    with opened(address, both) as hf:
        one, other = key_made_by_saving(hf, "one"), key_made_by_saving(hf, "other")
    with closing(open_plain(address, namespace="default", durability="off")) as store:
        for forged in (replace(one, wrapped=other.wrapped), replace(one, name="same")):
            store.put_key(one.id, one, forged)
            with opened(address, both) as hf:
                assert state_of(hf, "other") == {"name": "other"}
                with pytest.raises(Damaged, match="cannot be used"):
                    hf.thread("one").latest()
            store.put_key(one.id, forged, one)
        kept = rows(store)
    with closing(open_plain(address, namespace="elsewhere", durability="off")) as store:
        for row in kept.values():
            store.put_key(row.id, None, row)
    with pytest.raises(WrongKey):
        holdfast.open(address, namespace="elsewhere", cipher=both)


# -- dropping what is damaged ------------------------------------------------------------------------------------------


def test_a_thread_that_is_damaged_is_dropped_with_its_key(tmp_path: Path) -> None:
    address = str(tmp_path / "store.db")
    with opened(address) as hf:
        key_made_by_saving(hf, "t", {"messages": MESSAGES})
        hf.thread("t").save({"n": 2})
        hf.thread("good").save({"n": 1})
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        number = connection.execute("SELECT thread_no FROM thread WHERE name = CAST('t' AS BLOB)").fetchone()[0]
        changed = connection.execute("UPDATE checkpoint SET meta = x'00' WHERE row_key >> 32 = ?", (number,))
        assert changed.rowcount == 2
    with opened(address) as hf:
        with pytest.raises(holdfast.StoreError):
            hf.thread("t").latest()
        hf.thread("t").drop()
        hf.erase("t")
        assert [info.name for info in hf.threads()] == ["good"]
        assert len(rows(hf.context.store)) == 2
        assert hf.verify().ok


# -- records that were emptied or cut ---------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["meta", "skeleton"])
@pytest.mark.parametrize("left", [0, 1, 9, 26, 37])
def test_a_record_that_was_cut_is_damaged(
    hf: Holdfast, plain: Store, monkeypatch: pytest.MonkeyPatch, field: str, left: int
) -> None:
    hf.thread("t").save({"n": 1})
    store = hf.context.store
    assert isinstance(store, SealedStore)
    whole = store._store.walk
    thread = thread_named(store, "t")
    assert thread is not None

    def cut(thread: int, **which: Any) -> list[CheckpointRow]:
        rows = [row for row in whole(thread, **which) if isinstance(row, CheckpointRow)]
        return [replace(row, **{field: getattr(row, field)[:left]}) for row in rows]

    monkeypatch.setattr(store._store, "walk", cut)
    with pytest.raises(Damaged):
        checkpoint_at(store, thread.position.thread, 1)
    if field == "meta":
        listed = store._store.checkpoints

        def cut_in_a_page(*given: Any, **named: Any) -> list[CheckpointRow]:
            return [replace(row, meta=row.meta[:left]) for row in listed(*given, **named)]

        monkeypatch.setattr(store._store, "checkpoints", cut_in_a_page)
        with pytest.raises(Damaged):
            store.checkpoints(thread.position.thread, before=None, limit=10)


# -- the user's keys ---------------------------------------------------------------------------------------------------


def test_a_function_is_asked_once_by_a_handle(address: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(name: str, key: bytes) -> Any:
        def fetched() -> bytes:
            asked.append(name)
            return key

        return fetched

    with opened(address, Cipher(keys={"k": fetch("k", KEY)}, current="k")) as hf:
        for n in range(3):
            hf.thread(f"t{n}").save({"n": n})
    assert asked == ["k"]
    asked.clear()
    both = Cipher(keys={"k": fetch("k", KEY), "new": fetch("new", bytes(32))}, current="new")
    with opened(address, both) as hf:
        assert [state_of(hf, f"t{n}") for n in range(3)] == [{"n": n} for n in range(3)]
        assert hf.rekey() == 4
        hf.repair(tmp_path / "new.db")
    assert sorted(asked) == ["k", "new"]


def test_two_keys_of_one_name_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for keys in (f"a:{KEY.hex()},a:{bytes(32).hex()}", f"{KEY.hex()},{bytes(32).hex()}"):
        monkeypatch.setenv("HOLDFAST_KEY", keys)
        with pytest.raises(InvalidArgument, match=r"HOLDFAST_KEY has two keys named '(a|default)'") as refused:
            Cipher.from_environment()
        assert KEY.hex() not in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_forked_while_others_look_up_keys_can_use_them() -> None:
    store, stop = MemoryStore(namespace="default"), threading.Event()
    keyring = Keyring(store, CIPHER, "default")
    _, row = keyring.new()
    store.put_key(row.id, None, row)

    def look_up() -> None:
        while not stop.is_set():
            keyring.seal(row.id)

    def work() -> None:
        signal.alarm(int(DEADLINE))
        keyring.seal(row.id)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=look_up) for _ in range(3)]
    try:
        for each in threads:
            each.start()
        for _ in range(10):
            time.sleep(0.002)
            finished(forked(work))
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for each in threads:
            each.join()
