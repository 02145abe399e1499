"""The schema, its versions, the statements by name, and the set-up that many processes may begin at once."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from importlib import resources
from typing import Final

import psycopg

from holdfast.errors import NewerFormat, NotAStore
from holdfast.stores.postgres.pool import Connection
from holdfast.stores.statements import named

VERSION: Final = 2

# Bytes: what is to be executed is never put together from text by accident.
Statements = Mapping[str, bytes]

_FILES: Final = ("opening", "reading", "runs", "writing", "maintenance", "check", "quick", "keys")
_SCHEMA: Final = re.compile(r"(E')?\bhf\b(?=\.|$)", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)
# Two who create the same thing at once: one of them is told so, in one of many ways, in spite of IF NOT EXISTS.
_RACES: Final = frozenset(("23505", "42P06", "42P07", "42710", "XX000", "40001", "40P01", "55P03"))
# A database that knows no such setting says so in one of these ways; who is not the owner, in the last.
_UNWANTED: Final = frozenset(("0A000", "42601", "42809", "42501"))
_TRIES: Final = 50


def statements(schema: str) -> Statements:
    """Every statement by name, with the store's schema for `hf`."""
    found: dict[str, str] = {}
    for file in _FILES:
        found.update(named(_text(f"{file}.sql")))
    return {name: _placed(text, schema).encode() for name, text in found.items()}


def prepare(connection: Connection, sql: Statements, schema: str, shown: str) -> None:
    """Create or upgrade the store, unless it is as it should be. The connection is in no transaction.

    Nothing is created, and no right to create anything is needed, where the store is there already.
    """
    for attempt in range(_TRIES):
        try:
            version = _version(connection, sql, schema, shown)
            if version == VERSION:
                return
            _create(connection, sql, schema, shown)
        except psycopg.Error as error:
            if error.sqlstate not in _RACES or attempt == _TRIES - 1:
                raise
            time.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - only so that they do not meet again


def _version(connection: Connection, sql: Statements, schema: str, shown: str) -> int:
    """The version of what is there, 0 if there is nothing yet or it is not finished."""
    try:
        row = connection.execute(sql["format"]).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        # Tables of these names that are not ours would be taken for ours by IF NOT EXISTS.
        if connection.execute(sql["has_other_tables"], (schema,)).fetchone() is not None:
            raise NotAStore(f"{shown}: the schema has tables of another program; it was left as it was") from None
        return 0
    except psycopg.errors.UndefinedColumn:
        raise NotAStore(f"{shown}: the schema has tables of another program; it was left as it was") from None
    return 0 if row is None else _known(int(row[0]), shown)


def _known(version: int, shown: str) -> int:
    if version > VERSION:
        raise NewerFormat(
            f"{shown}: written by a newer Holdfast (format {version}, this one reads up to {VERSION}); "
            "it was left as it was. Upgrade to read it"
        )
    return version


def _create(connection: Connection, sql: Statements, schema: str, shown: str) -> None:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        # Asked first: CREATE SCHEMA needs a right of its own, even where there is nothing to create.
        if connection.execute(sql["has_schema"], (schema,)).fetchone() is None:
            connection.execute(sql["create_schema"])
        connection.execute(sql["create_setting"])
        connection.execute(sql["insert_format"])
        # Whoever has this row makes the tables. The others wait here, and find them made.
        row = connection.execute(sql["lock_format"]).fetchone()
        version = 0 if row is None else _known(int(row[0]), shown)
        if version == VERSION:
            return
        for number in range(version + 1, VERSION + 1):
            for statement in _split(f"schema_{number:04}.sql", schema):
                connection.execute(statement)
            for statement in _split(f"tuning_{number:04}.sql", schema):
                _try(connection, statement)
        connection.execute(sql["set_format"], (VERSION,))


def _try(connection: Connection, statement: bytes) -> None:
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.Error as error:
        if error.sqlstate not in _UNWANTED:
            raise


def _split(file: str, schema: str) -> list[bytes]:
    parts = _COMMENT.sub("", _text(file)).split(";")
    return [_placed(statement.strip(), schema).encode() for statement in parts if statement.strip()]


def _placed(text: str, schema: str) -> str:
    quoted = '"' + schema.replace('"', '""') + '"'
    # In a literal that says how it is escaped: without, it would depend on a setting what a backslash is.
    literal = "E'" + quoted.replace("\\", "\\\\").replace("'", "''")
    return _SCHEMA.sub(lambda found: literal if found[1] else quoted, text)


def _text(file: str) -> str:
    return resources.files("holdfast.stores.postgres").joinpath("sql", file).read_text(encoding="utf-8")
