"""Read and lock the rows of a thread and its run until the end of the transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.stores import rows, rules
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.rows import ENTRIES, RUN_COLUMNS, StoredThread, read_run, read_thread
from holdfast.stores.segments import MAX_SEQ, MAX_THREAD
from holdfast.stores.sql.transaction import Query, Row, Transaction


class StoredRun(NamedTuple):
    """A run's record, its columns, and the number of its newest journal entry. Without a run: None, () and 0."""

    row: RunRow | None
    columns: Row
    last: int


NO_RUN: Final = StoredRun(None, (), 0)


def lock_threads(
    tx: Transaction, numbers: Collection[int], *more: Query
) -> tuple[dict[int, StoredThread], list[list[Row]]]:
    """Lock and return the threads of this namespace among these numbers; also the answers to other queries.

    They are locked in the order of their numbers, so that two transactions never wait for each other.
    """
    wanted = sorted({number for number in numbers if 1 <= number <= MAX_THREAD})
    answers = tx.ask(*(("lock_thread", (number,)) for number in wanted), *more)
    threads = [read_thread(row) for found in answers[: len(wanted)] for row in found]
    return {each.thread_no: each for each in threads if each.namespace == tx.namespace}, answers[len(wanted) :]


def lock_run(tx: Transaction, thread: int) -> StoredRun:
    """Lock and return the run of a thread. `Damaged` if its journal is cut short."""
    if not 1 <= thread <= MAX_THREAD:
        return NO_RUN
    return checked_run(tx.namespace, thread, tx.ask(*run_queries(tx, thread)))


def hold(tx: Transaction, thread: int, *more: Query) -> tuple[StoredThread | None, StoredRun, list[list[Row]]]:
    """Lock and return a thread, then its run; also the answers to other queries."""
    if not 1 <= thread <= MAX_THREAD:
        return None, NO_RUN, tx.ask(*more)
    queries = run_queries(tx, thread)
    threads, answers = lock_threads(tx, [thread], *queries, *more)
    run = checked_run(tx.namespace, thread, answers[: len(queries)])
    return threads.get(thread), run, answers[len(queries) :]


def run_queries(tx: Transaction, thread: int) -> list[Query]:
    """The queries that lock a run, and find the newest entry of its journal.

    One query, if nothing can change between two; otherwise the second one must come after the lock.
    """
    if tx.has("run_and_newest_entry"):
        return [("run_and_newest_entry", (thread,))]
    return [("lock_run", (thread,)), ("newest_entry", (thread,))]


def checked_run(namespace: bytes, thread: int, answers: Sequence[list[Row]]) -> StoredRun:
    """The run from the answers to `run_queries`, after checking that its journal ends with the entry it should."""
    if not answers[0] or answers[0][0][1] != namespace:
        return NO_RUN
    columns = answers[0][0][:RUN_COLUMNS]
    newest = answers[-1][0][-1] if answers[-1] else None
    run = StoredRun(read_run(columns), columns, columns[ENTRIES])
    if (newest or 0) & MAX_SEQ != run.last:
        raise Damaged(
            f"the run of the thread with number {thread} does not match its journal; run hf.verify() to see what is affected"
        )
    return run


def put_run(tx: Transaction, row: RunRow, entries: int) -> Row:
    """Write the record of a run; return its columns."""
    columns = rows.store_run(tx.namespace, row, entries)
    tx.put("put_run", *columns)
    if rules.is_due(row):
        tx.announce()
    return columns
