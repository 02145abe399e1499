"""Read the SQLite database of another system in one snapshot, while other processes may write to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InvalidArgument, NotFound, StoreError
from holdfast.importers.frame import Unusable

_RECOVER: Final = "if the file is damaged, import from a copy made with `sqlite3 FILE .recover`"


class SqliteFile:
    """A SQLite file with given tables and columns. Rows that cannot be read raise `Unusable`."""

    def __init__(self, path: str, tables: Mapping[str, frozenset[str]], what: str, limit: int) -> None:
        """NotFound if the file does not exist, InvalidArgument if it is not a `what`."""
        if os.path.isdir(path):
            raise InvalidArgument(f"{path} is a folder, not a {what}")
        if not os.path.isfile(path):
            raise NotFound(f"there is no file {path}")
        self._connection = connect(path, limit)
        try:
            self._connection.execute("BEGIN")
            missing = [table for table, columns in tables.items() if not self.columns(table) >= columns]
        except sqlite3.DatabaseError as error:
            self.close()
            raise InvalidArgument(f"{path} cannot be read as a SQLite database: {error}; {_RECOVER}") from error
        if missing:
            self.close()
            raise InvalidArgument(f"{path} is not a {what}: table {missing[0]} is missing or has other columns")

    def columns(self, table: str) -> set[str]:
        """The columns of a table; empty if it does not exist. Views do not count: a view is an untrusted query."""
        found = self._connection.execute(
            "SELECT info.name FROM sqlite_schema AS it, pragma_table_info(it.name) AS info "
            "WHERE it.type = 'table' AND it.name = ?",
            (table,),
        )
        return {name for (name,) in found}

    def rows(self, sql: str, *given: Any) -> Iterator[Any]:
        """The rows of a query. Unusable if the file is damaged or a value exceeds the limit."""
        try:
            yield from self._connection.execute(sql, given)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            raise Unusable(f"SQLite cannot read it: {error}") from error

    def row(self, sql: str, number: int) -> Any:
        """One row, by its number. Unusable also if an index has it and the table does not."""
        found = [*self.rows(sql, number)]
        if not found:
            raise Unusable("SQLite cannot find it by its row number")
        return found[0]

    def listed(self, sql: str) -> list[Any]:
        """All rows of a query that the import depends on. StoreError if the file is damaged."""
        try:
            return [*self.rows(sql)]
        except Unusable as error:
            raise StoreError(f"{error}; {_RECOVER}") from error

    def close(self) -> None:
        self._connection.close()


def connect(path: str, limit: int | None = None) -> sqlite3.Connection:
    """Open a read-only connection that also reads invalid text. `limit` is the maximum length of a value."""
    uri = Path(path).absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        # In a folder without write permission SQLite can open the file only as immutable, and only without a WAL.
        connection.close()
        if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
            raise InvalidArgument(
                f"{path} has a write-ahead log that cannot be read in this folder; copy both files to a folder "
                "that you can write to"
            ) from None
        connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.DatabaseError:
        pass  # the next read reports it
    connection.text_factory = _text
    if limit is not None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _text(data: bytes) -> str:
    """Decode text without errors, so that a damaged row does not stop the reading of others."""
    return data.decode("utf-8", "surrogateescape")
