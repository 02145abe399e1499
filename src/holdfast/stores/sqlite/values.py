"""Blobs: stored once per namespace, stamped by every commit that contains or refers to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import sharing
from holdfast.stores.contract import Blob
from holdfast.stores.sharing import Packed, pack
from holdfast.stores.sqlite import schema

_READING: Final = schema.statements("reading.sql")
_WRITING: Final = schema.statements("writing.sql")

_PIECE_BITS: Final = 24


def known(connection: sqlite3.Connection, namespace: bytes, value: Blob) -> bool:
    """Whether the blob is already stored, so that packing it is probably unnecessary."""
    return connection.execute(_READING["value"], (namespace, value.digest)).fetchone() is not None


def keep(
    connection: sqlite3.Connection,
    namespace: bytes,
    values: Sequence[Blob],
    packed: Sequence[list[Packed] | None],
) -> None:
    """Store each blob, or stamp the stored one, inside a write transaction."""
    epoch = _said(connection.execute(_WRITING["epoch"]).fetchone())
    for value, ready in zip(values, packed, strict=True):
        row = connection.execute(_WRITING["find_value"], (namespace, value.digest)).fetchone()
        if row is not None:
            number, stamp = row
            if stamp < epoch:
                connection.execute(_WRITING["stamp_value"], (number, epoch))
            continue
        pieces = pack(value) if ready is None else ready  # None: the blob existed then, and was swept since
        (number,) = connection.execute(
            _WRITING["insert_value"], (namespace, value.digest, len(pieces), epoch)
        ).fetchone()
        connection.executemany(
            _WRITING["insert_piece"],
            [(number << _PIECE_BITS | index, piece.size, piece.data) for index, piece in enumerate(pieces)],
        )


def read(connection: sqlite3.Connection, namespace: bytes, digest: bytes) -> list[bytes]:
    """The pieces of a blob, verified by its digest."""
    row = connection.execute(_READING["value"], (namespace, digest)).fetchone()
    if row is None:
        raise sharing.missing(digest)
    number, count = row
    stored = connection.execute(_READING["value_pieces"], (number,))
    return sharing.unpack(digest, count, ((size, data) for _, size, data in stored))


def advance(connection: sqlite3.Connection, _namespace: bytes) -> int:
    """Start a new epoch and return it."""
    return _said(connection.execute(_WRITING["advance_epoch"]).fetchone())


def _said(row: tuple[int] | None) -> int:
    if row is None:
        raise Damaged("the store's epoch is missing; nothing was changed")
    return row[0]


def stale(
    connection: sqlite3.Connection, namespace: bytes, epoch: int, after: int, limit: int
) -> list[tuple[int, bytes]]:
    """A page of blobs stamped before `epoch`: their numbers and digests."""
    return connection.execute(_WRITING["stale_values"], (namespace, epoch, after, limit)).fetchall()


def remove(connection: sqlite3.Connection, _namespace: bytes, numbers: Collection[int], epoch: int) -> int:
    """Drop the blobs that are still stamped before `epoch`; return how many."""
    removed = 0
    for number in numbers:
        if connection.execute(_WRITING["delete_value"], (number, epoch)).rowcount:
            connection.execute(_WRITING["delete_pieces"], (number,))
            removed += 1
    return removed
