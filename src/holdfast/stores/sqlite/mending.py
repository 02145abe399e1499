"""Mending a copy of a store: what is told twice is told anew from the one that is sound.

Only ever done to a copy that is about to be read and thrown away: a mended store looks whole, and is not.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import rows
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.rows import MAX_SEQ, StoredThread
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.connection import connect
from holdfast.stores.sqlite.errors import FAILURES

_SQL: Final = schema.statements("mending.sql")
_INDEXES: Final = [name for name in _SQL if name.startswith("reindex_")]
_STATUSES: Final = frozenset((b"queued", b"running", b"waiting", b"idle", b"completed", b"failed", b"halted", b"dead"))


def mend(path: str, namespace: bytes) -> None:
    """Make indexes anew, and the records of threads that are damaged or gone but have checkpoints."""
    with closing(connect(path, "off", 10.0)) as connection:
        for index in _INDEXES:
            with suppress(*FAILURES):  # of a table that cannot be read as a whole
                connection.execute(_SQL[index])
        known: set[int] = set()
        for row in list(_each(connection, "threads")):
            try:
                known.add(rows.stored_thread(row).thread_no)
            except Damaged:
                if isinstance(row[0], int) and _is_restored(connection, _guess(row, namespace)):
                    known.add(row[0])
        for (number,) in list(_each(connection, "numbers_of_checkpoints")):
            if number not in known:
                _is_restored(connection, _guess((number, *(None,) * 14), namespace))


def _each(connection: sqlite3.Connection, query: str) -> Any:
    """The rows of a query, as far as they can be read."""
    with suppress(*FAILURES):
        yield from connection.execute(_SQL[query])


def _guess(row: tuple[Any, ...], namespace: bytes) -> StoredThread:
    """A thread of which each column is believed that can be: its name, if its hash says so too."""
    number, space, name, hashed = row[:4]
    if not isinstance(space, bytes) or not isinstance(name, bytes) or rows.name_hash(space, name) != hashed:
        space, name = namespace, f"recovered thread {number}".encode()
    created, *_, step, status, agent, size, updated = row[4:15]
    return StoredThread(
        thread_no=number,
        namespace=space,
        name=name,
        name_hash=rows.name_hash(space, name),
        created_at=_whole(created),
        head=0,
        move=0,
        last=0,
        count=0,
        head_id=b"",
        step=_whole(step),
        status=status if status in _STATUSES else b"idle",
        agent=agent if isinstance(agent, bytes) else None,
        size=_whole(size),
        updated_at=_whole(updated),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _is_restored(connection: sqlite3.Connection, thread: StoredThread) -> bool:
    """Let a thread stand where its checkpoints and moves say it does; False if there are none."""
    found: dict[int, CheckpointRow] = {}
    heads: dict[int, int] = {}
    with suppress(*FAILURES):
        for row in connection.execute(_SQL["checkpoints"], (thread.thread_no,)):
            with suppress(Damaged):
                checkpoint = rows.decode(*row)
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
    thread.count = sum(not each.deleted for each in found.values())
    fields = [getattr(thread, name) for name in thread.__struct_fields__]
    with suppress(*FAILURES):
        connection.execute(_SQL["put_thread"], (*fields, thread.checksum()))
        return True
    return False
