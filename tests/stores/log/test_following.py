"""A handle that writes knows what it wrote; whatever else is in the file it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.stores.log import disk
from holdfast.stores.log.replay import ReplayedThread
from holdfast.testing.contract.build import (
    commit,
    effect,
    held,
    journaled,
    posted,
    run,
    saved,
    settled,
    texts_of,
    value,
)
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


def replayed(thread: ReplayedThread) -> dict[str, object]:
    """Everything that a replay finds out about a thread."""
    found = {name: getattr(thread, name) for name in ReplayedThread.__dataclass_fields__}
    places = {"rows": list(thread.rows), "entries": list(thread.entries), "deleted": thread.deleted.ranges()}
    return found | places | {"logs": {number: list(cells) for number, cells in thread.logs.items()}}


def test_a_handle_knows_of_its_own_writes_what_another_one_reads(open_store: Open) -> None:
    """It replays the records that it wrote; others replay the lines."""
    store: Any = open_store()
    line = saved(store, "a", "x")
    line.save("b", "c", blobs=[value(b"a prompt")])
    line.save("d", label="a label", step=7)
    row = held(store, line.number, reason="half a pair: \ud83d")
    store.claim(None, row)
    journaled(store, line.number, row.fence, [effect(topic="\ud83d"), effect("started", topic="m")])
    settled(store, line.number, 2, "started", effect("done", number=2, topic="m", result=b"\x01"))
    posted(store, line.number, effect(topic="m"))
    store.renew(line.number, row.fence, row.lease_until + 1)
    fork = saved(store, "fork", "x")
    fork.save("y", origins=(line.number,))
    store.journal(line.number, row.fence, [], last=3, run=held(store, line.number, status="completed", result=b"\x01"))
    line.rewind(2)
    line.save("e")
    assert store.delete(line.number, [1, 3]) == 2
    assert store.sweep(line.number, line.live(line.span(3))).dropped
    for number in (line.number, fork.number):
        reader: Any = open_store()
        own, other = (each._space.numbered(number).thread for each in (store, reader))
        assert own is not other
        assert replayed(own) == replayed(other)
