"""Check the store's structures: pages, indexes, keys, counters, row checksums. Cells are not unpacked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import checking, records, rows
from holdfast.stores.rows import StoredThread
from holdfast.stores.sqlite import reading, schema
from holdfast.stores.sqlite.errors import FAILURES
from holdfast.types import Problem

_SQL: Final = schema.statements("check.sql")

# SQLite stops after this many problems.
_PAGE_PROBLEMS: Final = 100


def database(connection: sqlite3.Connection, namespace: bytes) -> list[Problem]:
    """Problems of the file as a whole."""
    found: list[Problem] = []

    def problem(what: str) -> None:
        found.append(Problem(None, (), what))

    try:
        for (line,) in connection.execute(f"PRAGMA integrity_check({_PAGE_PROBLEMS:d})"):
            if line != b"ok":
                problem(f"SQLite: {rows.to_text(line)}")
        for row in connection.execute(_SQL["threads"]):
            try:
                rows.stored_thread(row)
            except Damaged as error:
                # Of any namespace: the namespace of a damaged record is not known.
                problem(str(error))
        for row in connection.execute(_SQL["runs"]):
            try:
                run = records.read_run(row)
            except Damaged as error:
                problem(str(error))
                continue
            if not records.repeats(row, run):
                problem(f"the run of the thread with number {run.thread} does not match its index columns")
        _compare(connection, problem, "named_in_table", "named_in_name_index", "thread names")
        _compare(connection, problem, "named_in_table", "named_in_hash_index", "thread name hashes")
        _compare(connection, problem, "labels_in_table", "labels_in_index", "labels")
        _compare(connection, problem, "open_in_table", "open_in_index", "open runs")
        _compare(connection, problem, "waking_in_table", "waking_in_index", "wake times")
        _compare(connection, problem, "waking_in_table", "waking_in_wall_index", "wake times by the wall clock")
        _compare(connection, problem, "marked_in_table", "marked_in_index", "topics of journal entries")
        for what, number in connection.execute(_SQL["orphans"]):
            problem(f"{rows.to_text(what)} of the thread with number {number}, but the thread does not exist")
        for (digest,) in connection.execute(_SQL["values_in_pieces"], (namespace,)):
            problem(f"blob {digest.hex()} is incomplete")
        (pieces,) = connection.execute(_SQL["orphan_pieces"]).fetchone()
        if pieces:
            problem(f"{pieces} pieces of blobs that do not exist")
    except FAILURES as error:
        # The check cannot continue; report why.
        problem(f"SQLite: {error}")
    return found


def numbers(connection: sqlite3.Connection, namespace: bytes) -> list[int]:
    """The threads to check, from the table itself instead of an index."""
    return [number for (number,) in connection.execute(_SQL["numbers"], (namespace,))]


def thread(connection: sqlite3.Connection, namespace: bytes, number: int) -> list[Problem]:
    """Problems of one thread."""
    try:
        stored = reading.find_number(connection, namespace, number)
    except Damaged:
        return []  # reported by `database`
    if stored is None:
        return []  # dropped in the meantime
    if stored.name is None:
        return _dropped(connection, stored)
    name = rows.to_text(stored.name)
    found: list[Problem] = []
    try:
        if reading.find_thread(connection, namespace, stored.name) != stored:
            found.append(Problem(name, (), "looking up the thread's name finds another thread"))
    except (Damaged, *FAILURES) as error:
        found.append(Problem(name, (), str(error)))
    try:
        checkpoints = connection.execute(_SQL["checkpoints"], (number,))
        found += checking.checkpoints(name, stored, checkpoints, connection.execute(_SQL["moves"], (number,)))
        found += checking.segments(name, stored, connection.execute(_SQL["segments"], (number,)))
        run = connection.execute(_SQL["run_of"], (number,)).fetchone()
        found += checking.journal(name, stored, run, connection.execute(_SQL["effects"], (number,)))
    except FAILURES as error:
        found.append(Problem(name, (), f"SQLite: {error}"))
    return found


def _dropped(connection: sqlite3.Connection, thread: StoredThread) -> list[Problem]:
    found = checking.segments(None, thread, connection.execute(_SQL["segments"], (thread.thread_no,)))
    if connection.execute(_SQL["run_of"], (thread.thread_no,)).fetchone() is not None:
        found.append(Problem(None, (), f"the thread with number {thread.thread_no} was dropped but still has a run"))
    return found


def _compare(connection: sqlite3.Connection, problem: Callable[[str], None], table: str, index: str, what: str) -> None:
    (rows_in_table,) = connection.execute(_SQL[table]).fetchone()
    (rows_in_index,) = connection.execute(_SQL[index]).fetchone()
    if rows_in_table != rows_in_index:
        problem(f"the index of {what} has {rows_in_index} entries for {rows_in_table} rows")
