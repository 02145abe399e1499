"""Runs and their journals: read and write verbs, and the part of a commit that concerns the run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import Damaged, NotFound
from holdfast.stores import entries as entries_of
from holdfast.stores import leases, records, rows
from holdfast.stores.contract import Commit
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD
from holdfast.stores.running import Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.sqlite import reading, schema

_SQL: Final = schema.statements("runs.sql")
# The statuses that the index `run_open` covers.
_OPEN: Final = frozenset(("queued", "running", "waiting"))


class _Found(NamedTuple):
    """A run that was read to be written: the record, its columns, and the number of its newest journal entry."""

    run: RunRow
    columns: records.RunColumns
    last: int


# -- reading --------------------------------------------------------------------------------------------------------


def run(connection: sqlite3.Connection, namespace: bytes, thread: int) -> RunRow | None:
    found = _find(connection, namespace, thread)
    if found is None and 1 <= thread <= MAX_THREAD and _last_effect(connection, thread):
        # A journal without a run means damage, unless the thread does not exist either.
        stored = reading.find_number(connection, namespace, thread)
        if stored is not None and stored.name is not None:
            raise Damaged(f"the run of the thread with number {thread} is missing, but its journal exists")
    return None if found is None else found.run


def runs(
    connection: sqlite3.Connection, namespace: bytes, statuses: Collection[str], after: tuple[int, int], limit: int
) -> list[tuple[str, RunRow]]:
    query = _SQL["open_runs" if _OPEN.issuperset(statuses) else "runs"]
    return [_named(row) for row in connection.execute(query, (namespace, *after, limit, json.dumps(list(statuses))))]


def woken(
    connection: sqlite3.Connection, namespace: bytes, clock: Clock, wall: int, limit: int
) -> list[tuple[str, RunRow]]:
    own = rows.to_bytes(clock.id)
    found: list[tuple[str, RunRow]] = []
    for (each,) in connection.execute(_SQL["waking_clocks"], (namespace,)).fetchall():
        query, now = ("woken", clock.now) if each == own else ("woken_by_wall", wall)
        found += [_named(row) for row in connection.execute(_SQL[query], (namespace, each, now, limit))]
    found.sort(key=lambda one: (-leases.overdue(one[1], clock, wall), one[1].thread))
    return found[:limit]


def effects(connection: sqlite3.Connection, namespace: bytes, thread: int, after: int, limit: int) -> list[Entry]:
    found = _find(connection, namespace, thread)
    if found is None:
        run(connection, namespace, thread)  # raises if the run should exist
        return []
    expected = max(after, 0) + 1
    if expected > MAX_SEQ:
        return []
    page: list[Entry] = []
    ends = rows.key(thread, expected), rows.key(thread, MAX_SEQ)
    for row_key, record in connection.execute(_SQL["effects"], (*ends, limit)):
        # Entries are never removed, so a gap means damage.
        if row_key & MAX_SEQ != expected:
            raise entries_of.missing(thread, expected)
        page.append(records.read_effect(row_key, record))
        expected += 1
    if len(page) < limit and expected <= found.last:
        raise entries_of.missing(thread, expected)
    return page


def marked(connection: sqlite3.Connection, namespace: bytes, thread: int, mark: str) -> list[Entry]:
    if _find(connection, namespace, thread) is None:
        run(connection, namespace, thread)  # raises if the run should exist
        return []
    found = connection.execute(_SQL["marked"], (thread, rows.to_bytes(mark)))
    return [records.read_effect(row_key, record) for row_key, record in found]


def last_effect(connection: sqlite3.Connection, namespace: bytes, thread: int) -> int:
    found = _find_for_journal(connection, namespace, thread)
    if found is None:
        run(connection, namespace, thread)  # raises if the run should exist
        return 0
    return found.last


# -- writing --------------------------------------------------------------------------------------------------------


def claim(connection: sqlite3.Connection, namespace: bytes, expect: RunRow | None, row: RunRow) -> None:
    found = _find(connection, namespace, row.thread)
    leases.require_expected(found.run if found else None, expect)
    if expect is None:
        thread = reading.find_number(connection, namespace, row.thread)
        if thread is None or thread.name is None:
            raise NotFound(f"the thread with number {row.thread} does not exist; nothing was changed")
    _put(connection, namespace, row, found)
    _show(connection, namespace, row)


def renew(
    connection: sqlite3.Connection, namespace: bytes, thread: int, fence: int, until: int, progress: Progress | None
) -> None:
    found = _find(connection, namespace, thread)
    row = leases.require_fence(found.run if found else None, fence)
    _put(connection, namespace, leases.renewed(row, until, progress), found)


def update(connection: sqlite3.Connection, namespace: bytes, row: RunRow) -> None:
    found = _find(connection, namespace, row.thread)
    before = leases.require_fence(found.run if found else None, row.fence)
    _put(connection, namespace, leases.keep_lease(before, row), found)
    _show(connection, namespace, row)


def park(connection: sqlite3.Connection, namespace: bytes, row: RunRow, entry: Entry | None, last: int) -> int:
    found = _find_for_journal(connection, namespace, row.thread)
    before = leases.require_fence(found.run if found else None, row.fence)
    leases.require_last(found.last if found else 0, last)
    question = 0 if entry is None else entry.number or last + 1
    row = leases.keep_lease(before, msgspec.structs.replace(row, question=question))
    written = entries_of.encode(row.thread, last, [] if entry is None else [entry])
    stored = records.store_run(namespace, row, written.last)
    _write(connection, row.thread, written)
    connection.execute(_SQL["put_run"], stored)
    _show(connection, namespace, row)
    return question


def journal(
    connection: sqlite3.Connection, namespace: bytes, thread: int, fence: int, entries: Sequence[Entry]
) -> list[int]:
    found = _find_for_journal(connection, namespace, thread)
    leases.require_fence(found.run if found else None, fence)
    return _append(connection, thread, found, entries)


def tell(
    connection: sqlite3.Connection,
    namespace: bytes,
    thread: int,
    entry: Entry,
    last: int | None,
    run: RunRow | None,
) -> int:
    found = _find_for_journal(connection, namespace, thread)
    if found is None:
        raise leases.no_run(thread)
    if last is not None:
        leases.require_last(found.last, last)
    if run is not None:
        leases.require_expected(found.run, run)
    [number] = _append(connection, thread, found, [msgspec.structs.replace(entry, number=0)])
    return number


def settle(
    connection: sqlite3.Connection,
    namespace: bytes,
    thread: int,
    number: int,
    expect: EntryStatus,
    entry: Entry,
    run: RunRow | None,
    then: RunRow | None,
) -> None:
    found = _find_for_journal(connection, namespace, thread)
    if found is None or not 1 <= number <= found.last:
        raise leases.no_effect(thread, number)
    row = connection.execute(_SQL["effect"], (rows.key(thread, number),)).fetchone()
    if row is None:
        raise entries_of.missing(thread, number)
    if records.read_effect(*row).status != expect or (run is not None and found.run != run):
        raise leases.settled_otherwise()
    written = entries_of.encode(thread, found.last, [msgspec.structs.replace(entry, number=number)])
    stored = None if then is None else records.store_run(namespace, then, found.last)
    _write(connection, thread, written)
    if then is not None and stored is not None:
        connection.execute(_SQL["put_run"], stored)
        _show(connection, namespace, then)


# -- inside other verbs ---------------------------------------------------------------------------------------------


def require_free(connection: sqlite3.Connection, namespace: bytes, thread: int, clock: Callable[[], Clock]) -> None:
    """`LeaseHeld` if another worker's lease on the thread has not ended."""
    found = _find(connection, namespace, thread)
    if found is not None:
        leases.require_free(found.run, clock())


