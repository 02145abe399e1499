"""Runs and their journals: read and write verbs.

A write that changes a run's status or fence first locks and changes its thread. A write that only adds journal entries
or extends a lease does not touch the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Any, Final

from msgspec.structs import replace

from holdfast.errors import Damaged, OutcomeUnknown
from holdfast.stores import handler_limits, rows, rules
from holdfast.stores.contract import Claimed
from holdfast.stores.contract_runs import ActClaim, ClaimLimit, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.rows import RUN_COLUMNS, EncodedEntries, StoredThread, read_entry, read_run, read_thread, to_bytes
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD, key
from holdfast.stores.sql.keyed_rows import claim_act
from holdfast.stores.sql.reads import NO_RUN, StoredRun, cut_journal, lock_run, lock_thread_and_run, missing_run
from holdfast.stores.sql.transaction import Done, Query, Row, StoreWrite, Transaction

# -- reading --------------------------------------------------------------------------------------------------------


def run(tx: Transaction, thread: int) -> RunRow | None:
    return _find(tx, thread)[0].row


def runs(tx: Transaction, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
    """A page of runs. Each status is a separate query, because it has its own part of the index."""
    wanted = sorted(set(statuses))
    if not wanted or limit <= 0:
        return []
    after = max(after[0], -(1 << 63)), min(max(after[1], -(1 << 63)), (1 << 63) - 1)
    pages = tx.ask(*(("runs", (tx.namespace, status.encode(), *after, limit)) for status in wanted))
    found = [_named(row) for page in pages for row in page]
    found.sort(key=lambda one: (one[1].updated_at, one[1].thread))
    return found[:limit]


def queue(
    tx: Transaction, *, handlers: Collection[str], after: tuple[int, int, int], limit: int
) -> list[tuple[str, RunRow]]:
    """A page of runs that are ready. Each handler is a separate query, because it has its own part of the index."""
    wanted = sorted(set(map(rows.handler_column, handlers)))
    if not wanted or limit <= 0:
        return []
    above = tuple([min(max(number, -(1 << 63)), (1 << 63) - 1) for number in after])
    pages = tx.ask(*(("queue", (tx.namespace, handler, *above, limit)) for handler in wanted))
    found = [_named(row) for page in pages for row in page]
    found.sort(key=lambda one: rules.queue_place(one[1]))
    return found[:limit]


def due(tx: Transaction, *, limit: int) -> list[tuple[str, RunRow]]:
    clock, wall = tx.clock(), tx.wall()
    own = to_bytes(clock.id)
    queries: list[Query] = [
        ("due", (tx.namespace, each, rank, clock.latest_certain, max(limit, 0)))
        if each == own
        else ("due_by_wall", (tx.namespace, each, rank, wall, max(limit, 0)))
        for each, rank in tx.rows("waking_groups", tx.namespace)
    ]
    if not queries or limit <= 0:
        return []
    found = [_named(row) for page in tx.ask(*queries) for row in page]
    found.sort(key=lambda one: (-one[1].priority, -rules.overdue(one[1], clock, wall), one[1].thread))
    return found[:limit]


def entries(tx: Transaction, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
    expected = max(after, 0) + 1
    if expected > MAX_SEQ:
        return []
    at = min(max(thread, 0), MAX_THREAD)
    ends = (key(at, expected), key(at, MAX_SEQ), max(limit, 0))
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
    for row in tx.rows("thread_by_number", thread):
        stored = read_thread(row)
        if stored.has_run and stored.namespace == tx.namespace and stored.name is not None:
            raise missing_run(thread)
    return NO_RUN, answers


def _named(row: Row) -> tuple[str, RunRow]:
    """A run from a listing, with the name of its thread."""
    found = read_run(row[:RUN_COLUMNS])
    if row[RUN_COLUMNS] is None:
        raise Damaged(f"the thread with number {found.thread} has a run, but the thread is missing")
    return read_thread(row[RUN_COLUMNS:]).record().name, found


# -- writing --------------------------------------------------------------------------------------------------------


# Gets the stored rows, and returns the new record of the run; None if only entries are written. Raises if the write is
# not allowed.
Change = Callable[[Transaction, StoredThread | None, StoredRun], RunRow | None]
NO_ENTRIES: Final = EncodedEntries([], [], 0)


class RunWrite(StoreWrite[None]):
    """A write to a run and its journal: `change` decides about the record of the run, `written` are the entries.

    With `updates_thread`, the thread is locked first, and shows the new status of the run. `guarded` makes the guarded
    statement for a namespace.
    """

    def __init__(
        self,
        thread: int,
        change: Change,
        written: EncodedEntries = NO_ENTRIES,
        *,
        updates_thread: bool = False,
        guarded: Callable[[bytes], Query] | None = None,
    ) -> None:
        self.weight = written.weight
        self.claimed: Claimed | None = None  # the thread and its run after an update of both
        self._thread = thread
        self._change = change
        self._written = written
        self._updates_thread = updates_thread
        self._guarded = guarded
        self._before: StoredRun | None = None
        self._after: StoredRun | None = None

    def guarded(self, namespace: bytes) -> Query | None:
        return None if self._guarded is None else self._guarded(namespace)

    def guarded_answer(self) -> None:
        return None

    def run(self, tx: Transaction) -> None:
        if self._updates_thread:
            threads, run, _ = lock_thread_and_run(tx, self._thread)
            thread = threads.get(self._thread)
        else:
            thread, run = None, lock_run(tx, self._thread)
        row = self._change(tx, thread, run)
        put_entries(tx, self._thread, self._written)
        last = run.last + len(self._written.new)
        if row is None:
            if self._written.new:
                tx.put("count_entries", self._thread, last)
            return
        columns = put_run(tx, row, last)
        if self._updates_thread:
            self._before, self._after = run, StoredRun(row, columns, last)
        if thread is not None:
            self.claimed = Claimed(thread.position(), row, last)
            thread.show_run(row)
            tx.put("update_thread", *thread.changes())
            if run.row is None:
                thread.add_run()
                tx.put("count_deleted", thread.thread_no, thread.deleted, thread.deleted_checksum)

    def find_result(self, tx: Transaction) -> Done[None] | None:
        """Whether the write was done: from the run's row and, if that is not conclusive, from the entries.

        A write that did not update the thread may be repeated: its fence and the numbers of its entries are compared.
        """
        _, run, _ = lock_thread_and_run(tx, self._thread)
        before, after = self._before, self._after
        if after is not None and tuple(run.columns) == tuple(after.columns):
            return Done(None)
        if before is not None and tuple(run.columns) == tuple(before.columns):
            return None
        if _is_written(tx, self._written):
            return Done(None)
        if before is None or after is None:
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


def claim(expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> RunWrite:
    rules.check_claim(expect, row)

    def change(tx: Transaction, thread: StoredThread | None, run: StoredRun) -> RunRow:
        rules.require_expected(run.row, expect)
        if thread is None or thread.name is None:
            raise rules.no_thread(row.thread)
        if limit is not None:
            _count_claim(tx, limit, row.thread)
        return rules.start_lease(row, tx.clock)

    return RunWrite(row.thread, change, updates_thread=True)


def _count_claim(tx: Transaction, limit: ClaimLimit, thread: int) -> None:
    """`LimitReached` if the handler's limit does not allow a claim; else count the claim."""
    at = tx.namespace, rows.handler_column(limit.handler)
    stored = tx.rows("lock_limit", *at)  # other claims for the handler wait here, and count this one
    clock = tx.clock()
    if limit.held is not None:
        handler_limits.require_slot(limit, map(read_run, tx.rows("running", *at, b"running")), thread, clock)
    window = handler_limits.next_window(limit, stored[0][0] if stored else None, clock, tx.wall())
    if window is not None:
        tx.put("put_limit", *at, window)


