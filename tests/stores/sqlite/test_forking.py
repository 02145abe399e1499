"""fork() with an open store: parent and child go on, each with connections of its own."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from holdfast import forksafe
from holdfast.errors import Closed, Damaged, StoreError
from holdfast.stores.sql.transaction import FunctionWrite, Transaction
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.connection import opening
from holdfast.testing.contract.build import Line, names_of, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.stores.sqlite.conftest import Open, finished, forked, output, script
from tests.waiting import DEADLINE

# From Python 3.12 on, forking beside threads warns; that it works here all the same is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def save_and_close(store: SQLiteStore, name: str) -> None:
    saved(store, name, "a", "b")
    store.close()


def test_a_child_goes_on_after_its_parent_closed(open_store: Open) -> None:
    """The parent believes to be the last one out. What the child has acknowledged must not go with its WAL."""
    store = open_store(durability="full")
    line = saved(store, "t", "x")
    ready, go = os.pipe(), os.pipe()

    def work() -> None:
        saved(store, "child", "a")
        os.write(ready[1], b".")
        os.read(go[0], 1)
        saved(store, "later", "b")
        assert texts_of(store, line.span()) == [["x"]]

    pid = forked(work)
    os.read(ready[0], 1)
    line.save("y")
    store.close()
    os.write(go[1], b".")
    finished(pid)
    reopened = open_store()
    assert names_of(reopened) == ["child", "later", "t"]
    assert list(reopened.check()) == []
    for descriptor in (*ready, *go):
        os.close(descriptor)


def test_a_child_closes_a_connection_whose_last_statement_failed(path: Path, store: SQLiteStore) -> None:
    """If it only seemed closed, the child's next connection would share its state, and take no locks."""
    saved(store, "t", "x")

    def fail(tx: Transaction) -> None:
        tx.put("insert_checkpoint", *[None] * 8)

    with pytest.raises(Damaged):
        store.writer.write(FunctionWrite(fail))

    def work() -> None:
        opened = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.exists()]
        assert not [each for each in opened if each in (str(path), f"{path}-wal")]

    finished(forked(work))


def test_a_child_that_ends_takes_nothing_with_it(store: SQLiteStore) -> None:
    line = saved(store, "t", "x")
    for n in range(3):
        finished(forked(partial(save_and_close, store, f"child-{n}")))
        line.save(f"after {n}")
    assert names_of(store) == ["child-0", "child-1", "child-2", "t"]
    assert list(store.check()) == []


def test_a_child_may_leave_the_store_alone(store: SQLiteStore) -> None:
    line = saved(store, "t", "x")
    finished(forked(lambda: None))
    line.save("y")
    assert texts_of(store, line.span()) == [["x", "y"]]


def test_forking_while_others_read_and_write(open_store: Open) -> None:
    store = open_store()
    stop = threading.Event()
    lines = [Line(store, f"parent-{n}") for n in range(2)]

    def write(line: Line) -> None:
        while not stop.is_set():
            line.save("x")

    def read() -> None:
        while not stop.is_set():
            names_of(store)

    threads = [threading.Thread(target=write, args=(line,)) for line in lines]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for n in range(12):
            finished(forked(partial(save_and_close, store, f"child-{n:02}")))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert names_of(store, prefix="child") == [f"child-{n:02}" for n in range(12)]
    for line in lines:
        assert line.stored().position == line.at
    assert list(store.check()) == []


def test_forking_in_the_middle_of_a_call_leaves_the_child_an_error_and_the_parent_unharmed(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forksafe, "_PATIENCE", 0.05)
    line = saved(store, "t", "x")
    reader = store._readers.take()

    def work() -> None:
        with pytest.raises(StoreError, match="forked during a call"):
            thread_named(store, "t")
        with pytest.raises(StoreError, match="forked during a call"):
            saved(store, "u", "x")

    finished(forked(work))
    store._readers.give(reader)
    line.save("y")
    assert names_of(store) == ["t"]


def test_a_child_forked_in_the_middle_of_a_call_holds_nothing_and_can_be_closed(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forksafe, "_PATIENCE", 0.05)
    line = saved(store, "t", "x")
    gate = store.writer._gate
    descriptors = (gate._turnstile, gate._gate)

    def work() -> None:
        signal.alarm(int(DEADLINE))
        for descriptor in descriptors:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        finished(forked(lambda: None))
        store.close()
        store.close()
        with pytest.raises(Closed):
            thread_named(store, "t")

    # As a thread would that is being written for, and one that takes a reader.
    with store.writer.lock, store._readers.door:
        gate.enter()
        finished(forked(work))
        gate.leave()
    line.save("y")
    assert texts_of(store, line.span()) == [["x", "y"]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("lock", ["store", "opening"])
def test_an_interrupt_while_fork_waits_leaves_parent_and_child_usable(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    line = saved(store, "t", "x")
    monkeypatch.setattr(forksafe, "_PATIENCE", 10)  # so long does fork() wait if the interrupt comes before it waits
    held = store.writer.lock if lock == "store" else opening.lock
    waiting, forks_on = threading.Event(), threading.Event()
    main = threading.get_ident()

    def pause(self: SQLiteStore, patience: float) -> None:
        waiting.set()
        original(self, patience)

    def interrupt() -> None:
        with held:
            locked.set()
            waiting.wait(DEADLINE)
            signal.pthread_kill(main, signal.SIGINT)
            forks_on.wait(DEADLINE)

    def work() -> None:
        signal.alarm(int(DEADLINE))
        if lock == "store":
            with pytest.raises(StoreError, match="forked during a call"):
                saved(store, "u", "x")
        other = SQLiteStore(path.with_name("other.db"), namespace="default", durability="off")
        saved(other, "t", "x")
        other.close()

    locked = threading.Event()
    original = SQLiteStore.pause
    monkeypatch.setattr(SQLiteStore, "pause", pause)
    thread = threading.Thread(target=interrupt)
    thread.start()
    assert locked.wait(DEADLINE)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        pid = forked(work)
    finally:
        forks_on.set()
        signal.signal(signal.SIGINT, before)
        thread.join()
    finished(pid)
    line.save("y")
    finished(forked(partial(save_and_close, store, "child")))
    assert names_of(store) == ["child", "t"]


BOTH = """
# First: their locks around a fork, taken before ours, would keep two forks apart.
import concurrent.futures.thread, logging
import faulthandler, os, sys, threading, warnings
from holdfast import forksafe
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import saved
warnings.simplefilter("ignore", DeprecationWarning)
faulthandler.dump_traceback_later(100, exit=True)
forksafe._PATIENCE = 0.5
store = SQLiteStore(sys.argv[1], namespace="default", durability="off")
pause = SQLiteStore.pause
calls = []
second = threading.Event()

def watched(self, patience):
    # Whoever has paused the store gives the other every chance to come in between.
    calls.append(self)
    if len(calls) == 2:
        second.set()
    pause(self, patience)
    second.wait(1)

def fork():
    pid = os.fork()
    if not pid:
        saved(store, f"child of {threading.get_ident()}", "x")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

SQLiteStore.pause = watched
threads = [threading.Thread(target=fork) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
saved(store, "t", "x")
assert len(store.threads(prefix="", after=None, limit=10)) == 3
store.close()
print("done")
"""


def test_threads_that_fork_at_once(path: Path) -> None:
    assert output(script(BOTH, path)) == "done\n"


def test_a_closed_store_stays_closed_in_the_child(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "x")
    store.close()

    def work() -> None:
        again = SQLiteStore(path, namespace="default", durability="off")
        assert names_of(again) == ["t"]
        again.close()

    finished(forked(work))
