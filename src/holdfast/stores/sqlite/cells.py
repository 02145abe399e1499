"""Read cells: find the segments that hold the spans, and unpack each segment once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import pieces, rows
from holdfast.stores.contract import Cells, Span
from holdfast.stores.rows import MAX_SEQ, SEQ_BITS
from holdfast.stores.sqlite import reading, schema
from holdfast.stores.sqlite.errors import FAILURES, primary

_SQL: Final = schema.statements("reading.sql")


def cells(connection: sqlite3.Connection, namespace: bytes, spans: Sequence[Span]) -> list[Cells]:
    found: dict[int, pieces.ByLog] = {}
    for thread, own in pieces.by_thread(spans).items():
        if reading.find_number(connection, namespace, thread) is None:
            raise Damaged(f"cells of the thread with number {thread} are missing: the thread does not exist")
        wanted = pieces.Wanted(own)
        for first, last in wanted.commits():
            keys = (thread << SEQ_BITS | first, thread << SEQ_BITS | last)
            wanted.add(chain(walk_commits(connection, *keys), connection.execute(_SQL["segments"], keys)))
        found[thread] = wanted.pieces()
    return pieces.assemble(spans, found)


def walk_commits(connection: sqlite3.Connection, low: int, high: int) -> Iterator[tuple[int, int, bytes | None]]:
    """The commits that hold cells, in order, as (row key, seq, segment).

    SQLite gives up on the whole range at a damaged page. Then the rows are read one by one, and the segment of an
    unreadable row is None.
    """
    try:
        for row in connection.execute(_SQL["cells"], (low, high)):
            yield row
            low = row[0] + 1
    except FAILURES as error:
        if primary(error) != sqlite3.SQLITE_CORRUPT:
            raise
    else:
        return
    newest = connection.execute(_SQL["last_of"], (low >> SEQ_BITS,)).fetchone()
    for row_key in range(low, min(high, rows.key(low >> SEQ_BITS, newest[0])) + 1):
        try:
            # Not a range of one row: that would also read the next row before it returns this one.
            yield from connection.execute(_SQL["cells_of_one"], (row_key,)).fetchall()
        except FAILURES as error:
            if primary(error) != sqlite3.SQLITE_CORRUPT:
                raise
            yield row_key, row_key & MAX_SEQ, None
