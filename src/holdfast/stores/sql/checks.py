"""Check a database for damage: its pages, indexes, keys, counters and row checksums. Cells are not unpacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores import rows, rules
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.rows import (
    ENTRIES_COLUMN,
    RUN_COLUMNS,
    StoredThread,
    read_checkpoint,
    read_run,
    read_sweep,
    read_thread,
)
from holdfast.stores.segments import MAX_SEQ, key
from holdfast.stores.sql.keyed_rows import check_acts
from holdfast.stores.sql.reads import find_number
from holdfast.stores.sql.scans import Rows, rows_of
from holdfast.stores.sql.transaction import Row, Transaction, in_order
from holdfast.types import Problem

_PAGE: Final = 256
_NAMED_MOST: Final = 10_000


def numbers(tx: Transaction) -> list[int]:
    """The threads to check, from the table itself instead of an index."""
    return [number for (number,) in tx.rows("check_numbers", tx.namespace)]


def database(tx: Transaction) -> list[Problem]:
    """Problems of the store as a whole. They may be of any namespace: a damaged record does not tell which."""
    found: list[str] = []
    try:
        found += tx.problems()
        for name, read in (("check_threads", read_thread), ("check_runs", _read_run), ("check_sweeps", read_sweep)):
            for row in _pages(tx, name):
                try:
                    read(row)
                except Damaged as error:
                    found.append(str(error))
        found += check_acts(tx)
        orphans, incomplete, pieces = tx.ask(
            ("orphans", ()), ("incomplete_blobs", (tx.namespace,)), ("orphan_pieces", ())
        )
        for what, number in orphans:
            text = what if isinstance(what, str) else rows.to_text(what)
            verb = "is" if text.startswith("a ") else "are"
            found.append(f"there {verb} {text} of the thread with number {number}, but no such thread")
        found += [f"blob {digest.hex()} is incomplete" for (digest,) in incomplete]
        if pieces[0][0]:
            found.append(f"{pieces[0][0]} pieces of blobs that do not exist")
    except Damaged as error:
        found.append(str(error))  # the check cannot continue
    return [Problem(None, (), what) for what in found]


def _read_run(row: Row) -> RunRow:
    return read_run(row[:RUN_COLUMNS])


def threads(tx: Transaction, some: Sequence[int]) -> list[Problem]:
    """Problems of several threads, given by their numbers in order. Each table is read once for all of them."""
    try:
        lookups = _lookups(tx, some[0], some[-1])
        read = rows_of(tx, some, whole=True)
    except Damaged:  # a page of a table cannot be read; some threads are not on it
        return [problem for number in some for problem in _long_thread(tx, number)]
    found: list[Problem] = []
    for each in read:
        found += _long_thread(tx, each.stored.thread_no) if each.is_long else _problems(each, lookups)
    return found


def _long_thread(tx: Transaction, number: int) -> list[Problem]:
    """Problems of one thread, read page by page."""
    try:
        stored, _ = find_number(tx, number)
    except Damaged:
        return []  # reported by `database`
    if stored is None:
        return []  # dropped in the meantime
    ends = tx.namespace, number, number, MAX_SEQ
    try:
        moves, merged, runs = tx.ask(("many_moves", ends), ("many_segments", ends), ("run", (number,)))
        lookups = _lookups(tx, number, number)
    except Damaged as error:
        return [Problem(_name_of(stored), (), str(error))]
    checkpoints, entries = _keyed(tx, "check_checkpoints", number), _keyed(tx, "check_entries", number)
    return _problems(Rows(stored, checkpoints, moves, merged, runs[0] if runs else None, entries), lookups)


def _lookups(tx: Transaction, first: int, last: int) -> dict[int, list[int]]:
    """By number: the two numbers that the lookups of a thread's name find."""
    return {number: others for number, *others in tx.rows("many_names", tx.namespace, first, last)}


def _problems(read: Rows, lookups: Mapping[int, list[int]]) -> list[Problem]:
    stored, name = read.stored, _name_of(read.stored)
    number = stored.thread_no
    found: list[Problem] = []
    try:
        if name is None:
            found += _segments(None, stored, read.segments)
            if read.run is not None:
                what = f"the thread with number {number} was dropped but still has a run"
                found.append(Problem(None, (), what))
            return found
        digest = rows.name_digest(stored.namespace, stored.name or b"")
        if lookups.get(number) != [number, number] or stored.name_digest != digest:
            found.append(Problem(name, (), "two lookups of the thread's name disagree"))
        found += _checkpoints(name, stored, read.checkpoints, read.moves)
        found += _segments(name, stored, read.segments)
        found += _journal(name, stored, read.run, read.entries)
    except Damaged as error:
        found.append(Problem(name, (), str(error)))
    return found


def _name_of(stored: StoredThread) -> str | None:
    return None if stored.name is None else rows.to_text(stored.name)