def keep(connection: sqlite3.Connection, namespace: bytes, thread: int, commit: Commit) -> None:
    """Store the run and journal entries of a commit."""
    found = _find_for_journal(connection, namespace, thread)
    if commit.run is None:
        _append(connection, thread, found, commit.entries)
        return
    row = msgspec.structs.replace(commit.run, thread=thread)
    if found is not None:
        row = leases.keep_lease(found.run, row)
    written = entries_of.encode(thread, found.last if found else 0, commit.entries)
    stored = records.store_run(namespace, row, written.last)
    _write(connection, thread, written)
    connection.execute(_SQL["put_run"], stored)


def forget(connection: sqlite3.Connection, thread: int) -> None:
    """Remove the run of a thread that is being dropped. Without it, its journal is not visible."""
    connection.execute(_SQL["delete_run"], (thread,))


def clear(connection: sqlite3.Connection, thread: int, limit: int) -> bool:
    """Remove some journal entries of a dropped thread; return whether there were any."""
    return connection.execute(_SQL["delete_effects"], (thread, limit)).rowcount > 0


def _find(connection: sqlite3.Connection, namespace: bytes, thread: int) -> _Found | None:
    if not 1 <= thread <= MAX_THREAD:
        return None
    columns = connection.execute(_SQL["run"], (thread,)).fetchone()
    if columns is None or columns[1] != namespace:
        return None
    return _Found(records.read_run(columns), columns, columns[records.ENTRIES])


