"""Read and lock the rows of a thread and its run until the end of the transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import records, rows
from holdfast.stores.postgres.known import NO_RUN, KnownRun, KnownThread
from holdfast.stores.postgres.session import Query, Transaction
from holdfast.stores.records import RUN_COLUMNS
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD, StoredThread
from holdfast.stores.running import RunRow

# thread_no … updated_at, checksum; then version and name_digest.
THREAD_COLUMNS: Final = 16
_VERSION: Final = 16


def read_thread(row: Sequence[Any]) -> StoredThread:
    """A selected thread, verified."""
    return rows.stored_thread(tuple(row[:THREAD_COLUMNS]))


def known_thread(row: Sequence[Any]) -> KnownThread:
    return KnownThread(read_thread(row), row[THREAD_COLUMNS - 1], row[_VERSION])


def read_run(row: Sequence[Any]) -> KnownRun:
    """A selected run, verified."""
    columns: Any = tuple(row[:RUN_COLUMNS])
    return KnownRun(records.read_run(columns), columns, row[RUN_COLUMNS])


def lock_threads(
    session: Transaction, numbers: Collection[int], *more: Query
) -> tuple[dict[int, KnownThread], list[Any]]:
    """Lock and return the threads of this namespace among these numbers; also the answers to other queries."""
    wanted = sorted({number for number in numbers if 1 <= number <= MAX_THREAD})
    found, *answers = session.ask(("lock_threads", (wanted,)), *more)
    threads = [known_thread(row) for row in found]
    return {known.row.thread_no: known for known in threads if known.row.namespace == session.namespace}, answers


def lock_run(session: Transaction, thread: int, *more: Query) -> tuple[KnownRun, list[Any]]:
    """Lock and return the run of a thread; also the answers to other queries. `Damaged` if its journal is cut short."""
    if not 1 <= thread <= MAX_THREAD:
        return NO_RUN, session.ask(*more) if more else []
    found, last, *answers = session.ask(("lock_run", (thread,)), ("last_effect", (thread,)), *more)
    return checked_run(session.namespace, thread, found, last), answers


def hold(session: Transaction, thread: int, *more: Query) -> tuple[KnownThread | None, KnownRun, list[Any]]:
    """Lock and return a thread, then its run; also the answers to other queries."""
    if not 1 <= thread <= MAX_THREAD:
        return None, NO_RUN, session.ask(*more) if more else []
    threads, (run, last, *answers) = lock_threads(
        session, [thread], ("lock_run", (thread,)), ("last_effect", (thread,)), *more
    )
    return threads.get(thread), checked_run(session.namespace, thread, run, last), answers


def checked_run(namespace: bytes, thread: int, found: Sequence[Any], last: Sequence[Any]) -> KnownRun:
    """The run from a row, after checking that its journal ends with the entry it should."""
    if not found or found[0][1] != namespace:
        return NO_RUN
    run = read_run(found[0])
    if (last[0][0] or 0) & MAX_SEQ != entries_of(run):
        raise Damaged(
            f"the run of the thread with number {thread} does not match its journal; "
            "run hf.verify() to see what is affected"
        )
    return run


def entries_of(run: KnownRun) -> int:
    """The number of journal entries."""
    return 0 if run.columns is None else run.columns[records.ENTRIES]


def changed_run(namespace: bytes, before: KnownRun, row: RunRow, entries: int) -> KnownRun:
    """The row of a changed run. `InvalidArgument` if a number does not fit."""
    thread, space, status, *rest = records.store_run(namespace, row, entries)
    columns: Any = (thread, space, status.encode(), *rest)
    return KnownRun(row, columns, before.version + 1)


def recounted_run(before: KnownRun, entries: int) -> KnownRun:
    """The row of a run whose number of journal entries changed."""
    if before.columns is None:
        return before
    columns: Any = (
        *before.columns[: records.ENTRIES],
        entries,
        before.columns[8],
        records.recount(before.columns, entries),
    )
    return KnownRun(before.row, columns, before.version + 1)


def changed_thread(row: StoredThread, before: int) -> KnownThread:
    """The row of a changed thread that had the version `before`."""
    return KnownThread(row, row.checksum(), before + 1)


def put_run(session: Transaction, before: KnownRun, after: KnownRun) -> None:
    if after.row is not before.row and after.row is not None and is_due(after.row):
        session.queues = True
    session.put("update_run" if before.version else "insert_run", *(after.columns or ()), after.version)


def is_due(run: RunRow) -> bool:
    """Whether any worker may claim the run at once."""
    return run.status == "queued" and not run.wake_at


def put_thread(session: Transaction, after: KnownThread) -> None:
    session.put("update_thread", *changes_of(after))


def changes_of(after: KnownThread) -> tuple[Any, ...]:
    """The columns of a thread's row that change, after its number."""
    row = after.row
    return (
        row.thread_no,
        row.head,
        row.move,
        row.last,
        row.count,
        row.head_id,
        row.step,
        row.status,
        row.agent,
        row.size,
        row.updated_at,
        after.checksum,
        after.version,
    )


def with_status_of(run: RunRow, known: KnownThread) -> KnownThread:
    """The thread's row with the status of its run, for listings of threads."""
    row = copy(known.row)
    row.status, row.updated_at = rows.to_bytes(run.status), run.updated_at
    return changed_thread(row, known.version)
