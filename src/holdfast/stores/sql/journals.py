"""Runs and their journals: read and write verbs.

A write that changes a run's status or fence first locks and changes its thread. A write that only adds journal entries
or extends a lease does not touch the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from msgspec.structs import replace

from holdfast.errors import Damaged, OutcomeUnknown
from holdfast.stores import rows, rules
from holdfast.stores.contract import Claimed, Position
from holdfast.stores.contract_runs import Entry, EntryStatus, Progress, RunRow
from holdfast.stores.rows import RUN_COLUMNS, EncodedEntries, StoredThread, read_entry, read_run, read_thread, to_bytes
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD, key
from holdfast.stores.sql.reads import NO_RUN, StoredRun, cut_journal, lock_run, lock_thread_and_run
from holdfast.stores.sql.transaction import BaseWrite, Done, Guarded, Query, Row, StoreWrite, Transaction

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


def entries(tx: Transaction, thread: int, after: int, limit: int, topic: str | None) -> list[Entry]:
    expected = after + 1
    if expected > MAX_SEQ:
        return []
    at = min(max(thread, 0), MAX_THREAD)
    ends = (key(at, expected), key(at, MAX_SEQ), limit)
    query: Query = ("entries", ends) if topic is None else ("entries_by_topic", (*ends, to_bytes(topic)))
    found, (page,) = _find(tx, thread, query)
    if found.row is None:
        return []
    if topic is not None:
        return [read_entry(row_key, record) for row_key, record in page]
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


def last_entry(tx: Transaction, thread: int) -> int:
    found, (newest,) = _find(tx, thread, ("newest_entry", (thread,)))
    if found.row is not None and ((newest[0][0] if newest else None) or 0) & MAX_SEQ != found.last:
        raise cut_journal(thread)
    return found.last


def _find(tx: Transaction, thread: int, *more: Query) -> tuple[StoredRun, list[list[Row]]]:
    if not 1 <= thread <= MAX_THREAD:
        return NO_RUN, [[] for _ in more]
    found, *answers = tx.ask(("run", (thread,)), *more)
    if found and found[0][1] == tx.namespace:
        return StoredRun(read_run(found[0]), found[0], found[0][rows.ENTRIES_COLUMN]), answers
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


class EntriesWrite(BaseWrite[None]):
    """A write of journal entries that leaves the run's record as it is, except for the count of entries."""

    _thread: int
    written: EncodedEntries

    def guarded_answer(self) -> None:
        return None

    def check(self, tx: Transaction, run: StoredRun) -> None:
        """Raise if the entries must not be written."""
        raise NotImplementedError

    def run(self, tx: Transaction) -> None:
        run = lock_run(tx, self._thread)
        self.check(tx, run)
        put_entries(tx, self._thread, self.written)
        if self.written.new:
            tx.put("count_entries", self._thread, run.last + len(self.written.new))

    def find_result(self, tx: Transaction) -> Done[None] | None:
        return Done(None) if _is_written(tx, self._thread, self.written) else None


class JournalWrite(EntriesWrite):
    """Journal entries of a running run."""

    def __init__(self, thread: int, fence: int, entries_: Sequence[Entry], last: int | None, namespace: bytes) -> None:
        self._thread = thread
        self._fence = fence
        self._entries = entries_
        self._last = last
        self._namespace = namespace
        self.written = rows.store_entries(thread, last, entries_)
        self.weight = self.written.weight

    def guarded(self) -> Guarded | None:
        if self._last is None or not self._entries:
            return None
        new, changed, _ = self.written
        guards = self._thread, self._namespace, self._fence, self._last
        return Guarded("journal", (*guards, len(new), *arrays(changed), *arrays(new)))

    def check(self, tx: Transaction, run: StoredRun) -> None:
        rules.require_fence(run.row, self._fence)
        rules.require_entries(self._thread, run.last, self._entries, self._last)


class PostWrite(EntriesWrite):
    """A journal entry from outside the run."""

    def __init__(self, thread: int, row: Entry, status: EntryStatus | None, expected: RunRow | None) -> None:
        self._thread = thread
        self._row = row
        self._status: EntryStatus | None = status
        self._expected = expected
        self.written = rows.store_entries(thread, row.number - 1 if status is None else None, [row])
        self.weight = self.written.weight

    def check(self, tx: Transaction, run: StoredRun) -> None:
        thread = self._thread

        def status_of(number: int) -> str:
            stored = tx.row("entry", key(thread, number))
            if stored is None:
                raise rows.missing_entry(thread, number)
            return read_entry(*stored).status

        rules.require_post(
            run.row, run.last, self._row, status_of, thread=thread, status=self._status, run=self._expected
        )


