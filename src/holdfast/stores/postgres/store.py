"""`PostgresStore`: the verbs of the contract, on a pool of connections."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

import psycopg

from holdfast import forksafe
from holdfast.errors import Damaged, InvalidArgument, StoreError
from holdfast.stores import leases, preparing, rows
from holdfast.stores.contract import Cells, CheckpointRow, Commit, Compacted, Live, Position, Span, Summary, ThreadRow
from holdfast.stores.hashing import PLAIN
from holdfast.stores.keys import KeyRow
from holdfast.stores.postgres import (
    address,
    check,
    journaling,
    keys,
    maintenance,
    moving,
    reading,
    running,
    schema,
    values,
)
from holdfast.stores.postgres.committing import CommitWork
from holdfast.stores.postgres.errors import is_away, is_conflict, translate
from holdfast.stores.postgres.journaling import JournalWork, RenewWork, TellWork
from holdfast.stores.postgres.listening import Listener, channel
from holdfast.stores.postgres.patience import Backoff
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.postgres.session import Transaction
from holdfast.stores.postgres.writer import Plain, Writer
from holdfast.stores.running import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.sharing import Packed, pack
from holdfast.stores.walking import one_by_one
from holdfast.types import Problem

P = ParamSpec("P")
T = TypeVar("T")

_VALUES_AT_ONCE: Final = 64
# A namespace is part of index keys, which take at most a third of a page.
_LONGEST_NAMESPACE: Final = 1024


class PostgresStore:
    """One schema of a PostgreSQL database, opened on one namespace. Any number of threads and processes may use it.

    `connections` is the maximum number of connections of this handle; they are made when needed. `patience` is the
    number of seconds for which a call retries while the database is unreachable or busy. With `durability` "full",
    every acknowledged write is flushed to disk, whatever the server's settings. Raises `StoreError` if the database
    cannot be reached. Raises `NotAStore` or `NewerFormat`, leaving the schema unchanged, if it is not a store that this
    version can read.
    """

    encoding: Literal["packed", "text"] = "packed"
    hashing = PLAIN

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        connections: int = 8,
        patience: float = 10.0,
        durability: Literal["full", "normal", "off"] = "full",
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        if connections < 1:
            raise InvalidArgument("connections must be 1 or more; nothing was opened")
        self._namespace = rows.to_bytes(namespace)
        if len(self._namespace) > _LONGEST_NAMESPACE:
            raise InvalidArgument(f"a namespace has at most {_LONGEST_NAMESPACE} bytes; nothing was opened")
        place = address.parse(url)
        self._shown = place.shown
        self._clock = clock
        self._wall = wall
        self._patience = patience
        self._sql = schema.statements(place.schema)
        self._pool = Pool(
            place.conninfo,
            place.shown,
            limit=connections,
            patience=patience,
            prepares=place.prepares,
            flushes=durability == "full",
        )
        self._conninfo = place.conninfo
        self._channel = channel(place.schema, self._namespace) if place.announces else None
        self._listeners: list[Listener] = []
        self._writer = Writer(
            self._pool,
            self._sql,
            self._namespace,
            place.shown,
            patience=patience,
            clock=clock,
            channel=self._channel,
        )
        _stores.add(self)
        try:
            self._again(lambda: self._prepare(place.schema))
        except BaseException:
            self._pool.close()
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

    def told(self) -> dict[int, str]:
        """See `Telling`."""
        return self._read(reading.told)

    def walk(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
        """See `Walking`."""
        try:
            return self._read(reading.walk, thread, after, limit)
        except Damaged:
            # PostgreSQL gives up on the whole range at a damaged page, so the other rows are read one by one.
            return one_by_one(self, thread, after=after, limit=limit)

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        return self._read(reading.cells, spans)

    def blob(self, digest: bytes) -> list[bytes]:
        return self._read(reading.value, digest)

    def last(self, thread: int) -> int:
        return self._read(reading.last, thread)

    def forks(self, thread: int) -> list[int]:
        return self._read(reading.forks, thread)

    def thread_numbers(self) -> list[int]:
        return self._read(reading.numbers)

    def clock(self) -> Clock:
        self._pool.ready()
        return self._clock() if self._clock is not None else self._read(Transaction.clock)

    def run(self, thread: int) -> RunRow | None:
        return self._read(running.run, thread)

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        return self._read(running.runs, statuses, after, max(limit, 0))

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        return self._read(running.woken, self._clock, self._wall, max(limit, 0))

    def entries(self, thread: int, *, after: int, limit: int) -> list[Entry]:
        return self._read(running.effects, thread, after, max(limit, 0))

    def find_entries(self, thread: int, topic: str) -> list[Entry]:
        return self._read(running.marked, thread, topic)

    def last_entry(self, thread: int) -> int:
        return self._read(running.last_effect, thread)

    # -- writing ----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> Position:
        packed: tuple[list[Packed] | None, ...] = ()
        if commit.blobs:
            known = self._read(reading.values_known, [value.digest for value in commit.blobs])
            packed = tuple([None if value.digest in known else pack(value) for value in commit.blobs])
        prepared = preparing.prepare(commit, packed)
        return self._writer.write(CommitWork(self._namespace, prepared, self._sql))

    def rewind(self, expect: Position, *, to: int, summary: Summary) -> Position:
        return self._writer.write(moving.RewindWork(expect, to, summary))

    def claim(self, expect: RunRow | None, row: RunRow) -> None:
        leases.check_claim(expect, row)
        self._writer.write(journaling.claim(expect, row))

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        self._writer.write(RenewWork(thread, fence, until, progress))

    def update_run(self, row: RunRow) -> None:
        self._writer.write(journaling.update(row))

    def suspend(self, row: RunRow, entry: Entry | None, last: int) -> int:
        work, question = journaling.park(row, entry, last)
        self._writer.write(work)
        return question

    def journal(self, thread: int, fence: int, rows: Sequence[Entry]) -> list[int]:
        return self._writer.write(JournalWork(thread, fence, rows, self._sql))

    def post(self, thread: int, row: Entry, *, last: int | None = None, run: RunRow | None = None) -> int:
        return self._writer.write(TellWork(thread, row, last, run))

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
        self._writer.write(journaling.settle(thread, number, expect, row, run, then))

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        return self._writer.write(moving.DeleteWork(thread, seqs))

    def drop(self, thread: int) -> None:
        origins = self._writer.write(moving.DropWork(thread))
        # The thread is gone for every reader. If this fails half-way, the next sweep finishes it. These errors would
        # report that nothing was changed, which is wrong here.
        with suppress(StoreError):
            for number in (thread, *origins):
                self._clear(number)

    def start_epoch(self) -> int:
        return self._write(values.advance)

    def sweep_blobs(self, live: Collection[bytes], epoch: int) -> int:
        keep = frozenset(live)
        removed = after = 0
        while page := self._read(_stale_values, epoch, after):
            after = page[-1][0]
            dead = [number for number, digest in page if digest not in keep]
            if dead:
                removed += self._write(values.remove, dead, epoch)
        return removed

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def key(self, id: bytes) -> KeyRow | None:
        return self._read(keys.key, id)

    def keys(self, *, after: bytes, limit: int) -> list[KeyRow]:
        return self._read(keys.keys, after, max(limit, 0))

    def put_key(self, row: KeyRow, expect: KeyRow | None) -> KeyRow:
        return self._write(keys.put, row, expect)

    def remove_key(self, id: bytes, expect: KeyRow | None = None) -> None:
        self._write(keys.remove, id, expect)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def sweep(self, thread: int, live: Live) -> int:
        dropped = 0
        for dead in self._read(maintenance.find_dead, thread, live):
            dropped += self._write(maintenance.drop_dead, thread, live, dead)
        self._clear(thread)
        return dropped

    def compact(self, thread: int, live: Live) -> Compacted:
        plan = self._read(maintenance.plan, thread, live)
        merged = dropped = 0
        damaged = plan.damaged
        for group in plan.groups:
            done = self._write(maintenance.merge, thread, live, group)
            merged += done.merged
            dropped += done.dropped
            damaged += done.damaged
        return Compacted(merged=merged, damaged=damaged, dropped=dropped)

    def reclaim(self) -> None:
        """Do nothing: the server's own vacuum releases free space."""
        self._pool.ready()

    def scrub(self) -> tuple[str, ...]:
        """Do nothing: only the server can overwrite deleted rows."""
        self._pool.ready()
        return maintenance.BEYOND

    def check(self) -> Iterator[Problem]:
        yield from self._read(check.database)
        for thread in self._read(reading.numbers):
            yield from self._read(check.thread, thread)

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """See `Announcing`. Takes a connection in addition to those of the pool."""
        self._pool.ready()
        if self._channel is None:
            return lambda: None
        listener = Listener(self._conninfo, self._channel, heard)
        self._listeners = [each for each in self._listeners if each.is_listening] + [listener]
        return listener.end

    def close(self) -> None:
        self._pool.close()
        for listener in self._listeners:
            listener.end()
        _stores.discard(self)

    # -- how a verb runs --------------------------------------------------------------------------------------------

    def _read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read verb in its own transaction, on one snapshot."""

        def attempt() -> T:
            connection = self._pool.take()
            session = Transaction(connection, self._sql, self._namespace, "read", self._clock)
            try:
                answer = verb(session, *args, **kwargs)
                session.commit()
                return answer
            except BaseException as error:
                with suppress(psycopg.Error):
                    session.roll_back()
                if not isinstance(error, Exception):
                    session.close()
                raise
            finally:
                self._pool.give(connection)

        return self._again(attempt)

    def _write(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a write verb that may be repeated, in its own transaction."""
        return self._writer.write(Plain(lambda session: verb(session, *args, **kwargs)))

    def _again(self, attempt: Callable[[], T]) -> T:
        """Run `attempt`, and retry it while the database is unreachable or busy."""
        patience = Backoff(self._patience)
        while True:
            try:
                return attempt()
            except psycopg.Error as error:
                if is_away(error):
                    self._pool.forget_idle()
                elif not is_conflict(error):
                    raise translate(error, self._shown) from None
                if not patience.wait():
                    raise translate(error, self._shown) from None

    def _prepare(self, name: str) -> None:
        connection = self._pool.take()
        try:
            schema.prepare(connection, self._sql, name, self._shown)
        finally:
            self._pool.give(connection)

    def _clear(self, thread: int) -> None:
        while self._write(maintenance.clear, thread):
            continue

    def restart(self) -> None:
        """In a forked child: leave the inherited connections to the parent."""
        self._pool.restart()
        self._writer.restart()
        for listener in self._listeners:
            listener.leave()
        self._listeners = []


def _stale_values(session: Transaction, epoch: int, after: int) -> list[tuple[int, bytes]]:
    """A page of blobs stamped before `epoch`: their numbers and digests."""
    page = session.rows("stale_values", session.namespace, epoch, after, _VALUES_AT_ONCE)
    return [(number, digest) for number, digest in page]


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store.restart()


forksafe.register(in_child=_after_fork_in_child)
