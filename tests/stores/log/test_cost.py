"""What a save costs: one append, one sync, and hardly more bytes than what changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

import msgspec
import pytest

import holdfast
from holdfast.stores.log import DirectoryStore, disk
from holdfast.testing.contract.build import saved, texts_of, value
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, log_of


class Watched:
    """What reaches the disk, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        write, sync_data, fsync = disk.write_all, disk.sync_data, os.fsync

        def watched_write(descriptor: int, data: bytes) -> None:
            self.seen.append(f"write {named(descriptor)}")
            write(descriptor, data)

        def watched_sync(descriptor: int) -> None:
            self.seen.append(f"sync {named(descriptor)}")
            sync_data(descriptor)

        def watched_folder(descriptor: int) -> None:
            self.seen.append(f"folder {named(descriptor)}")
            fsync(descriptor)

        monkeypatch.setattr(disk, "write_all", watched_write)
        monkeypatch.setattr(disk, "sync_data", watched_sync)
        monkeypatch.setattr(os, "fsync", watched_folder)


def named(descriptor: int) -> str:
    return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))


@covers("A3")
def test_a_save_is_one_append_and_one_sync(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    line = saved(open_store(durability="full"), "a", "x")
    watched = Watched(monkeypatch)
    line.save("y", "z")
    assert watched.seen == ["write log.jsonl", "sync log.jsonl"]


@covers("A9")
def test_a_new_thread_is_entered_into_every_folder_above_it(
    open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    saved(open_store(durability="full"), "a", "x")
    folders = [step.removeprefix("folder ") for step in watched.seen if step.startswith("folder ")]
    # The store's folder in the one above it, its marker, the namespace, and again, because another process may have
    # made it; counters/, threads/, the thread, its log.
    assert folders == [path.parent.name, "store", "store", "store", "default", "default", "threads", "a"]
    assert watched.seen[-3:] == ["write log.jsonl.new", "sync log.jsonl.new", "folder a"]


@covers("A3", "continuum/AtomicFileWriter.with_sync")
@pytest.mark.parametrize(("durability", "synced"), [("normal", False), ("off", False), ("full", True)])
def test_what_is_synced(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, durability: Literal["full", "normal", "off"], synced: bool
) -> None:
    line = saved(open_store(durability=durability), "a", *(f"{n}" for n in range(10)))
    watched = Watched(monkeypatch)
    line.save("x")
    assert ("sync log.jsonl" in watched.seen) is synced
    line.store.sweep(line.number, line.whole())
    synced_new = [step for step in watched.seen if step.startswith("sync log.jsonl.") and step.endswith(".new")]
    assert bool(synced_new) is (durability != "off")


def test_a_folder_that_a_killed_process_made_is_entered_into_the_one_above_it(
    open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(open_store(durability="full"), "a", "x")
    (path / "default" / "threads" / "b").mkdir()
    other = open_store(durability="full")
    watched = Watched(monkeypatch)
    line = saved(other, "b", "x")
    assert [step for step in watched.seen if step.startswith("folder")] == [
        "folder store",
        "folder default",
        "folder default",
        "folder threads",
        "folder b",
    ]
    shared = value(b"a prompt")
    folder = path / "default" / "blobs" / shared.digest.hex()[:2]
    folder.mkdir(parents=True)
    line.save("y", blobs=[shared])
    assert [step for step in watched.seen if step.startswith("folder")][5:] == [
        "folder default",
        "folder blobs",
        f"folder {folder.name}",
    ]


def test_the_folder_of_a_thread_that_was_dropped_is_entered_again(
    open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have dropped a thread and made its folder again, and been killed before it synced that."""
    store = open_store(durability="full")
    saved(store, "a", "x")
    shutil.rmtree(log_of(path, "a").parent)
    log_of(path, "a").parent.mkdir()
    watched = Watched(monkeypatch)
    saved(store, "a", "y")
    assert [step for step in watched.seen if step.startswith("folder")] == ["folder threads", "folder a"]


def test_readers_of_the_handle_see_a_save_when_it_is_safe(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(durability="full")
    line = saved(store, "a", "x")
    sync = disk.sync_data
    heads: list[int] = []

    def look_first(descriptor: int) -> None:
        found = thread_named(store, "a")
        assert found is not None
        heads.append(found.position.head)
        sync(descriptor)

    monkeypatch.setattr(disk, "sync_data", look_first)
    line.save("y")
    assert heads == [1]
    assert line.stored().position.head == 2


@covers("H1", "H2")
def test_a_step_takes_hardly_more_bytes_than_its_json(path: Path) -> None:
    changed = 0
    said: list[dict[str, str]] = []
    with holdfast.open(f"dir:{path}", durability="off") as hf:
        for n in range(200):
            new = [
                {"role": "user", "content": f"question {n} " + "word " * 120},
                {"role": "assistant", "content": f"answer {n} " + "word " * 300},
            ]
            said += new
            hf.thread("t").save({"messages": said, "step": n}, step=n)
            changed += len(msgspec.json.encode(new))
    assert log_of(path, "t").stat().st_size < 1.5 * changed


def test_a_handle_reads_what_was_appended_and_no_more(
    store: DirectoryStore, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = saved(store, "a", *(f"{n} {'x' * 2000}" for n in range(100)))
    reader = open_store()
    assert thread_named(reader, "a") is not None
    read = 0
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read
        data = pread(descriptor, length, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    line.save("new")
    row = thread_named(reader, "a")
    assert row is not None
    assert row.position.head == 101
    assert read < 5_000
    assert texts_of(reader, line.span(200, 1)) == [["new"]]
