"""Read verbs: functions of a connection that is inside a read transaction."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import rows
from holdfast.stores.contract import CheckpointRow, ThreadRow
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD, StoredThread
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.errors import FAILURES, primary

_SQL: Final = schema.statements("reading.sql")

# Rows fetched at once when tombstones must be skipped.
_CHUNK: Final = 256


def find_thread(connection: sqlite3.Connection, namespace: bytes, name: bytes) -> StoredThread | None:
    """The thread with this name, verified; None if both indexes lack it. `Damaged` if they disagree."""
    row = connection.execute(_SQL["thread_by_name"], (namespace, name)).fetchone()
    # Different names may share a hash. Rows of other names must be undamaged, because a damaged one may be the wanted
    # thread.
    same: list[tuple[object, ...]] = []
    for candidate in connection.execute(_SQL["threads_by_hash"], (rows.name_hash(namespace, name),)):
        if (candidate[1], candidate[2]) == (namespace, name):
            same.append(candidate)
        else:
            rows.stored_thread(candidate)
    if ([] if row is None else [row]) != same:
        damage = Damaged("two lookups of a thread's name disagree; run hf.verify() to see what is affected")
        damage.known = _known_by_one(namespace, name, same if row is None else [row, *same])
        raise damage
    return None if row is None else rows.stored_thread(row)


def find_number(connection: sqlite3.Connection, namespace: bytes, thread: int) -> StoredThread | None:
    """The thread with this number, verified; None if this namespace does not have it. A dropped thread has no name."""
    if not 1 <= thread <= MAX_THREAD:
        return None
    row = connection.execute(_SQL["thread_by_number"], (thread,)).fetchone()
    if row is None:
        # As with names, two independent lookups must agree that it does not exist.
        if connection.execute(_SQL["rows_of"], (thread,)).fetchone() != (0, 0):
            raise Damaged(
                f"the record of the thread with number {thread} is missing, but its checkpoints exist; "
                "run hf.verify() to see what is affected"
            )
        return None
    found = rows.stored_thread(row)
    return found if found.namespace == namespace else None


def thread(connection: sqlite3.Connection, namespace: bytes, name: bytes) -> ThreadRow | None:
    found = find_thread(connection, namespace, name)
    if found is None:
        return None
    # A third lookup: the thread's row must agree with the table of checkpoints.
    try:
        newest, head = connection.execute(_SQL["newest_and_head"], (found.thread_no, found.head)).fetchone()
    except FAILURES as error:
        if primary(error) != sqlite3.SQLITE_CORRUPT:
            raise
        newest, head = None, None
    if newest != rows.key(found.thread_no, found.last) or head is None:
        raise found.disagreeing(newest)
    return found.record()


def _known_by_one(namespace: bytes, name: bytes, found: list[tuple[object, ...]]) -> ThreadRow | None:
    """A thread that only one of the two lookups found, if its record is undamaged."""
    for row in found:
        with suppress(Damaged):
            stored = rows.stored_thread(row)
            if (stored.namespace, stored.name) == (namespace, name):
                return stored.record()
    return None


def threads(
    connection: sqlite3.Connection, namespace: bytes, prefix: bytes, after: bytes | None, limit: int
) -> list[ThreadRow]:
    if after is None or after < prefix:
        found = connection.execute(_SQL["threads_from"], (namespace, prefix, limit))
    else:
        found = connection.execute(_SQL["threads_after"], (namespace, after, limit))
    page: list[ThreadRow] = []
    for row in found:
        stored = rows.stored_thread(row)
        # Names are ordered by their bytes, so the first one without the prefix is the end.
        if stored.name is None or not stored.name.startswith(prefix):
            break
        page.append(stored.record())
    return page


def name_of(connection: sqlite3.Connection, namespace: bytes, thread: int) -> str | None:
    found = find_number(connection, namespace, thread)
    return None if found is None or found.name is None else rows.to_text(found.name)


def numbers(connection: sqlite3.Connection, namespace: bytes) -> list[int]:
    return [number for (number,) in connection.execute(_SQL["thread_numbers"], (namespace,))]


def checkpoint(connection: sqlite3.Connection, namespace: bytes, thread: int, seq: int) -> CheckpointRow | None:
    found = find_number(connection, namespace, thread)
    if found is None or found.name is None or not 1 <= seq <= MAX_SEQ:
        return None
    row = connection.execute(_SQL["checkpoint"], (rows.key(thread, seq),)).fetchone()
    if row is not None:
        return rows.decode(*row)
    if seq <= found.last:
        raise Damaged(f"checkpoint {seq} of the thread with number {thread} is missing")
    return None


def checkpoints(
    connection: sqlite3.Connection,
    namespace: bytes,
    thread: int,
    before: int | None,
    limit: int,
    label: bytes | None,
    step: int | None,
) -> list[CheckpointRow]:
    found = find_number(connection, namespace, thread)
    if found is None or found.name is None:
        return []
    top = found.last if before is None else min(before - 1, found.last)
    low, high = rows.key(thread, 1), rows.key(thread, max(top, 0))
    expected: int | None = None
    if label is not None:
        cursor = connection.execute(_SQL["checkpoints_by_label"], (thread, label, high))
    else:
        # Steps are compared below, after a row is verified: a WHERE clause would miss a row with a damaged step.
        cursor = connection.execute(_SQL["checkpoints"], (low, high))
        expected = top
    page: list[CheckpointRow] = []
    met: list[int] = []
    while len(page) < limit:
        chunk = cursor.fetchmany(_CHUNK if step is not None else min(limit - len(page), _CHUNK))
        if not chunk:
            break
        met += [fields[0] for fields in chunk]
        for fields in chunk:
            row = rows.decode(*fields)
            # Tombstones keep their rows, so a gap means damage.
            if expected is not None:
                _expect(thread, row.seq, expected)
                expected -= 1
            if not row.deleted and (step is None or row.step == step):
                page.append(row)
                if len(page) == limit:
                    break
    is_full = len(page) >= limit
    if expected is not None and not is_full:
        _expect(thread, 0, expected)
    if label is not None and limit > 0:
        _confirm(connection, label, (met[-1] if is_full else low, high), met)
    return page


def walk(
    connection: sqlite3.Connection, namespace: bytes, thread: int, after: int, limit: int
) -> list[CheckpointRow | Damaged]:
    """Complete checkpoints of a range of seqs; an unreadable one is represented by its error."""
    found = find_number(connection, namespace, thread)
    if found is None or found.name is None:
        return []
    first, end = after + 1, min(after + limit, found.last) + 1
    stored: dict[int, CheckpointRow | Damaged] = {}
    try:
        for row in connection.execute(_SQL["walk"], (rows.key(thread, first), rows.key(thread, end))):
            stored[row[0] & MAX_SEQ] = _decoded(row)
    except FAILURES as error:
        if primary(error) != sqlite3.SQLITE_CORRUPT:
            raise
        # SQLite gives up on the whole range at a damaged page, so the other rows are read one by one.
        for seq in range(first, end):
            if seq not in stored:
                stored[seq] = _alone(connection, thread, seq)
    return [stored.get(seq) or _missing(thread, seq) for seq in range(first, end)]


def _alone(connection: sqlite3.Connection, thread: int, seq: int) -> CheckpointRow | Damaged:
    try:
        row = connection.execute(_SQL["checkpoint"], (rows.key(thread, seq),)).fetchone()
    except FAILURES as error:
        if primary(error) != sqlite3.SQLITE_CORRUPT:
            raise
        return Damaged(f"checkpoint {seq} of the thread with number {thread} is on a damaged page")
    return _missing(thread, seq) if row is None else _decoded(row)


def _decoded(row: tuple[Any, ...]) -> CheckpointRow | Damaged:
    try:
        return rows.decode(*row)
    except Damaged as damage:
        return damage


def refs(connection: sqlite3.Connection, namespace: bytes, thread: int, after: int, limit: int) -> list[CheckpointRow]:
    """A page of checkpoints with refs. A gap is `Damaged`: a sweep would drop the cells of a missing checkpoint."""
    found = find_number(connection, namespace, thread)
    if found is None or found.name is None:
        return []
    expected = max(after, 0) + 1
    cursor = connection.execute(_SQL["refs"], (rows.key(thread, min(expected, MAX_SEQ)), rows.key(thread, MAX_SEQ)))
    page: list[CheckpointRow] = []
    while len(page) < limit:
        chunk = cursor.fetchmany(min(limit - len(page), _CHUNK))
        if not chunk:
            break
        for fields in chunk:
            row = rows.decode(*fields, keep_meta=False)
            _expect(thread, row.seq, expected)
            expected += 1
            if not row.deleted:
                page.append(row)
    else:
        return page
    if expected <= found.last:
        _expect(thread, 0, expected)
    return page


def last(connection: sqlite3.Connection, namespace: bytes, thread: int) -> int:
    found = find_number(connection, namespace, thread)
    return 0 if found is None else found.last


def forks(connection: sqlite3.Connection, namespace: bytes, thread: int) -> list[int]:
    """The forks of a thread, from two lookups that must agree (else `Damaged`): sweep and drop rely on them."""
    if find_number(connection, namespace, thread) is None:
        return []
    registered = connection.execute(_SQL["forks"], (thread,)).fetchall()
    if registered != connection.execute(_SQL["forks_in_index"], (thread,)).fetchall():
        raise Damaged(
            f"two lookups of the forks of the thread with number {thread} disagree; "
            "run hf.verify() to see what is affected"
        )
    using: list[int] = []
    for (number,) in registered:
        fork = find_number(connection, namespace, number)
        if fork is None:
            raise Damaged(
                f"the thread with number {number}, a fork of the thread with number {thread}, is missing; "
                "run hf.verify() to see what is affected"
            )
        # A dropped thread stays registered, so that forks of it find its origins, but it uses no cells.
        if fork.name is not None:
            using.append(number)
    return using


def _confirm(connection: sqlite3.Connection, label: bytes, ends: tuple[int, int], met: list[int]) -> None:
    """`Damaged` unless the index and the rows agree on which checkpoints have the label.

    If the index lost an entry, an older checkpoint would be returned instead of the newest.
    """
    if [row_key for (row_key,) in connection.execute(_SQL["labelled"], (*ends, label))] != met:
        raise Damaged("a label is missing from the index of labels; run hf.verify() to see what is affected")


def _expect(thread: int, seq: int, expected: int) -> None:
    if seq != expected:
        raise _missing(thread, expected)


def _missing(thread: int, seq: int) -> Damaged:
    return Damaged(f"checkpoint {seq} of the thread with number {thread} is missing")
