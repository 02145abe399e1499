"""Writes to runs and their journals.

A write that changes a run's status or fence first locks and changes its thread. A write that only adds journal entries
or extends a lease does not touch the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.errors import NotFound, OutcomeUnknown
from holdfast.stores import entries, leases, records, rows
from holdfast.stores.postgres.committing import columns_of, put_entries
from holdfast.stores.postgres.known import Known, KnownRun, KnownThread
from holdfast.stores.postgres.locking import (
    changed_run,
    entries_of,
    hold,
    lock_run,
    put_run,
    put_thread,
    recounted_run,
    with_status_of,
)
from holdfast.stores.postgres.schema import Statements
from holdfast.stores.postgres.session import Transaction
from holdfast.stores.postgres.writer import Done, Fact, Quick, Slow
from holdfast.stores.running import Entry, EntryStatus, Progress, RunRow


class JournalWork:
    """Journal entries of a running run: one guarded statement if the run's row is cached."""

    def __init__(self, thread: int, fence: int, rows_: Sequence[Entry], sql: Statements) -> None:
        self._thread = thread
        self._fence = fence
        self._rows = rows_
        self._sql = sql
        self._written: entries.Entries | None = None
        self._run: KnownRun | None = None

    def quick(self, known: Known) -> Quick | None:
        found = known.get(self._thread)
        if found is None or not self._rows:
            return None
        run = found[1]
        if run.row is None or run.columns is None or run.row.fence != self._fence or run.row.status != "running":
            return None
        self._encode(run)
        assert self._written is not None  # noqa: S101 - just made
        assert self._run is not None  # noqa: S101
        assert self._run.columns is not None  # noqa: S101
        values = (
            self._thread,
            self._run.columns[records.ENTRIES],
            self._run.columns[-1],
            self._run.version,
            run.version,
            run.columns[-1],
            *columns_of(self._written.changed),
            *columns_of(self._written.new),
        )
        return self._sql["quick_journal"], values

    def quick_answer(self) -> list[int]:
        return [] if self._written is None else self._written.numbers

    def run(self, session: Transaction) -> list[int]:
        run, _ = lock_run(session, self._thread)
        leases.require_fence(run.row, self._fence)
        self._encode(run)
        assert self._written is not None  # noqa: S101 - just made
        assert self._run is not None  # noqa: S101
        require_there(session, self._thread, self._written)
        put_entries(session, self._written)
        put_run(session, run, self._run)
        return self._written.numbers

    def find(self, session: Transaction) -> Done[list[int]] | None:
        return _find_entries(session, self._thread, self._written)

    def facts(self) -> Sequence[Fact]:
        return () if self._run is None else (Fact(self._thread, None, self._run),)

    def _encode(self, run: KnownRun) -> None:
        self._written = entries.encode(self._thread, entries_of(run), self._rows)
        self._run = recounted_run(run, self._written.last)


class TellWork(Slow[int]):
    """A journal entry posted from outside the run."""

    def __init__(self, thread: int, row: Entry, last: int | None, expected: RunRow | None) -> None:
        self._thread = thread
        self._row = replace(row, number=0)
        self._last = last
        self._expected = expected
        self._written: entries.Entries | None = None
        self._run: KnownRun | None = None

    def run(self, session: Transaction) -> int:
        run, _ = lock_run(session, self._thread)
        if run.row is None:
            raise leases.no_run(self._thread)
        if self._last is not None:
            leases.require_last(entries_of(run), self._last)
        if self._expected is not None:
            leases.require_expected(run.row, self._expected)
        self._written = entries.encode(self._thread, entries_of(run), [self._row])
        self._run = recounted_run(run, self._written.last)
        put_entries(session, self._written)
        put_run(session, run, self._run)
        return self._written.last

    def find(self, session: Transaction) -> Done[int] | None:
        found = _find_entries(session, self._thread, self._written)
        return None if found is None else Done(found.answer[0])

    def facts(self) -> Sequence[Fact]:
        return () if self._run is None else (Fact(self._thread, None, self._run),)


