"""Repair a copy of a damaged store: rebuild indexes and thread records from the data that is stored twice.

Only for a temporary copy to read from: a repaired copy looks complete but is not.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import Any, Final, get_args

from holdfast.errors import Damaged
from holdfast.stores import rows
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.rows import StoredThread, read_checkpoint, read_run, read_thread
from holdfast.stores.rules import fence_of
from holdfast.stores.segments import MAX_SEQ
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.connection import connect
from holdfast.stores.sqlite.failures import FAILURES
from holdfast.types import Problem, Status

_SQL: Final = schema.statements("rebuild")
_STATUSES: Final = frozenset(status.encode() for status in get_args(Status))


def rebuild(path: str, namespace: bytes) -> list[Problem]:
    """Rebuild the indexes, and the records of threads that are damaged or missing but have checkpoints.

    Only threads of one namespace are rebuilt. Returns a problem for each thread whose name or namespace is lost.
    """
    problems: list[Problem] = []
    with closing(connect(path, "off", 10.0)) as connection:
        seen = _Seen(connection, namespace)  # before REINDEX drops entries that the table has lost
        if seen.is_cut_off or seen.lost:
            _make_anew(connection, seen.sound)
        for statement in schema.reindexing():
            with suppress(*FAILURES):  # the table is not completely readable
                connection.execute(statement)
        for number, row in sorted(seen.lost.items()):
            space, name = seen.name_of(row)
            if space is None:
                what = f"the thread with number {number} is lost: its namespace is not known"
                problems.append(Problem(None, (), what))
            elif space == namespace:
                thread = _guess(row, space, name or seen.free_name(number))
                if number in seen.runs:
                    thread.add_run()
                    _, thread.fence = seen.runs[number]
                if _set_position(connection, thread):
                    problems += _put(connection, thread, is_named=name is not None)
                    seen.taken.add(thread.name or b"")
                else:
                    called = None if name is None else rows.to_text(name)
                    what = f"the thread with number {number} is lost with all its checkpoints"
                    problems.append(Problem(called, (), what))
        _put_dropped(connection, namespace)
    return problems


class _Seen:
    """The threads as recorded in the tables and indexes, before anything is changed."""

    def __init__(self, connection: sqlite3.Connection, namespace: bytes) -> None:
        self._namespace = namespace
        self._indexed = _indexed(connection)
        # The namespaces of runs, and the fences that they give to the records of their threads.
        self.runs: dict[int, tuple[bytes, int | None]] = {}
        for row in _each(connection, "runs"):
            with suppress(Damaged):
                run = read_run(row)
                self.runs[run.thread] = row[1], fence_of(run)
        self._spaces = {space for space, _ in self._indexed.values()} | {space for space, _ in self.runs.values()}
        for query in ("spaces_of_blobs", "spaces_of_keys"):
            self._spaces.update(space for (space,) in _each(connection, query))
        self.sound: list[tuple[Any, ...]] = []
        self.lost: dict[int, tuple[Any, ...]] = {}  # by number, the rest of their records
        self.taken: set[bytes] = set()
        self.is_cut_off = False
        try:
            for row in connection.execute(_SQL["threads"]):
                self._take(row)
        except FAILURES:
            self.is_cut_off = True
        known = {row[0] for row in self.sound}
        for (number,) in _each(connection, "numbers_of_checkpoints"):
            if number not in known:
                found = _each(connection, "thread", number)  # it may lie after a page that cannot be read
                self._take(found[0] if found else (number, *(None,) * 16))

    def _take(self, row: tuple[Any, ...]) -> None:
        try:
            thread = read_thread(row)
        except Damaged:
            if row[0] > 0:  # 0 comes from a page of zeros
                self.lost[row[0]] = row
            return
        self.sound.append(row)
        self._spaces.add(thread.namespace)
        if thread.namespace == self._namespace and thread.name is not None:
            self.taken.add(thread.name)

    def name_of(self, row: tuple[Any, ...]) -> tuple[bytes | None, bytes | None]:
        """The namespace and name of a thread whose record is damaged or missing; None for what is not known.

        A name counts if its digest is stored, too. If no record gives the namespace, it is the only one there is.
        """
        number, space, name, digest = row[:4]
        found = (space, name) if _fits(space, name, digest) else self._indexed.get(number)
        if found is not None and (found[0] != self._namespace or found[1] not in self.taken):
            return found
        if number in self.runs:
            return self.runs[number][0], None
        if space in self._spaces:
            return space, None
        return (self._namespace if self._spaces <= {self._namespace} else None), None

    def free_name(self, number: int) -> bytes:
        """An unused name for a thread that lost its name."""
        name = f"recovered thread {number}"
        again = 2
        while name.encode() in self.taken:
            name = f"recovered thread {number} ({again})"
            again += 1
        return name.encode()


def _indexed(connection: sqlite3.Connection) -> dict[int, tuple[bytes, bytes]]:
    """Namespaces and names by thread number, where both indexes of names agree."""
    digests = dict(_each(connection, "digests_in_index"))
    return {
        number: (space, name)
        for number, space, name in _each(connection, "names_in_index")
        if _fits(space, name, digests.get(number))
    }


def _fits(space: object, name: object, digest: object) -> bool:
    return isinstance(space, bytes) and isinstance(name, bytes) and rows.name_digest(space, name) == digest


def _each(connection: sqlite3.Connection, query: str, *given: int | bytes) -> list[tuple[Any, ...]]:
    """The rows of a query, as far as they can be read."""
    found: list[tuple[Any, ...]] = []
    with suppress(*FAILURES):
        found.extend(connection.execute(_SQL[query], given))
    return found


def _put_dropped(connection: sqlite3.Connection, namespace: bytes) -> None:
    """Restore missing records of dropped threads whose cells are used by forks in the namespace."""
    for number, last in _each(connection, "origins_without_record", namespace):
        thread = _guess((number, *(None,) * 16), namespace, b"")
        thread.name = thread.name_digest = None
        thread.last = last & MAX_SEQ
        thread.add_deleted(0)
        with suppress(*FAILURES):  # the cells are lost then; their users report it
            connection.execute(_SQL["put_thread"], thread.columns())


def _make_anew(connection: sqlite3.Connection, sound: list[tuple[Any, ...]]) -> None:
    """Replace a table that cannot be completely read, or written, by a new one; the old pages stay as they are.

    The new table has no AUTOINCREMENT, whose counter may be damaged too. No threads will be added to the copy.
    """
    with suppress(*FAILURES):
        connection.execute("PRAGMA writable_schema = ON")
        try:
            connection.execute("BEGIN")
            connection.execute(_SQL["forget_table"])
            connection.execute("COMMIT")
        finally:
            connection.execute("PRAGMA writable_schema = RESET")
        for statement in schema.creating("thread"):
            connection.execute(statement)
        connection.executemany(_SQL["put_thread"], sound)


def _guess(row: tuple[Any, ...], space: bytes, name: bytes) -> StoredThread:
    """A thread record with every column that is still plausible."""
    step, status, agent, size, updated = row[11:16]
    status = status if status in _STATUSES else b"idle"
    shown = _whole(step), status, agent if isinstance(agent, bytes) else None, _whole(size), _whole(updated)
    return StoredThread(row[0], space, name, rows.name_digest(space, name), 0, 0, 0, 0, 0, b"", None, *shown)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _set_position(connection: sqlite3.Connection, thread: StoredThread) -> bool:
    """Set the position of a thread from its checkpoints and moves; False if there are none."""
    found: dict[int, CheckpointRow] = {}
    heads: dict[int, int] = {}
    with suppress(*FAILURES):
        for row in connection.execute(_SQL["checkpoints"], (thread.thread_no,)):
            with suppress(Damaged):
                checkpoint = read_checkpoint(*row)
                found[checkpoint.seq] = checkpoint
                heads[checkpoint.move] = checkpoint.seq
            thread.last = max(thread.last, row[0] & MAX_SEQ)
    with suppress(*FAILURES):
        for key, head in connection.execute(_SQL["moves"], (thread.thread_no,)):
            heads.setdefault(key & MAX_SEQ, head)
    alive = {move: seq for move, seq in heads.items() if seq in found and not found[seq].deleted}
    if not alive:
        return False
    thread.move = max(heads)
    thread.head = alive[max(alive)]
    thread.head_id, thread.step = found[thread.head].id, found[thread.head].step
    thread.add_deleted(thread.last - sum(not each.deleted for each in found.values()))
    return True


def _put(connection: sqlite3.Connection, thread: StoredThread, *, is_named: bool) -> list[Problem]:
    """Write the record of a thread; return the problems to report."""
    name = rows.to_text(thread.name or b"")
    try:
        connection.execute(_SQL["put_thread"], thread.columns())
    except FAILURES as error:
        return [Problem(name, (), f"its record cannot be restored ({error})")]
    what = f"this is the thread with number {thread.thread_no}; its name is lost"
    return [] if is_named else [Problem(name, (), what)]
