"""A handle that writes knows what it wrote; whatever else is in the file it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.stores.log import disk
from holdfast.testing.contract.build import commit, run, saved, texts_of
from tests.covers import covers
from tests.stores.log.conftest import Open, log_of


@covers("H6")
def test_what_a_handle_has_appended_is_not_read_back(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    line = saved(open_store(), "a", "x")
    line.save("y")
    read: list[int] = []
    pread = os.pread

    def watched(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", watched)
    line.save("z")
    assert read == []
    assert line.store.threads(prefix="a", after=None, limit=1)[0].position == line.position
    assert read == []
    assert texts_of(line.store, line.span()) == [["x", "y", "z"]]
    assert read


def test_what_somebody_put_behind_it_is_read(open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = saved(open_store(durability="full"), "a", "x")
    sync = disk.sync_data
    log = log_of(path, "a")

    def disturbed(descriptor: int) -> None:
        monkeypatch.undo()
        with log.open("ab") as file:
            file.write(b"not ours")
        sync(descriptor)

    monkeypatch.setattr(disk, "sync_data", disturbed)
    line.save("y")
    line.save("z")
    assert [file.read_bytes() for file in log.parent.glob("torn-*")] == [b"not ours"]
    assert texts_of(open_store(), line.span()) == [["x", "y", "z"]]


def test_what_another_handle_has_appended_is_read(open_store: Open) -> None:
    line = saved(open_store(), "a", "x")
    other = open_store()
    assert texts_of(other, line.span()) == [["x"]]
    line.save("y")
    assert texts_of(other, line.span()) == [["x", "y"]]


def test_a_log_that_was_put_in_its_place_is_read_anew(open_store: Open, path: Path) -> None:
    line = saved(open_store(), "a", "x")
    log = log_of(path, "a")
    copy = log.with_suffix(".copy")
    copy.write_bytes(log.read_bytes())
    before = line.at
    line.save("y")
    copy.replace(log)
    open_store().commit(commit("a", before, appends=[run("z", start=1)]))
    assert texts_of(line.store, line.span()) == [["x", "z"]]


def test_a_group_that_a_reader_has_found_first_is_replayed_once(open_store: Open) -> None:
    """A reader that started before the append may read the group before the writer replays it."""
    store: Any = open_store()
    saved(store, "t", "a")
    log = store._space.named("t")
    group = log.next_group([], None)
    version = log.append(group, sync=True)
    log.catch_up()
    log.follow(group, version)
    assert list(store.check()) == []
    assert log.thread.groups == 2
