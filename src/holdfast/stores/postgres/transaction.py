"""One transaction: queries sent together, writes sent with the commit, in as few round trips as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import psycopg

from holdfast.stores.clock import steady_wall
from holdfast.stores.contract_runs import Clock
from holdfast.stores.postgres.connection import Connection, roll_back
from holdfast.stores.postgres.failures import is_damage, translate
from holdfast.stores.postgres.schema import Statements
from holdfast.stores.sql.transaction import Query, Row

Sent = tuple[bytes, Sequence[Any]]

CLOCK: Final = "postgres"
_LOCK_SECONDS: Final = 10.0
_IDLE: Final = "60s"

BEGIN_WRITING: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
COMMIT: Final = b"COMMIT"
_BEGIN: Final = {"read": b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "write": BEGIN_WRITING}


def send(connection: Connection, queries: Sequence[Sent]) -> list[psycopg.Cursor[Row]]:
    """Run all queries in one round trip. Raises the first error."""
    cursors: list[psycopg.Cursor[Row]] = []
    first: psycopg.Error | None = None
    try:
        with connection.pipeline():
            try:
                cursors += [connection.execute(text, values, binary=True) for text, values in queries]
            except psycopg.Error as error:
                # Not raised inside the block: psycopg would log the error at its end, too, with the row in it.
                first = error
    except psycopg.Error as error:
        first = first or error
    if first is not None:
        raise first
    return cursors


class Scope(NamedTuple):
    """The settings that all transactions of a handle share. `shown` is the location of the store in messages."""

    sql: Statements
    namespace: bytes
    shown: str
    clock: Callable[[], Clock] | None
    wall: Callable[[], int] | None


class PostgresTransaction:
    """A transaction on one connection, started by its first query.

    A write transaction runs at READ COMMITTED: every statement sees what was committed before it, so statements after
    the lock of a thread's row see the thread's final state. A read transaction sees one snapshot.
    """

    locks_run: ClassVar[tuple[str, ...]] = ("lock_run", "newest_entry")

    def __init__(self, connection: Connection, scope: Scope, mode: Literal["read", "write"]) -> None:
        self.namespace = scope.namespace
        self.committing = False
        self.queues = False  # whether a run was queued that idle workers may claim
        self.connection = connection
        self._sql = scope.sql
        self._scope = scope
        self._mode = mode
        self._now: int | None = None
        self._started = False
        self._queued: list[Sent] = []

    def has(self, name: str) -> bool:
        return name in self._sql

    def ask(self, *queries: Query) -> list[list[Row]]:
        """The rows of each query, all sent in one round trip."""
        if not queries:
            return []
        before = [*self._begin(), *self._queued]
        self._queued = []
        return self._send([*before, *((self._sql[name], values) for name, values in queries)])[len(before) :]

    def rows(self, name: str, *values: Any) -> list[Row]:
        """The rows of one query."""
        return self.ask((name, values))[0]

    def put(self, name: str, *values: Any) -> None:
        """Add a write, to be sent with the next query or with the commit."""
        self._queued.append((self._sql[name], values))

    def change(self, name: str, *values: Any) -> int:
        """Write at once and return the number of rows changed."""
        before = [*self._begin(), *self._queued]
        self._queued = []
        return send(self.connection, [*before, (self._sql[name], values)])[-1].rowcount

    def rewrite_checkpoint(self, columns: Sequence[Any]) -> None:
        self.put("rewrite_checkpoint", *columns)

    def drop_cells(self, row_keys: Sequence[int]) -> None:
        self.put("drop_cells", list(row_keys))

    def problems(self) -> Sequence[str]:
        """Nothing: the server checks its pages and indexes."""
        return ()

    def announce(self) -> None:
        self.queues = True

    def commit(self) -> None:
        """Send the remaining writes together with the commit."""
        if not self._started and not self._queued:
            return
        before = self._begin()
        self.committing = self._mode == "write"
        self._send([*before, *self._queued, (COMMIT, ())])

    def clock(self) -> Clock:
        """The time for leases: the server's clock, unless a test replaced it.

        The server's clock can be set. So a lease is over only if the clock of this machine says so too.
        """
        if self._scope.clock is not None:
            return self._scope.clock()
        now = self._server_time() // 1000
        return Clock(CLOCK, now, min(now, steady_wall() // 1000))

    def wall(self) -> int:
        """The server's wall clock, unless a test replaced it."""
        return self._server_time() if self._scope.wall is None else self._scope.wall()

    def _server_time(self) -> int:
        if self._now is None:
            [(self._now,)] = self.rows("now")
        return self._now or 0

    def _begin(self) -> list[Sent]:
        if self._started:
            return []
        self._started = True
        begin: Sent = (_BEGIN[self._mode], ())
        if self._mode == "read":
            return [begin]
        # The server waits for a lock for less time than the client waits for the server.
        seconds = min(_LOCK_SECONDS, self.connection.answer_timeout / 2)
        limits: list[Sent] = [begin, (self._sql["limits"], (f"{seconds * 1000:.0f}ms", _IDLE))]
        return [*limits, (self._sql["durable"], ())] if self.connection.is_lax else limits

    def _send(self, queries: Sequence[Sent]) -> list[list[Row]]:
        try:
            if len(queries) == 1:
                text, values = queries[0]
                cursors = [self.connection.execute(text, values, binary=True)]
            else:
                cursors = send(self.connection, queries)
        except psycopg.Error as error:
            if self._mode == "read" and is_damage(error):
                roll_back(self.connection)
                self._started = False  # the next query starts another transaction
                raise translate(error, self._scope.shown) from None
            raise
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]