class RenewWrite(BaseWrite[None]):
    """An extension of a lease. Repeating it does no harm."""

    def __init__(self, thread: int, fence: int, until: int, progress: Progress | None, namespace: bytes) -> None:
        self._thread = thread
        self._fence = fence
        self._until = until
        self._progress = progress
        self._namespace = namespace

    def guarded(self) -> Guarded | None:
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


NO_ENTRIES: Final = EncodedEntries([], [], 0)
Change = Callable[[Transaction, StoredThread | None, StoredRun], RunRow]


class RunWrite(BaseWrite[None]):
    """A write that replaces the record of a run, updates its thread, and may write journal entries.

    `change` gets the stored rows, and returns the new record of the run.
    """

    def __init__(self, thread: int, change: Change, written: EncodedEntries = NO_ENTRIES) -> None:
        self.weight = written.weight
        self._thread = thread
        self._change = change
        self._before: StoredRun | None = None
        self._after: StoredRun | None = None
        self._position: Position | None = None
        self._written = written

    def run(self, tx: Transaction) -> None:
        thread, run, _ = lock_thread_and_run(tx, self._thread)
        row = self._change(tx, thread, run)
        put_entries(tx, self._thread, self._written)
        last = run.last + len(self._written.new)
        self._before = run
        self._after = StoredRun(row, put_run(tx, row, last), last)
        if thread is not None:
            self._position = thread.position()
            thread.show_run(row)
            tx.put("update_thread", *thread.changes())

    def claimed(self) -> Claimed:
        """The result of a claim."""
        if self._position is None or self._after is None or self._after.row is None:
            raise rules.no_thread(self._thread)
        return Claimed(self._position, self._after.row, self._after.last)

    def find_result(self, tx: Transaction) -> Done[None] | None:
        """Whether the write was done: from the run's row and, if that is not conclusive, from the entries."""
        _, run, _ = lock_thread_and_run(tx, self._thread)
        before, after = self._before, self._after
        if before is None or after is None:
            return None
        if tuple(run.columns) == tuple(after.columns):
            return Done(None)
        if tuple(run.columns) == tuple(before.columns):
            return None
        if _is_written(tx, self._thread, self._written):
            return Done(None)
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


def claim(expect: RunRow | None, row: RunRow) -> RunWrite:
    def change(tx: Transaction, thread: StoredThread | None, run: StoredRun) -> RunRow:
        rules.require_expected(run.row, expect)
        if thread is None or thread.name is None:
            raise rules.no_thread(row.thread)
        return rules.start_lease(row, tx.clock)

    return RunWrite(row.thread, change)


def release(fence: int, entries_: Sequence[Entry], last: int | None, row: RunRow) -> RunWrite:
    """Replace the record of a running run, which may release it."""

    def change(_tx: Transaction, _thread: StoredThread | None, run: StoredRun) -> RunRow:
        before = rules.require_fence(run.row, fence)
        rules.require_entries(row.thread, run.last, entries_, last)
        return rules.keep_lease(before, row)

    return RunWrite(row.thread, change, rows.store_entries(row.thread, last, entries_))


def post(
    thread: int, row: Entry, status: EntryStatus | None, expected: RunRow | None, then: RunRow | None
) -> StoreWrite[None]:
    write = PostWrite(thread, row, status, expected)
    if then is None:
        return write
    follows = then

    def change(tx: Transaction, _thread: StoredThread | None, run: StoredRun) -> RunRow:
        write.check(tx, run)
        return follows

    return RunWrite(thread, change, write.written)


def put_run(tx: Transaction, row: RunRow, entries: int) -> Row:
    """Write the record of a run; return its columns."""
    columns = rows.store_run(tx.namespace, row, entries)
    tx.put("put_run", *columns)
    if rules.is_due(row):
        tx.announce()
    return columns


def put_entries(tx: Transaction, thread: int, written: EncodedEntries) -> None:
    """Write journal entries. `Damaged` if an entry to be replaced is missing."""
    if written.changed:
        replaced = tx.ask(*(("update_entry", row) for row in written.changed))
        for row, found in zip(written.changed, replaced, strict=True):
            if not found:
                raise rows.missing_entry(thread, row[0] & MAX_SEQ)
    for row in written.new:
        tx.put("insert_entry", *row)


def arrays(written: Sequence[rows.EntryColumns]) -> tuple[list[Any], list[Any], list[Any]]:
    """Journal entries as one array per column."""
    return [row[0] for row in written], [row[1] for row in written], [row[2] for row in written]


def _is_written(tx: Transaction, thread: int, written: EncodedEntries) -> bool:
    """Whether journal entries were written, judged by their numbers and contents."""
    lock_run(tx, thread)
    wanted = [(row[0], row[1]) for row in (*written.changed, *written.new)]
    stored = tx.ask(*(("entry", (row_key,)) for row_key, _ in wanted)) if wanted else []
    return bool(wanted) and [row for found in stored for row in found] == wanted
