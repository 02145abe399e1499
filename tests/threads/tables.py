"""The tables of a store, changed by somebody who can write them: the same statements for SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import psycopg

from holdfast import Cipher, Holdfast
from tests.stores.postgres.server import database, schema_of
from tests.threads.wholes import opened

KINDS = ("sqlite", "postgres")
_KEYS = {"checkpoint": "row_key", "entry": "row_key", "piece": "piece_key"}


class Tables:
    """The store "store" of a folder. In statements, `?` is a value."""

    def __init__(self, kind: Literal["sqlite", "postgres"], folder: Path) -> None:
        self.kind = kind
        self.folder = folder

    def opened(self, cipher: Cipher | None = None) -> Holdfast:
        return opened(self.kind, self.folder, cipher=cipher)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._done(query, values)[0]

    def execute(self, statement: str, *values: Any) -> None:
        """Change something; what changes nothing is a mistake in the test."""
        assert self._done(statement, values)[1], statement

    def change_blob(self, table: str, column: str, where: str, change: Callable[[bytearray], None]) -> None:
        key = _KEYS[table]
        found = self.rows(f"SELECT {key}, {column} FROM {table} WHERE {where}")  # noqa: S608 - texts of the tests
        assert found
        for row_key, blob in found:
            changed = bytearray(blob)
            change(changed)
            self.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", bytes(changed), row_key)  # noqa: S608 - as above

    def in_thread(self, name: str) -> str:
        """Which rows are of a thread."""
        [(number,)] = self.rows("SELECT thread_no FROM thread WHERE name = ?", name.encode())
        return f"row_key >> 32 = {number:d}"

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table of a PostgreSQL store, with the transaction that wrote it."""
        return {
            table: self.rows(f"SELECT xmin::text, {', '.join(columns)} FROM {table} ORDER BY ctid")  # noqa: S608 - as above
            for table, columns in self._columns().items()
        }

    def put_back(self, content: dict[str, list[tuple[Any, ...]]]) -> None:
        """Make a PostgreSQL store what it was, as who restores an older dump of it."""
        for table, columns in self._columns().items():
            self._done(f"DELETE FROM {table}", ())  # noqa: S608 - as above
            marks = ", ".join("?" for _ in columns)
            for _, *row in content[table]:
                self.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", *row)  # noqa: S608 - as above

    def _columns(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for table, column in self.rows(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND is_generated = 'NEVER' ORDER BY table_name, ordinal_position"
        ):
            found.setdefault(table, []).append(column)
        assert "checkpoint" in found
        return found

    def _done(self, statement: str, values: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], int]:
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.folder / "store.db")) as connection, connection:
                made = connection.execute(statement, values)
                return made.fetchall(), made.rowcount
        with psycopg.connect(database()) as server:
            server.execute(b"SET search_path TO %b" % schema_of(self.folder / "store").encode())
            done = server.execute(statement.replace("%", "%%").replace("?", "%s").encode(), values)
            return done.fetchall() if done.description else [], done.rowcount
