"""Maintenance: dropping what is dead, merging what is small, giving space back. In steps of one short transaction."""

from __future__ import annotations

import heapq
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores import segment
from holdfast.stores.contract import Compacted, Live, Run
from holdfast.stores.sqlite import reading, rows, runs, schema
from holdfast.stores.sqlite.cells import NOTHING, Ranges, walk_commits
from holdfast.stores.sqlite.rows import MAX_SEQ

_SQL: Final = schema.statements("maintenance.sql")
_WRITING: Final = schema.statements("writing.sql")

# Bytes before compression: a segment this large is left alone, so merged ones have between one and two times this.
TARGET: Final = 512 << 10
# Merged segments are written once and read often. Level 9 takes 20 ms per MB, saves 7 % over level 3
# and is read as fast.
_LEVEL: Final = 9
# Rows per transaction where rows are dropped.
_ROWS: Final = 256


class Source(NamedTuple):
    """A stored segment: its row, the first commit inside, and whether it is a merged one."""

    row_key: int
    first: int
    merged: bool


class Plan(NamedTuple):
    """Which segments to merge with which, and how many are damaged."""

    groups: list[list[Source]]
    damaged: int


def live_ranges(thread: int, live: Live) -> dict[int, Ranges]:
    """The live cells, by log. `InvalidArgument` if one is of another thread: ignored, it would be swept."""
    logs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for span in live.spans:
        if span.thread != thread:
            raise InvalidArgument(f"a live span names thread number {span.thread}, not {thread}; nothing was changed")
        logs[span.log].append((span.start, span.start + span.count))
    return {log: Ranges(ranges) for log, ranges in logs.items()}


def find_dead(connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live) -> list[list[Source]]:
    """The segments none of whose cells is live, a transaction's worth at a time."""
    if reading.find_number(connection, namespace, thread) is None:
        return []
    alive = live_ranges(thread, live)
    dead = [source for source, blob in _sources(connection, thread, live.horizon) if _is_dead(source, blob, alive)]
    return [dead[start : start + _ROWS] for start in range(0, len(dead), _ROWS)]


def drop_dead(connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live, dead: Sequence[Source]) -> int:
    """Drop those of the segments that are still there and still dead; how many."""
    if reading.find_number(connection, namespace, thread) is None:
        return 0
    alive = live_ranges(thread, live)
    dropped = 0
    for source in dead:
        blob = _read(connection, source)
        if blob is not None and _is_dead(source, blob, alive):
            _drop(connection, source)
            dropped += 1
    return dropped


