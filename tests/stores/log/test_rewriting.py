"""A log that is rewritten: all of it that is alive is in the new one, and nobody waits for that."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Damaged, ReadOnly, StoreFull
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.log import DirectoryStore, disk
from holdfast.stores.log.device import Moved, Version
from holdfast.stores.log.disk import version
from holdfast.stores.log.groups import ThreadLog
from holdfast.testing.contract.build import Line, commit, numbers_of, saved, texts_of
from tests.stores.log.conftest import Open, damage_line, log_of
from tests.stores.log.test_cost import named

Write = Callable[[int, bytes], None]


@pytest.fixture
def line(store: DirectoryStore) -> Line:
    return saved(store, "a", *(f"{n}-{'x' * 200}" for n in range(50)))


def while_it_is_copied(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen once, when the first bytes of a new log are written."""
    write: Write = disk.write_all
    todo = [happens]

    def watched(descriptor: int, data: bytes) -> None:
        write(descriptor, data)
        if named(descriptor).startswith("log.jsonl") and named(descriptor).endswith(".new") and todo:
            todo.pop()()

    monkeypatch.setattr(disk, "write_all", watched)


def read_little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux does, which gives 2 GiB at most."""
    pread = os.pread

    def little(descriptor: int, length: int, offset: int) -> bytes:
        return pread(descriptor, min(length, 999), offset)

    monkeypatch.setattr(os, "pread", little)


def texts(line: Line, start: int) -> list[str]:
    return [text.split("-")[0] for text in texts_of(line.store, line.span(start))[0]]


def test_a_read_that_gives_less_than_was_asked_for_loses_nothing(
    line: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_at_once(monkeypatch)
    assert line.store.sweep(line.number, line.whole(line.span(10))).dropped == 10
    monkeypatch.undo()
    line.store = open_store()
    assert texts(line, 10) == [str(n) for n in range(10, 50)]
    assert [row.seq for row in line.store.checkpoints(line.number, before=None, limit=99)] == list(range(50, 0, -1))
    assert list(line.store.check()) == []


def test_a_tail_that_is_read_in_pieces_is_set_aside_whole(
    line: Line, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(path, "a")
    log.write_bytes(log.read_bytes() + b'{"crc":"' + b"x" * 5000)
    read_little_at_once(monkeypatch)
    line.save("y")
    [aside] = log.parent.glob("torn-*")
    assert aside.stat().st_size == 5008


def test_a_log_that_changed_under_the_copy_is_not_put_in_the_place_of_the_other(line: Line, path: Path) -> None:
    log = log_of(path, "a")
    line.stored()
    stamp = log.stat()
    damage_line(log, "cell", 30)
    os.utime(log, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # so that nobody has seen it yet
    before = log.read_bytes()
    with pytest.raises(Damaged, match=r"log\.jsonl: \d+ bytes at offset \d+ are damaged"):
        line.store.sweep(line.number, line.whole(line.span(10)))
    assert log.read_bytes() == before
    assert list(log.parent.iterdir()) == [log]


def test_others_write_meanwhile_and_what_they_wrote_is_there(
    line: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store(busy_timeout=0.05)

    def happens() -> None:
        other.commit(commit("b"))
        line.store, mine = other, line.store
        line.save("new-1")
        line.store = mine
        line.save("new-2")
        mine.delete(line.number, [1])

    while_it_is_copied(monkeypatch, happens)
    assert line.store.sweep(line.number, line.whole(line.span(10), horizon=50)).dropped == 10
    for reader in (line.store, other, open_store()):
        line.store = reader
        assert texts(line, 10) == [*(str(n) for n in range(10, 50)), "new", "new"]
        assert line.stored().count == 51
        assert list(reader.check()) == []
        with pytest.raises(Damaged):
            texts_of(reader, line.span(0, 1))


def test_a_thread_that_is_dropped_meanwhile_stays_dropped(
    line: Line, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store(busy_timeout=0.05)

    def happens() -> None:
        other.drop(line.number)
        saved(other, "a", "again")

    while_it_is_copied(monkeypatch, happens)
    assert line.store.sweep(line.number, line.whole(line.span(10))).dropped == 0
    assert line.stored().count == 1
    assert list(log_of(path, "a").parent.iterdir()) == [log_of(path, "a")]
    assert numbers_of(line.store) == [line.stored().position.thread] != [line.number]


def test_who_comes_second_leaves_the_first_ones_log(
    line: Line, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store()

    def happens() -> None:
        other.sweep(line.number, line.whole(line.span(20)))
        line.store, mine = other, line.store
        line.save(f"new-{'x' * 20_000}")  # so that the new log is the longer one
        line.store = mine

    while_it_is_copied(monkeypatch, happens)
    assert line.store.sweep(line.number, line.whole(line.span(10), horizon=50)).dropped == 0
    line.save("newer")
    assert texts(line, 20) == [*(str(n) for n in range(20, 50)), "new", "newer"]
    assert list(log_of(path, "a").parent.iterdir()) == [log_of(path, "a")]


def test_what_is_being_written_is_no_leftover(
    line: Line, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store()
    abandoned = log_of(path, "a").with_name("log.jsonl.0000.new")
    abandoned.write_bytes(b"of a process that was killed")
    while_it_is_copied(monkeypatch, other.reclaim)
    assert line.store.sweep(line.number, line.whole(line.span(10))).dropped == 10
    assert list(log_of(path, "a").parent.iterdir()) == [log_of(path, "a")]


def test_a_new_log_that_is_taken_for_a_leftover_before_it_is_locked_is_made_again(
    line: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store()
    lock = fcntl.flock
    removed: list[int] = []

    def late(descriptor: int, operation: int) -> None:
        if named(descriptor).endswith(".new") and not removed:
            removed.append(descriptor)
            other.reclaim()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert line.store.sweep(line.number, line.whole(line.span(10))).dropped == 10
    assert removed
    assert texts(line, 10) == [str(n) for n in range(10, 50)]


def test_a_thread_that_is_dropped_before_its_new_log_is_created_stays_dropped(
    line: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, new_name = open_store(), disk.new_name

    def late(path: str) -> str:
        other.drop(line.number)
        return new_name(path)

    monkeypatch.setattr(disk, "new_name", late)
    assert line.store.sweep(line.number, line.whole(line.span(10))).dropped == 0
    assert numbers_of(line.store) == []


def test_a_new_log_that_disappears_while_leftovers_are_removed_is_no_error(
    line: Line, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Path(f"{log_of(path, 'a')}.0123456789abcdef.new")
    left.write_bytes(b"")
    unlink = disk.unlink_unless_locked

    def late(leftover: str) -> None:
        left.unlink()
        unlink(leftover)

    monkeypatch.setattr(disk, "unlink_unless_locked", late)
    open_store().reclaim()
    assert texts(line, 10) == [str(n) for n in range(10, 50)]


def test_a_full_disk_leaves_the_log_as_it_was(line: Line, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = log_of(path, "a").read_bytes()

    def full() -> None:
        raise OSError(28, "no room")

    while_it_is_copied(monkeypatch, full)
    with pytest.raises(StoreFull):
        line.store.sweep(line.number, line.whole(line.span(10)))
    assert log_of(path, "a").read_bytes() == before
    assert list(log_of(path, "a").parent.iterdir()) == [log_of(path, "a")]
    line.save("new")


@pytest.mark.parametrize("tail", [b'{"crc":"half a line', b"\0" * 600])
def test_a_tail_is_set_aside_by_a_rewrite_too(line: Line, open_store: Open, path: Path, tail: bytes) -> None:
    log = log_of(path, "a")
    end = log.stat().st_size
    log.write_bytes(log.read_bytes() + tail)
    store = open_store()
    store.sweep(line.number, line.whole(line.span(10)))
    [aside] = log.parent.glob("torn-*")
    assert (aside.name, aside.read_bytes()) == (f"torn-{end}-1", tail)
    line.store = store
    assert texts(line, 10) == [str(n) for n in range(10, 50)]


def test_a_disk_that_takes_nothing_any_more_is_an_error_of_the_store(
    line: Line, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object) -> None:
        raise OSError(errno.EROFS, "a read-only file system")

    live = line.whole(line.span(10))
    with monkeypatch.context() as patched:
        while_it_is_copied(patched, refused)
        patched.setattr(os, "unlink", refused)
        with pytest.raises(ReadOnly):
            line.store.sweep(line.number, live)
    assert len(list(path.glob("default/threads/a/*.new"))) == 1
    line.store.reclaim()
    assert list(path.glob("default/threads/a/*.new")) == []
    assert line.store.sweep(line.number, live).dropped == 10


def test_a_log_of_tombstones_is_rewritten_once(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line = saved(store, "a", *(f"{n}" for n in range(400)))
    store.delete(line.number, range(1, 400))
    live = line.whole(line.span(399))
    store.sweep(line.number, live)
    log = log_of(path, "a")
    rewritten = version(log.stat())
    assert log.read_bytes().count(b'"t":"tombstone"') == 399
    for each in (store, open_store()):
        each.sweep(line.number, live)
        assert version(log.stat()) == rewritten
        rows = each.walk(line.number, after=0, limit=400)
        assert [(row.seq, row.deleted) for row in rows if isinstance(row, CheckpointRow)] == [
            (seq, seq < 400) for seq in range(1, 401)
        ]


def test_a_log_that_moves_while_its_end_is_copied_loses_nothing(
    line: Line, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = ThreadLog.get
    moves = [Moved()]

    def moving(log: ThreadLog, offset: int, length: int, seen: Version | None = None) -> bytes:
        if seen is None and offset and length and moves:
            raise moves.pop()
        return get(log, offset, length, seen)

    def append() -> None:
        line.save("y")
        monkeypatch.setattr(ThreadLog, "get", moving)

    while_it_is_copied(monkeypatch, append)
    assert line.store.sweep(line.number, line.whole(line.span(10))).dropped == 10
    assert not moves
    for store in (line.store, open_store()):
        assert [row.seq for row in store.checkpoints(line.number, before=None, limit=99)] == list(range(51, 0, -1))
