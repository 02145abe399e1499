"""Encode, compress and check a commit before the store's lock is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import InvalidArgument, TooLarge
from holdfast.stores import leases, rows, segment
from holdfast.stores.contract import Commit
from holdfast.stores.rows import MAX_SEQ, StoredCheckpoint, StoredThread
from holdfast.stores.running import Entry
from holdfast.stores.sharing import Packed


class Prepared(NamedTuple):
    """A commit with everything encoded that can be encoded before the store's lock is taken."""

    commit: Commit
    row: StoredCheckpoint
    cells: bytes | None
    values: tuple[list[Packed] | None, ...]
    weight: int


def prepare(commit: Commit, packed: tuple[list[Packed] | None, ...]) -> Prepared:
    """Encode a commit. `InvalidArgument` if it contradicts itself."""
    row, expect = commit.row, commit.expect
    last, move = (0, 0) if expect is None else (expect.last, expect.move)
    if row.seq != last + 1 or row.move != move + 1:
        raise InvalidArgument("a commit's seq and move must follow those it expects; nothing was stored")
    if row.seq > MAX_SEQ or row.move > MAX_SEQ:
        raise TooLarge("a thread has at most 2**32 - 1 checkpoints and moves; nothing was stored")
    if row.deleted:
        raise InvalidArgument("a commit cannot contain a deleted checkpoint; nothing was stored")
    ends: dict[int, int] = {}
    for run in commit.appends:
        if run.refs and len(run.refs) != len(run.cells):
            raise InvalidArgument("an append's refs must be empty or have one entry per cell; nothing was stored")
        if run.log < 0 or run.start < 0:
            raise InvalidArgument("an append's log and start cannot be negative; nothing was stored")
        # Checked within this commit only: reading where the stored logs end would cost too much on every save.
        if run.start < ends.get(run.log, 0):
            raise InvalidArgument(f"log {run.log} already has cells at {run.start}; nothing was stored")
        ends[run.log] = run.start + len(run.cells)
    leases.check_form(commit)
    stored = rows.encode(row)
    cells_of = [run for run in commit.appends if run.cells]
    cells = segment.draft(cells_of) if cells_of else None
    weight = len(stored.skeleton) + len(row.meta) + (len(cells) if cells else 0)
    weight += sum([len(piece.data) for pieces in packed if pieces for piece in pieces])
    weight += weigh(commit.entries)
    return Prepared(commit, stored, cells, packed, weight)


def weigh(entries: Sequence[Entry]) -> int:
    """Roughly how many bytes the entries take."""
    return sum([len(entry.result or b"") + len(entry.call or b"") for entry in entries])


def new_thread(number: int, namespace: bytes, wanted: Commit) -> StoredThread:
    """The row of the thread that a commit creates."""
    name = rows.to_bytes(wanted.name)
    row = wanted.row
    thread = StoredThread(
        thread_no=number,
        namespace=namespace,
        name=name,
        name_hash=rows.name_hash(namespace, name),
        created_at=wanted.summary.updated_at,
        head=row.seq,
        move=row.move,
        last=row.seq,
        count=1,
        head_id=row.id,
        step=0,
        status=b"",
        agent=None,
        size=0,
        updated_at=0,
    )
    thread.show(wanted.summary)
    return thread


def advance(thread: StoredThread, wanted: Commit) -> None:
    """Update the thread's row to show the commit."""
    row = wanted.row
    thread.head, thread.move, thread.last = row.seq, row.move, row.seq
    thread.count += 1
    thread.head_id = row.id
    thread.show(wanted.summary)