def clear(connection: sqlite3.Connection, namespace: bytes, thread_no: int) -> bool:
    """One step of removing what is left of a dropped thread. Whether there may be more to do.

    Checkpoints go; their cells stay while a fork uses them. A thread of which nothing is left goes altogether.
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
    """Which segments to merge with which.

    A damaged segment is left where it is and ends the group before it: ranges of commits must not overlap.
    """
    groups: list[list[Source]] = []
    damaged = 0
    if reading.find_number(connection, namespace, thread) is None:
        return Plan(groups, damaged)
    alive = live_ranges(thread, live)
    group: list[Source] = []
    size = 0
    worth = False

    def close() -> None:
        nonlocal group, size, worth
        if len(group) > 1 or worth:
            groups.append(group)
        group, size, worth = [], 0, False

    for source, blob in _sources(connection, thread, live.horizon):
        try:
            header = _verified(source, blob)
        except Damaged:
            damaged += 1
            close()
            continue
        has_dead = any(
            alive.get(log, NOTHING).within(start, start + count) != [(start, start + count)]
            for log, start, count in header.ranges
            if count
        )
        if header.size >= TARGET and not has_dead:
            close()
            continue
        group.append(source)
        size += header.size
        worth = worth or has_dead
        if size >= TARGET:
            close()
    close()
    return Plan(groups, damaged)


def merge(
    connection: sqlite3.Connection, namespace: bytes, thread: int, live: Live, group: Sequence[Source]
) -> Compacted:
    """Merge one group: read, verify, pack, write. Nothing is changed if one of them is not as planned any more."""
    if reading.find_number(connection, namespace, thread) is None:
        return Compacted()
    alive = live_ranges(thread, live)
    runs: list[Run] = []
    dropped = 0
    try:
        for source in group:
            blob = _read(connection, source)
            if blob is None:
                return Compacted()
            for run in segment.unpack(blob, rows.context(source.row_key)):
                kept = _only_live(run, alive)
                dropped += len(run.cells) - sum(len(part.cells) for part in kept)
                runs += kept
        runs = _join(runs)
    except Damaged:
        return Compacted(damaged=1)
    for source in group:
        _drop(connection, source)
    if runs:
        row_key = group[-1].row_key
        blob = segment.pack(runs, rows.context(row_key), level=_LEVEL)
        connection.execute(_SQL["insert_segment"], (row_key, group[0].first, blob))
    return Compacted(merged=len(group), dropped=dropped)


def vacuum(connection: sqlite3.Connection, _namespace: bytes, pages: int) -> bool:
    """Give some free pages back to the file system. Whether there are more."""
    (before,) = connection.execute("PRAGMA freelist_count").fetchone()
    if not before:
        return False
    # PRAGMA takes no bound parameters; and it does its work while rows are fetched.
    connection.execute(f"PRAGMA incremental_vacuum({pages:d})").fetchall()
    (after,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(0 < after < before)


def _sources(connection: sqlite3.Connection, thread: int, horizon: int) -> Iterator[tuple[Source, bytes | None]]:
    """Every stored segment up to the horizon, in order of its commits; None for the bytes SQLite cannot read."""
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


def _verified(source: Source, blob: bytes | None) -> segment.Header:
    context = rows.context(source.row_key)
    opened = segment.open_(blob, context)
    segment.verify(opened, context)
    return opened[0]


def _is_dead(source: Source, blob: bytes | None, alive: dict[int, Ranges]) -> bool:
    """Whether nothing in the segment is live. What cannot be verified is not known to be dead."""
    try:
        header = _verified(source, blob)
    except Damaged:
        return False
    return not any(alive.get(log, NOTHING).touches(start, start + count) for log, start, count in header.ranges)


def _only_live(run: Run, alive: dict[int, Ranges]) -> list[Run]:
    end = run.start + len(run.cells)
    parts: list[Run] = []
    for low, high in alive.get(run.log, NOTHING).within(run.start, end):
        within = slice(low - run.start, high - run.start)
        parts.append(Run(run.log, low, run.cells[within], run.refs[within]))
    return parts


def _join(runs: list[Run]) -> list[Run]:
    """Neighbouring runs as one. `Damaged` if two hold the same cell, which no writer does."""
    joined: list[Run] = []
    pending: list[Run] = []

    def close() -> None:
        if pending:
            cells = tuple(chain.from_iterable(run.cells for run in pending))
            refs = tuple(chain.from_iterable(run.refs for run in pending))
            joined.append(Run(pending[0].log, pending[0].start, cells, refs))
            pending.clear()

    for run in sorted(runs, key=lambda run: (run.log, run.start)):
        if pending and pending[-1].log == run.log:
            end = pending[-1].start + len(pending[-1].cells)
            if run.start < end:
                raise Damaged("two segments hold the same cell")
            if run.start > end or bool(run.refs) != bool(pending[-1].refs):
                close()
        else:
            close()
        pending.append(run)
    close()
    return joined


def _read(connection: sqlite3.Connection, source: Source) -> bytes | None:
    """The segment's bytes, None if it is not there any more, or not the one that was planned with."""
    if source.merged:
        row = connection.execute(_SQL["segment_of"], (source.row_key, source.first)).fetchone()
    else:
        row = connection.execute(_SQL["cells_of"], (source.row_key,)).fetchone()
    return None if row is None else row[0]


def _drop(connection: sqlite3.Connection, source: Source) -> None:
    if source.merged:
        connection.execute(_SQL["delete_segment"], (source.row_key,))
        return
    # Not an UPDATE: that would leave a page per row behind, nearly empty. Only a DELETE joins pages again.
    row = connection.execute(_SQL["checkpoint_of"], (source.row_key,)).fetchone()
    connection.execute(_WRITING["delete_checkpoint"], (source.row_key,))
    connection.execute(_WRITING["insert_checkpoint"], (*row, None))
