"""The schema and its versions, and access to the named SQL statements."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from typing import Final

from holdfast.stores.sql.transaction import named, shared, text_of

# "hldf": lets `file` and other programs recognise a Holdfast store among SQLite databases.
APPLICATION_ID: Final = 0x686C6466
VERSION: Final = 1
# The statements that lead to each version, from the one before.
STEPS: Final = {1: "schema.sql"}

# auto_vacuum mode: free pages can be returned a few at a time.
INCREMENTAL: Final = 2

_INDEX: Final = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+)", re.MULTILINE)
_DEFINITIONS: Final = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"
_NUMBERS: Final = b"CREATE TABLE sqlite_sequence(name,seq)"  # of SQLite itself, for AUTOINCREMENT
_OBJECTS: Final = "SELECT rowid, type, name, tbl_name, sql FROM sqlite_schema"
_PACKAGE: Final = "holdfast.stores.sqlite"
_FILES: Final = ("reads", "commits", "journals", "upkeep", "checks")
# Of shared statements: what SQLite does not have, and the sign for a parameter.
_FOREIGN: Final = re.compile(r"\bhf\.|::\w+| FOR (?:UPDATE|SHARE)$|[{}]")
_PARAMETER: Final = re.compile(r"\$(\d+)")


def statements(*files: str) -> Mapping[str, str]:
    """The statements of files in `sql/`, by name; without `files`, all that verbs use."""
    if files:
        return named(_PACKAGE, *files)
    both = {name: _PARAMETER.sub(r"?\1", _FOREIGN.sub("", text)) for name, text in shared().items()}
    return {**both, **named(_PACKAGE, *_FILES)}


def creating(table: str) -> list[str]:
    """The statements that create a table and its indexes, without AUTOINCREMENT."""
    places = (f"TABLE {table} (", f" ON {table} (")
    statements = [each for each in _split(text_of(_PACKAGE, "schema.sql")) if any(place in each for place in places)]
    return [each.replace(" AUTOINCREMENT", "") for each in statements]


def reindexing() -> list[str]:
    """The statements that rebuild every index."""
    return [f"REINDEX {name}" for name in _INDEX.findall(text_of(_PACKAGE, "schema.sql"))]


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Upgrade the schema from `version` (0 for an empty file) to `VERSION`, in one transaction."""
    connection.execute("BEGIN")
    try:
        if version == 0:
            # This is written to the first page, so it must come first, in the same transaction: an interrupted creation
            # must leave nothing.
            connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        create(connection, version)
        # PRAGMA takes no bound parameters; both are constants of this module.
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create(connection: sqlite3.Connection, version: int = 0, *, to: int | None = None) -> None:
    """Run the statements that lead from `version` to `VERSION`, or to another one."""
    for number in range(version + 1, (to or VERSION) + 1):
        for statement in _split(text_of(_PACKAGE, STEPS[number])):
            connection.execute(statement)


def pragma(connection: sqlite3.Connection, name: str) -> object:
    """The value of a setting; None if SQLite does not know it."""
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return None if row is None else row[0]


def objects(connection: sqlite3.Connection) -> frozenset[bytes]:
    """The definitions of all tables, indexes, triggers and views in a database.

    Without AUTOINCREMENT, which a repaired copy does not have, and without the table that SQLite keeps for it.
    """
    found = {definition for (definition,) in connection.execute(_DEFINITIONS)}
    return frozenset(each.replace(b" AUTOINCREMENT", b"") for each in found - {_NUMBERS})


@cache
def known(version: int) -> frozenset[bytes]:
    """The definitions in a store of this version."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.text_factory = bytes
        create(connection, to=version)
        return objects(connection)


def restore(connection: sqlite3.Connection) -> None:
    """Remove the objects of other programs from a copy of a store, and correct or add definitions of its own.

    Only for a copy to read from. Without effect on a file that is not a store of this version.
    """
    # Otherwise SQLite reads nothing from a file with a definition that it cannot parse.
    connection.execute("PRAGMA writable_schema = ON")
    if (pragma(connection, "application_id"), pragma(connection, "user_version")) != (APPLICATION_ID, VERSION):
        return
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        new.text_factory = bytes
        create(new)
        ours = [definition for _, *definition in new.execute(_OBJECTS)]
    for number, *found in connection.execute(_OBJECTS).fetchall():
        # One flipped bit leaves either the type and the name, or the statement.
        alike = [each for each in ours if each[:2] == found[:2] or each[3] == found[3]]
        if not alike:
            connection.execute("DELETE FROM sqlite_schema WHERE rowid = ?", (number,))
        elif found != alike[0]:
            # As text: SQLite ignores a definition that is a blob.
            texts = [part.decode() for part in alike[0]]
            statement = "UPDATE sqlite_schema SET type = ?, name = ?, tbl_name = ?, sql = ? WHERE rowid = ?"
            connection.execute(statement, (*texts, number))
    connection.execute("PRAGMA writable_schema = RESET")  # reads the corrected definitions
    missing = known(VERSION) - objects(connection)
    for *_, definition in ours:
        if definition is not None and definition.replace(b" AUTOINCREMENT", b"") in missing:
            with suppress(sqlite3.IntegrityError):  # rows that a unique index does not accept
                connection.execute(definition.decode())


def _split(script: str) -> list[str]:
    """Split a script into statements. `executescript` would commit the current transaction."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
