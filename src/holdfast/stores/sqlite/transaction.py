"""Transactions on SQLite connections, and the pool of connections that read."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from holdfast.forksafe import HeldLocks
from holdfast.stores import rules
from holdfast.stores.contract_runs import Clock
from holdfast.stores.rows import to_text
from holdfast.stores.segments import MAX_SEQ
from holdfast.stores.sql.transaction import Query, Row
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.connection import Durability, connect
from holdfast.stores.sqlite.failures import FAILURES, Failure, primary, translate

_SQL: Final = schema.statements()
_IDLE_READERS: Final = 16
_CELLS: Final = 7  # the column of a checkpoint


class SQLiteTransaction:
    """The statements of a transaction that the caller starts and ends. Only one transaction writes at a time.

    `path` names the store in the errors of queries. Without it, queries raise SQLite's own errors, as `put` and
    `change` always do: the writer of a file looks at them.
    """

    __slots__ = ("_clock", "_connection", "_execute", "_path", "_wall", "namespace")

    def __init__(
        self,
        connection: sqlite3.Connection,
        namespace: bytes,
        clock: Callable[[], Clock],
        wall: Callable[[], int],
        path: str | None = None,
    ) -> None:
        self.namespace = namespace
        self._clock = clock
        self._wall = wall
        self._connection = connection
        self._execute = connection.execute
        self._path = path

    def has(self, name: str) -> bool:
        return name in _SQL

    def ask(self, *queries: Query) -> list[list[Row]]:
        execute = self._execute
        answers: list[list[Row]] = []
        try:
            for name, args in queries:
                answers.append(execute(_SQL[name], args).fetchall())
        except FAILURES as error:
            self._fail(error)
        return answers

    def rows(self, name: str, *args: Any) -> list[Row]:
        try:
            return self._execute(_SQL[name], args).fetchall()
        except FAILURES as error:
            self._fail(error)

    def row(self, name: str, *args: Any) -> Row | None:
        try:
            found: Row | None = self._execute(_SQL[name], args).fetchone()
        except FAILURES as error:
            self._fail(error)
        return found

    def range(self, name: str, one: str, low: int, high: int) -> list[Row]:
        # SQLite gives up on the whole range at a damaged page, so the other rows are read one by one.
        found: list[Row] = []
        try:
            found.extend(self._execute(_SQL[name], (low, high)))
            return found
        except FAILURES as error:
            if primary(error) != sqlite3.SQLITE_CORRUPT:
                self._fail(error)
        found = []
        for row_key in range(low, high + 1):
            try:
                found.extend(self._execute(_SQL[one], (row_key,)))
            except FAILURES as error:
                if primary(error) != sqlite3.SQLITE_CORRUPT:
                    self._fail(error)
                found.append((row_key, row_key & MAX_SEQ, None))
        return found

    def put(self, name: str, *args: Any) -> None:
        self._execute(_SQL[name], args)

    def change(self, name: str, *args: Any) -> int:
        return self._execute(_SQL[name], args).rowcount

    def rewrite_checkpoint(self, columns: Sequence[Any]) -> None:
        # Not an UPDATE: that would leave the page nearly empty. Only a DELETE merges pages.
        row = self.row("whole_checkpoint", columns[0])
        self.put("delete_checkpoint", columns[0])
        self.put("insert_checkpoint", *columns, None if row is None else row[_CELLS])

    def drop_cells(self, row_keys: Sequence[int]) -> None:
        for row_key in row_keys:
            row = self.row("whole_checkpoint", row_key)
            if row is not None:
                self.put("delete_checkpoint", row_key)
                self.put("insert_checkpoint", *row[:_CELLS], None)

    def clock(self) -> Clock:
        return self._clock()

    def wall(self) -> int:
        return self._wall()

    def announce(self) -> None:
        """Do nothing: SQLite cannot notify other processes."""

    def problems(self) -> Iterator[str]:
        """Problems of the file's pages and indexes."""
        for (line,) in self.rows("integrity"):
            if line != b"ok":
                yield f"SQLite: {to_text(line)}"
        for what, entries, rows in self.rows("index_sizes"):
            if entries != rows:
                yield f"the index of {to_text(what)} has {entries} entries for {rows} rows"

    def _fail(self, error: Failure) -> NoReturn:
        if self._path is None:
            raise error
        raise translate(error, self._path) from error


class Readers:
    """A pool of reader connections: as many as are in use at once, and a few idle ones."""

    def __init__(self, path: str, durability: Durability, timeout: float) -> None:
        self._arguments = (path, durability, timeout)
        self._door = threading.Lock()
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._taken = 0
        self._closed = False

    def take(self) -> sqlite3.Connection:
        """A connection for the exclusive use of the caller, who returns it with `give`."""
        with self._door, self._lock:
            if self._closed:
                raise rules.closed(self._arguments[0])
            self._taken += 1
            if self._idle:
                return self._idle.pop()
        try:
            return connect(*self._arguments, reading=True)
        except BaseException:
            with self._lock:
                self._taken -= 1
            raise

    def give(self, connection: sqlite3.Connection) -> None:
        """Return a connection. One that is still in a transaction is closed, not reused."""
        fit = not connection.in_transaction
        with self._lock:
            self._taken -= 1
            if fit and not self._closed and len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def pause(self, deadline: float, held: HeldLocks) -> None:
        """Block `take` until the lock in `held` is released. Wait for connections in use, until the deadline."""
        if held.take(self._door, max(0.0, deadline - time.monotonic())):
            while self._taken and time.monotonic() < deadline:
                time.sleep(0.0002)

    def is_paused(self, held: HeldLocks) -> bool:
        return held.has(self._door) and not self._taken

    def restart(self) -> None:
        """In a forked child, after `pause`: close inherited connections and start with new locks."""
        self._door = threading.Lock()
        self._lock = threading.Lock()
        for connection in self._idle:
            connection.close()
        self._idle = []
