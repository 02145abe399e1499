"""Rotating keys: what one bad record does not stop, and what others write meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Cipher, Conflict, Damaged, Holdfast
from holdfast.crypto.sealed_store import SealedStore
from holdfast.stores.contract import KeyRow, Store
from tests.crypto.keyed import KINDS, address_of, key_made_by_saving, rows
from tests.selection import every_store

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
BEFORE = Cipher(keys={"old": OLD, "new": NEW}, current="old")
ROTATED = Cipher(keys={"old": OLD, "new": NEW}, current="new")
AFTER = Cipher(keys={"new": NEW}, current="new")


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return address_of(request.param, tmp_path)


@pytest.fixture
def older(address: str) -> Iterator[Holdfast]:
    """A writer that does not know of the new key being the current one."""
    with holdfast.open(address, durability="off", cipher=BEFORE) as hf:
        hf.thread("first").save({"n": 1})
        yield hf


@pytest.fixture
def hf(address: str, older: Holdfast) -> Iterator[Holdfast]:
    with holdfast.open(address, durability="off", cipher=ROTATED) as opened:
        yield opened


def underlying(hf: Holdfast) -> Store:
    store = hf.context.store
    assert isinstance(store, SealedStore)
    return store.underlying


def test_a_key_that_an_older_writer_makes_meanwhile_is_wrapped_too(hf: Holdfast, older: Holdfast, address: str) -> None:
    told: list[int] = []

    def meanwhile(looked_at: int) -> None:
        if not told:
            older.thread("late").save({"n": 2})
        told.append(looked_at)

    assert hf.rekey(progress=meanwhile) == 3
    assert sum(told) == 3, "each key is counted once"
    assert {row.name for row in rows(underlying(hf)).values()} == {"new"}
    with holdfast.open(address, cipher=AFTER) as after:
        found = after.thread("late").latest()
        assert found is not None
        assert found.state == {"n": 2}


@every_store("two writers meet in the store")
def test_a_key_that_somebody_wraps_meanwhile_is_looked_at_again(
    hf: Holdfast, older: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = key_made_by_saving(older, "t")
    store, put = underlying(hf), underlying(hf).put_key
    keyring = older.context.store._keyring  # type: ignore[attr-defined]  # it is encrypted

    def interfering(id: bytes, expect: KeyRow | None, new: KeyRow | None) -> KeyRow | None:
        if expect == row:
            put(id, row, keyring._wrapped(row.id, keyring._unwrapped(row)))
        return put(id, expect, new)

    monkeypatch.setattr(store, "put_key", interfering)
    assert hf.rekey() == 3
    assert {each.name for each in rows(underlying(hf)).values()} == {"new"}


def test_a_thread_that_is_dropped_meanwhile_is_no_matter(
    hf: Holdfast, older: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = key_made_by_saving(older, "t")
    store, put = underlying(hf), underlying(hf).put_key

    def dropping(id: bytes, expect: KeyRow | None, new: KeyRow | None) -> KeyRow | None:
        if expect == row:
            older.thread("t").drop()
        return put(id, expect, new)

    monkeypatch.setattr(store, "put_key", dropping)
    assert hf.rekey() == 2
    assert row.id not in rows(underlying(hf))


def test_writers_that_go_on_with_the_old_key_are_told_of(
    hf: Holdfast, older: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, keys = underlying(hf), underlying(hf).keys
    made: list[str] = []

    def busy(**page: Any) -> list[KeyRow]:
        made.append(f"one more {len(made)}")
        older.thread(made[-1]).save({"n": 1})
        return keys(**page)

    monkeypatch.setattr(store, "keys", busy)
    with pytest.raises(Conflict, match="Open every writer with the new key as the current one"):
        hf.rekey()


@pytest.mark.parametrize("is_current", [False, True], ids=["old", "current"])
def test_a_bad_record_does_not_stop_the_others(hf: Holdfast, older: Holdfast, address: str, is_current: bool) -> None:
    bad = key_made_by_saving(hf if is_current else older, "bad")
    good = key_made_by_saving(older, "good")
    underlying(hf).put_key(bad.id, bad, replace(bad, wrapped=bad.wrapped[:-1] + bytes((bad.wrapped[-1] ^ 1,))))
    with pytest.raises(Damaged, match=rf"^3 data keys were rewrapped.* 1 could not be: {bad.id.hex()}"):
        hf.rekey()
    names = {id: row.name for id, row in rows(underlying(hf)).items()}
    assert names.pop(bad.id) == bad.name
    assert set(names.values()) == {"new"}
    assert good.id in names
    with holdfast.open(address, cipher=AFTER) as after:
        found = after.thread("good").latest()
        assert found is not None
        assert found.state == {"name": "good"}


def test_a_key_whose_name_the_cipher_does_not_have_is_told_at_the_end(hf: Holdfast, older: Holdfast) -> None:
    row = key_made_by_saving(older, "t")
    underlying(hf).put_key(row.id, row, replace(row, name="ancient"))
    with pytest.raises(Damaged, match="ancient"):
        hf.rekey()
    assert {each.name for each in rows(underlying(hf)).values()} == {"new", "ancient"}
