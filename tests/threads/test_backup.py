"""Backup: a copy that is whole and of one moment, while others write."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import InvalidArgument
from holdfast.errors import AlreadyExists
from tests.covers import covers
from tests.selection import every_store
from tests.threads.wholes import CIPHER, address, change_blob, fill, fingerprint, flip, opened, seen, state_at

KINDS = ("sqlite", "directory")


@covers("F7", "continuum/layout backup")
@every_store("each store has its own backup")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "encrypted"])
def test_a_backup_is_the_store_as_it_was(kind: str, cipher: Any, tmp_path: Path) -> None:
    with opened(kind, tmp_path, cipher=cipher) as hf:
        fill(hf)
        before, mark = seen(hf), hf.fingerprint()
        made = hf.backup(address(kind, tmp_path, "copy"))
        assert made.report.ok
        assert made.report.threads == 4
        assert made.bytes > 10_000
        hf.thread("later").save({"n": 1})
    with opened(kind, tmp_path, "copy", cipher) as copy:
        assert seen(copy) == before
        assert copy.verify(fingerprint=mark).ok
        copy.thread("t").save(state_at(1))


@every_store("each store has its own backup")
@pytest.mark.parametrize("kind", KINDS)
def test_all_namespaces_are_in_it_and_it_is_for_its_owner_only(kind: str, tmp_path: Path) -> None:
    with holdfast.open(address(kind, tmp_path), namespace="other", durability="off") as other:
        other.thread("t").save({"n": 1})
        with opened(kind, tmp_path) as hf:
            fill(hf)
            hf.backup(address(kind, tmp_path, "copy"))
    with holdfast.open(address(kind, tmp_path, "copy"), namespace="other", durability="off") as copy:
        assert copy.thread("t").head() is not None
    made = tmp_path / ("copy.db" if kind == "sqlite" else "copy")
    for path in (made, *made.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@covers("F7")
@every_store("each store has its own backup")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_there_is_not_replaced(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        fill(hf)
        for name in ("copy", "copy", "store"):
            if name == "copy" and not any(tmp_path.glob("copy*")):
                hf.backup(address(kind, tmp_path, name))
                continue
            with pytest.raises(AlreadyExists):
                hf.backup(address(kind, tmp_path, name))
        assert hf.verify().ok
    assert not list(tmp_path.glob("*.part*"))


@every_store("each store has its own backup")
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_created_while_it_is_copied_is_not_replaced(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as hf:
        fill(hf)

        def progress(_done: int, _of: int) -> None:
            with opened(kind, tmp_path, "copy") as other:
                if other.thread("of the other").head() is None:
                    other.thread("of the other").save({"n": 1})

        with pytest.raises(AlreadyExists):
            hf.backup(address(kind, tmp_path, "copy"), progress=progress)
    with opened(kind, tmp_path, "copy") as other:
        assert [each.name for each in other.threads()] == ["of the other"]
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize("verb", ["backup", "repair"])
def test_a_copy_is_not_written_next_to_the_wal_of_another_store(verb: str, tmp_path: Path) -> None:
    """SQLite would apply a WAL with the right name, whatever file it belongs to."""
    with opened("sqlite", tmp_path, "other") as other:
        other.thread("of the other").save(state_at(3))
        (tmp_path / "copy.db-wal").write_bytes((tmp_path / "other.db-wal").read_bytes())
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
        with pytest.raises(AlreadyExists, match=r"copy\.db-wal"):
            getattr(hf, verb)(tmp_path / "copy.db")
        assert not (tmp_path / "copy.db").exists()
        (tmp_path / "copy.db-wal").unlink()
        getattr(hf, verb)(tmp_path / "copy.db")
    with opened("sqlite", tmp_path, "copy") as copy:
        assert len(list(copy.threads())) == 4


@pytest.mark.parametrize("inside", ["copy", "default/copy", "default/threads/copy"])
def test_a_store_is_not_copied_into_itself(inside: str, tmp_path: Path) -> None:
    with opened("directory", tmp_path) as hf:
        fill(hf)
        before = fingerprint(tmp_path)
        with pytest.raises(InvalidArgument, match="in the folder of the store"):
            hf.backup(f"dir:{tmp_path / 'store' / inside}")
        (tmp_path / "link").symlink_to(tmp_path / "store")
        with pytest.raises(InvalidArgument, match="in the folder of the store"):
            hf.backup(f"dir:{tmp_path / 'link' / inside}")
        (tmp_path / "link").unlink()
        assert fingerprint(tmp_path) == before
        hf.backup(f"dir:{tmp_path / 'store beside'}")


def test_a_backup_is_of_the_same_kind(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
        for target in ("memory:", f"dir:{tmp_path}/copy", "postgresql://nowhere/db"):
            with pytest.raises(InvalidArgument, match="same kind"):
                hf.backup(target)
    for kind in ("memory", "postgres"):
        for cipher in (None, CIPHER):
            with (
                opened(kind, tmp_path, "store" if cipher is None else "encrypted", cipher) as hf,
                pytest.raises(InvalidArgument, match="pg_dump"),
            ):
                hf.backup(tmp_path / "copy.db")
    with opened("directory", tmp_path) as hf, pytest.raises(InvalidArgument, match="dir:path"):
        hf.backup(tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))


def test_a_backup_to_a_missing_folder_says_what_was_left_alone(tmp_path: Path) -> None:
    expected = r"copy\.db: the copy cannot be written; the store was not changed"
    with opened("sqlite", tmp_path) as hf, pytest.raises(holdfast.StoreError, match=expected):
        hf.backup(tmp_path / "nowhere" / "copy.db")


def test_what_is_damaged_is_damaged_in_the_copy_and_said(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
    change_blob(tmp_path / "store.db", "checkpoint", "skeleton", "row_key & 4294967295 = 8", flip)
    with opened("sqlite", tmp_path) as hf:
        report = hf.backup(tmp_path / "copy.db").report
    assert {(problem.thread, problem.seqs) for problem in report.problems} >= {("t", (8,))}


@every_store("each store has its own backup")
@pytest.mark.parametrize("kind", KINDS)
def test_writers_go_on_and_the_copy_is_of_one_moment(kind: str, tmp_path: Path) -> None:
    """Two threads that are saved to in turns are never more than one save apart, in no backup."""
    rounds = 200 if os.environ.get("HOLDFAST_LAB") == "full" else 4
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with opened(kind, tmp_path) as hf:
                threads = [hf.thread(name) for name in ("a", "b")]
                n = 0
                while not done.is_set():
                    n += 1
                    for thread in threads:
                        thread.save({"items": [f"item {i} " * 5 for i in range(n % 40)], "n": n})
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    with opened(kind, tmp_path) as hf:
        for name in ("a", "b"):
            hf.thread(name).save({"items": [], "n": 0})
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(rounds):
                before = hf.thread("b").count()
                made = hf.backup(address(kind, tmp_path, f"copy {number}"))
                assert made.report.ok, made
                with opened(kind, tmp_path, f"copy {number}") as copy:
                    a, b = (copy.thread(name).count() for name in ("a", "b"))
                assert b <= a <= b + 1
                assert b >= before
        finally:
            done.set()
            writer.join()
    assert not failed
