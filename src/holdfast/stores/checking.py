"""What is wrong with the rows of one thread, whichever store has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import records, rows
from holdfast.stores.contract import CheckpointRow, Problem
from holdfast.stores.rows import StoredThread

_NAMED_MOST: Final = 10_000


def named(first: int, end: int) -> tuple[int, ...]:
    """The checkpoints of these seqs, the end excluded, for a problem that hurts them; none if they are very many.

    How many there are is itself only stored: a bit that changed in a number can make them billions.
    """
    return tuple(range(first, end)) if end - first <= _NAMED_MOST else ()


def checkpoints(
    name: str, thread: StoredThread, stored: Iterable[tuple[Any, ...]], moves: Iterable[tuple[int, int]]
) -> list[Problem]:
    """Of its checkpoints, as (row key, …) for `rows.decode`, and its rewinds, as (move, head), both in order."""
    found: list[Problem] = []
    heads: dict[int, int] = {}  # by the number of the move
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


def segments(name: str | None, thread: StoredThread, stored: Iterable[tuple[int, int]]) -> list[Problem]:
    """Of its merged segments, as (last commit, first commit), in order."""
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
    """Of its run, as (namespace, entries), and its journal, as (row key, record, mark), in order."""
    found: list[Problem] = []
    if run is not None and run[0] != thread.namespace:
        found.append(Problem(name, (), "its run is of another namespace"))
    expected = 1
    for row_key, record, mark in stored:
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
