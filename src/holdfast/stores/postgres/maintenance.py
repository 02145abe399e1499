"""Maintenance in short transactions that lock the thread: drop dead segments, merge small ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import merging, rows
from holdfast.stores.contract import Compacted, Live
from holdfast.stores.merging import Plan, Source, is_dead
from holdfast.stores.postgres import reading
from holdfast.stores.postgres.locking import lock_threads
from holdfast.stores.postgres.session import Transaction
from holdfast.stores.rows import MAX_SEQ

# Where copies of removed data remain. This store cannot reach them.
BEYOND: Final = (
    "deleted rows stay in PostgreSQL's tables and indexes until they are vacuumed and overwritten",
    "PostgreSQL's write-ahead log and its archive hold old data until they are recycled",
    "replicas, backups and snapshots of the database",
)

# Rows to delete per transaction, and rows to read per query together with their cells.
ROWS: Final = 256
_READ: Final = 64


def find_dead(session: Transaction, thread: int, live: Live) -> list[list[Source]]:
    """The segments that hold no live cells, in groups for one transaction each."""
    if reading.find_number(session, thread)[0] is None:
        return []
    alive = merging.live_ranges(thread, live)
    dead = [source for source, blob in _sources(session, thread, live.horizon) if is_dead(source, blob, alive)]
    return [dead[start : start + ROWS] for start in range(0, len(dead), ROWS)]


def drop_dead(session: Transaction, thread: int, live: Live, dead: Sequence[Source]) -> int:
    """Drop the segments that still exist and are still dead; return how many."""
    if thread not in lock_threads(session, [thread])[0]:
        return 0
    alive = merging.live_ranges(thread, live)
    there = [
        source
        for source, blob in zip(dead, _read(session, dead), strict=True)
        if blob is not None and is_dead(source, blob, alive)
    ]
    _drop(session, there)
    return len(there)


def clear(session: Transaction, thread: int) -> bool:
    """Remove the next part of a dropped thread; return whether there may be more.

    Checkpoints are removed. Their cells stay while a fork uses them. When nothing else is left, the thread's row is
    removed.
    """
    threads, answers = lock_threads(
        session,
        [thread],
        ("forks", (thread,)),
        ("oldest_checkpoints", (thread, ROWS)),
        ("oldest_segments", (thread, ROWS)),
        ("some_effect", (thread,)),
        ("some_move", (thread,)),
    )
    known = threads.get(thread)
    if known is None or known.row.name is not None:
        return False
    forks, checkpoints, segments, effect, move = answers
    used = bool(reading.using(thread, forks))
    if checkpoints:
        ends = (checkpoints[0][0], checkpoints[-1][0])
        if used:
            session.put("move_cells", *ends)
        session.put("delete_checkpoints", *ends)
        return True
    if effect or move:
        session.put("delete_effects", thread, ROWS)
        session.put("delete_moves", thread, ROWS)
        return True
    if segments:
        if not used:
            session.put("delete_segments", segments[0][0], segments[-1][0])
        return not used
    session.put("delete_forks", thread)
    session.put("delete_thread", thread)
    return False


def plan(session: Transaction, thread: int, live: Live) -> Plan:
    """Choose the groups of segments to merge."""
    if reading.find_number(session, thread)[0] is None:
        return Plan([], 0)
    return merging.plan(_sources(session, thread, live.horizon), merging.live_ranges(thread, live))


def merge(session: Transaction, thread: int, live: Live, group: Sequence[Source]) -> Compacted:
    """Merge one group: read, verify, pack, write. Changes nothing if a segment has changed since the plan."""
    if thread not in lock_threads(session, [thread])[0]:
        return Compacted()
    blobs = _read(session, group)
    if None in blobs:
        return Compacted()
    try:
        merged = merging.merge(group, blobs, merging.live_ranges(thread, live))
    except Damaged:
        return Compacted(damaged=1)
    _drop(session, group)
    if merged.cells is not None:
        session.put("insert_segment", group[-1].row_key, group[0].first, merged.cells)
    return Compacted(merged=len(group), dropped=merged.dropped)


def _sources(session: Transaction, thread: int, horizon: int) -> Iterator[tuple[Source, bytes | None]]:
    """Every segment up to the horizon, ordered by commit."""
    if horizon < 1:
        return
    low, high = rows.key(thread, 1), rows.key(thread, min(horizon, MAX_SEQ))
    commits = ((seq, Source(key, seq, False), blob) for key, seq, blob in _pages(session, "cells_until", low, high))
    merged = (
        (first, Source(key, first, True), blob) for key, first, blob in _pages(session, "segments_until", low, high)
    )
    for _, source, blob in heapq.merge(commits, merged, key=_order):
        yield source, blob


def _pages(session: Transaction, name: str, low: int, high: int) -> Iterator[tuple[int, int, bytes]]:
    while page := session.rows(name, low, high, _READ):
        yield from ((key, first, blob) for key, first, blob in page)
        low = page[-1][0] + 1


def _order(row: tuple[int, Source, bytes | None]) -> int:
    return row[0]


def _read(session: Transaction, group: Sequence[Source]) -> list[bytes | None]:
    """The segments' bytes; None for one that no longer exists or was merged since the plan."""
    cells, segments = session.ask(
        ("cells_of", ([source.row_key for source in group if not source.merged],)),
        ("segments_of", ([source.row_key for source in group if source.merged],)),
    )
    found = {Source(key, key & MAX_SEQ, False): blob for key, blob in cells}
    found |= {Source(key, first, True): blob for key, first, blob in segments}
    return [found.get(source) for source in group]


def _drop(session: Transaction, group: Sequence[Source]) -> None:
    session.put("drop_cells", [source.row_key for source in group if not source.merged])
    session.put("drop_segments", [source.row_key for source in group if source.merged])
