"""Faults: a full disk, an I/O error, a kill, an interrupt. What was acknowledged stays, what failed is gone."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.errors import AlreadyExists, Busy, Conflict, OutcomeUnknown, StoreError, StoreFull
from holdfast.stores.contract import Append, Live, Position
from holdfast.stores.sql import upkeep
from holdfast.stores.sql.transaction import FunctionWrite, Transaction
from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.transaction import SQLiteTransaction
from holdfast.stores.write_queue import QueuedWrite
from holdfast.testing.contract.build import Line, commit, everything, names_of, noise, numbers_of, run, saved, texts_of
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.sqlite.conftest import Open, output, script
from tests.waiting import DEADLINE, until


def limit_pages(store: SQLiteStore, more: int | None) -> None:
    """Let the file grow by so many pages, or without limit."""
    assert store.writer.connection is not None
    (pages,) = store.writer.connection.execute("PRAGMA page_count").fetchone()
    store.writer.connection.execute(f"PRAGMA max_page_count = {2**32 - 2 if more is None else pages + more}")


@covers("G7", "ares/io::Error", "ares/CheckpointError.IoError", "continuum/ErrorCategory.Resource")
def test_a_full_disk_changes_nothing_and_the_store_stays_usable(store: SQLiteStore) -> None:
    line = saved(store, "t", "x")
    before = everything(store)
    limit_pages(store, 3)
    big = Append(1, 1, (noise(store, 100_000),))
    for _ in range(2):
        with pytest.raises(StoreFull) as raised:
            store.commit(commit("t", line.at, appends=[big]))
        assert isinstance(raised.value.__cause__, sqlite3.Error)
        assert everything(store) == before
    line.save("small")
    limit_pages(store, None)
    store.commit(commit("t", line.at, appends=[Append(1, 2, (noise(store, 100_000),))]))
    assert list(store.check()) == []


def test_a_failed_write_holds_no_file_of_a_closed_store(path: Path, store: SQLiteStore) -> None:
    line = saved(store, "t", "x")
    limit_pages(store, 3)
    with pytest.raises(StoreFull) as raised:
        store.commit(commit("t", line.at, appends=[Append(1, 1, (noise(store, 100_000),))]))
    store.close()
    assert raised.value.__cause__ is not None  # its traceback, which the caller may keep, has the transaction
    assert not Path(f"{path}-wal").exists()


def test_a_read_that_ran_out_of_memory_leaves_no_snapshot(open_store: Open) -> None:
    """A statement left open would keep the snapshot: the next transaction could not write, or read old rows."""
    store, other = open_store(busy_timeout=0.1), open_store()
    line = saved(store, "t", "x")
    failures: list[MemoryError] = []

    def fail(tx: Transaction, *args: object) -> None:
        assert isinstance(tx, SQLiteTransaction)
        tx._execute("SELECT 1 UNION SELECT max(row_key) FROM checkpoint").fetchone()
        raise MemoryError

    with pytest.raises(MemoryError) as raised:
        store.writer.write(FunctionWrite(fail))
    failures.append(raised.value)  # its traceback has the transaction
    with pytest.raises(MemoryError) as raised:
        store.read(fail)
    failures.append(raised.value)
    saved(other, "u", "y")
    line.save("z")
    assert names_of(store) == ["t", "u"]


def test_a_drop_that_finds_no_room_to_clear_up_has_dropped(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that says that nothing was changed would be wrong; sweeping does the rest."""
    line = saved(store, "t", "x")

    def clear(*args: object) -> int:
        raise StoreFull("no space left for the write; nothing was changed")

    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "clear", clear)
        store.drop(line.number)
    assert names_of(store) == []
    assert line.number in numbers_of(store)
    store.sweep(line.number, Live((), 0))
    assert numbers_of(store) == []


def hold(store: SQLiteStore) -> threading.Lock:
    """Keep the store's writers waiting, so that those who come are written together."""
    assert store.writer.lock.acquire(timeout=DEADLINE)
    return store.writer.lock


def waiting(store: SQLiteStore, count: int, *, led: bool = False) -> None:
    group = store.writer.group
    until(lambda: len(group._queue) >= count and (not led or group._is_led), f"{count} wait")


def test_a_member_that_does_not_fit_hurts_no_other_of_its_batch(store: SQLiteStore) -> None:
    saved(store, "t", "x")
    limit_pages(store, 20)
    with ThreadPoolExecutor(8) as pool:
        held = hold(store)
        first = pool.submit(store.commit, commit("first", appends=[run("a")]))
        small = [pool.submit(store.commit, commit(f"small-{n}", appends=[run("b")])) for n in range(3)]
        waiting(store, 3)
        big = pool.submit(store.commit, commit("big", appends=[Append(1, 0, (noise(store, 200_000),))]))
        waiting(store, 4)
        held.release()
        assert [future.result(DEADLINE).head for future in (first, *small)] == [1, 1, 1, 1]
        with pytest.raises(StoreFull):
            big.result(DEADLINE)
    assert names_of(store) == ["first", "small-0", "small-1", "small-2", "t"]
    assert list(store.check()) == []


