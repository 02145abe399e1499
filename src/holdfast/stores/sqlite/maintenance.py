"""Maintenance in short transactions: drop dead segments, merge small ones, release space."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import merging, rows
from holdfast.stores.contract import Compacted, Live
from holdfast.stores.merging import Plan, Source, is_dead
from holdfast.stores.rows import MAX_SEQ
from holdfast.stores.sqlite import reading, runs, schema
from holdfast.stores.sqlite.cells import walk_commits

_SQL: Final = schema.statements("maintenance.sql")
_WRITING: Final = schema.statements("writing.sql")

# Where copies of removed data may remain.
BEYOND: Final = ("freed disk blocks that are not overwritten yet, file system snapshots, and backups",)

# Rows to delete per transaction.
_ROWS: Final = 256


def find_dead(connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live) -> list[list[Source]]:
    """The segments that hold no live cells, in groups for one transaction each."""
    if reading.find_number(connection, namespace, thread) is None:
        return []
    alive = merging.live_ranges(thread, live)
    dead = [source for source, blob in _sources(connection, thread, live.horizon) if is_dead(source, blob, alive)]
    return [dead[start : start + _ROWS] for start in range(0, len(dead), _ROWS)]


def drop_dead(connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live, dead: Sequence[Source]) -> int:
    """Drop the segments that still exist and are still dead; return how many."""
    if reading.find_number(connection, namespace, thread) is None:
        return 0
    alive = merging.live_ranges(thread, live)
    dropped = 0
    for source in dead:
        blob = _read(connection, source)
        if blob is not None and is_dead(source, blob, alive):
            _drop(connection, source)
            dropped += 1
    return dropped


def clear(connection: sqlite3.Connection, namespace: bytes, thread_no: int) -> bool:
    """Remove the next part of a dropped thread; return whether there may be more.

    Checkpoints are removed. Their cells stay while a fork uses them. When nothing else is left, the thread's row is
    removed.
    """
    thread = reading.find_number(connection, namespace, thread_no)
    if thread is None or thread.name is not None:
        return False
    used = bool(reading.forks(connection, namespace, thread_no))
    keys = connection.execute(_SQL["oldest_checkpoints"], (thread_no, _ROWS)).fetchall()
    if keys:
        ends = (keys[0][0], keys[-1][0])
        if used:
            connection.execute(_SQL["move_cells"], ends)
        connection.execute(_SQL["delete_checkpoints"], ends)
        return True
    if runs.clear(connection, thread_no, _ROWS):
        return True
    connection.execute(_WRITING["delete_moves"], (thread_no,))
    keys = connection.execute(_SQL["oldest_segments"], (thread_no, _ROWS)).fetchall()
    if keys and used:
        return False
    if keys:
        connection.execute(_SQL["delete_segments"], (keys[0][0], keys[-1][0]))
        return True
    connection.execute(_WRITING["delete_forks"], (thread_no,))
    connection.execute(_WRITING["delete_thread"], (thread_no,))
    return False


def plan(connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live) -> Plan:
    """Choose the groups of segments to merge."""
    if reading.find_number(connection, namespace, thread) is None:
        return Plan([], 0)
    return merging.plan(_sources(connection, thread, live.horizon), merging.live_ranges(thread, live))


def merge(
    connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live, group: Sequence[Source]
) -> Compacted:
    """Merge one group: read, verify, pack, write. Changes nothing if a segment has changed since the plan."""
    if reading.find_number(connection, namespace, thread) is None:
        return Compacted()
    blobs: list[bytes | None] = []
    for source in group:
        blobs.append(_read(connection, source))
        if blobs[-1] is None:
            return Compacted()
    try:
        merged = merging.merge(group, blobs, merging.live_ranges(thread, live))
    except Damaged:
        return Compacted(damaged=1)
    for source in group:
        _drop(connection, source)
    if merged.cells is not None:
        connection.execute(_SQL["insert_segment"], (group[-1].row_key, group[0].first, merged.cells))
    return Compacted(merged=len(group), dropped=merged.dropped)


def vacuum(connection: sqlite3.Connection, _namespace: bytes, pages: int) -> bool:
    """Return some free pages to the file system; return whether there are more."""
    (before,) = connection.execute("PRAGMA freelist_count").fetchone()
    if not before:
        return False
    # PRAGMA takes no bound parameters, and it works while its rows are fetched.
    connection.execute(f"PRAGMA incremental_vacuum({pages:d})").fetchall()
    (after,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(0 < after < before)


def _sources(connection: sqlite3.Connection, thread: int, horizon: int) -> Iterator[tuple[Source, bytes | None]]:
    """Every segment up to the horizon, ordered by commit; None for bytes that SQLite cannot read."""
    if horizon < 1:
        return
    keys = rows.key(thread, 1), rows.key(thread, min(horizon, MAX_SEQ))
    commits = ((seq, Source(row_key, seq, False), blob) for row_key, seq, blob in walk_commits(connection, *keys))
    segments = (
        (first, Source(row_key, first, True), blob)
        for row_key, first, blob in connection.execute(_SQL["segments_until"], keys)
    )
    for _, source, blob in heapq.merge(commits, segments, key=_order):
        yield source, blob


def _order(row: tuple[int, Source, bytes | None]) -> int:
    return row[0]


def _read(connection: sqlite3.Connection, source: Source) -> bytes | None:
    """The segment's bytes; None if it no longer exists or was merged since the plan."""
    if source.merged:
        row = connection.execute(_SQL["segment_of"], (source.row_key, source.first)).fetchone()
    else:
        row = connection.execute(_SQL["cells_of"], (source.row_key,)).fetchone()
    return None if row is None else row[0]


def _drop(connection: sqlite3.Connection, source: Source) -> None:
    if source.merged:
        connection.execute(_SQL["delete_segment"], (source.row_key,))
        return
    # Not an UPDATE: that would leave nearly empty pages. Only a DELETE merges pages.
    row = connection.execute(_SQL["checkpoint_of"], (source.row_key,)).fetchone()
    connection.execute(_WRITING["delete_checkpoint"], (source.row_key,))
    connection.execute(_WRITING["insert_checkpoint"], (*row, None))
