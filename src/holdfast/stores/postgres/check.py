"""Check the store's structures: keys, counters, row checksums. The server checks its pages and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import checking, records, rows
from holdfast.stores.postgres import reading
from holdfast.stores.postgres.locking import read_thread
from holdfast.stores.postgres.session import Transaction
from holdfast.stores.records import RUN_COLUMNS
from holdfast.stores.rows import MAX_SEQ, StoredThread
from holdfast.types import Problem

_PAGE: Final = 256


def database(session: Transaction) -> list[Problem]:
    """Problems of the store as a whole."""
    found: list[Problem] = []

    def problem(what: str) -> None:
        found.append(Problem(None, (), what))

    for row in _pages(session, "check_threads", 0):
        try:
            read_thread(row)
        except Damaged as error:
            # Of any namespace: the namespace of a damaged record is not known.
            problem(str(error))
    for row in _pages(session, "check_runs", 0):
        columns: Any = row[:RUN_COLUMNS]
        try:
            run = records.read_run(columns)
        except Damaged as error:
            problem(str(error))
            continue
        if not records.repeats(columns, run):
            problem(f"the run of the thread with number {run.thread} does not match its index columns")
    orphans, broken, pieces = session.ask(
        ("orphans", ()), ("values_in_pieces", (session.namespace,)), ("orphan_pieces", ())
    )
    for what, number in orphans:
        problem(f"{what} of the thread with number {number}, but the thread does not exist")
    for (digest,) in broken:
        problem(f"blob {digest.hex()} is incomplete")
    if pieces[0][0]:
        problem(f"{pieces[0][0]} pieces of blobs that do not exist")
    return found


def thread(session: Transaction, number: int) -> list[Problem]:
    """Problems of one thread."""
    try:
        stored, (moves, segments, run) = reading.find_number(
            session, number, ("check_moves", (number,)), ("check_segments", (number,)), ("check_run_of", (number,))
        )
    except Damaged:
        return []  # reported by `database`
    if stored is None:
        return []  # dropped in the meantime
    if stored.name is None:
        found = checking.segments(None, stored, segments)
        if run:
            found.append(Problem(None, (), f"the thread with number {number} was dropped but still has a run"))
        return found
    name = rows.to_text(stored.name)
    found = _name(session, name, stored)
    found += checking.checkpoints(name, stored, _keyed(session, "check_checkpoints", number), moves)
    found += checking.segments(name, stored, segments)
    own = (run[0][0], run[0][1]) if run else None
    found += checking.journal(name, stored, own, _keyed(session, "check_effects", number))
    return found


def _name(session: Transaction, name: str, stored: StoredThread) -> list[Problem]:
    try:
        by_name, by_digest = session.ask(*reading.look_up(session.namespace, stored.name or b""))
        if reading.looked_up(by_name, by_digest) != stored:
            return [Problem(name, (), "looking up the thread's name finds another thread")]
    except Damaged as error:
        return [Problem(name, (), str(error))]
    return []


def _pages(session: Transaction, name: str, after: int) -> Iterator[tuple[Any, ...]]:
    while page := session.rows(name, after, _PAGE):
        yield from page
        after = page[-1][0]


def _keyed(session: Transaction, name: str, number: int) -> Iterator[Any]:
    low, high = rows.key(number, 0), rows.key(number, MAX_SEQ)
    while page := session.rows(name, low, high, _PAGE):
        yield from page
        low = page[-1][0] + 1