def _find_for_journal(connection: sqlite3.Connection, namespace: bytes, thread: int) -> _Found | None:
    """The run, after checking that its journal ends with the entry it should."""
    if not 1 <= thread <= MAX_THREAD:
        return None
    row = connection.execute(_SQL["run_and_last"], (thread,)).fetchone()
    if row is None or row[2] != namespace:
        return None
    columns = row[1:]
    found = _Found(records.read_run(columns), columns, columns[records.ENTRIES])
    if (row[0] or 0) & MAX_SEQ != found.last:
        raise Damaged(
            f"the run of the thread with number {thread} does not match its journal; "
            "run hf.verify() to see what is affected"
        )
    return found


def _named(row: Any) -> tuple[str, RunRow]:
    """A run from a listing, with the name of its thread."""
    found = records.read_run(row[: records.RUN_COLUMNS])
    if row[records.RUN_COLUMNS] is None:
        raise Damaged(f"the thread with number {found.thread} has a run, but the thread is missing")
    return rows.stored_thread(row[records.RUN_COLUMNS :]).record().name, found


def _last_effect(connection: sqlite3.Connection, thread: int) -> int:
    row = connection.execute(_SQL["last_effect"], (thread,)).fetchone()
    return 0 if row is None else row[0] & MAX_SEQ


def _put(connection: sqlite3.Connection, namespace: bytes, row: RunRow, known: _Found | None) -> None:
    connection.execute(_SQL["put_run"], records.store_run(namespace, row, known.last if known else 0))


def _show(connection: sqlite3.Connection, namespace: bytes, row: RunRow) -> None:
    """Copy the status of the run to the thread's row, for listings of threads."""
    thread = reading.find_number(connection, namespace, row.thread)
    if thread is not None:
        thread.status, thread.updated_at = rows.to_bytes(row.status), row.updated_at
        connection.execute(_SQL["show_status"], (thread.thread_no, thread.status, thread.updated_at, thread.checksum()))


def _append(connection: sqlite3.Connection, thread: int, found: _Found | None, entries: Sequence[Entry]) -> list[int]:
    """Write journal entries and return their numbers. An entry that has a number replaces the entry of that number."""
    written = entries_of.encode(thread, found.last if found else 0, entries)
    _write(connection, thread, written)
    if written.new and found:
        connection.execute(_SQL["count_entries"], (thread, written.last, records.recount(found.columns, written.last)))
    return written.numbers


def _write(connection: sqlite3.Connection, thread: int, entries: entries_of.Entries) -> None:
    for row in entries.changed:
        if connection.execute(_SQL["update_effect"], row).rowcount != 1:
            raise entries_of.missing(thread, row[0] & MAX_SEQ)
    for row in entries.new:
        connection.execute(_SQL["insert_effect"], row)
