"""Checking a store's own structures: pages, indexes, keys, counters, checksums of rows. Cells are not unpacked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Problem
from holdfast.stores.sqlite import reading, records, rows, schema
from holdfast.stores.sqlite.errors import FAILURES
from holdfast.stores.sqlite.rows import StoredThread

_SQL: Final = schema.statements("check.sql")

# Beyond this many, SQLite stops looking.
_PAGE_PROBLEMS: Final = 100


def database(connection: sqlite3.Connection, namespace: bytes) -> list[Problem]:
    """What is wrong with the file as a whole."""
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
                # Of any namespace: which one it belongs to is among what is not known.
                problem(str(error))
        for row in connection.execute(_SQL["runs"]):
            try:
                run = records.read_run(row)
            except Damaged as error:
                problem(str(error))
                continue
            if not records.repeats(row, run):
                problem(f"the run of thread number {run.thread} is not where the indexes have it")
        _compare(connection, problem, "named_in_table", "named_in_name_index", "thread names")
        _compare(connection, problem, "named_in_table", "named_in_hash_index", "thread name hashes")
        _compare(connection, problem, "labels_in_table", "labels_in_index", "labels")
        _compare(connection, problem, "open_in_table", "open_in_index", "open runs")
        _compare(connection, problem, "waking_in_table", "waking_in_index", "wake times")
        _compare(connection, problem, "waking_in_table", "waking_in_wall_index", "wake times by the wall clock")
        _compare(connection, problem, "marked_in_table", "marked_in_index", "marked journal entries")
        for what, number in connection.execute(_SQL["orphans"]):
            problem(f"{rows.to_text(what)} of thread number {number}, which does not exist")
        for (digest,) in connection.execute(_SQL["values_in_pieces"], (namespace,)):
            problem(f"shared value {digest.hex()} is incomplete")
        (pieces,) = connection.execute(_SQL["orphan_pieces"]).fetchone()
        if pieces:
            problem(f"{pieces} pieces of shared values that do not exist")
    except FAILURES as error:
        # The check itself cannot go on here; that is what it found.
        problem(f"SQLite: {error}")
    return found


def numbers(connection: sqlite3.Connection, namespace: bytes) -> list[int]:
    """The threads to check, read from the table itself."""
    return [number for (number,) in connection.execute(_SQL["numbers"], (namespace,))]


def thread(connection: sqlite3.Connection, namespace: bytes, number: int) -> list[Problem]:
    """What is wrong with one thread."""
    try:
        stored = reading.find_number(connection, namespace, number)
    except Damaged:
        return []  # reported with the database
    if stored is None:
        return []  # dropped meanwhile
    if stored.name is None:
        return _dropped(connection, stored)
    name = rows.to_text(stored.name)
    found: list[Problem] = []
    try:
        if reading.find_thread(connection, namespace, stored.name) != stored:
            found.append(Problem(name, (), "its name leads to another thread"))
    except (Damaged, *FAILURES) as error:
        found.append(Problem(name, (), str(error)))
    try:
        found += _checkpoints(connection, name, stored)
        found += _segments(connection, name, stored)
        found += _journal(connection, name, stored)
    except FAILURES as error:
        found.append(Problem(name, (), f"SQLite: {error}"))
    return found


def _checkpoints(connection: sqlite3.Connection, name: str, thread: StoredThread) -> list[Problem]:
    found: list[Problem] = []
    heads: dict[int, int] = {}  # by the number of the move
    count = 0
    expected = 1
    head: CheckpointRow | None = None
    unreadable = False
    for row in connection.execute(_SQL["checkpoints"], (thread.thread_no,)):
        seq = row[0] & rows.MAX_SEQ
        if seq != expected:
            found.append(Problem(name, tuple(range(expected, seq)), "checkpoints are missing"))
            unreadable = True
        expected = seq + 1
        try:
            checkpoint = rows.decode(*row)
        except Damaged as error:
            found.append(Problem(name, (seq,), str(error)))
            unreadable = True
            continue
        if heads.setdefault(checkpoint.move, seq) != seq:
            found.append(Problem(name, (seq,), "two checkpoints have the same move"))
        count += not checkpoint.deleted
        if seq == thread.head:
            head = checkpoint
    if expected != thread.last + 1:
        found.append(Problem(name, (), f"the newest checkpoint is {expected - 1}, not {thread.last}"))
    for move, to in connection.execute(_SQL["moves"], (thread.thread_no,)):
        if heads.setdefault(move, to) != to or not 1 <= to <= thread.last:
            found.append(Problem(name, (), f"move {move} is told in two ways"))
    if unreadable:
        return found  # what follows compares with rows that could not be read
    if head is None or head.deleted or head.id != thread.head_id:
        found.append(Problem(name, (thread.head,), "the head is not the checkpoint it should be"))
    if count != thread.count:
        found.append(Problem(name, (), f"it has {count} checkpoints, not {thread.count}"))
    if len(heads) != thread.move or (heads and max(heads) != thread.move):
        found.append(Problem(name, (), f"its moves do not lead up to number {thread.move}"))
    elif heads.get(thread.move) != thread.head:
        found.append(Problem(name, (), "its last move does not lead to its head"))
    return found


def _segments(connection: sqlite3.Connection, name: str | None, thread: StoredThread) -> list[Problem]:
    found: list[Problem] = []
    before = 0
    for last, first in connection.execute(_SQL["segments"], (thread.thread_no,)):
        if not before < first <= last <= thread.last:
            found.append(Problem(name, (), f"the merged segment of commits {first} to {last} overlaps another"))
        before = last
    return found


def _journal(connection: sqlite3.Connection, name: str, thread: StoredThread) -> list[Problem]:
    found: list[Problem] = []
    run = connection.execute(_SQL["run_of"], (thread.thread_no,)).fetchone()
    if run is not None and run[0] != thread.namespace:
        found.append(Problem(name, (), "its run is of another namespace"))
    expected = 1
    for row_key, record, mark in connection.execute(_SQL["effects"], (thread.thread_no,)):
        number = row_key & rows.MAX_SEQ
        if number != expected:
            found.append(Problem(name, (), f"journal entries {expected} to {number - 1} are missing"))
        expected = number + 1
        try:
            if records.stored_mark(records.read_effect(row_key, record)) != mark:
                found.append(Problem(name, (), f"journal entry {number} has another mark than its record says"))
        except Damaged as error:
            found.append(Problem(name, (), str(error)))
    if run is None and expected > 1:
        found.append(Problem(name, (), "it has a journal but no run"))
    if run is not None and run[1] != expected - 1:
        found.append(Problem(name, (), f"the newest journal entry is {expected - 1}, not {run[1]}"))
    return found


def _dropped(connection: sqlite3.Connection, thread: StoredThread) -> list[Problem]:
    found = _segments(connection, None, thread)
    if connection.execute(_SQL["run_of"], (thread.thread_no,)).fetchone() is not None:
        found.append(Problem(None, (), f"thread number {thread.thread_no} was dropped but still has a run"))
    return found


def _compare(connection: sqlite3.Connection, problem: Callable[[str], None], table: str, index: str, what: str) -> None:
    (rows_in_table,) = connection.execute(_SQL[table]).fetchone()
    (rows_in_index,) = connection.execute(_SQL[index]).fetchone()
    if rows_in_table != rows_in_index:
        problem(f"the index of {what} has {rows_in_index} entries for {rows_in_table} rows")
