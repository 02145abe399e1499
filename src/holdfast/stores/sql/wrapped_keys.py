"""The wrapped keys of a namespace."""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.stores.contract import KeyRow, key_changed
from holdfast.stores.sql.transaction import Transaction


def key(tx: Transaction, id: bytes) -> KeyRow | None:
    row = tx.row("key", tx.namespace, id)
    if row is None:
        return None
    read = _read(*row)
    if read is None:
        raise Damaged("the record of a data key cannot be read")
    return read


def keys(tx: Transaction, after: bytes, limit: int) -> list[KeyRow]:
    # An unreadable key must not hide the others.
    return [_read(*row) or KeyRow(bytes(row[0]), "", b"") for row in tx.rows("keys", tx.namespace, after, limit)]


def put(tx: Transaction, row: KeyRow, expect: KeyRow | None) -> KeyRow:
    name = row.name.encode()
    if expect is None:
        tx.put("insert_key", tx.namespace, row.id, name, row.wrapped)
        stored = key(tx, row.id)
        if stored is None:
            raise Damaged("a data key was stored but cannot be found")
        return stored
    # A key that is already as wanted counts as replaced: the result of the first attempt may have been lost.
    if not tx.change("replace_key", tx.namespace, row.id, name, row.wrapped, expect.name.encode(), expect.wrapped):
        raise key_changed()
    return row


def remove(tx: Transaction, id: bytes, expect: KeyRow | None) -> None:
    if expect is None:
        tx.put("delete_key", tx.namespace, id)
    else:
        tx.put("delete_expected_key", tx.namespace, id, expect.name.encode(), expect.wrapped)


def _read(id: bytes, name: object, wrapped: object) -> KeyRow | None:
    """A key from its columns; None if it is damaged. Damaged columns may have any type, and text may not be UTF-8."""
    if not isinstance(name, bytes) or not isinstance(wrapped, bytes):
        return None
    try:
        return KeyRow(id, name.decode(), wrapped)
    except UnicodeDecodeError:
        return None
