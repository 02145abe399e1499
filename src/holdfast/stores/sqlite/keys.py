"""The wrapped keys of a namespace."""

from __future__ import annotations

import sqlite3
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores.keys import KeyRow, moved_on
from holdfast.stores.sqlite import schema

_KEYS: Final = schema.statements("keys.sql")


def key(connection: sqlite3.Connection, namespace: bytes, id: bytes) -> KeyRow | None:
    row = connection.execute(_KEYS["key"], (namespace, id)).fetchone()
    return None if row is None else _row(*row)


def keys(connection: sqlite3.Connection, namespace: bytes, after: bytes, limit: int) -> list[KeyRow]:
    return [_row(*row) for row in connection.execute(_KEYS["keys"], (namespace, after, limit))]


def put(connection: sqlite3.Connection, namespace: bytes, row: KeyRow, expect: KeyRow | None) -> KeyRow:
    if expect is None:
        connection.execute(_KEYS["insert_key"], (namespace, row.id, row.name, row.wrapped))
        kept = key(connection, namespace, row.id)
        if kept is None:
            raise Damaged("a data key was stored and cannot be found")
        return kept
    values = (namespace, row.id, row.name, row.wrapped, expect.name, expect.wrapped)
    if not connection.execute(_KEYS["replace_key"], values).rowcount:
        raise moved_on()
    return row


def remove(connection: sqlite3.Connection, namespace: bytes, id: bytes) -> None:
    connection.execute(_KEYS["delete_key"], (namespace, id))


def _row(id: bytes, name: bytes, wrapped: bytes) -> KeyRow:
    """Texts come as bytes: what is damaged need not be UTF-8."""
    try:
        return KeyRow(id, name.decode(), wrapped)
    except UnicodeDecodeError as error:
        raise Damaged("the record of a data key cannot be read") from error