def _checkpoints(name: str, stored: StoredThread, found_rows: Iterable[Row], moves: Iterable[Row]) -> list[Problem]:
    """Check checkpoints, as (row key, …) for `read_checkpoint`, and rewinds, as (row key, head), both in order."""
    found: list[Problem] = []
    heads: dict[int, int] = {}  # by move number
    count = 0
    expected = 1
    head: CheckpointRow | None = None
    unreadable = False
    for row in found_rows:
        seq = row[0] & MAX_SEQ
        if seq != expected:
            lost = _named(expected, min(seq, stored.last + 1))
            found.append(Problem(name, lost, f"checkpoints before {seq} are missing"))
            unreadable = True
        expected = seq + 1
        try:
            checkpoint = read_checkpoint(*row)
        except Damaged as error:
            found.append(Problem(name, (seq,), str(error)))
            unreadable = True
            continue
        if heads.setdefault(checkpoint.move, seq) != seq:
            found.append(Problem(name, (seq,), "two checkpoints have the same move"))
        count += not checkpoint.deleted
        if seq == stored.head:
            head = checkpoint
    if expected != stored.last + 1:
        found.append(Problem(name, (), f"the newest checkpoint is {expected - 1}, not {stored.last}"))
    for row_key, to in moves:
        move = row_key & MAX_SEQ
        if heads.setdefault(move, to) != to or not 1 <= rows.whole_number(to) <= stored.last:
            found.append(Problem(name, (), f"the records of move {move} contradict each other"))
    if unreadable:
        return found  # the checks below need all rows
    if head is None or head.deleted or head.id != stored.head_id:
        found.append(Problem(name, (stored.head,), "the checkpoint at the head is missing, deleted or has another id"))
    if count != stored.last - stored.deleted:
        expected = stored.last - stored.deleted
        found.append(Problem(name, (), f"the thread has {count} checkpoints, its record says {expected}"))
    if len(heads) != stored.move or (heads and max(heads) != stored.move):
        found.append(Problem(name, (), f"the thread's moves do not lead up to number {stored.move}"))
    elif heads.get(stored.move) != stored.head:
        found.append(Problem(name, (), "the thread's last move does not lead to its head"))
    return found


def _named(first: int, end: int) -> tuple[int, ...]:
    """The seqs from `first` up to `end`, excluded, that a problem affects; empty if there are very many.

    The numbers come from stored records: one flipped bit can make billions of them.
    """
    return tuple(range(first, end)) if end - first <= _NAMED_MOST else ()


def _segments(name: str | None, stored: StoredThread, found_rows: Iterable[Row]) -> list[Problem]:
    """Check merged segments, given as (row key, first commit), in order."""
    found: list[Problem] = []
    before = 0
    for row_key, first in found_rows:
        last = row_key & MAX_SEQ
        if not before < rows.whole_number(first) <= last <= stored.last:
            found.append(Problem(name, (), f"the merged segment of commits {first} to {last} overlaps another"))
        before = last
    return found


def _journal(name: str, stored: StoredThread, run: Row | None, found_rows: Iterable[Row]) -> list[Problem]:
    """Check a run, and its journal, as (row key, record, topic), in order."""
    found: list[Problem] = []
    if run is not None and run[1] != stored.namespace:
        found.append(Problem(name, (), "the run belongs to another namespace"))
    expected = 1
    for row_key, record, topic in found_rows:
        number = row_key & MAX_SEQ
        if number != expected:
            found.append(Problem(name, (), f"journal entries {expected} to {number - 1} are missing"))
        expected = number + 1
        try:
            named = rows.read_entry(row_key, record).topic
            if (None if named is None else rows.to_bytes(named)) != topic:
                found.append(Problem(name, (), f"the topic of journal entry {number} differs from its record"))
        except Damaged as error:
            found.append(Problem(name, (), str(error)))
    if run is None and (expected > 1 or stored.has_run):
        found.append(Problem(name, (), "the run of the thread is missing"))
    if run is not None and run[ENTRIES_COLUMN] != expected - 1:
        found.append(Problem(name, (), f"the newest journal entry is {expected - 1}, not {run[ENTRIES_COLUMN]}"))
    try:
        fence = None if run is None else rules.fence_of(_read_run(run))
    except Damaged:
        return found  # reported by `database`
    if fence != stored.fence:
        found.append(Problem(name, (), "the thread's record and its run have different fences"))
    return found


def _pages(tx: Transaction, name: str) -> Iterator[Row]:
    return in_order(lambda first: tx.rows(name, first - 1, _PAGE), 1)


def _keyed(tx: Transaction, name: str, number: int) -> Iterator[Row]:
    return in_order(lambda first: tx.rows(name, first, key(number, MAX_SEQ), _PAGE), key(number, 0))
