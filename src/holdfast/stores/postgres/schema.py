"""The schema and its versions, the named SQL statements, and a set-up that many processes may run at once."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Mapping
from typing import Final

import psycopg

from holdfast.errors import NotAStore
from holdfast.stores import rules
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.sql.transaction import named, shared, text_of

VERSION: Final = 1
# The statements that lead to each version, from the one before, and optional settings.
STEPS: Final = {1: ("schema.sql", "tuning.sql")}

# Bytes, so that statements are never assembled from text by accident.
Statements = Mapping[str, bytes]

_PACKAGE: Final = "holdfast.stores.postgres"
_FILES: Final = ("opening", "reads", "commits", "guarded", "journals", "checks")
_SQLITE_ONLY: Final = re.compile(r" \{[^}]*\}")  # in shared statements
_SCHEMA: Final = re.compile(r"(E')?\bhf\b(?=\.|$)", re.MULTILINE)
_FUNCTION: Final = re.compile(r"\bguarded_\w+")
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)
# When two processes create the same thing at once, one of them fails with one of these, in spite of IF NOT EXISTS.
_RACES: Final = frozenset(("23505", "42P06", "42P07", "42710", "XX000", "40001", "40P01", "55P03"))
# The database does not have the setting or the language of functions, or (the last one) this role is not the owner.
_UNWANTED: Final = frozenset(("0A000", "42601", "42704", "42809", "42501"))
_TRIES: Final = 50


def statements(schema: str) -> Statements:
    """Every statement by name, with `hf` replaced by the store's schema."""
    both = {name: _SQLITE_ONLY.sub("", text) for name, text in shared().items()}
    return {name: _placed(text, schema).encode() for name, text in {**both, **named(_PACKAGE, *_FILES)}.items()}


def prepare(connection: Connection, sql: Statements, schema: str, shown: str, *, upgrades: bool = True) -> None:
    """Create the store if necessary, and upgrade it if it `upgrades`. The connection must not be in a transaction.

    If the store exists, nothing is created, and no permission to create anything is needed.
    """
    for attempt in range(_TRIES):
        try:
            version = _version(connection, sql, schema, shown)
            if version == VERSION:
                return
            if version and not upgrades:
                raise rules.older_format(shown, version, VERSION)
            _create(connection, sql, schema, shown)
        except psycopg.Error as error:
            if error.sqlstate not in _RACES or attempt == _TRIES - 1:
                raise
            time.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - so that the processes do not collide again


def _version(connection: Connection, sql: Statements, schema: str, shown: str) -> int:
    """The version of the existing store; 0 if there is none or its creation did not finish."""
    try:
        row = connection.execute(sql["format"]).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        # IF NOT EXISTS would accept another program's tables with these names as ours.
        if connection.execute(sql["has_other_tables"], (schema,)).fetchone() is None:
            return 0
        try:
            # Read again: another process may have created the store between the two queries.
            row = connection.execute(sql["format"]).fetchone()
        except psycopg.errors.UndefinedTable:
            raise NotAStore(f"{shown}: the schema has tables of another program; it was left unchanged") from None
    except psycopg.errors.UndefinedColumn:
        raise NotAStore(f"{shown}: the schema has tables of another program; it was left unchanged") from None
    return 0 if row is None else _known(int(row[0]), shown)


def _known(version: int, shown: str) -> int:
    if version > VERSION:
        raise rules.newer_format(shown, version, VERSION)
    return version


def _create(connection: Connection, sql: Statements, schema: str, shown: str) -> None:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        # Checked first: CREATE SCHEMA needs a permission even if the schema exists.
        if connection.execute(sql["has_schema"], (schema,)).fetchone() is None:
            connection.execute(sql["create_schema"])
        connection.execute(sql["create_setting"])
        connection.execute(sql["insert_format"])
        # The process that locks this row creates the tables. The others wait here and find them created.
        row = connection.execute(sql["lock_format"]).fetchone()
        version = 0 if row is None else _known(int(row[0]), shown)
        if version == VERSION:
            return
        for number in range(version + 1, VERSION + 1):
            tables, tuning = STEPS[number]
            for statement in _split(tables, schema):
                connection.execute(statement)
            for statement in _split(tuning, schema):
                _try(connection, statement)
        for function in named(_PACKAGE, "functions").values():  # those of this version, whichever the store had before
            _try(connection, _placed(function, schema).encode())
        connection.execute(sql["set_format"], (VERSION,))


def _try(connection: Connection, statement: bytes) -> None:
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.Error as error:
        if error.sqlstate not in _UNWANTED:
            raise


def _split(file: str, schema: str) -> list[bytes]:
    parts = _COMMENT.sub("", text_of(_PACKAGE, file)).split(";")
    return [_placed(statement.strip(), schema).encode() for statement in parts if statement.strip()]


def _placed(text: str, schema: str) -> str:
    quoted = '"' + schema.replace('"', '""') + '"'
    # A literal of the form E'…': in others, the meaning of a backslash depends on a setting.
    literal = "E'" + quoted.replace("\\", "\\\\").replace("'", "''")
    # The body of a function has the name of its schema. In a schema that was renamed, it would write to the store that
    # has the name now. So it is called by another name there, which does not exist.
    own = hashlib.sha256(schema.encode()).hexdigest()[:8]
    text = _FUNCTION.sub(lambda found: f"{found[0]}_{own}", text)
    return _SCHEMA.sub(lambda found: literal if found[1] else quoted, text)
