"""Read verbs for runs and their journals."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from holdfast.errors import Damaged
from holdfast.stores import entries, leases, records, rows
from holdfast.stores.postgres.known import NO_RUN, KnownRun
from holdfast.stores.postgres.locking import checked_run, entries_of, read_run, read_thread
from holdfast.stores.postgres.session import CLOCK, Query, Transaction
from holdfast.stores.records import RUN_COLUMNS
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD
from holdfast.stores.running import Clock, Entry, RunRow


def run(session: Transaction, thread: int) -> RunRow | None:
    return _find(session, thread)[0].row


def runs(
    session: Transaction, statuses: Collection[str], after: tuple[int, int], limit: int
) -> list[tuple[str, RunRow]]:
    """A page of runs. Each status is a separate query, because it has its own part of the index."""
    wanted = sorted(set(statuses))
    if not wanted or limit <= 0:
        return []
    after = max(after[0], -(1 << 63)), min(max(after[1], -(1 << 63)), (1 << 63) - 1)
    pages = session.ask(*(("runs", (session.namespace, status.encode(), *after, limit)) for status in wanted))
    found = [_named(row) for page in pages for row in page]
    found.sort(key=lambda one: (one[1].updated_at, one[1].thread))
    return found[:limit]


def woken(
    session: Transaction, clock: Callable[[], Clock] | None, wall: Callable[[], int] | None, limit: int
) -> list[tuple[str, RunRow]]:
    server, clocks = session.ask(("now", ()), ("waking_clocks", (session.namespace,)))
    now = Clock(CLOCK, server[0][0] // 1000) if clock is None else clock()
    at = server[0][0] if wall is None else wall()
    if not clocks or limit <= 0:
        return []
    own = rows.to_bytes(now.id)
    queries: list[Query] = [
        ("woken", (session.namespace, each, now.now, limit))
        if each == own
        else ("woken_by_wall", (session.namespace, each, at, limit))
        for (each,) in clocks
    ]
    found = [_named(row) for page in session.ask(*queries) for row in page]
    found.sort(key=lambda one: (-leases.overdue(one[1], now, at), one[1].thread))
    return found[:limit]


def effects(session: Transaction, thread: int, after: int, limit: int) -> list[Entry]:
    expected = max(after, 0) + 1
    if expected > MAX_SEQ:
        return []
    at = min(max(thread, 0), MAX_THREAD)
    found, (page,) = _find(session, thread, ("effects", (rows.key(at, expected), rows.key(at, MAX_SEQ), limit)))
    if found.row is None:
        return []
    read: list[Entry] = []
    for row_key, record in page:
        # Entries are never removed, so a gap means damage.
        if row_key & MAX_SEQ != expected:
            raise entries.missing(thread, expected)
        read.append(records.read_effect(row_key, record))
        expected += 1
    if len(read) < limit and expected <= entries_of(found):
        raise entries.missing(thread, expected)
    return read


def marked(session: Transaction, thread: int, mark: str) -> list[Entry]:
    at = min(max(thread, 0), MAX_THREAD)
    found, (page,) = _find(session, thread, ("marked", (at, rows.to_bytes(mark))))
    return [] if found.row is None else [records.read_effect(row_key, record) for row_key, record in page]


def last_effect(session: Transaction, thread: int) -> int:
    if not 1 <= thread <= MAX_THREAD:
        return 0
    run, last = session.ask(("run", (thread,)), ("last_effect", (thread,)))
    return entries_of(checked_run(session.namespace, thread, run, last))


def _find(session: Transaction, thread: int, *more: Query) -> tuple[KnownRun, list[Any]]:
    if not 1 <= thread <= MAX_THREAD:
        return NO_RUN, [[] for _ in more]
    found, last, threads, *answers = session.ask(
        ("run", (thread,)), ("last_effect", (thread,)), ("thread_by_number", (thread,)), *more
    )
    if found and found[0][1] == session.namespace:
        return read_run(found[0]), answers
    if not found and last[0][0] is not None and threads:
        # A journal without a run means damage, unless the thread does not exist either.
        stored = read_thread(threads[0])
        if stored.namespace == session.namespace and stored.name is not None:
            raise Damaged(f"the run of the thread with number {thread} is missing, but its journal exists")
    return NO_RUN, answers


def _named(row: Any) -> tuple[str, RunRow]:
    """A run from a listing, with the name of its thread."""
    found = records.read_run(row[:RUN_COLUMNS])
    if row[RUN_COLUMNS + 1] is None:
        raise Damaged(f"the thread with number {found.thread} has a run, but the thread is missing")
    return read_thread(row[RUN_COLUMNS + 1 :]).record().name, found
