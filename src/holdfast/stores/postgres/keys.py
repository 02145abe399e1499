"""The wrapped keys of a namespace."""

from __future__ import annotations

from holdfast.errors import Damaged
from holdfast.stores.keys import KeyRow, moved_on
from holdfast.stores.postgres.session import Session


def key(session: Session, id: bytes) -> KeyRow | None:
    found = [_row(*row) for row in session.rows("key", session.namespace, id)]
    return found[0] if found else None


def keys(session: Session, after: bytes, limit: int) -> list[KeyRow]:
    return [_row(*row) for row in session.rows("keys", session.namespace, after, limit)]


def put(session: Session, row: KeyRow, expect: KeyRow | None) -> KeyRow:
    name = row.name.encode()
    if expect is None:
        session.put("insert_key", session.namespace, row.id, name, row.wrapped)
        kept = key(session, row.id)
        if kept is None:
            raise Damaged("a data key was stored and cannot be found")
        return kept
    # One that is there already as wanted counts: the answer to the first attempt may have been lost.
    if not session.rows(
        "replace_key", session.namespace, row.id, name, row.wrapped, expect.name.encode(), expect.wrapped
    ):
        raise moved_on()
    return row


def remove(session: Session, id: bytes) -> None:
    session.put("delete_key", session.namespace, id)


def _row(id: bytes, name: bytes, wrapped: bytes) -> KeyRow:
    return KeyRow(bytes(id), bytes(name).decode(), bytes(wrapped))
