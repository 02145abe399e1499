"""The schema and its versions, and access to the named SQL statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from importlib import resources
from typing import Final

from holdfast.stores.statements import named

# "hldf": lets `file` and other programs recognise a Holdfast store among SQLite databases.
APPLICATION_ID: Final = 0x686C6466
VERSION: Final = 2

# auto_vacuum mode: free pages can be returned a few at a time.
INCREMENTAL: Final = 2


def statements(file: str) -> Mapping[str, str]:
    """The statements of a file in `sql/`. Each starts with a line `-- name: …`."""
    return named(_text(file))


def creating(table: str) -> list[str]:
    """The statements that create a table and its indexes, without AUTOINCREMENT."""
    places = (f"TABLE {table} (", f" ON {table} (")
    scripts = (_text(f"schema_{number:04}.sql") for number in range(1, VERSION + 1))
    statements = [each for script in scripts for each in _split(script) if any(place in each for place in places)]
    return [each.replace(" AUTOINCREMENT", "") for each in statements]


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Upgrade the schema from `version` (0 for an empty file) to `VERSION`, in one transaction."""
    connection.execute("BEGIN")
    try:
        if version == 0:
            # This is written to the first page, so it must come first, in the same transaction: an interrupted creation
            # must leave nothing.
            connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        for number in range(version + 1, VERSION + 1):
            for statement in _split(_text(f"schema_{number:04}.sql")):
                connection.execute(statement)
        # PRAGMA takes no bound parameters; both are constants of this module.
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


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


def _text(file: str) -> str:
    return resources.files("holdfast.stores.sqlite").joinpath("sql", file).read_text(encoding="utf-8")
