"""The wrapped keys of a namespace."""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.stores.keys import KeyRow, moved_on, unreadable
from holdfast.stores.postgres.session import Transaction


def key(session: Transaction, id: bytes) -> KeyRow | None:
    row = session.row("key", session.namespace, id)
    if row is None:
        return None
    read = _row(*row)
    if read is None:
        raise Damaged("the record of a data key cannot be read")
    return read


def keys(session: Transaction, after: bytes, limit: int) -> list[KeyRow]:
    # An unreadable key must not hide the others.
    return [_row(*row) or unreadable(bytes(row[0])) for row in session.rows("keys", session.namespace, after, limit)]


def put(session: Transaction, row: KeyRow, expect: KeyRow | None) -> KeyRow:
    name = row.name.encode()
    if expect is None:
        session.put("insert_key", session.namespace, row.id, name, row.wrapped)
        kept = key(session, row.id)
        if kept is None:
            raise Damaged("a data key was stored but cannot be found")
        return kept
    # A key that is already as wanted counts as replaced: the result of the first attempt may have been lost.
    if not session.rows(
        "replace_key", session.namespace, row.id, name, row.wrapped, expect.name.encode(), expect.wrapped
    ):
        raise moved_on()
    return row


def remove(session: Transaction, id: bytes, expect: KeyRow | None) -> None:
    if expect is None:
        session.put("delete_key", session.namespace, id)
    else:
        session.put("delete_key_as_it_was", session.namespace, id, expect.name.encode(), expect.wrapped)


def _row(id: bytes, name: bytes, wrapped: bytes) -> KeyRow | None:
    """A key from its columns; None if it is damaged."""
    try:
        return KeyRow(bytes(id), bytes(name).decode(), bytes(wrapped))
    except UnicodeDecodeError:
        return None
