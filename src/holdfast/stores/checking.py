"""Check the rows of one thread; shared by the database stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import records, rows
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.rows import StoredThread
from holdfast.types import Problem

_NAMED_MOST: Final = 10_000


def named(first: int, end: int) -> tuple[int, ...]:
    """The seqs from `first` up to `end`, excluded, that a problem affects; empty if there are very many.

    The numbers come from stored records: one flipped bit can make billions of them.
    """
    return tuple(range(first, end)) if end - first <= _NAMED_MOST else ()


def checkpoints(
    name: str, thread: StoredThread, stored: Iterable[tuple[Any, ...]], moves: Iterable[tuple[int, int]]
) -> list[Problem]:
    """Check checkpoints, as (row key, …) for `rows.decode`, and rewinds, as (move, head), both in order."""
    found: list[Problem] = []
    heads: dict[int, int] = {}  # by move number
    count = 0
    expected = 1
    head: CheckpointRow | None = None
    unreadable = False
    for row in stored:
        seq = row[0] & rows.MAX_SEQ
        if seq != expected:
            lost = named(expected, min(seq, thread.last + 1))
            found.append(Problem(name, lost, f"checkpoints before {seq} are missing"))
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
    for move, to in moves:
        if heads.setdefault(move, to) != to or not 1 <= to <= thread.last:
            found.append(Problem(name, (), f"the records of move {move} contradict each other"))
    if unreadable:
        return found  # the checks below need all rows
    if head is None or head.deleted or head.id != thread.head_id:
        found.append(Problem(name, (thread.head,), "the checkpoint at the head is missing, deleted or has another id"))
    if count != thread.count:
        found.append(Problem(name, (), f"the thread has {count} checkpoints, its record says {thread.count}"))
    if len(heads) != thread.move or (heads and max(heads) != thread.move):
        found.append(Problem(name, (), f"the thread's moves do not lead up to number {thread.move}"))
    elif heads.get(thread.move) != thread.head:
        found.append(Problem(name, (), "the thread's last move does not lead to its head"))
    return found


def segments(name: str | None, thread: StoredThread, stored: Iterable[tuple[int, int]]) -> list[Problem]:
    """Check merged segments, given as (last commit, first commit), in order."""
    found: list[Problem] = []
    before = 0
    for last, first in stored:
        if not before < first <= last <= thread.last:
            found.append(Problem(name, (), f"the merged segment of commits {first} to {last} overlaps another"))
        before = last
    return found


def journal(
    name: str,
    thread: StoredThread,
    run: tuple[bytes, int] | None,
    stored: Iterable[tuple[int, bytes, bytes | None]],
) -> list[Problem]:
    """Check a run, as (namespace, entries), and its journal, as (row key, record, topic), in order."""
    found: list[Problem] = []
    if run is not None and run[0] != thread.namespace:
        found.append(Problem(name, (), "the run belongs to another namespace"))
    expected = 1
    for row_key, record, mark in stored:
        number = row_key & rows.MAX_SEQ
        if number != expected:
            found.append(Problem(name, (), f"journal entries {expected} to {number - 1} are missing"))
        expected = number + 1
        try:
            if records.stored_mark(records.read_effect(row_key, record)) != mark:
                found.append(Problem(name, (), f"the topic of journal entry {number} differs from its record"))
        except Damaged as error:
            found.append(Problem(name, (), str(error)))
    if run is None and expected > 1:
        found.append(Problem(name, (), "the thread has a journal but no run"))
    if run is not None and run[1] != expected - 1:
        found.append(Problem(name, (), f"the newest journal entry is {expected - 1}, not {run[1]}"))
    return found
