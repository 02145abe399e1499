"""Runs and their journals: read and write verbs.

A write that changes a run's status or fence first locks and changes its thread. A write that only adds journal entries
or extends a lease does not touch the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.errors import Damaged, OutcomeUnknown
from holdfast.stores import rows, rules
from holdfast.stores.contract_runs import Entry, EntryStatus, Progress, RunRow
from holdfast.stores.rows import RUN_COLUMNS, Entries, StoredThread, read_entry, read_run, read_thread, to_bytes
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD, key
from holdfast.stores.sql.reads import NO_RUN, StoredRun, checked_run, hold, lock_run, put_run
from holdfast.stores.sql.transaction import Done, Guarded, Query, Row, Transaction, Unguarded

# -- reading --------------------------------------------------------------------------------------------------------


def run(tx: Transaction, thread: int) -> RunRow | None:
    return _find(tx, thread)[0].row


def runs(tx: Transaction, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
    """A page of runs. Each status is a separate query, because it has its own part of the index."""
    wanted = sorted(set(statuses))
    if not wanted or limit <= 0:
        return []
    after = max(after[0], -(1 << 63)), min(max(after[1], -(1 << 63)), (1 << 63) - 1)
    pages = tx.ask(*(("runs", (tx.namespace, status.encode(), *after, limit)) for status in wanted))
    found = [_named(row) for page in pages for row in page]
    found.sort(key=lambda one: (one[1].updated_at, one[1].thread))
    return found[:limit]


def due(tx: Transaction, limit: int) -> list[tuple[str, RunRow]]:
    clock, wall = tx.clock(), tx.wall()
    own = to_bytes(clock.id)
    queries: list[Query] = [
        ("due", (tx.namespace, each, clock.now, limit))
        if each == own
        else ("due_by_wall", (tx.namespace, each, wall, limit))
        for (each,) in tx.rows("waking_clocks", tx.namespace)
    ]
    if not queries or limit <= 0:
        return []
    found = [_named(row) for page in tx.ask(*queries) for row in page]
    found.sort(key=lambda one: (-rules.overdue(one[1], clock, wall), one[1].thread))
    return found[:limit]


def entries(tx: Transaction, thread: int, after: int, limit: int) -> list[Entry]:
    expected = max(after, 0) + 1
    if expected > MAX_SEQ:
        return []
    at = min(max(thread, 0), MAX_THREAD)
    found, (page,) = _find(tx, thread, ("entries", (key(at, expected), key(at, MAX_SEQ), limit)))
    if found.row is None:
        return []
    read: list[Entry] = []
    for row_key, record in page:
        # Entries are never removed, so a gap means damage.
        if row_key & MAX_SEQ != expected:
            raise rows.missing_entry(thread, expected)
        read.append(read_entry(row_key, record))
        expected += 1
    if len(read) < limit and expected <= found.last:
        raise rows.missing_entry(thread, expected)
    return read


def find_entries(tx: Transaction, thread: int, topic: str) -> list[Entry]:
    at = min(max(thread, 0), MAX_THREAD)
    found, (page,) = _find(tx, thread, ("entries_by_topic", (at, to_bytes(topic))))
    return [] if found.row is None else [read_entry(row_key, record) for row_key, record in page]


def last_entry(tx: Transaction, thread: int) -> int:
    found, (newest,) = _find(tx, thread, ("newest_entry", (thread,)))
    return checked_run(tx.namespace, thread, [[found.columns], newest]).last if found.columns else 0


def _find(tx: Transaction, thread: int, *more: Query) -> tuple[StoredRun, list[list[Row]]]:
    if not 1 <= thread <= MAX_THREAD:
        return NO_RUN, [[] for _ in more]
    found, *answers = tx.ask(("run", (thread,)), *more)
    if found and found[0][1] == tx.namespace:
        return StoredRun(read_run(found[0]), found[0], found[0][rows.ENTRIES]), answers
    newest, threads = tx.ask(("newest_entry", (thread,)), ("thread_by_number", (thread,)))
    if newest and newest[0][0] is not None and threads:
        # A journal without a run means damage, unless the thread does not exist here either.
        stored = read_thread(threads[0])
        if stored.namespace == tx.namespace and stored.name is not None:
            raise Damaged(f"the run of the thread with number {thread} is missing, but its journal exists")
    return NO_RUN, answers


def _named(row: Row) -> tuple[str, RunRow]:
    """A run from a listing, with the name of its thread."""
    found = read_run(row[:RUN_COLUMNS])
    if row[RUN_COLUMNS] is None:
        raise Damaged(f"the thread with number {found.thread} has a run, but the thread is missing")
    return read_thread(row[RUN_COLUMNS:]).record().name, found


# -- writing --------------------------------------------------------------------------------------------------------


class JournalWork(Unguarded[list[int]]):
    """Journal entries of a running run."""

    def __init__(self, thread: int, fence: int, entries_: Sequence[Entry], namespace: bytes) -> None:
        self.weight = rows.weigh(entries_)
        self._thread = thread
        self._fence = fence
        self._entries = entries_
        self._namespace = namespace
        self._written: Entries | None = None

    def guarded(self, newest: Mapping[int, int]) -> Guarded | None:
        last = newest.get(self._thread)
        if last is None or not self._entries or any(entry.number > last for entry in self._entries):
            return None
        self._written = written = rows.store_entries(self._thread, last, self._entries)
        counts = last, len(written.new)
        changed, new = arrays(written.changed), arrays(written.new)
        return Guarded("journal", (self._thread, self._namespace, self._fence, *counts, *changed, *new))

    def guarded_answer(self) -> list[int]:
        return [] if self._written is None else self._written.numbers

    def run(self, tx: Transaction) -> list[int]:
        run = lock_run(tx, self._thread)
        rules.require_fence(run.row, self._fence)
        self._written = rows.store_entries(self._thread, run.last, self._entries)
        append_entries(tx, self._thread, self._written)
        return self._written.numbers

    def find(self, tx: Transaction) -> Done[list[int]] | None:
        return _find_written(tx, self._thread, self._written)

    def numbered(self) -> tuple[int, int] | None:
        return None if self._written is None else (self._thread, self._written.last)


class PostWork(Unguarded[int]):
    """A journal entry posted from outside the run."""

    def __init__(self, thread: int, entry: Entry, last: int | None, expected: RunRow | None) -> None:
        self.weight = rows.weigh([entry])
        self._thread = thread
        self._entry = replace(entry, number=0)
        self._last = last
        self._expected = expected
        self._written: Entries | None = None

    def run(self, tx: Transaction) -> int:
        run = lock_run(tx, self._thread)
        if run.row is None:
            raise rules.no_run(self._thread)
        if self._last is not None:
            rules.require_last(run.last, self._last)
        if self._expected is not None:
            rules.require_expected(run.row, self._expected)
        self._written = rows.store_entries(self._thread, run.last, [self._entry])
        append_entries(tx, self._thread, self._written)
        return self._written.last

    def find(self, tx: Transaction) -> Done[int] | None:
        found = _find_written(tx, self._thread, self._written)
        return None if found is None else Done(found.answer[0])

    def numbered(self) -> tuple[int, int] | None:
        return None if self._written is None else (self._thread, self._written.last)


class RenewWork(Unguarded[None]):
    """An extension of a lease. Repeating it does no harm."""

    def __init__(self, thread: int, fence: int, until: int, progress: Progress | None, namespace: bytes) -> None:
        self._thread = thread
        self._fence = fence
        self._until = until
        self._progress = progress
        self._namespace = namespace

    def guarded(self, newest: Mapping[int, int]) -> Guarded | None:
        if self._progress is not None or not 0 <= self._until < 1 << 63 or not 0 <= self._fence < 1 << 63:
            return None
        checksum = rows.lease_checksum(self._thread, self._fence, self._until)
        return Guarded("renew", (self._thread, self._namespace, self._fence, self._until, checksum))

    def guarded_answer(self) -> None:
        return None

    def run(self, tx: Transaction) -> None:
        run = lock_run(tx, self._thread)
        row = rules.require_fence(run.row, self._fence)
        put_run(tx, rules.renewed(row, self._until, self._progress), run.last)


Change = Callable[[Transaction, StoredThread | None, StoredRun], tuple[RunRow | None, Entries | None]]


class RunWork(Unguarded[None]):
    """A write that replaces the record of a run and updates its thread: a claim, update, suspension or settlement.

    `change` gets the stored rows. It returns the new record of the run, or None to keep it, and the journal entries to
    write.
    """

    def __init__(self, thread: int, change: Change, weight: int = 0) -> None:
        self.weight = weight
        self._thread = thread
        self._change = change
        self._before: StoredRun | None = None
        self._after: StoredRun | None = None
        self._written: Entries | None = None

    def run(self, tx: Transaction) -> None:
        thread, run, _ = hold(tx, self._thread)
        row, self._written = self._change(tx, thread, run)
        self._before = self._after = run
        last = run.last
        if self._written is not None:
            last = self._written.last
            put_entries(tx, self._thread, self._written)
        if row is not None:
            self._after = StoredRun(row, put_run(tx, row, last), last)
            if thread is not None:
                thread.show_run(row)
                tx.put("update_thread", *thread.changes())

    def find(self, tx: Transaction) -> Done[None] | None:
        """Whether the write was done: from the run's row and, if that is not conclusive, from the entries.

        If only entries were to be written, they alone decide.
        """
        _, run, _ = hold(tx, self._thread)
        before, after = self._before, self._after
        if before is None or after is None:
            return None
        if after is not before:
            if tuple(run.columns) == tuple(after.columns):
                return Done(None)
            if tuple(run.columns) == tuple(before.columns):
                return None
        if self._written is not None and _find_written(tx, self._thread, self._written) is not None:
            return Done(None)
        if after is before:
            return None
        if before.row is None or after.row is None or after.row.fence != before.row.fence:
            # A claim. No other process can have changed the record since: its owner does not know yet that it
            # succeeded.
            return Done(None) if run.row == after.row else None
        if run.row is not None and replace(run.row, lease_until=after.row.lease_until) == after.row:
            return Done(None)  # and renewed since
        if run.row is not None and (run.row.status, run.row.fence) == ("running", before.row.fence):
            return None
        raise OutcomeUnknown(
            "the connection was lost during a write to a run, and the run was changed since, so the write may or may "
            "not have happened"
        )

    def numbered(self) -> tuple[int, int] | None:
        return None if self._after is None else (self._thread, self._after.last)


def claim(expect: RunRow | None, row: RunRow) -> RunWork:
    def change(_tx: Transaction, thread: StoredThread | None, run: StoredRun) -> tuple[RunRow, None]:
        rules.require_expected(run.row, expect)
        if expect is None and (thread is None or thread.name is None):
            raise rules.no_thread(row.thread)
        return row, None

    return RunWork(row.thread, change)


def update(row: RunRow) -> RunWork:
    def change(_tx: Transaction, _thread: StoredThread | None, run: StoredRun) -> tuple[RunRow, None]:
        return rules.keep_lease(rules.require_fence(run.row, row.fence), row), None

    return RunWork(row.thread, change)


def suspend(row: RunRow, entry: Entry | None, last: int) -> tuple[RunWork, int]:
    """The work, and the number of the question."""
    question = 0 if entry is None else entry.number or last + 1

    def change(_tx: Transaction, _thread: StoredThread | None, run: StoredRun) -> tuple[RunRow, Entries]:
        before = rules.require_fence(run.row, row.fence)
        rules.require_last(run.last, last)
        after = rules.keep_lease(before, replace(row, question=question))
        return after, rows.store_entries(row.thread, last, [] if entry is None else [entry])

    return RunWork(row.thread, change, 0 if entry is None else rows.weigh([entry])), question


def settle(
    thread: int, number: int, expect: EntryStatus, entry: Entry, expected: RunRow | None, then: RunRow | None
) -> RunWork:
    def change(tx: Transaction, _thread: StoredThread | None, run: StoredRun) -> tuple[RunRow | None, Entries]:
        if run.row is None or not 1 <= number <= run.last:
            raise rules.no_entry(thread, number)
        stored = tx.row("entry", key(thread, number))
        if stored is None:
            raise rows.missing_entry(thread, number)
        if read_entry(*stored).status != expect or (expected is not None and run.row != expected):
            raise rules.settled_otherwise()
        return then, rows.store_entries(thread, run.last, [replace(entry, number=number)])

    return RunWork(thread, change, rows.weigh([entry]))


def put_entries(tx: Transaction, thread: int, written: Entries) -> None:
    """Write journal entries. `Damaged` if an entry to be replaced is missing."""
    if written.changed:
        replaced = tx.ask(*(("update_entry", row) for row in written.changed))
        for row, found in zip(written.changed, replaced, strict=True):
            if not found:
                raise rows.missing_entry(thread, row[0] & MAX_SEQ)
    for row in written.new:
        tx.put("insert_entry", *row)


def append_entries(tx: Transaction, thread: int, written: Entries) -> None:
    """Write journal entries and count them."""
    put_entries(tx, thread, written)
    if written.new:
        tx.put("count_entries", thread, written.last)


def arrays(written: Sequence[rows.EntryColumns]) -> tuple[list[Any], list[Any], list[Any]]:
    """Journal entries as one array per column."""
    return [row[0] for row in written], [row[1] for row in written], [row[2] for row in written]


def _find_written(tx: Transaction, thread: int, written: Entries | None) -> Done[list[int]] | None:
    """Whether journal entries were written, judged by their numbers and contents."""
    if written is None:
        return None
    lock_run(tx, thread)
    wanted = [(row[0], row[1]) for row in (*written.changed, *written.new)]
    stored = tx.ask(*(("entry", (row_key,)) for row_key, _ in wanted)) if wanted else []
    return Done(written.numbers) if wanted and [row for found in stored for row in found] == wanted else None
