"""A database of another system in a file of SQLite's, read as it is at one moment; others may go on writing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InvalidArgument, NotFound, StoreError
from holdfast.importers.frame import Unusable

_RECOVER: Final = "if it is one that is damaged, import from a copy that `sqlite3 FILE .recover` makes"


class SqliteFile:
    """A file with these tables, each with at least these columns. What cannot be read in it is `Unusable`."""

    def __init__(self, path: str, tables: Mapping[str, frozenset[str]], what: str, limit: int) -> None:
        """NotFound if there is no such file, InvalidArgument if it is something else than `what`."""
        if os.path.isdir(path):
            raise InvalidArgument(f"{path} is a folder, and no {what}")
        if not os.path.isfile(path):
            raise NotFound(f"there is no file {path}")
        self._connection = connect(path, limit)
        try:
            self._connection.execute("BEGIN")
            missing = [table for table, columns in tables.items() if not self.columns(table) >= columns]
        except sqlite3.DatabaseError as error:
            self.close()
            raise InvalidArgument(f"{path} cannot be read as a database of SQLite: {error}; {_RECOVER}") from error
        if missing:
            self.close()
            raise InvalidArgument(f"{path} is no {what}: it has no table {missing[0]} as that writes it")

    def columns(self, table: str) -> set[str]:
        """The columns of a table; none if there is no such table. A view is none: it is a query of somebody else's."""
        found = self._connection.execute(
            "SELECT info.name FROM sqlite_schema AS it, pragma_table_info(it.name) AS info "
            "WHERE it.type = 'table' AND it.name = ?",
            (table,),
        )
        return {name for (name,) in found}

    def rows(self, sql: str, *given: Any) -> Iterator[Any]:
        """Rows of a query. Unusable where the file is damaged, or a value is over the limit."""
        try:
            yield from self._connection.execute(sql, given)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            raise Unusable(f"SQLite cannot read it: {error}") from error

    def row(self, sql: str, number: int) -> Any:
        """One row, by its number. Unusable also if an index names it and the table does not have it."""
        found = [*self.rows(sql, number)]
        if not found:
            raise Unusable("SQLite cannot find it by its number")
        return found[0]

    def listed(self, sql: str) -> list[Any]:
        """All rows of a query without which there is nothing to import. StoreError where the file is damaged."""
        try:
            return [*self.rows(sql)]
        except Unusable as error:
            raise StoreError(f"{error}; {_RECOVER}") from error

    def close(self) -> None:
        self._connection.close()


def connect(path: str, limit: int | None = None) -> sqlite3.Connection:
    """A connection that changes nothing and reads texts of damaged rows, too. `limit` is how long a value may be."""
    uri = Path(path).absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        # In a folder that cannot be written to, a file is read alone, if there is nothing beside it.
        connection.close()
        if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
            raise InvalidArgument(
                f"{path} has a journal beside it that cannot be read there; copy both to a folder of your own"
            ) from None
        connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.DatabaseError:
        pass  # told by whoever reads it next
    connection.text_factory = _text
    if limit is not None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _text(data: bytes) -> str:
    """Text of a damaged row must not end the reading of the others."""
    return data.decode("utf-8", "surrogateescape")
