"""The rows of a thread's checkpoints in order, where some of them may be lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores.contract import NO_REFS, CheckpointRow, Store, ThreadRow
from holdfast.threads.patience import Patience


def listed(
    store: Store, thread: ThreadRow, *, before: int | None = None, label: str | None = None, page: int
) -> Iterator[CheckpointRow | Damaged]:
    """The checkpoints below `before`, newest first, without refs and skeletons; page by page.

    An error stands in the place of what cannot be read: of one checkpoint, or of several where a store cannot tell them
    apart. It stands before everything that is older.
    """
    number = thread.position.thread
    above = thread.position.last + 1 if before is None else before
    is_told = False  # whether a store that passes over what is lost was asked for it
    at = before
    patience = Patience()
    while at is None or at > 1:
        try:
            rows = store.checkpoints(number, before=at, limit=page, label=label)
        except Damaged:
            top = above - 1 if at is None else at - 1
            at = max(top - page, 0) + 1
            yield from _one_by_one(store, number, range(top, at - 1, -1), label, patience)
            above = at
            continue
        for row in rows:
            if label is None and row.seq != above - 1 and not is_told:
                is_told = True
                yield from _passed_over(store, number)
            above = row.seq
            yield row
        if len(rows) < page:
            break
        at = rows[-1].seq
    if label is None and above != 1 and not is_told:
        yield from _passed_over(store, number)


def _one_by_one(
    store: Store, number: int, seqs: range, label: str | None, patience: Patience
) -> Iterator[CheckpointRow | Damaged]:
    """A page holds one that cannot be read. With a label, each such may have it."""
    store.last(number)  # damage of the thread's own record is not that of a checkpoint
    for seq in seqs:
        try:
            row = _listed_alone(store, number, seq) or store.checkpoint(number, seq)
        except Damaged as damage:
            yield damage
            patience.lost()
            continue
        patience.found()
        if row is not None and not row.deleted and label in (None, row.label):
            yield replace(row, refs=NO_REFS, skeleton=b"")


def _listed_alone(store: Store, number: int, seq: int) -> CheckpointRow | None:
    """The checkpoint, though its skeleton may be lost. None where another or an error comes instead of it."""
    with suppress(Damaged):
        for row in store.checkpoints(number, before=seq + 1, limit=1):
            if row.seq == seq:
                return row
    return None


def _passed_over(store: Store, number: int) -> Iterator[Damaged]:
    """Where checkpoints are missing they were deleted, or lost: a store that passes over those says so at the end."""
    try:
        store.checkpoints(number, before=1, limit=1)
    except Damaged as damage:
        yield damage
