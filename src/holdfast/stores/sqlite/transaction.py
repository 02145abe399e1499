"""Transactions on SQLite connections, and the pool of connections that read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final, NoReturn

from holdfast.forksafe import HeldLocks
from holdfast.stores.contract_runs import Clock
from holdfast.stores.rows import to_text
from holdfast.stores.sql.pool import Pool
from holdfast.stores.sql.transaction import Query, Row
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.connection import Durability, connect
from holdfast.stores.sqlite.failures import FAILURES, Failure, translate

_SQL: Final = schema.statements()
_IDLE_READERS: Final = 16
_CELLS: Final = 7  # the column of a checkpoint


class SQLiteTransaction:
    """The statements of a transaction that the caller starts and ends. Only one transaction writes at a time.

    `path` names the store in the errors of queries. Without it, queries raise SQLite's own errors, as `put` and
    `change` always do: the writer of a file looks at them.
    """

    locks_run: ClassVar[tuple[str, ...]] = ("run_and_newest_entry",)

    __slots__ = ("_clock", "_execute", "_path", "_wall", "connection", "namespace")

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
        self.connection = connection
        # Not the method of a cursor, which may hold a failed statement. A connection with a statement keeps its
        # snapshot, and its files even when it is closed.
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

    def put(self, name: str, *args: Any) -> None:
        self._execute(_SQL[name], args)

    def change(self, name: str, *args: Any) -> int:
        return self._execute(_SQL[name], args).rowcount

    def rewrite_checkpoint(self, columns: Sequence[Any]) -> None:
        # Not an UPDATE: that would leave the page nearly empty. Only a DELETE merges pages.
        found = self.rows("whole_checkpoint", columns[0])
        self.put("delete_checkpoint", columns[0])
        self.put("insert_checkpoint", *columns, found[0][_CELLS] if found else None)

    def drop_cells(self, row_keys: Sequence[int]) -> None:
        for row_key in row_keys:
            for row in self.rows("whole_checkpoint", row_key):
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


class Readers(Pool[sqlite3.Connection]):
    """The connections that read: as many as are in use at once, and a few idle ones."""

    def __init__(self, path: str, durability: Durability, timeout: float) -> None:
        made = partial(connect, path, durability, timeout, reading=True)
        super().__init__(made, attrgetter("in_transaction"), path, idle=_IDLE_READERS)

    def pause(self, deadline: float, held: HeldLocks) -> None:
        """Block `take` until the lock in `held` is released. Wait for connections in use, until the deadline."""
        if held.take(self.door, max(0.0, deadline - time.monotonic())):
            while self.in_use and time.monotonic() < deadline:
                time.sleep(0.0002)

    def is_paused(self, held: HeldLocks) -> bool:
        return held.has(self.door) and not self.in_use

    def restart(self) -> None:
        """In a forked child, after `pause`: close inherited connections and start with new locks."""
        for _, connection in self.idle:
            connection.close()
        self.reset()
