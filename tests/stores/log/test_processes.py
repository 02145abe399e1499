"""Several processes and handles on one folder: one writes at a time, nobody who reads waits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import Busy
from holdfast.stores.log import DirectoryStore
from holdfast.stores.log.namespace import Namespace
from holdfast.stores.write_queue import Gate
from holdfast.testing.contract.build import Line, commit, numbers_of, run, saved, texts_of, value
from holdfast.threads.scan import checkpoint_at, last_of, thread_named
from tests.covers import covers
from tests.stores.log.conftest import Open, log_of
from tests.stores.sqlite.conftest import finished, forked, output, script

WRITE = """
import sys
from holdfast.errors import Conflict
from holdfast.stores.log import DirectoryStore
from holdfast.testing.contract.build import commit, run
store = DirectoryStore(sys.argv[1], namespace="default", durability="off")
print("ready", flush=True)
sys.stdin.readline()
won = tries = 0
while won < 40:
    at = store.head("shared").thread.position
    try:
        store.commit(commit("shared", at, appends=[run(f"{sys.argv[2]}-{won}", start=at.last)]))
        won += 1
    except Conflict:
        pass
    tries += 1
    store.commit(commit(f"{sys.argv[2]}/{tries}"))
store.close()
"""


@covers("D1")
def test_writers_of_several_processes_take_turns(store: DirectoryStore, path: Path) -> None:
    store.commit(commit("shared", appends=[run("first")]))
    writers = [script(WRITE, path, name, stdin=subprocess.PIPE) for name in ("one", "two", "three")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        output(writer)
    found = thread_named(store, "shared")
    assert found is not None
    assert found.count == found.position.last == 121
    numbers = numbers_of(store)
    assert len(numbers) == len(set(numbers))
    assert list(store.check()) == []


def test_readers_need_no_lock(store: DirectoryStore, open_store: Open, path: Path) -> None:
    line = saved(store, "a", "x")
    gate = Gate(str(path / "default" / "lock"), 1.0)
    gate.enter()
    reader = open_store(busy_timeout=0.05)
    assert texts_of(reader, line.span()) == [["x"]]
    with pytest.raises(Busy):
        reader.commit(commit("b"))
    gate.leave()
    reader.commit(commit("b"))
    gate.close()


def test_a_reader_follows_a_log_that_is_put_in_anothers_place(store: DirectoryStore, open_store: Open) -> None:
    line = saved(store, "a", *(f"{n}" for n in range(50)))
    reader = open_store()
    assert len(texts_of(reader, line.span())[0]) == 50
    store.sweep(line.number, line.whole(line.span(40)))
    line.save("new")
    assert texts_of(reader, line.span(40)) == [[*(f"{n}" for n in range(40, 50)), "new"]]


def test_a_writer_sees_that_its_file_was_replaced(store: DirectoryStore, open_store: Open) -> None:
    line = saved(store, "a", *(f"{n}" for n in range(50)))
    other = open_store()
    other.sweep(line.number, line.whole(line.span(49)))
    line.save("new")
    assert texts_of(open_store(), line.span(49)) == [["49", "new"]]


def test_a_thread_that_was_dropped_and_made_again_elsewhere(store: DirectoryStore, open_store: Open) -> None:
    line = saved(store, "a", "x")
    other = open_store()
    other.drop(line.number)
    again = saved(other, "a", "y", "z")
    found = thread_named(store, "a")
    assert found is not None
    assert found.position == again.at
    assert last_of(store, line.number) == 0
    assert texts_of(store, again.span()) == [["y", "z"]]


def test_a_forked_child_has_locks_of_its_own(store: DirectoryStore, open_store: Open) -> None:
    line = saved(store, "a", "x")

    def work() -> None:
        child = Line(store, "b")
        for n in range(20):
            child.save(f"{n}")

    pid = forked(work)
    for n in range(20):
        line.save(f"{n}")
    finished(pid)
    assert [row.count for row in open_store().threads(prefix="", after=None, limit=9)] == [21, 20]


def test_thousands_of_threads_do_not_keep_thousands_of_files_open(store: DirectoryStore) -> None:
    for n in range(300):
        store.commit(commit(f"t{n}", appends=[run("x")]))
    assert len(store.threads(prefix="", after=None, limit=1000)) == 300
    assert len(os.listdir("/proc/self/fd")) < 150


# -- leftovers -------------------------------------------------------------------------------------------------------


@covers("A11", "continuum/AtomicFileWriter leftovers")
def test_leftovers_of_a_crash_are_ignored_and_swept(store: DirectoryStore, path: Path) -> None:
    line = saved(store, "a", "x")
    line.save("y", blobs=[value(b"one")])
    log = log_of(path, "a")
    [held] = [found for found in (path / "default" / "blobs").rglob("*") if found.is_file()]
    half_dropped = path / "default" / "dropped" / "77"
    half_dropped.mkdir(parents=True)
    (half_dropped / "torn-0-1").write_bytes(b"rest")
    left = [Path(f"{log}.new"), Path(f"{held}.new"), path / "default" / "counters" / "epoch.new"]
    for leftover in left:
        leftover.write_bytes(b"half a file")
    assert texts_of(store, line.span()) == [["x", "y"]]
    assert list(store.check()) == []
    store.reclaim()
    assert not any(leftover.exists() for leftover in left)
    assert not half_dropped.exists()
    assert texts_of(store, line.span()) == [["x", "y"]]


def not_at_all(*_: object) -> None:
    """What a process does that was killed before."""


def test_a_drop_that_was_cut_off_left_the_thread_as_it_was(
    store: DirectoryStore, open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drop copies the cells that forks need, then deletes the log."""
    line = saved(store, "a", "x")
    Line(store, "fork").save("own", origins=[line.number], bases=[(line.number, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(Namespace, "delete", not_at_all)
        store.drop(line.number)
    assert (path / "default" / "dropped" / str(line.number) / "log.jsonl").exists()
    other = open_store()
    line.save("y")
    for reader in (other, open_store()):
        assert thread_named(reader, "a") == line.stored()
        assert texts_of(reader, line.span()) == [["x", "y"]]
        assert list(reader.check()) == []
    other.reclaim()
    assert not (path / "default" / "dropped" / str(line.number)).exists()
    other.drop(line.number)
    assert thread_named(other, "a") is None
    assert texts_of(open_store(), line.span()) == [["x", "y"]]


@covers("H9")
def test_a_log_that_is_mostly_dead_is_rewritten_by_a_sweep(store: DirectoryStore, path: Path) -> None:
    line = Line(store, "a")
    for n in range(40):
        line.save(f"{n}" * 3000)
    before = log_of(path, "a").stat().st_size
    store.delete(line.number, range(1, 39))
    assert store.sweep(line.number, line.live(line.span(38))).dropped == 38
    assert log_of(path, "a").stat().st_size < before / 5
    assert [len(text) for text in texts_of(store, line.span(38))[0]] == [6000, 6000]
    assert last_of(store, line.number) == 40
    assert (stone := checkpoint_at(store, line.number, 3)) is not None
    assert stone.deleted
    line.save("go on")
    assert list(store.check()) == []
