"""Write verbs: functions of the writer connection, inside a write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from typing import Final

from holdfast.errors import AlreadyExists, Conflict, Damaged, NotFound, Protected, TooLarge
from holdfast.stores import leases, preparing, records, rows, segment
from holdfast.stores.contract import Commit, Position, Summary
from holdfast.stores.preparing import Prepared
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD, StoredCheckpoint, StoredThread
from holdfast.stores.running import Clock, RunRow
from holdfast.stores.sqlite import reading, runs, schema, values

_SQL: Final = schema.statements("writing.sql")
_RUN: Final = slice(1, 1 + records.RUN_COLUMNS)


def commit(
    connection: sqlite3.Connection, namespace: bytes, prepared: Prepared, clock: Callable[[], Clock]
) -> Position:
    """Store a checkpoint and make it the head."""
    wanted = prepared.commit
    row, expect = wanted.row, wanted.expect
    if expect is None:
        leases.check_commit(None, wanted, clock)
        thread = _new_thread(connection, namespace, wanted)
    else:
        thread = _expected(
            connection,
            namespace,
            expect,
            rows.to_bytes(wanted.name),
            lambda found: leases.check_commit(found, wanted, clock),
        )
        preparing.advance(thread, wanted)
    for base in wanted.bases:
        # The head cannot be deleted, so checking the position was enough.
        if expect is None or base != (expect.thread, expect.head):
            _require_base(connection, namespace, *base)
    for origin in wanted.origins:
        if origin != thread.thread_no:
            if reading.find_number(connection, namespace, origin) is None:
                raise Conflict(
                    "a thread whose cells this commit uses no longer exists; nothing was stored. "
                    "Call latest() and save again."
                )
            connection.execute(_SQL["insert_fork"], (origin, thread.thread_no))
    if wanted.blobs:
        values.keep(connection, namespace, wanted.blobs, prepared.values)
    key = rows.key(thread.thread_no, row.seq)
    cells = None if prepared.cells is None else segment.seal(prepared.cells, rows.context(key))
    _insert_checkpoint(connection, key, prepared.row, cells)
    if expect is None:
        _insert(connection, thread)
    else:
        _update(connection, thread)
    if wanted.entries or wanted.run is not None:
        runs.keep(connection, namespace, thread.thread_no, wanted)
    return thread.position()


def rewind(
    connection: sqlite3.Connection,
    namespace: bytes,
    expect: Position,
    to: int,
    summary: Summary,
    clock: Callable[[], Clock],
) -> Position:
    """Make an earlier checkpoint the head."""
    thread = _expected(
        connection, namespace, expect, None, lambda found: leases.require_free(found, clock()) if found else None
    )
    if thread.move >= MAX_SEQ:
        raise TooLarge("a thread has at most 2**32 - 1 moves; nothing was changed")
    row = reading.checkpoint(connection, namespace, thread.thread_no, to)
    if row is None or row.deleted:
        raise NotFound(f"checkpoint {to} of the thread does not exist; nothing was changed")
    thread.head, thread.head_id = to, row.id
    thread.move += 1
    thread.show(summary)
    connection.execute(_SQL["insert_move"], (rows.key(thread.thread_no, thread.move), to, summary.updated_at))
    _update(connection, thread)
    return thread.position()


def delete(connection: sqlite3.Connection, namespace: bytes, thread_no: int, seqs: Collection[int]) -> int:
    """Turn checkpoints into tombstones. Their cells stay, because other checkpoints may use them."""
    thread = reading.find_number(connection, namespace, thread_no)
    if thread is None or thread.name is None:
        raise NotFound(f"the thread with number {thread_no} does not exist; nothing was changed")
    if thread.head in seqs:
        raise Protected(
            "the head of a thread cannot be deleted; nothing was changed. Rewind or drop the thread instead."
        )
    buried = 0
    for seq in sorted(set(seqs)):
        row = reading.checkpoint(connection, namespace, thread_no, seq)
        if row is None or row.deleted:
            continue
        key = rows.key(thread_no, seq)
        stone = rows.tombstone(row)
        (cells,) = connection.execute(_SQL["cells_of"], (key,)).fetchone()
        # Not an UPDATE: that would leave the page nearly empty. Only a DELETE merges pages.
        connection.execute(_SQL["delete_checkpoint"], (key,))
        _insert_checkpoint(connection, key, stone, cells)
        buried += 1
    if buried:
        thread.count -= buried
        _update(connection, thread)
    return buried


def forget(connection: sqlite3.Connection, namespace: bytes, thread_no: int, clock: Callable[[], Clock]) -> list[int]:
    """Free a thread's name, which hides its checkpoints from all readers; return the threads whose cells it used."""
    thread = reading.find_number(connection, namespace, thread_no)
    if thread is None or thread.name is None:
        raise NotFound(f"the thread with number {thread_no} does not exist; nothing was changed")
    runs.require_free(connection, namespace, thread_no, clock)
    runs.forget(connection, thread_no)
    thread.name = thread.name_hash = thread.agent = None
    thread.count = 0
    connection.execute(_SQL["forget_name"], (thread_no, thread.checksum()))
    return [origin for (origin,) in connection.execute(_SQL["origins"], (thread_no,))]


