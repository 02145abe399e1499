"""Copies of an encrypted store: every thread is read from them as it was, however the cipher that copies is set up."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Cipher, Damaged, Holdfast, InvalidArgument
from holdfast.crypto.records import seal_value
from holdfast.crypto.store import SealedStore
from holdfast.errors import AlreadyExists, WrongKey
from holdfast.stores import segments
from holdfast.stores.contract import Blob
from tests.stores.postgres.server import address_at
from tests.threads.wholes import fill, seen

KEY = bytes(range(32))
AES = Cipher(keys={"k": KEY}, current="k")
CHACHA = Cipher(keys={"k": KEY}, current="k", algorithm="chacha20-poly1305")
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
def test_a_copy_made_with_another_algorithm_is_read_as_the_store_was(kind: str, target: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, "old", CHACHA) as hf:
        with_large_values(hf)
    with opened(kind, tmp_path, "old", AES) as hf:
        before = seen(hf)
        assert hf.repair(address(target, tmp_path, "new")).ok
    for cipher in (AES, CHACHA):
        with opened(target, tmp_path, "new", cipher) as new:
            assert seen(new) == before
            assert new.verify().ok
            new.optimize()
            assert new.verify().ok


def test_a_copy_made_with_another_compressor_is_read_as_the_store_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another release of zstd may be: it makes other bytes of the same ones."""
    with opened("sqlite", tmp_path, "old", AES) as hf:
        with_large_values(hf)
        before = seen(hf)
        monkeypatch.setattr(segments, "deflate", lambda _: None)
        assert hf.repair(address("directory", tmp_path, "new")).ok
    with opened("directory", tmp_path, "new", AES) as new:
        assert seen(new) == before
        assert new.verify().ok


def test_what_is_stored_in_both_algorithms_is_copied(tmp_path: Path) -> None:
    for cipher in (AES, CHACHA):
        with opened("sqlite", tmp_path, "old", cipher) as hf:
            hf.thread(cipher.algorithm).save({"text": LARGE, "in two pieces": random.Random(6).randbytes(9 << 20)})
    with opened("sqlite", tmp_path, "old", AES) as hf:
        before = seen(hf)
        assert hf.repair(address("sqlite", tmp_path, "new")).ok
    with opened("sqlite", tmp_path, "new", AES) as new:
        assert seen(new) == before


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_backup_made_with_another_algorithm_is_read_as_the_store_was(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, "old", CHACHA) as hf:
        with_large_values(hf)
    with opened(kind, tmp_path, "old", AES) as hf:
        before = seen(hf)
        assert hf.backup(address(kind, tmp_path, "copy")).report.ok
    with opened(kind, tmp_path, "copy", AES) as copy:
        assert seen(copy) == before


def test_a_value_that_would_not_be_found_again_is_refused(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "store", AES) as hf:
        hf.thread("t").save({"n": 1})
        store = hf.context.store
        assert isinstance(store, SealedStore)
        with pytest.raises(InvalidArgument, match="blob"):
            seal_value(Blob(hashlib.sha256(b"plain").digest(), (b"plain",)), store._ring.records)


def test_a_sealed_value_of_other_keys_is_refused(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "store", AES) as hf, opened("sqlite", tmp_path, "other", AES) as other:
        store, strange = hf.context.store, other.context.store
        assert isinstance(store, SealedStore)
        assert isinstance(strange, SealedStore)
        address_of_it = strange.hashing.address(b"a value")
        sealed = seal_value(Blob(address_of_it, (b"a value",)), strange._ring.records)
        with pytest.raises(Damaged):
            seal_value(sealed, store._ring.records)
        assert seal_value(sealed, strange._ring.records) == sealed, "what is sealed already is carried as it is"


def test_a_target_that_has_keys_of_its_own_is_refused(tmp_path: Path) -> None:
    opened("sqlite", tmp_path, "new", AES).close()
    with opened("sqlite", tmp_path, "old", AES) as hf:
        with_large_values(hf)
        with pytest.raises(WrongKey, match=r"its own data keys.*Use a new store"):
            hf.repair(address("sqlite", tmp_path, "new"))
    with opened("sqlite", tmp_path, "new", AES) as new:
        assert list(new.threads()) == []


def test_a_store_in_clear_is_not_copied_into_an_encrypted_one(tmp_path: Path) -> None:
    opened("sqlite", tmp_path, "new", AES).close()
    with holdfast.open(tmp_path / "clear.db") as clear:
        clear.thread("t").save({"n": 1})
        with pytest.raises(WrongKey, match="is encrypted and this one is not"):
            clear.repair(tmp_path / "new.db")


def test_a_target_in_clear_that_holds_threads_is_left_as_it_was(tmp_path: Path) -> None:
    """Without a key above all: with one it would be taken for an encrypted store."""
    with holdfast.open(tmp_path / "clear.db") as clear:
        clear.thread("mine").save({"n": 1})
    with opened("sqlite", tmp_path, "old", AES) as hf:
        hf.thread("t").save({"n": 2})
        with pytest.raises(AlreadyExists):
            hf.repair(tmp_path / "clear.db")
    with holdfast.open(tmp_path / "clear.db") as clear:
        found = clear.thread("mine").latest()
        assert found is not None
        assert found.state == {"n": 1}


def test_the_keys_of_a_copy_are_wrapped_by_the_current_key(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path, "old", AES) as hf:
        with_large_values(hf)
        before = seen(hf)
    new_key: dict[str, Any] = {"new": bytes(32)}
    both = Cipher(keys={"k": KEY, **new_key}, current="new")
    with opened("sqlite", tmp_path, "old", both) as hf:
        assert hf.repair(address("sqlite", tmp_path, "new")).ok
    with opened("sqlite", tmp_path, "new", Cipher(keys=new_key, current="new")) as new:
        assert seen(new) == before
