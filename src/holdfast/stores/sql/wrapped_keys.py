"""The wrapped keys of a namespace."""

from __future__ import annotations

from contextlib import suppress

from holdfast.stores.contract import KeyRow
from holdfast.stores.sql.transaction import Transaction


def keys(tx: Transaction, *, id: bytes | None = None, after: bytes = b"", limit: int) -> list[KeyRow]:
    if id is not None:
        return [_read(*row) for row in tx.rows("key", tx.namespace, id)]
    return [_read(*row) for row in tx.rows("keys", tx.namespace, after, max(limit, 0))]


def put(tx: Transaction, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
    if expect is None and row is not None:
        # Another transaction may insert the same key. Then this one waits, and its key is found below.
        insert(tx, row, None)
    found = [_read(*each) for each in tx.rows("lock_key", tx.namespace, id)]
    there = found[0] if found else None
    if expect is None or there != expect:
        return there
    if row is None:
        tx.put("delete_key", tx.namespace, id)
    else:
        tx.put("replace_key", tx.namespace, id, row.name.encode(), row.wrapped)
    return row


def insert(tx: Transaction, row: KeyRow, thread: int | None) -> None:
    """Store a key, unless its id is taken. `thread` is the thread that it is removed with."""
    tx.put("insert_key", tx.namespace, row.id, row.name.encode(), row.wrapped, thread)


def _read(id: bytes, name: object, wrapped: object) -> KeyRow:
    """A key from its columns. Damaged columns may have any type, and text may not be UTF-8."""
    if isinstance(name, bytes) and isinstance(wrapped, bytes):
        with suppress(UnicodeDecodeError):
            return KeyRow(id, name.decode(), wrapped)
    return KeyRow(id, "", b"")
