"""Copies of an encrypted store: every thread is read from them as it was, however the cipher that copies is set up."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Cipher, Damaged, Holdfast, InvalidArgument
from holdfast.crypto.records import seal_blob
from holdfast.crypto.sealed_store import SealedStore
from holdfast.errors import AlreadyExists, WrongKey
from holdfast.stores.contract import Blob
from tests.crypto.forging import other_compressor
from tests.stores.postgres.server import address_at
from tests.threads.wholes import fill, seen

KEY = bytes(range(32))
CIPHER = Cipher(keys={"k": KEY}, current="k")
LARGE = "What is said again and again, " * 3_000
NOISE = random.Random(5).randbytes(100_000)


def address(kind: str, folder: Path, name: str) -> str:
    if kind == "postgres":
        return address_at(folder / name)
    return str(folder / f"{name}.db") if kind == "sqlite" else f"dir:{folder / name}"


def opened(kind: str, folder: Path, name: str, cipher: Cipher) -> Holdfast:
    return holdfast.open(address(kind, folder, name), durability="off", cipher=cipher)


def with_large_values(hf: Holdfast) -> None:
    fill(hf)
    messages = [{"content": LARGE + str(n)} for n in range(3)]
    hf.thread("large").save({"text": LARGE, "noise": NOISE, "messages": messages})
    hf.thread("again").save({"text": LARGE})
    hf.thread("large").fork("of large").save({"text": LARGE, "more": LARGE[1:]})


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("sqlite", "sqlite"),
        ("sqlite", "directory"),
        ("directory", "sqlite"),
        ("directory", "directory"),
        ("postgres", "sqlite"),
        ("directory", "postgres"),
        ("postgres", "postgres"),
    ],
)
def test_a_copy_made_with_another_compressor_equals_the_store(
    kind: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(kind, tmp_path, "old", CIPHER) as hf:
        with_large_values(hf)
    other_compressor(monkeypatch)
    with opened(kind, tmp_path, "old", CIPHER) as hf:
        before = seen(hf)
        assert hf.repair(address(target, tmp_path, "new")).ok
    for _ in range(2):
        with opened(target, tmp_path, "new", CIPHER) as new:
            assert seen(new) == before
            assert new.verify().ok
            new.optimize()
            assert new.verify().ok
        monkeypatch.undo()


def test_values_of_two_compressors_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other"):
        with opened("sqlite", tmp_path, "old", CIPHER) as hf:
            hf.thread(name).save({"text": LARGE, "in two pieces": random.Random(6).randbytes(9 << 20)})
        other_compressor(monkeypatch)
    with opened("sqlite", tmp_path, "old", CIPHER) as hf:
        before = seen(hf)
        assert hf.repair(address("sqlite", tmp_path, "new")).ok
    with opened("sqlite", tmp_path, "new", CIPHER) as new:
        assert seen(new) == before


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_backup_made_with_another_compressor_equals_the_store(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(kind, tmp_path, "old", CIPHER) as hf:
        with_large_values(hf)
    other_compressor(monkeypatch)
    with opened(kind, tmp_path, "old", CIPHER) as hf:
        before = seen(hf)
        assert hf.backup(address(kind, tmp_path, "copy")).report.ok
    with opened(kind, tmp_path, "copy", CIPHER) as copy:
        assert seen(copy) == before


def test_a_value_that_would_not_be_found_again_is_refused(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "store", CIPHER) as hf:
        hf.thread("t").save({"n": 1})
        store = hf.context.store
        assert isinstance(store, SealedStore)
        with pytest.raises(InvalidArgument, match="blob"):
            seal_blob(Blob(hashlib.sha256(b"plain").digest(), (b"plain",)), store._keyring.records)


def test_a_sealed_value_of_other_keys_is_refused(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "store", CIPHER) as hf, opened("sqlite", tmp_path, "other", CIPHER) as other:
        store, strange = hf.context.store, other.context.store
        assert isinstance(store, SealedStore)
        assert isinstance(strange, SealedStore)
        address_of_it = strange.hashing.address(b"a value")
        sealed = seal_blob(Blob(address_of_it, (b"a value",)), strange._keyring.records)
        with pytest.raises(Damaged):
            seal_blob(sealed, store._keyring.records)
        assert seal_blob(sealed, strange._keyring.records) == sealed, "what is sealed already is carried as it is"


def test_a_target_that_has_keys_of_its_own_is_refused(tmp_path: Path) -> None:
    opened("sqlite", tmp_path, "new", CIPHER).close()
    with opened("sqlite", tmp_path, "old", CIPHER) as hf:
        with_large_values(hf)
        with pytest.raises(WrongKey, match=r"its own data keys.*Use a new store"):
            hf.repair(address("sqlite", tmp_path, "new"))
    with opened("sqlite", tmp_path, "new", CIPHER) as new:
        assert list(new.threads()) == []


def test_a_store_in_clear_is_not_copied_into_an_encrypted_one(tmp_path: Path) -> None:
    opened("sqlite", tmp_path, "new", CIPHER).close()
    with holdfast.open(tmp_path / "clear.db") as clear:
        clear.thread("t").save({"n": 1})
        with pytest.raises(WrongKey, match="is encrypted and this one is not"):
            clear.repair(tmp_path / "new.db")


def test_a_target_in_clear_that_holds_threads_is_left_as_it_was(tmp_path: Path) -> None:
    """Without a key above all: with one it would be taken for an encrypted store."""
    with holdfast.open(tmp_path / "clear.db") as clear:
        clear.thread("mine").save({"n": 1})
    with opened("sqlite", tmp_path, "old", CIPHER) as hf:
        hf.thread("t").save({"n": 2})
        with pytest.raises(AlreadyExists):
            hf.repair(tmp_path / "clear.db")
    with holdfast.open(tmp_path / "clear.db") as clear:
        found = clear.thread("mine").latest()
        assert found is not None
        assert found.state == {"n": 1}


def test_the_keys_of_a_copy_are_wrapped_by_the_current_key(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "old", CIPHER) as hf:
        with_large_values(hf)
        before = seen(hf)
    new_key: dict[str, Any] = {"new": bytes(32)}
    both = Cipher(keys={"k": KEY, **new_key}, current="new")
    with opened("sqlite", tmp_path, "old", both) as hf:
        assert hf.repair(address("sqlite", tmp_path, "new")).ok
    with opened("sqlite", tmp_path, "new", Cipher(keys=new_key, current="new")) as new:
        assert seen(new) == before