@covers("D5")
def test_a_conflict_hurts_no_other_of_its_batch(store: SQLiteStore) -> None:
    line = saved(store, "t", "x")
    statements: list[str] = []
    assert store.writer.connection is not None
    with ThreadPoolExecutor(8) as pool:
        held = hold(store)
        first = pool.submit(store.commit, commit("first"))
        stale = pool.submit(store.commit, commit("t", Position(line.number, 9, 9, 9)))
        waiting(store, 1)
        again = [pool.submit(store.commit, commit("new", appends=[run("b")])) for _ in range(2)]
        waiting(store, 3)
        good = pool.submit(line.save, "y")
        waiting(store, 4)
        store.writer.connection.set_trace_callback(statements.append)
        held.release()
        assert first.result(DEADLINE).head == 1
        assert good.result(DEADLINE).head == 2
        with pytest.raises(Conflict):
            stale.result(DEADLINE)
        answers = [future.exception(DEADLINE) for future in again]
    assert [type(answer) for answer in answers if answer] == [AlreadyExists]
    assert names_of(store) == ["first", "new", "t"]
    assert statements.count("COMMIT") == 2, "the leader alone, then all who waited"
    assert statements.count("ROLLBACK") == 0, "who is refused before writing costs the others nothing"


def test_a_member_refused_after_it_wrote_is_undone_and_hurts_no_other(store: SQLiteStore) -> None:
    line = saved(store, "t", "x")
    with ThreadPoolExecutor(8) as pool:
        held = hold(store)
        first = pool.submit(store.commit, commit("first"))
        waiting(store, 0)
        # The first origin is registered before the second turns out not to be there.
        torn = pool.submit(store.commit, commit("fork", bases=[(line.number, 1)], origins=[line.number, 999]))
        waiting(store, 1)
        good = pool.submit(line.save, "y")
        waiting(store, 2)
        held.release()
        assert first.result(DEADLINE).head == 1
        assert good.result(DEADLINE).head == 2
        with pytest.raises(Conflict):
            torn.result(DEADLINE)
    assert names_of(store) == ["first", "t"]
    assert store.forks(line.number) == []
    assert list(store.check()) == []


class Around:
    """A connection, with something done around the statements that control the transaction."""

    def __init__(self, writer: sqlite3.Connection, execute: Callable[[str], object]) -> None:
        self.writer = writer
        self._execute = execute

    def execute(self, sql: str, *parameters: Any) -> object:
        return self.writer.execute(sql, *parameters) if parameters else self._execute(sql)

    def __getattr__(self, name: str) -> object:
        return getattr(self.writer, name)