class RunWork(Slow[None]):
    """A write that replaces the record of a run and updates its thread: a claim, update, suspension or settlement.

    `change` gets the stored rows. It returns the new record of the run, or None to keep it, and the journal entries to
    write.
    """

    def __init__(
        self,
        thread: int,
        change: Callable[[Transaction, KnownThread | None, KnownRun], tuple[RunRow | None, entries.Entries | None]],
    ) -> None:
        self._thread = thread
        self._change = change
        self._before: KnownRun | None = None
        self._run: KnownRun | None = None
        self._known: KnownThread | None = None
        self._written: entries.Entries | None = None

    def run(self, session: Transaction) -> None:
        thread, run, _ = hold(session, self._thread)
        row, self._written = self._change(session, thread, run)
        self._before = run
        if self._written is not None:
            require_there(session, self._thread, self._written)
            put_entries(session, self._written)
        last = self._written.last if self._written is not None else entries_of(run)
        self._run = run if row is None else changed_run(session.namespace, run, row, last)
        self._known = None
        if row is not None:
            put_run(session, run, self._run)
            if thread is not None:
                self._known = with_status_of(row, thread)
                put_thread(session, self._known)

    def find(self, session: Transaction) -> Done[None] | None:
        """Whether the write was done: from the run's row and, if that is not conclusive, from the entries.

        If only entries were to be written, they alone decide.
        """
        _, run, _ = hold(session, self._thread)
        before, after = self._before, self._run
        if before is None or after is None:
            return None
        if after is not before:
            if run.columns == after.columns and run.version == after.version:
                return Done(None)
            if run.version == before.version:
                return None
        if self._written is not None and _find_entries(session, self._thread, self._written) is not None:
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

    def facts(self) -> Sequence[Fact]:
        if self._run is None or self._before is None:
            return ()
        return (Fact(self._thread, self._known, self._run),)


class RenewWork(Slow[None]):
    """An extension of a lease. Repeating it does no harm."""

    def __init__(self, thread: int, fence: int, until: int, progress: Progress | None) -> None:
        self._thread = thread
        self._fence = fence
        self._until = until
        self._progress = progress
        self._run: KnownRun | None = None

    def run(self, session: Transaction) -> None:
        found, _ = lock_run(session, self._thread)
        row = leases.require_fence(found.row, self._fence)
        row = leases.renewed(row, self._until, self._progress)
        self._run = changed_run(session.namespace, found, row, entries_of(found))
        put_run(session, found, self._run)

    def facts(self) -> Sequence[Fact]:
        return () if self._run is None else (Fact(self._thread, None, self._run),)


def claim(expect: RunRow | None, row: RunRow) -> RunWork:
    def change(_session: Transaction, thread: KnownThread | None, run: KnownRun) -> tuple[RunRow, None]:
        leases.require_expected(run.row, expect)
        if expect is None and (thread is None or thread.row.name is None):
            raise NotFound(f"the thread with number {row.thread} does not exist; nothing was changed")
        return row, None

    return RunWork(row.thread, change)


def update(row: RunRow) -> RunWork:
    def change(_session: Transaction, _thread: KnownThread | None, run: KnownRun) -> tuple[RunRow, None]:
        return leases.keep_lease(leases.require_fence(run.row, row.fence), row), None

    return RunWork(row.thread, change)


def park(row: RunRow, entry: Entry | None, last: int) -> tuple[RunWork, int]:
    """The work, and the number of the question."""
    question = 0 if entry is None else entry.number or last + 1

    def change(
        _session: Transaction, _thread: KnownThread | None, run: KnownRun
    ) -> tuple[RunRow, entries.Entries | None]:
        before = leases.require_fence(run.row, row.fence)
        leases.require_last(entries_of(run), last)
        after = leases.keep_lease(before, replace(row, question=question))
        return after, entries.encode(row.thread, last, [] if entry is None else [entry])

    return RunWork(row.thread, change), question


def settle(
    thread: int, number: int, expect: EntryStatus, entry: Entry, expected: RunRow | None, then: RunRow | None
) -> RunWork:
    def change(
        session: Transaction, _thread: KnownThread | None, run: KnownRun
    ) -> tuple[RunRow | None, entries.Entries | None]:
        if run.row is None or not 1 <= number <= entries_of(run):
            raise leases.no_effect(thread, number)
        stored = session.row("effect", rows.key(thread, number))
        if stored is None:
            raise entries.missing(thread, number)
        if records.read_effect(*stored).status != expect or (expected is not None and run.row != expected):
            raise leases.settled_otherwise()
        return then, entries.encode(thread, entries_of(run), [replace(entry, number=number)])

    return RunWork(thread, change)


def require_there(session: Transaction, thread: int, written: entries.Entries) -> None:
    """`Damaged` if an entry to be replaced is missing."""
    if written.changed:
        keys = [row[0] for row in written.changed]
        there = {key for key, _ in session.rows("effects_of", keys)}
        for key in keys:
            if key not in there:
                raise entries.missing(thread, key & rows.MAX_SEQ)


def _find_entries(session: Transaction, thread: int, written: entries.Entries | None) -> Done[list[int]] | None:
    """Whether journal entries were written, judged by their numbers and contents."""
    if written is None:
        return None
    lock_run(session, thread)
    wanted = {row[0]: row[1] for row in (*written.changed, *written.new)}
    stored: dict[int, bytes] = dict(session.rows("effects_of", sorted(wanted)))
    return Done(written.numbers) if wanted and stored == wanted else None