def renew(thread: int, fence: int, until: int, progress: Progress | None = None) -> RunWrite:
    def change(_tx: Transaction, _thread: StoredThread | None, run: StoredRun) -> RunRow:
        return rules.renewed(rules.require_fence(run.row, fence), until, progress)

    def guarded(namespace: bytes) -> Query:
        return "renew", (thread, namespace, fence, until, rows.lease_checksum(thread, fence, until))

    is_plain = progress is None and 0 <= until < 1 << 63 and 0 <= fence < 1 << 63
    write = RunWrite(thread, change, guarded=guarded if is_plain else None)
    write.is_grouped = False  # other writes may wait longer for an answer than a lease lasts
    return write


def journal(
    thread: int,
    fence: int | None,
    entries: Sequence[Entry],
    *,
    last: int | None,
    run: RunRow | None = None,
    claims: Sequence[ActClaim] = (),
) -> RunWrite:
    """Entries of a journal, and the acts that they claim; with `run` also its new record, which may release it."""
    rules.check_journal(entries, last, run, thread, fence)
    acts = rules.claimed_acts(thread, entries, claims) if claims else []
    written = rows.store_entries(thread, last, entries)

    def change(tx: Transaction, _thread: StoredThread | None, found: StoredRun) -> RunRow | None:
        before = rules.require_run(thread, found.row) if fence is None else rules.require_fence(found.row, fence)
        rules.require_entries(thread, found.last, entries, last)
        for act in acts:
            claim_act(tx, *act)
        return None if run is None else rules.keep_lease(before, run)

    def guarded(namespace: bytes) -> Query:
        counts = last, len(written.new)
        return "journal", (thread, namespace, fence, *counts, *arrays(written.changed), *arrays(written.new))

    is_plain = run is None and last is not None and bool(entries) and not acts
    return RunWrite(thread, change, written, updates_thread=run is not None, guarded=guarded if is_plain else None)


def post(
    thread: int,
    row: Entry,
    *,
    status: EntryStatus | None = None,
    run: RunRow | None = None,
    then: RunRow | None = None,
) -> RunWrite:
    """An entry from outside the run."""
    rules.check_post(row, run, then)

    def change(tx: Transaction, _thread: StoredThread | None, found: StoredRun) -> RunRow | None:
        def status_of(number: int) -> str:
            for stored in tx.rows("entry", key(thread, number)):
                return read_entry(*stored).status
            raise rows.missing_entry(thread, number)

        rules.require_post(found.row, found.last, row, status_of, thread=thread, status=status, run=run)
        return then

    written = rows.store_entries(thread, row.number - 1 if status is None else None, [row])
    return RunWrite(thread, change, written, updates_thread=then is not None)


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
        replaced = tx.ask(*zip(repeat("update_entry"), written.changed, strict=False))
        for row, found in zip(written.changed, replaced, strict=True):
            if not found:
                raise rows.missing_entry(thread, row[0] & MAX_SEQ)
    for row in written.new:
        tx.put("insert_entry", *row)


def arrays(written: Sequence[rows.EntryColumns]) -> tuple[list[Any], list[Any], list[Any]]:
    """Journal entries as one array per column."""
    return [row[0] for row in written], [row[1] for row in written], [row[2] for row in written]


def _is_written(tx: Transaction, written: EncodedEntries) -> bool:
    """Whether journal entries were written, judged by their numbers and contents."""
    wanted = [(row[0], row[1]) for row in (*written.changed, *written.new)]
    stored = tx.ask(*(("entry", (row_key,)) for row_key, _ in wanted)) if wanted else []
    return bool(wanted) and [row for found in stored for row in found] == wanted
