"""Maintenance in short transactions: drop dead segments, merge small ones, clear dropped threads, drop unused blobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import rows, segments
from holdfast.stores.contract import Live, Swept
from holdfast.stores.segments import MAX_SEQ, Plan, Source, dead_cells, key
from holdfast.stores.sql.reads import active_forks, find_number, lock_threads, require_all
from holdfast.stores.sql.transaction import Query, Row, Transaction, in_order, in_range

# Rows to delete per transaction, and rows to read per query together with their cells.
ROWS: Final = 256
_READ: Final = 64
# Records of sweeps to read per query. Most are empty.
_SWEEPS: Final = 4096


def drop_dead(tx: Transaction, thread: int, live: Live, dead: Sequence[Source]) -> Swept:
    """Drop the segments that still exist and are still dead."""
    if thread not in lock_threads(tx, [thread])[0]:
        return Swept()
    alive = segments.live_ranges(thread, live)
    found = [
        (source, dead_cells(source, cells, alive))
        for source, cells in zip(dead, _read(tx, dead), strict=True)
        if cells is not None
    ]
    _drop(tx, [source for source, count in found if count is not None])
    return Swept(dropped=sum(count or 0 for _, count in found))


def clear(tx: Transaction, thread: int) -> bool:
    """Remove the next part of a dropped thread; return whether there may be more.

    Checkpoints are removed. Their cells stay while a fork uses them. When nothing else is left, the thread's row
    is removed, and its data key.
    """
    found = lock_threads(tx, [thread])[0].get(thread)
    if found is None or found.name is not None:
        return False
    forks, checkpoints, merged = tx.ask(
        ("forks", (thread,)), ("oldest_checkpoints", (thread, ROWS)), ("oldest_segments", (thread, ROWS))
    )
    used = bool(active_forks(tx, thread, forks))
    if checkpoints:
        ends = (checkpoints[0][0], checkpoints[-1][0])
        if used:
            tx.put("move_cells", *ends)
        tx.put("delete_checkpoints", *ends)
        return True
    if any(tx.ask(("delete_entries", (thread, ROWS)), ("delete_moves", (thread, ROWS)))):
        return True
    if merged:
        if not used:
            tx.put("delete_segments", merged[0][0], merged[-1][0])
        return not used
    tx.put("delete_forks", thread)
    tx.put("delete_sweep", thread)
    tx.put("delete_key_of_thread", thread)
    tx.put("delete_thread", thread)
    return False


def plan(tx: Transaction, thread: int, live: Live) -> Plan:
    """Choose the segments to drop and the groups of segments to merge."""
    return segments.plan(_sources(tx, thread, live.horizon), segments.live_ranges(thread, live))


def merge(tx: Transaction, thread: int, live: Live, group: Sequence[Source]) -> Swept:
    """Merge one group: read, verify, pack, write. Changes nothing if a segment has changed since the plan."""
    if thread not in lock_threads(tx, [thread])[0]:
        return Swept()
    found = _read(tx, group)
    if None in found:
        return Swept()
    try:
        merged = segments.merge(group, found, segments.live_ranges(thread, live))
    except Damaged:
        return Swept(damaged=1)
    _drop(tx, group)
    if merged.cells is not None:
        tx.put("insert_segment", group[-1].row_key, group[0].first, merged.cells)
    return Swept(merged=len(group), dropped=merged.dropped)


# -- which blobs threads use ---------------------------------------------------------------------------------------


def start_epoch(tx: Transaction) -> int:
    """Start a new epoch after every commit that saw the old one is done; return it."""
    [(epoch,)] = tx.rows("advance_epoch", tx.namespace)
    return int(epoch)


def changed_since_sweep(tx: Transaction, after: int) -> list[int]:
    """A page of threads that changed since their last sweep, gained or lost a fork, or have one with new tombstones."""
    return [number for (number,) in tx.rows("changed_since_sweep", tx.namespace, after, ROWS)]


def mark_unswept(tx: Transaction, numbers: Sequence[int]) -> None:
    """Mark threads as unswept. No blob is dropped until they are swept."""
    # Locked first: otherwise a process that waited for another one could write an older state over a newer one.
    tx.ask(*(("lock_thread", (number,)) for number in sorted(numbers)))
    for number in numbers:
        tx.put("mark_unswept", number, b"")


def record(tx: Transaction, thread: int, live: Live, *, is_complete: bool) -> None:
    """Record the blobs that a thread uses, if it is unswept and was read since it was last changed.

    If segments were damaged, or changed by another process meanwhile, the thread counts as changed in the next epoch.
    """
    threads, (found,) = lock_threads(tx, [thread], ("sweep", (thread,)))
    if not found or thread not in threads:
        return
    _, state, last, _, checksum = found[0]
    if checksum is None and state == live.token and last <= live.horizon:
        tx.put("record_sweep", *rows.store_sweep(thread, state if is_complete else 0, last, live.blobs or ()))


def used_blobs(tx: Transaction) -> tuple[set[bytes], dict[int, int], list[int]]:
    """The digests that the last sweep of each thread recorded, the unswept threads, and those with damaged records.

    Each unswept thread comes with its token for `Live`. A thread without a record was created after the unswept threads
    were found. It is not a fork, so all its blobs have a later stamp. `Damaged` if no thread is unswept and a thread
    may be missing here.
    """
    used: set[bytes] = set()
    new: list[int] = []
    unswept: dict[int, int] = {}
    damaged: list[int] = []
    after = 0
    while page := tx.rows("sweeps", tx.namespace, after, _SWEEPS):
        after = page[-1][0]
        for number, swept, *columns, checksum in page:
            if swept is None:
                new.append(number)
            elif checksum is None:
                unswept[number] = columns[0]
            else:
                try:
                    used.update(rows.read_sweep((number, *columns, checksum)))
                except Damaged:
                    damaged.append(number)
    if not unswept and not damaged:
        require_all(tx)
        for number in new:
            find_number(tx, number)
    return used, unswept, damaged


def _sources(tx: Transaction, thread: int, horizon: int) -> Iterator[tuple[Source, bytes | None]]:
    """Every segment up to the horizon, ordered by commit; None for bytes that the database cannot read."""
    found, _ = find_number(tx, thread)
    if found is None or horizon < 1:
        return
    low, high = key(thread, 1), key(thread, min(horizon, MAX_SEQ))
    last = min(high, key(thread, found.last))
    commits = ((Source(row_key, seq, False), cells) for row_key, seq, cells in _commits(tx, low, high, last))
    merged = ((Source(row_key, seq, True), cells) for row_key, seq, cells in _pages(tx, "segments_until", low, high))
    yield from heapq.merge(commits, merged, key=_first_commit)


def _commits(tx: Transaction, low: int, high: int, last: int) -> Iterator[Row]:
    try:
        for row in _pages(tx, "cells_until", low, high):
            yield row
            low = row[0] + 1
    except Damaged:
        yield from in_range(tx, "cells", "cells_of_one", low, last)


def _pages(tx: Transaction, name: str, low: int, high: int) -> Iterator[Row]:
    return in_order(lambda first: tx.rows(name, first, high, _READ), low)


def _first_commit(found: tuple[Source, bytes | None]) -> int:
    return found[0].first


def _read(tx: Transaction, group: Sequence[Source]) -> list[bytes | None]:
    """The segments' bytes; None for one that no longer exists or was merged since the plan."""
    queries: list[Query] = [
        ("segment_of", (source.row_key, source.first)) if source.merged else ("cells_of_one", (source.row_key,))
        for source in group
    ]
    return [answer[0][-1] if answer else None for answer in tx.ask(*queries)] if queries else []


def _drop(tx: Transaction, group: Sequence[Source]) -> None:
    tx.drop_cells([source.row_key for source in group if not source.merged])
    for source in group:
        if source.merged:
            tx.put("delete_segment", source.row_key)