def _new_thread(connection: sqlite3.Connection, namespace: bytes, wanted: Commit) -> StoredThread:
    name = rows.to_bytes(wanted.name)
    if reading.find_thread(connection, namespace, name) is not None:
        raise AlreadyExists("a thread with that name already exists; nothing was stored")
    (last,) = connection.execute(_SQL["last_thread_number"]).fetchone()
    if last >= MAX_THREAD:
        raise TooLarge("the store has no thread numbers left; nothing was stored")
    return preparing.new_thread(last + 1, namespace, wanted)


def _expected(
    connection: sqlite3.Connection,
    namespace: bytes,
    expect: Position,
    name: bytes | None,
    allow: Callable[[RunRow | None], None],
) -> StoredThread:
    """The thread, if its run allows the write and the thread is at the position that the caller expects.

    The run is checked first, so that a worker that lost its lease gets `LeaseLost`, not `Conflict`.
    """
    row = connection.execute(_SQL["position"], (expect.thread,)).fetchone()
    if row is None:
        allow(None)
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    has_run = row[1] is not None and row[2] == namespace
    allow(records.read_run(row[_RUN]) if has_run else None)
    thread = rows.stored_thread(row[_RUN.stop :])
    if thread.namespace != namespace or thread.name is None or (name is not None and thread.name != name):
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    if thread.position() != expect:
        raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
    if row[0] != rows.key(thread.thread_no, thread.last):
        raise Damaged(
            f"the record of {thread.shown} does not match its checkpoints; run hf.verify() to see what is affected"
        )
    return thread


def _require_base(connection: sqlite3.Connection, namespace: bytes, thread: int, seq: int) -> None:
    row = reading.checkpoint(connection, namespace, thread, seq)
    if row is None or row.deleted:
        raise Conflict(
            "a checkpoint whose cells this commit reuses was deleted; nothing was stored. Call latest() and save again."
        )


def _insert_checkpoint(connection: sqlite3.Connection, key: int, row: StoredCheckpoint, cells: bytes | None) -> None:
    connection.execute(
        _SQL["insert_checkpoint"],
        (key, row.step, row.label, row.sealed(key), row.meta, row.refs, row.skeleton, cells),
    )


def _insert(connection: sqlite3.Connection, thread: StoredThread) -> None:
    connection.execute(
        _SQL["insert_thread"],
        (
            thread.thread_no,
            thread.namespace,
            thread.name,
            thread.name_hash,
            thread.created_at,
            thread.head,
            thread.move,
            thread.last,
            thread.count,
            thread.head_id,
            thread.step,
            thread.status,
            thread.agent,
            thread.size,
            thread.updated_at,
            thread.checksum(),
        ),
    )


def _update(connection: sqlite3.Connection, thread: StoredThread) -> None:
    connection.execute(
        _SQL["update_thread"],
        (
            thread.thread_no,
            thread.head,
            thread.move,
            thread.last,
            thread.count,
            thread.head_id,
            thread.step,
            thread.status,
            thread.agent,
            thread.size,
            thread.updated_at,
            thread.checksum(),
        ),
    )