@pytest.mark.parametrize("place", ["commit", "first answer", "last answer"])
def test_an_interrupt_after_the_commit_does_not_undo_it(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Ctrl-C reaches the leader when its batch is durable, and not all callers have their answers."""
    line = saved(store, "t", "x")
    transact, finish = store.writer._transact, QueuedWrite.finish
    answers: list[Any] = []

    def execute(sql: str) -> object:
        assert store.writer.connection is not None
        result = store.writer.connection.execute(sql)
        if sql == "COMMIT" and place == "commit":
            signal.raise_signal(signal.SIGINT)
        return result

    def struck(connection: Any, batch: list[Any]) -> bool:
        return transact(connection if len(batch) == 1 else cast("Any", Around(connection, execute)), batch)

    def answered(entry: QueuedWrite[Any, Any], answer: Any) -> None:
        answers.append(answer)
        if len(answers) == {"first answer": 2, "last answer": 3}.get(place):
            signal.raise_signal(signal.SIGINT)
        finish(entry, answer)

    monkeypatch.setattr(store.writer, "_transact", struck)
    monkeypatch.setattr(QueuedWrite, "finish", answered)
    with ThreadPoolExecutor(4) as pool:
        held = hold(store)
        first = pool.submit(store.commit, commit("first"))
        waiting(store, 0, led=True)

        def release() -> None:
            waiting(store, 2)
            held.release()

        def third() -> Position:
            waiting(store, 1)
            pool.submit(release)
            return line.save("y")

        others = pool.submit(third)
        with pytest.raises(KeyboardInterrupt):
            store.commit(commit("second"))
        assert first.result(DEADLINE).head == 1
        assert others.result(DEADLINE).head == 2
    assert names_of(store) == ["first", "second", "t"]
    assert len(answers) == 3
    assert saved(store, "after", "z").at.head == 1


IO_ERROR = """
import resource, signal, sys
from pathlib import Path
from holdfast.errors import OutcomeUnknown
from holdfast.stores.contract import Append
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import Line, commit, noise

path = Path(sys.argv[1])
store = SQLiteStore(path, namespace="default", durability="full")
line = Line(store, "t")
line.save("x")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = path.with_name(path.name + "-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    store.commit(commit("t", line.at, appends=[Append(1, 1, (noise(store, 50_000),))]))
except OutcomeUnknown as error:
    assert "open the store again" in str(error), error
    assert error.__cause__ is not None
else:
    raise AssertionError("the write cannot have worked")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for call in (store.head, line.save, store.blob):
    try:
        call("t")
    except OutcomeUnknown:
        continue
    raise AssertionError("a poisoned store took a call")
store.close()
print("done")
"""


@pytest.mark.parametrize("room", [0, 4096, 9000, 30_000])
def test_an_io_error_while_writing_poisons_the_handle(path: Path, open_store: Open, room: int) -> None:
    assert output(script(IO_ERROR, path, str(room))) == "done\n"
    store = open_store()
    found = thread_named(store, "t")
    assert found is not None
    assert found.position.last in (1, 2), "either it happened or it did not"
    assert list(store.check()) == []


def test_an_error_of_the_operating_system_at_commit_is_unknown_for_the_whole_batch(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(store, "t", "x")

    def failing(writer: Any, batch: list[Any]) -> bool:
        if len(batch) == 1:
            return transact(writer, batch)

        def execute(sql: str) -> object:
            if sql == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return writer.execute(sql)

        return transact(cast("Any", Around(writer, execute)), batch)

    transact = store.writer._transact
    monkeypatch.setattr(store.writer, "_transact", failing)
    with ThreadPoolExecutor(4) as pool:
        held = hold(store)
        first = pool.submit(store.commit, commit("first"))
        rest = [pool.submit(store.commit, commit(f"{n}")) for n in range(2)]
        waiting(store, 2)
        held.release()
        assert first.result(DEADLINE).head == 1
        errors = [future.exception(DEADLINE) for future in rest]
    assert [type(error) for error in errors] == [OutcomeUnknown] * 2
    assert errors[0] is not errors[1]
    with pytest.raises(OutcomeUnknown):
        thread_named(store, "t")


KILLED = """
import sys
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import Line
store = SQLiteStore(sys.argv[1], namespace="default", durability="normal")
store_line = Line(store, sys.argv[2])
n = 0
while True:
    n += 1
    store_line.save("word " * 300 + str(n))
    print(n, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(path: Path, open_store: Open) -> None:
    for round_ in range(4):
        child = script(KILLED, path, f"t{round_}")
        assert child.stdout is not None
        acknowledged = [child.stdout.readline() for _ in range(30 + 17 * round_)]
        child.kill()
        # From the same buffer: communicate() would read past what readline() has taken and not returned yet.
        last = int((acknowledged[-1] + child.stdout.read()).split("\n")[-2])
        _, errors = child.communicate(timeout=DEADLINE)
        store = open_store()
        found = thread_named(store, f"t{round_}")
        assert found is not None, errors
        assert found.position.last in (last, last + 1)
        assert list(store.check()) == []
        store.close()


def test_a_foreign_writer_makes_it_busy_and_nothing_is_changed(path: Path, open_store: Open) -> None:
    store = open_store(busy_timeout=0.05)
    line = saved(store, "t", "x")
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        line.save("y")
    assert thread_named(store, "t") is not None, "reading goes on"
    foreign.execute("ROLLBACK")
    foreign.close()
    line.save("y")
    assert texts_of(store, line.span()) == [["x", "y"]]


@covers("A11")
def test_the_wal_is_emptied_as_it_grows(path: Path, open_store: Open) -> None:
    store = open_store()
    line = Line(store, "t")
    wal = path.with_name("store.db-wal")
    largest = 0
    for n in range(60):
        line.position = store.commit(
            commit("t", line.position, appends=[Append(1, n, (noise(store, 200_000, seed=str(n)),))])
        )
        largest = max(largest, wal.stat().st_size)
    assert largest < 6 << 20
    assert path.stat().st_size > 8 << 20
    store.reclaim()
    assert wal.stat().st_size == 0
    store.close()
    assert not wal.exists()


@covers("smooth/SqliteCheckpointStore.wal")
def test_a_reader_that_stays_keeps_its_snapshot_and_harms_nobody(path: Path, open_store: Open) -> None:
    store = open_store()
    line = saved(store, "t", "x")
    reader = store._readers.take()
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM checkpoint").fetchone() == (1,)
    for n in range(40):
        line.position = store.commit(
            commit("t", line.at, appends=[Append(2, n, (noise(store, 200_000, seed=str(n)),))])
        )
    assert reader.execute("SELECT count(*) FROM checkpoint").fetchone() == (1,)
    reader.execute("COMMIT")
    store._readers.give(reader)
    assert list(store.check()) == []


@covers("A18")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_lost_its_name_takes_no_more_saves(path: Path, open_store: Open, replaced: bool) -> None:
    line = saved(open_store(), "t", "x")
    path.rename(path.with_name("moved"))
    if replaced:
        path.write_bytes(b"")
    with pytest.raises(StoreError, match=r"deleted or moved|replaced"):
        line.save("lost")
    path.with_name("moved").rename(path)
    line.save("y")
    assert texts_of(open_store(), line.span()) == [["x", "y"]]
