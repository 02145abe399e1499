"""The databases, damaged row by row, and SQLite's file byte by byte."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.crash import rot_scene
from tests.crash.rot_damage import SEED, STRIDE, flipped, some
from tests.crash.rot_scene import Before, Pardon
from tests.stores.postgres.server import address, database

Row = dict[str, Any]
_SEQ = (1 << 32) - 1


def other(value: Any, point: str) -> Any:
    """Another value of the same type; None where there is none."""
    match value:
        case bool() | None:
            return None
        case int():
            return value + 1
        case bytes():
            return flipped(value, point) if value else b"\0"
        case str():
            return f"{value[:-1]}{chr(ord(value[-1]) ^ 1)}" if value else "x"
        case _:
            raise TypeError(type(value))


class Tables:
    """What the two databases share: the rows of the scene, and of its first half, and what a changed one can hurt."""

    def __init__(self, before: Before, half: dict[str, dict[Any, Row]], rows: dict[str, dict[Any, Row]]) -> None:
        self.before = before
        self.half = half
        self.rows = rows
        self._names = {row["thread_no"]: bytes(row["name"]).decode() for row in rows["thread"].values()}

    def points(self, most: int | None) -> Iterator[str]:
        columns = [
            (table, at, column)
            for table, rows in self.rows.items()
            for at, row in enumerate(rows.values())
            for column, value in row.items()
            if value is not None and column not in KEYS[table] and row.get("checksum", 0) is not None
        ]
        if most is not None:
            # One row for each column: some are in no row of those that an even choice would take.
            chance = random.Random(SEED)
            chance.shuffle(columns)
            columns = list({(table, column): (table, at, column) for table, at, column in columns}.values())[:most]
        for place in columns:
            yield "column,{},{},{}".format(*place)
        pairs = [(table, at) for table, rows in self.rows.items() for at in range(len(rows) - 1)]
        older = [
            (table, at)
            for table, rows in self.rows.items()
            for at, (key, row) in enumerate(rows.items())
            if self.half.get(table, {}).get(key, row) != row
        ]
        # A thread or an entry of a journal that is gone with all that names it was never there.
        gone = [(table, at) for table, rows in self.rows.items() for at in range(len(rows)) if table not in NAMED]
        few = None if most is None else max(most // 12, 2)
        for verb, found in (("swap", pairs), ("older", older), ("delete", gone)):
            for index in some(range(len(found)), few):
                yield "{},{},{},-".format(verb, *found[index])

    def changes(self, point: str) -> list[tuple[str, Any, Row | None]]:
        """The rows to change, by table and key, and what to; None to delete one."""
        verb, table, number, column = point.split(",")
        at = int(number)
        keys = list(self.rows[table])
        row = self.rows[table][keys[at]]
        match verb:
            case "column":
                return [(table, keys[at], {column: other(row[column], point)})]
            case "swap":
                beside = self.rows[table][keys[at + 1]]
                return [
                    (table, keys[at], self._without_key(table, beside)),
                    (table, keys[at + 1], self._without_key(table, row)),
                ]
            case "older":
                return [(table, keys[at], self._without_key(table, self.half[table][keys[at]]))]
            case _:
                return [(table, keys[at], None)]

    def pardoned(self, point: str) -> set[Pardon]:
        verb, table, _, column = point.split(",")
        if table == "checkpoint" and (verb in ("delete", "swap") or column == "label"):
            return {"labels"}
        if (table, column) == ("thread", "namespace"):
            return {"listing"}
        return {"journal", "listing"} if verb == "older" else set()

    def is_told(self, point: str) -> bool:
        verb, table, _, column = point.split(",")
        return verb == "column" and (table, column) not in UNTOLD

    def _without_key(self, table: str, row: Row) -> Row:
        return {column: value for column, value in row.items() if column not in KEYS[table]}

    def reach(self, point: str) -> set[tuple[str, int]] | None:
        verb, table, number, column = point.split(",")
        keys = list(self.rows[table])
        reach: set[tuple[str, int]] = set()
        if table in ("run", "entry", "move", "fork", "setting", "epoch", "data_key", "sweep", "act"):
            return reach
        for key in keys[int(number) : int(number) + (2 if verb == "swap" else 1)]:
            row = self.rows[table][key]
            if table not in ("checkpoint", "segment"):
                return None
            name, seq = self._names[row["row_key"] >> 32], row["row_key"] & _SEQ
            if verb == "column" and table == "checkpoint" and column not in ("cells", "row_key"):
                reach.add((name, seq))
            else:
                first = row.get("first_seq", seq)
                reach |= {(name, later) for later in self.before.threads[name].ids if later >= first}
                if name == "main":
                    reach |= {("fork", later) for later in self.before.threads["fork"].ids}
        return reach


NAMED = ("thread", "entry")
UNTOLD = {("move", "made_at"), ("move", "head"), ("blob", "stamp")}
"""Columns that no load needs, and that nothing contradicts."""
KEYS = {
    "thread": ("thread_no",),
    "checkpoint": ("row_key",),
    "segment": ("row_key",),
    "move": ("row_key",),
    "fork": ("origin", "thread"),
    "run": ("thread_no",),
    "entry": ("row_key",),
    "blob": ("blob_no",),
    "piece": ("piece_key",),
    "sweep": ("thread_no",),
    "act": ("namespace", "key"),
}


OF_FILE = ("flip,", "cut,", "page,", "pages,")  # damages of SQLite's file, not of its rows


class RottenSQLite:
    """The file's bits, its end and its pages; and its rows, past SQLite's own checks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = folder / "agent.db"
        rot_scene.begin(str(self._store))
        half = self._read()
        rot_scene.finish(str(self._store))
        self.before = rot_scene.observed(str(self._store))
        self._tables = Tables(self.before, half, self._read())
        with closing(sqlite3.connect(self._store)) as connection:
            self._page: int = connection.execute("PRAGMA page_size").fetchone()[0]

    def _read(self) -> dict[str, dict[Any, Row]]:
        with closing(sqlite3.connect(self._store)) as connection:
            connection.row_factory = sqlite3.Row
            return {
                table: {
                    tuple(row[column] for column in key): dict(row)
                    for row in connection.execute(f"SELECT * FROM {table} ORDER BY {', '.join(key)}")  # noqa: S608 - ours
                }
                for table, key in KEYS.items()
            }

    def points(self, most: int | None) -> Iterator[str]:
        size = self._store.stat().st_size
        for at in some(range(0, size, STRIDE if most is None else 1), most):
            yield f"flip,{at},-,-"
        for at in some(range(1, size), 512 if most is None else max(most // 8, 4)):
            yield f"cut,{at},-,-"
        pairs = list(permutations(range(size // self._page), 2))
        for at in some(range(len(pairs)), most):
            yield "page,{},{},-".format(*pairs[at])
        exchanged = [(one, other) for one, other in pairs if one < other]
        for at in some(range(len(exchanged)), most):
            yield "pages,{},{},-".format(*exchanged[at])
        yield from self._tables.points(most)

    def _with_pages(self, verb: str, one: int, other: int) -> bytes:
        """The file with one page overwritten by another, or with two pages swapped."""
        content, size = bytearray(self._store.read_bytes()), self._page
        first = content[one * size : (one + 1) * size]
        content[one * size : (one + 1) * size] = content[other * size : (other + 1) * size]
        if verb == "pages":
            content[other * size : (other + 1) * size] = first
        return bytes(content)

    @contextmanager
    def damaged(self, point: str) -> Generator[str]:
        copy = self._folder / "copy.db"
        shutil.copy(self._store, copy)
        try:
            verb, at, other, _ = point.split(",")
            if verb in ("page", "pages"):
                copy.write_bytes(self._with_pages(verb, int(at), int(other)))
            elif verb == "flip":
                copy.write_bytes(flipped(self._store.read_bytes(), point, int(at)))
            elif verb == "cut":
                copy.write_bytes(self._store.read_bytes()[: int(at)])
            else:
                with closing(sqlite3.connect(copy)) as connection, connection:
                    connection.execute("PRAGMA ignore_check_constraints = ON")
                    for table, key, row in self._tables.changes(point):
                        _change(connection, table, key, row)
            yield str(copy)
        finally:
            for file in self._folder.glob("copy.db*"):
                file.unlink()

    def reach(self, point: str) -> set[tuple[str, int]] | None:
        return None if point.startswith(OF_FILE) else self._tables.reach(point)

    def pardoned(self, point: str) -> set[Pardon]:
        # The index that lists threads has no second witness: only a check finds an entry that it lost.
        return {"listing"} if point.startswith(OF_FILE) else self._tables.pardoned(point)

    def is_told(self, point: str) -> bool:
        return not point.startswith(OF_FILE) and self._tables.is_told(point)


def _change(connection: sqlite3.Connection, table: str, key: Any, row: Row | None) -> None:
    where = " AND ".join(f"{column} = ?" for column in KEYS[table])
    if row is None:
        connection.execute(f"DELETE FROM {table} WHERE {where}", key)  # noqa: S608 - names of ours
    elif row:
        columns = ", ".join(f"{column} = ?" for column in row)
        connection.execute(f"UPDATE OR IGNORE {table} SET {columns} WHERE {where}", (*row.values(), *key))  # noqa: S608 - ours


class RottenPostgres:
    """Its rows. The damage is done in the store itself, and undone from a copy of all tables."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._url = address(schema)
        rot_scene.begin(self._url)
        self._columns = self._written_columns()
        half = self._read()
        rot_scene.finish(self._url)
        self.before = rot_scene.observed(self._url)
        self._tables = Tables(self.before, half, self._read())
        with self._connect() as connection:
            for table in KEYS:
                connection.execute(
                    sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}").format(
                        self._kept(table), self._names(table), self._own(table)
                    )
                )

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(database())

    def _own(self, table: str) -> sql.Identifier:
        return sql.Identifier(self._schema, table)

    def _kept(self, table: str) -> sql.Identifier:
        return sql.Identifier(self._schema, f"kept_{table}")

    def _names(self, table: str) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self._columns[table]))

    def _written_columns(self) -> dict[str, list[str]]:
        query = (
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position"
        )
        with self._connect() as connection:
            return {table: [name for (name,) in connection.execute(query, (self._schema, table))] for table in KEYS}

    def _read(self) -> dict[str, dict[Any, Row]]:
        found: dict[str, dict[Any, Row]] = {}
        with self._connect() as connection:
            for table, key in KEYS.items():
                order = sql.SQL(", ").join(map(sql.Identifier, key))
                query = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(self._names(table), self._own(table), order)
                rows = [dict(zip(self._columns[table], row, strict=True)) for row in connection.execute(query)]
                found[table] = {tuple(row[column] for column in key): row for row in rows}
        return found

    def points(self, most: int | None) -> Iterator[str]:
        # A namespace that is changed in a row and in all indexes is another one.
        return (point for point in self._tables.points(most) if not point.endswith(",namespace"))

    @contextmanager
    def damaged(self, point: str) -> Generator[str]:
        try:
            with self._connect() as connection:
                for table, key, row in self._tables.changes(point):
                    self._change(connection, table, key, row)
            yield self._url
        finally:
            with self._connect() as connection:
                for table in KEYS:
                    connection.execute(sql.SQL("DELETE FROM {}").format(self._own(table)))
                    connection.execute(
                        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
                            self._own(table), self._names(table), self._names(table), self._kept(table)
                        )
                    )

    def _change(self, connection: psycopg.Connection[Any], table: str, key: Any, row: Row | None) -> None:
        where = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in KEYS[table])
        if row is None:
            connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(self._own(table), where), key)
        elif row:
            columns = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in row)
            try:
                with connection.transaction():
                    connection.execute(
                        sql.SQL("UPDATE {} SET {} WHERE {}").format(self._own(table), columns, where),
                        (*row.values(), *key),
                    )
            except psycopg.errors.UniqueViolation:
                pass  # there is such a row already

    def reach(self, point: str) -> set[tuple[str, int]] | None:
        return self._tables.reach(point)

    def pardoned(self, point: str) -> set[Pardon]:
        return self._tables.pardoned(point)

    def is_told(self, point: str) -> bool:
        return self._tables.is_told(point)
