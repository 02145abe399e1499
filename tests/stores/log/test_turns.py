"""Writing where something is wrong: with the lock, with the disk, or with this process."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Busy, OutcomeUnknown, ReadOnly, StoreError
from holdfast.stores.log import DirectoryStore, disk
from holdfast.testing.contract.build import Line, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.stores.log.conftest import Open, log_of
from tests.waiting import DEADLINE


@pytest.fixture
def line(store: DirectoryStore) -> Line:
    return saved(store, "a", "x")


# -- the lock -------------------------------------------------------------------------------------------------------


def put_a_copy_in_its_place(path: Path) -> None:
    away = path.with_name("away")
    path.rename(away)
    shutil.copytree(away, path)


def test_a_copy_in_the_place_of_an_open_store_has_one_writer_at_a_time(
    line: Line, open_store: Open, path: Path
) -> None:
    before = open_store(busy_timeout=0.1)
    saved(before, "b", "x")
    put_a_copy_in_its_place(path)
    after = open_store()
    inside, leave = threading.Event(), threading.Event()

    def hold() -> bool:
        inside.set()
        return leave.wait(DEADLINE)

    holder = threading.Thread(target=after._locks.write, args=[hold])
    holder.start()
    try:
        assert inside.wait(DEADLINE)
        with pytest.raises(Busy):
            saved(before, "c", "x")
    finally:
        leave.set()
        holder.join()
    second = saved(before, "c", "x")
    line.store = after
    line.save("y")
    assert texts_of(open_store(), line.span()) == [["x", "y"]]
    assert texts_of(open_store(), second.span()) == [["x"]]


def test_a_store_that_was_moved_away_is_not_written(line: Line, path: Path) -> None:
    path.rename(path.with_name("away"))
    with pytest.raises(StoreError):
        line.save("y")
    assert len(log_of(path.with_name("away"), "a").read_bytes().splitlines()) == 4


def test_a_store_that_was_removed_before_the_first_write_is_not_written(open_store: Open, path: Path) -> None:
    store = open_store()
    shutil.rmtree(path)
    with pytest.raises(StoreError, match="nothing was changed"):
        saved(store, "a", "x")
    assert not path.exists()


# -- the disk -------------------------------------------------------------------------------------------------------


def failing(error: int) -> Callable[..., Any]:
    def fail(*args: object, **kwargs: object) -> Any:
        raise OSError(error, os.strerror(error))

    return fail


def test_a_disk_that_fails_to_sync_and_then_to_read_leaves_the_outcome_unknown(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(durability="full")
    line = saved(store, "a", "x")

    def gone(descriptor: int) -> None:
        monkeypatch.setattr(os, "pread", failing(errno.EIO))
        monkeypatch.setattr(os, "stat", failing(errno.EIO))
        raise OSError(errno.EIO, "io")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "_fdatasync", gone)
        with pytest.raises(OutcomeUnknown):
            line.save("y")
        monkeypatch.undo()
    with pytest.raises(OutcomeUnknown):
        line.save("y")
    with pytest.raises(OutcomeUnknown):
        thread_named(store, "a")


def test_a_write_that_is_durable_is_done_though_it_cannot_be_read_back(
    open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(durability="full")
    line = saved(store, "a", "x")
    sync, stat = disk._fdatasync, os.stat

    def then_fail(descriptor: int) -> None:
        sync(descriptor)
        monkeypatch.setattr(os, "stat", failing(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(disk, "_fdatasync", then_fail)
        assert line.save("y").head == 2
    monkeypatch.setattr(os, "stat", stat)
    assert texts_of(store, line.span()) == [["x", "y"]]
    assert line.save("z").head == 3
    assert texts_of(open_store(), line.span()) == [["x", "y", "z"]]


# -- this process ---------------------------------------------------------------------------------------------------


def refuse_once(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    opened = os.open
    refused: list[str] = []

    def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("log.jsonl") and flags & os.O_RDWR and not refused:
            refused.append(path)
            raise OSError(error, os.strerror(error))
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)


def test_too_many_open_files_are_told_and_the_next_write_succeeds(
    line: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    refuse_once(monkeypatch, errno.EMFILE)
    line.store = store
    position = line.at
    with pytest.raises(StoreError, match="Too many open files"):
        line.save("y")
    assert line.at == position
    assert line.save("y").head == 2


def test_a_log_that_may_only_be_read_is_read_and_not_written(
    line: Line, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    refuse_once(monkeypatch, errno.EACCES)
    before = log_of(path, "a").read_bytes()
    assert thread_named(store, "a") is not None
    line.store = store
    position = line.at
    with pytest.raises(ReadOnly, match=r"log\.jsonl"):
        line.save("y")
    assert log_of(path, "a").read_bytes() == before
    assert line.at == position
    saved(store, "b", "x")
