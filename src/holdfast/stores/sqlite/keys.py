"""The wrapped keys of a namespace."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores.keys import KeyRow, moved_on, unreadable
from holdfast.stores.sqlite import schema

_KEYS: Final = schema.statements("keys.sql")


def key(connection: sqlite3.Connection, namespace: bytes, id: bytes) -> KeyRow | None:
    row = connection.execute(_KEYS["key"], (namespace, id)).fetchone()
    if row is None:
        return None
    read = _row(*row)
    if read is None:
        raise Damaged("the record of a data key cannot be read")
    return read


def keys(connection: sqlite3.Connection, namespace: bytes, after: bytes, limit: int) -> list[KeyRow]:
    found = connection.execute(_KEYS["keys"], (namespace, after, limit))
    # An unreadable key must not hide the others.
    return [_row(*row) or unreadable(row[0]) for row in found]


def put(connection: sqlite3.Connection, namespace: bytes, row: KeyRow, expect: KeyRow | None) -> KeyRow:
    if expect is None:
        connection.execute(_KEYS["insert_key"], (namespace, row.id, row.name, row.wrapped))
        kept = key(connection, namespace, row.id)
        if kept is None:
            raise Damaged("a data key was stored but cannot be found")
        return kept
    values = (namespace, row.id, row.name, row.wrapped, expect.name, expect.wrapped)
    if not connection.execute(_KEYS["replace_key"], values).rowcount:
        raise moved_on()
    return row


def remove(connection: sqlite3.Connection, namespace: bytes, id: bytes, expect: KeyRow | None) -> None:
    if expect is None:
        connection.execute(_KEYS["delete_key"], (namespace, id))
    else:
        connection.execute(_KEYS["delete_key_as_it_was"], (namespace, id, expect.name, expect.wrapped))


def _row(id: bytes, name: Any, wrapped: Any) -> KeyRow | None:
    """A key from its columns; None if it is damaged. Damaged columns may have any type, and text may not be UTF-8."""
    if not isinstance(name, bytes) or not isinstance(wrapped, bytes):
        return None
    try:
        return KeyRow(id, name.decode(), wrapped)
    except UnicodeDecodeError:
        return None
