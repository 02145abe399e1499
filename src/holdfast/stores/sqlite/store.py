"""`SQLiteStore`: the verbs of the contract, on one writer connection and a pool of readers."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from holdfast import forksafe
from holdfast.errors import Busy, Damaged, InvalidArgument, ReadOnly, StoreError, StoreFull
from holdfast.stores import clock as clocks
from holdfast.stores import leases, merging, preparing, rows
from holdfast.stores.contract import Cells, CheckpointRow, Commit, Compacted, Live, Position, Span, Summary, ThreadRow
from holdfast.stores.hashing import PLAIN
from holdfast.stores.keys import KeyRow
from holdfast.stores.running import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.sharing import Packed, pack
from holdfast.stores.sqlite import backup, check, keys, maintenance, mending, reading, runs, values, writing
from holdfast.stores.sqlite import cells as reading_cells
from holdfast.stores.sqlite.connection import OLDEST_SQLITE, PAGE_SIZE, Durability, Readers, opening
from holdfast.stores.sqlite.errors import FAILURES, translate
from holdfast.stores.sqlite.writer import Work, Writer
from holdfast.types import Problem

P = ParamSpec("P")
T = TypeVar("T")

_VACUUM_PAGES: Final = 256
_VALUES_AT_ONCE: Final = 64
# Seconds for which fork() waits for calls in progress.
_FORK_PATIENCE: Final = 5.0


class SQLiteStore:
    """One SQLite file, opened on one namespace. Any number of threads and processes may use it.

    Raises `StoreError` if the folder does not exist or the file cannot be opened. Raises `NotAStore` or `NewerFormat`,
    leaving the file unchanged, if it is not a store that this version can read.
    """

    encoding: Literal["packed", "text"] = "packed"
    hashing = PLAIN
    kind = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: str,
        durability: Durability,
        busy_timeout: float = 10.0,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            oldest = ".".join(map(str, OLDEST_SQLITE))
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; install SQLite {oldest} or later")
        if durability not in ("full", "normal", "off"):
            raise InvalidArgument("durability must be 'full', 'normal' or 'off'")
        # The gate and the WAL are next to the file itself, so links must be resolved; abspath does not do that.
        self._path = os.path.realpath(path)
        self._namespace = rows.to_bytes(namespace)
        self._clock = clock or clocks.machine
        self._wall = wall or clocks.wall
        self._readers = Readers(self._path, durability, busy_timeout)
        self._writer = Writer(self._path, durability, busy_timeout)
        self._paused = False
        _stores.add(self)  # before there is a connection that a fork would have to wait for
        try:
            self._writer.open()
        except BaseException:
            _stores.discard(self)
            raise

    # -- reading ----------------------------------------------------------------------------------------------------

    def thread(self, name: str) -> ThreadRow | None:
        return self._read(reading.thread, rows.to_bytes(name))

    def threads(self, *, prefix: str, after: str | None, limit: int) -> list[ThreadRow]:
        last = None if after is None else rows.to_bytes(after)
        return self._read(reading.threads, rows.to_bytes(prefix), last, max(limit, 0))

    def name_of(self, thread: int) -> str | None:
        """See `Naming`."""
        return self._read(reading.name_of, thread)

    def checkpoint(self, thread: int, seq: int) -> CheckpointRow | None:
        return self._read(reading.checkpoint, thread, seq)

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[CheckpointRow]:
        wanted = None if label is None else rows.to_bytes(label)
        return self._read(reading.checkpoints, thread, before, limit, wanted, step)

    def refs(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow]:
        return self._read(reading.refs, thread, after, limit)

    def walk(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
        """See `Walking`."""
        return self._read(reading.walk, thread, after, limit)

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        return self._read(reading_cells.cells, spans)

    def blob(self, digest: bytes) -> list[bytes]:
        return self._read(values.read, digest)

    def last(self, thread: int) -> int:
        return self._read(reading.last, thread)

    def forks(self, thread: int) -> list[int]:
        return self._read(reading.forks, thread)

    def thread_numbers(self) -> list[int]:
        return self._read(reading.numbers)

    def clock(self) -> Clock:
        self._writer.ready()
        return self._clock()

    def run(self, thread: int) -> RunRow | None:
        return self._read(runs.run, thread)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        return self._read(runs.runs, statuses, after, max(limit, 0))

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return self._read(runs.woken, self._clock(), self._wall(), max(limit, 0))

    def entries(self, thread: int, *, after: int, limit: int) -> list[Entry]:
        return self._read(runs.effects, thread, after, max(limit, 0))

    def find_entries(self, thread: int, topic: str) -> list[Entry]:
        return self._read(runs.marked, thread, topic)

    def last_entry(self, thread: int) -> int:
        return self._read(runs.last_effect, thread)

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> Position:
        packed: tuple[list[Packed] | None, ...] = ()
        if commit.blobs:
            packed = tuple([None if self._read(values.known, value) else pack(value) for value in commit.blobs])
        prepared = preparing.prepare(commit, packed)
        return self._write(prepared.weight, writing.commit, prepared, self._clock)

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        return self._write(0, writing.rewind, expect, to, summary, self._clock)

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        leases.check_claim(expect, row)
        self._write(0, runs.claim, expect, row)

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        self._write(0, runs.renew, thread, fence, until, progress)

    def update_run(self, row: RunRow) -> None:
        self._write(0, runs.update, row)

    def suspend(self, row: RunRow, entry: Entry | None, last: int) -> int:
        return self._write(0 if entry is None else preparing.weigh([entry]), runs.park, row, entry, last)

    def journal(self, thread: int, fence: int, rows: Sequence[Entry]) -> list[int]:
        return self._write(preparing.weigh(rows), runs.journal, thread, fence, rows)

    def post(self, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> int:
        return self._write(preparing.weigh([row]), runs.tell, thread, row, last, run)

    def settle(
        self,
        thread: int,
        number: int,
        expect: EntryStatus,
        row: Entry,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        leases.check_then(run, then)
        self._write(preparing.weigh([row]), runs.settle, thread, number, expect, row, run, then)

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        return self._write(len(seqs) * PAGE_SIZE, writing.delete, thread, seqs)

    def drop(self, thread: int) -> None:
        origins = self._write(0, writing.forget, thread, self._clock)
        # The thread is gone for every reader. If this fails half-way, the next sweep finishes it. These errors would
        # report that nothing was changed, which is wrong here.
        with suppress(Busy, ReadOnly, StoreFull):
            for number in (thread, *origins):
                self._clear(number)

    def start_epoch(self) -> int:
        return self._write(0, values.advance)

    def sweep_blobs(self, live: Collection[bytes], epoch: int) -> int:
        keep = frozenset(live)
        removed = after = 0
        while page := self._read(values.stale, epoch, after, _VALUES_AT_ONCE):
            after = page[-1][0]
            dead = [number for number, digest in page if digest not in keep]
            if dead:
                removed += self._write(len(dead) * PAGE_SIZE, values.remove, dead, epoch)
        return removed

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        return self._read(keys.key, id)

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        return self._read(keys.keys, after, max(limit, 0))

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        return self._write(0, keys.put, row, expect)

    def remove_key(self, id: bytes, expect: KeyRow | None = None) -> None:
        self._write(0, keys.remove, id, expect)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def sweep(self, thread: int, live: Live) -> int:
        dropped = 0
        for dead in self._read(maintenance.find_dead, thread, live):
            dropped += self._write(len(dead) * PAGE_SIZE, maintenance.drop_dead, thread, live, dead)
        self._clear(thread)
        return dropped

    def compact(self, thread: int, live: Live) -> Compacted:
        plan = self._read(maintenance.plan, thread, live)
        merged = dropped = 0
        damaged = plan.damaged
        for group in plan.groups:
            done = self._write(merging.TARGET, maintenance.merge, thread, live, group)
            merged += done.merged
            dropped += done.dropped
            damaged += done.damaged
        return Compacted(merged=merged, damaged=damaged, dropped=dropped)

    def reclaim(self) -> None:
        while self._write(_VACUUM_PAGES * PAGE_SIZE, maintenance.vacuum, _VACUUM_PAGES):
            continue
        self._writer.truncate_wal()

    @property
    def path(self) -> str:
        """See `BackingUp`."""
        return self._path

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """See `BackingUp`."""
        return self._read(backup.copy, path, progress)

    def mended(self, folder: str) -> tuple[SQLiteStore, list[Problem]]:
        """See `Mending`."""
        path = os.path.join(folder, "mended.db")
        self.backup(path)
        told = mending.mend(path, self._namespace)
        return SQLiteStore(path, namespace=rows.to_text(self._namespace), durability="off"), told

    def scrub(self) -> tuple[str, ...]:
        self._writer.scrub()
        return maintenance.BEYOND

    def check(self) -> Iterator[Problem]:
        yield from self._read(check.database)
        for thread in self._read(check.numbers):
            yield from self._read(check.thread, thread)

    def close(self) -> None:
        if not self._writer.torn:  # a lock that was held during the fork stays locked forever
            self._readers.close()
        if self._writer.close():
            _stores.discard(self)

    # -- how a verb runs --------------------------------------------------------------------------------------------

    def _read(
        self, verb: Callable[Concatenate[sqlite3.Connection, bytes, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a read verb in its own transaction, on one snapshot."""
        self._writer.ready()
        try:
            reader = self._readers.take()
            try:
                reader.execute("BEGIN")
                try:
                    return verb(reader, self._namespace, *args, **kwargs)
                finally:
                    _end(reader)
            finally:
                self._readers.give(reader)
        except FAILURES as error:
            raise translate(error, self._path) from error

    def _write(
        self,
        weight: int,
        verb: Callable[Concatenate[sqlite3.Connection, bytes, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a write verb in a durable transaction, alone or in a group with other waiting writes."""

        def run(writer: sqlite3.Connection) -> T:
            return verb(writer, self._namespace, *args, **kwargs)

        answer: T = self._writer.write(Work(run, weight))
        return answer

    def _clear(self, thread: int) -> None:
        while self._write(PAGE_SIZE, maintenance.clear, thread):
            continue

    # -- fork() -----------------------------------------------------------------------------------------------------
    # SQLite keeps its file locks in process memory, which a child inherits. A connection that the child opens while it
    # still has an inherited one takes no locks, and the parent may delete the WAL that the child uses. So calls in
    # progress are finished before the fork, and the child closes inherited connections before it opens new ones.

    def pause(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        self._paused = False
        if self._writer.lock.acquire(timeout=patience):
            if self._readers.pause(deadline):
                self._paused = True
            else:
                self._writer.lock.release()

    def resume(self) -> None:
        if self._paused:
            self._readers.resume()
            self._writer.lock.release()

    def restart(self) -> None:
        if self._paused:
            self._readers.restart()
        else:
            _stores.discard(self)  # another fork has no connection to wait for
        self._writer.restart(paused=self._paused)


def _end(reader: sqlite3.Connection) -> None:
    """End a read transaction. The pool does not reuse a connection if this fails."""
    try:
        reader.execute("COMMIT")
    except FAILURES:
        # It fails after an unreadable page, even if the verb handled that. Nothing was written either way.
        return


_stores: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()
_forking: list[SQLiteStore] = []
# Two threads that fork at once would each pause some of the stores and release stores that the other paused.
_fork = threading.Lock()


def _before_fork() -> None:
    _fork.acquire()
    for store in list(_stores):
        _forking.append(store)
        store.pause(_FORK_PATIENCE)
    opening.acquire()
    # Stores opened meanwhile. A store that is not opened yet has no connection to lose.
    for store in _stores.difference(_forking):
        _forking.append(store)
        store.pause(0.0)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().resume()
    opening.release()
    _fork.release()


def _after_fork_in_child() -> None:
    global _fork  # noqa: PLW0603 - the inherited lock is held by a thread that does not exist in the child
    _fork = threading.Lock()
    opening.release()
    while _forking:
        _forking.pop().restart()


forksafe.register(before=_before_fork, in_parent=_after_fork_in_parent, in_child=_after_fork_in_child)
