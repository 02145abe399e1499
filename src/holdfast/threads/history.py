"""List checkpoints, past damaged ones too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.ids import to_text
from holdfast.stores.contract import NO_REFS, CheckpointRow, Store, ThreadRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.ancestry import Patience, ancestor_beyond, require_older
from holdfast.types import Checkpoint, Skipped


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


_PAGE = 200


def checkpoints(
    store: Store,
    thread: ThreadRow,
    *,
    limit: int | None,
    before: int | None,
    label: str | None,
    tag: str | None,
    status: str | None,
) -> Iterator[Checkpoint | Damaged]:
    """At most `limit` checkpoints as users see them that match all that is given, and what could not be read."""
    if limit == 0:
        return
    page = _PAGE if limit is None or tag is not None or status is not None else min(limit, _PAGE)
    given = 0
    for row in listed(store, thread, before=before, label=label, page=page):
        found = row if isinstance(row, Damaged) else _shown(thread.name, row)
        if isinstance(found, Damaged):
            yield found
        elif (tag is None or tag in found.tags) and (status is None or status == found.status):
            yield found
            given += 1
            if given == limit:
                return


def _shown(name: str, row: CheckpointRow) -> Checkpoint | Damaged:
    try:
        return metas.checkpoint_of(name, row)
    except Damaged as damage:
        return damage


def passing_over(
    name: str, found: Iterator[Checkpoint | Damaged], *, skip_damaged: bool = False
) -> Iterator[Checkpoint]:
    """What could be read; then Damaged, unless all was, or `skip_damaged`."""
    damages: list[Damaged] = []
    for one in found:
        if isinstance(one, Damaged):
            damages.append(one)
        else:
            yield one
    if damages and not skip_damaged:
        more = "" if len(damages) == 1 else f" (and {len(damages) - 1} more)"
        raise Damaged(
            f"thread {quoted(name)}: what can be read of its history was listed, but {damages[0]}{more}"
        ) from damages[0]


def whole(found: Iterator[Checkpoint | Damaged]) -> Iterator[Checkpoint]:
    """What was found; Damaged before anything that is older than what could not be read."""
    for one in found:
        if isinstance(one, Damaged):
            raise one
        yield one


def newest_undamaged(
    store: Store, thread: ThreadRow, load: Callable[[CheckpointRow], Checkpoint], *lost: Skipped
) -> Checkpoint:
    """The newest of the head and its ancestors that can be loaded; `lost` are records behind it."""
    number = thread.position.thread
    seq: int | None = thread.position.head
    skipped = list(lost)
    while seq:
        row: CheckpointRow | None = None
        try:
            row = store.checkpoint(number, seq)
            if row is not None and not row.deleted:
                return replace(load(row), skipped=tuple(skipped))
        except Damaged as damage:
            id, step = ("", 0) if row is None else (to_text(row.id), row.step)
            skipped.append(Skipped(id, seq, step, str(damage)))
        if row is None:
            beyond = ancestor_beyond(store, thread.position, seq)
            skipped += (_unreadable(store, number, between) for between in range(seq - 1, beyond or seq, -1))
            seq = beyond
        else:
            require_older(row)
            seq = row.parent[1] if row.parent is not None and not row.parent[0] else 0
    raise Damaged(f"thread {quoted(thread.name)}: no ancestor of its head can be read; load() others by history()")


def _unreadable(store: Store, number: int, seq: int) -> Skipped:
    try:
        store.checkpoint(number, seq)
    except Damaged as damage:
        return Skipped("", seq, 0, str(damage))
    return Skipped("", seq, 0, "it could not be read")
