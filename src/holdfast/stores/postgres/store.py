"""`PostgresStore`: a store in one schema of a PostgreSQL database, on a pool of connections."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

import psycopg

from holdfast.errors import Damaged, InvalidArgument
from holdfast.interrupts import shield
from holdfast.stores import rows
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.contract_runs import Clock
from holdfast.stores.postgres import address, schema
from holdfast.stores.postgres.failures import Backoff, is_away, is_conflict, translate
from holdfast.stores.postgres.notify import Listener, channel
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.postgres.transaction import PostgresTransaction
from holdfast.stores.postgres.writer import Writer
from holdfast.stores.sql import reads
from holdfast.stores.sql.store import SQLStore
from holdfast.stores.sql.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")

# A namespace is part of index keys, which take at most a third of a page.
_LONGEST_NAMESPACE: Final = 1024
# Where copies of removed data remain. This store cannot reach them.
_BEYOND: Final = (
    "deleted rows stay in PostgreSQL's tables and indexes until they are vacuumed and overwritten",
    "PostgreSQL's write-ahead log and its archive hold old data until they are recycled",
    "replicas, backups and snapshots of the database",
)


class PostgresStore(SQLStore[Writer]):
    """One schema of a PostgreSQL database, opened on one namespace. Any number of threads and processes may use it.

    `connections` is the maximum number of connections of this handle; they are made when needed. `patience` is the
    number of seconds for which a call retries while the database is unreachable or busy. With `durability` "full",
    every acknowledged write is flushed to disk, whatever the server's settings. Raises `StoreError` if the database
    cannot be reached. Raises `NotAStore` or `NewerFormat`, leaving the schema unchanged, if it is not a store that this
    version can read.
    """

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
            wall=wall,
            channel=self._channel,
        )
        try:
            self._again(lambda: self._prepare(place.schema))
        except BaseException:
            self._pool.close()
            raise

    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[CheckpointRow | Damaged]:
        try:
            return super().walk(thread, after=after, limit=limit, refs_only=refs_only)
        except Damaged:
            # PostgreSQL gives up on the whole range at a damaged page, so the other rows are read one by one.
            found, _ = self._read(reads.find_number, thread)
            last = 0 if found is None or found.name is None else found.last
            seqs = range(after + 1, min(after + limit, last) + 1)
            return [self._one(thread, seq, refs_only=refs_only) for seq in seqs]

    def clock(self) -> Clock:
        self._pool.ready()
        return self._clock() if self._clock is not None else super().clock()

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        """Do nothing: the server's own vacuum releases free space, and only it can overwrite deleted rows."""
        self._pool.ready()
        return _BEYOND if scrub else ()

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

    # -- how a verb runs --------------------------------------------------------------------------------------------

    def _read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def attempt() -> T:
            connection = self._pool.take()
            tx = PostgresTransaction(connection, self._sql, self._namespace, "read", self._clock, self._wall)
            try:
                answer = verb(tx, *args, **kwargs)
                tx.commit()
                return answer
            except BaseException as error:
                with suppress(psycopg.Error):
                    tx.roll_back()
                if not isinstance(error, Exception):
                    tx.close()
                raise
            finally:
                self._pool.give(connection)

        return self._again(attempt)

    def _again(self, attempt: Callable[[], T]) -> T:
        """Run `attempt`, and retry it while the database is unreachable or busy."""
        patience = Backoff(self._patience)
        while True:
            try:
                with shield:
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
