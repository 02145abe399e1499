"""`PostgresStore`: a store in one schema of a PostgreSQL database, on a pool of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import psycopg

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.signals import shield
from holdfast.stores import rows
from holdfast.stores.abilities import StoreSettings
from holdfast.stores.contract_runs import Clock
from holdfast.stores.postgres import address, schema
from holdfast.stores.postgres.connection import Connection, PostgresPool
from holdfast.stores.postgres.failures import Backoff, is_away, is_conflict, translate
from holdfast.stores.postgres.notify import Listener, channel
from holdfast.stores.postgres.transaction import PostgresTransaction, Scope
from holdfast.stores.postgres.writer import Writer
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


_SETTINGS: Final = ("fsync", "full_page_writes", "synchronous_commit")
_READ_SETTINGS: Final = (
    b"SELECT pg_catalog.current_setting('fsync', true), pg_catalog.current_setting('full_page_writes', true), "
    b"pg_catalog.current_setting('synchronous_commit', true)"
)


class PostgresStore(SQLStore[Writer]):
    """One schema of a PostgreSQL database, opened on one namespace. Any number of threads and processes may use it.

    `connections` is the maximum number of connections of this handle; they are made when needed. `patience` is the
    number of seconds for which a call retries while the database is unreachable or busy. With `durability` "full",
    every acknowledged write is flushed to disk, whatever the server's settings. Raises `StoreError` if the database
    cannot be reached. Raises `NotAStore` or `NewerFormat`, leaving the schema unchanged, if it is not a store that this
    version can read. So does an earlier format, unless it `upgrades` the schema.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        connections: int = 8,
        patience: float = 10.0,
        upgrades: bool = True,
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
        self._patience = patience
        self._scope = Scope(schema.statements(place.schema), self._namespace, place.shown, clock, wall)
        self._pool = PostgresPool(place, limit=connections, patience=patience, flushes=durability == "full")
        self._place = place
        self._channel = channel(place.schema, self._namespace) if place.announces else None
        self._listeners: list[Listener] = []
        self.writer = Writer(self._pool, self._scope, patience=patience, channel=self._channel)
        try:
            self._again(
                lambda connection: schema.prepare(
                    connection, self._scope.sql, place.schema, place.shown, upgrades=upgrades
                )
            )
        except BaseException:
            self._pool.close()
            raise

    def clock(self) -> Clock:
        self._pool.ready()
        return self.read(lambda tx: tx.clock()) if self._scope.clock is None else self._scope.clock()

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        """Do nothing: the server's own vacuum releases free space, and only it can overwrite deleted rows."""
        self._pool.ready()
        return _BEYOND if scrub else ()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `Announcing`. Takes a connection in addition to those of the pool."""
        self._pool.ready()
        if self._channel is None:
            return lambda: None
        listener = Listener(self._place, self._channel, wake)
        self._listeners = [each for each in self._listeners if each.is_listening] + [listener]
        return listener.end

    def settings(self) -> StoreSettings:
        """See `Configured`. The server's `synchronous_commit` does not matter: each connection sets its own."""
        found = self.read(_settings)
        are_right = all(found.get(name) != "off" for name in ("fsync", "full_page_writes"))
        shown = ", ".join(f"{name} {value}" for name, value in found.items())
        return StoreSettings(are_right, shown or "the server reports none")

    def is_at(self, given: str) -> bool:
        """See `Addressed`."""
        try:
            place = address.parse(given)
        except HoldfastError:
            return False
        return (place.conninfo, place.schema) == (self._place.conninfo, self._place.schema)

    def close(self) -> None:
        self._pool.close()
        for listener in self._listeners:
            listener.end()

    # -- how a verb runs --------------------------------------------------------------------------------------------

    def read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def attempt(connection: Connection) -> T:
            tx = PostgresTransaction(connection, self._scope, "read")
            answer = verb(tx, *args, **kwargs)
            tx.commit()
            return answer

        return self._again(attempt)

    def _again(self, attempt: Callable[[Connection], T]) -> T:
        """Run `attempt`, and retry it while the database is unreachable or busy."""
        patience = Backoff(self._patience)
        while True:
            try:
                with shield, self._pool.lent() as connection:
                    return attempt(connection)
            except psycopg.Error as error:
                if is_away(error):
                    self._pool.forget_idle()
                elif not is_conflict(error):
                    raise translate(error, self._scope.shown) from None
                if not patience.wait():
                    raise translate(error, self._scope.shown) from None


def _settings(tx: Any) -> dict[str, str]:
    [found] = tx.connection.execute(_READ_SETTINGS).fetchall()
    return {name: value for name, value in zip(_SETTINGS, found, strict=True) if value is not None}
