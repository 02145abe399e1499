"""List the checkpoints of a thread, also where some of them are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.ids import to_text
from holdfast.stores.contract import NO_REFS, CheckpointRow, Store, ThreadRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.ancestry import DamageLimit, ancestor_beyond, require_older
from holdfast.threads.scan import PAGE, checkpoint_at
from holdfast.types import Checkpoint, Skipped

# -- rows -------------------------------------------------------------------------------------------------------------


def listed(
    store: Store, thread: ThreadRow, *, before: int | None = None, label: str | None = None, page: int = PAGE
) -> Iterator[CheckpointRow | Damaged]:
    """The checkpoints below `before`, newest first, without refs and skeletons. It reads `page` rows at a time.

    An error takes the place of a checkpoint that cannot be read. If the store cannot tell which checkpoints are lost,
    one error represents them; it comes before all older checkpoints.
    """
    number = thread.position.thread
    above = thread.position.last + 1 if before is None else before
    has_asked = False  # whether a store that leaves out lost rows was asked for them
    at = before
    limit = DamageLimit()
    while at is None or at > 1:
        try:
            rows = store.checkpoints(number, before=at, limit=page, label=label)
        except Damaged:
            top = above - 1 if at is None else at - 1
            at = max(top - page, 0) + 1
            yield from _one_by_one(store, number, range(top, at - 1, -1), label, limit)
            above = at
            continue
        for row in rows:
            if label is None and row.seq != above - 1 and not has_asked:
                has_asked = True
                yield from _left_out(store, number)
            above = row.seq
            yield row
        if len(rows) < page:
            break
        at = rows[-1].seq
    if label is None and above != 1 and not has_asked:
        yield from _left_out(store, number)


def _one_by_one(
    store: Store, number: int, seqs: range, label: str | None, limit: DamageLimit
) -> Iterator[CheckpointRow | Damaged]:
    """The checkpoints of a page that cannot be read as a whole. With a label, each unreadable one may have it."""
    store.walk(number, after=0, limit=0)  # raises only if the record of the thread is damaged
    for seq in seqs:
        try:
            row = _listed_alone(store, number, seq) or checkpoint_at(store, number, seq)
        except Damaged as damage:
            yield damage
            limit.lost()
            continue
        limit.found()
        if row is not None and not row.deleted and label in (None, row.label):
            yield replace(row, refs=NO_REFS, skeleton=b"")


def _listed_alone(store: Store, number: int, seq: int) -> CheckpointRow | None:
    """A checkpoint without its skeleton, which may be lost. None if the listing returns another one or fails."""
    with suppress(Damaged):
        for row in store.checkpoints(number, before=seq + 1, limit=1):
            if row.seq == seq:
                return row
    return None


def _left_out(store: Store, number: int) -> Iterator[Damaged]:
    """The damage that explains a gap between seqs, if there is any. Other gaps are deleted checkpoints.

    Some stores leave lost rows out, and report the damage at the end of a listing: so read the end.
    """
    try:
        store.checkpoints(number, before=1, limit=1)
    except Damaged as damage:
        yield damage


# -- checkpoints as callers get them ----------------------------------------------------------------------------------


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
    """At most `limit` checkpoints that match all arguments, and an error in each place that cannot be read."""
    if limit == 0:
        return
    page = PAGE if limit is None or tag is not None or status is not None else min(limit, PAGE)
    count = 0
    for row in listed(store, thread, before=before, label=label, page=page):
        found = row if isinstance(row, Damaged) else _checkpoint(thread.name, row)
        if isinstance(found, Damaged):
            yield found
        elif (tag is None or tag in found.tags) and (status is None or status == found.status):
            yield found
            count += 1
            if count == limit:
                return


def _checkpoint(name: str, row: CheckpointRow) -> Checkpoint | Damaged:
    try:
        return metas.checkpoint_of(name, row)
    except Damaged as damage:
        return damage


def without_damaged(
    name: str, found: Iterator[Checkpoint | Damaged], *, skip_damaged: bool = False
) -> Iterator[Checkpoint]:
    """The checkpoints that can be read. At the end, Damaged is raised if some cannot, unless `skip_damaged`."""
    damages: list[Damaged] = []
    for one in found:
        if isinstance(one, Damaged):
            damages.append(one)
        else:
            yield one
    if damages and not skip_damaged:
        lost = "one cannot be read" if len(damages) == 1 else f"{len(damages)} cannot be read, the first because"
        raise Damaged(
            f"thread {quoted(name)}: all readable checkpoints were listed; {lost}: {damages[0]}"
        ) from damages[0]


def until_damaged(found: Iterator[Checkpoint | Damaged]) -> Iterator[Checkpoint]:
    """The checkpoints. Raises Damaged before everything older than one that cannot be read."""
    for one in found:
        if isinstance(one, Damaged):
            raise one
        yield one


# -- past a damaged head ----------------------------------------------------------------------------------------------


def newest_undamaged(
    store: Store, thread: ThreadRow, load: Callable[[CheckpointRow], Checkpoint], *lost: Skipped
) -> Checkpoint:
    """The newest of the head and its ancestors that can be loaded. `lost` are records newer than the head."""
    number = thread.position.thread
    seq: int | None = thread.position.head
    skipped = list(lost)
    while seq:
        row: CheckpointRow | None = None
        try:
            row = checkpoint_at(store, number, seq)
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
    raise Damaged(
        f"thread {quoted(thread.name)}: neither its head nor an ancestor of it can be read. "
        "Use history() to list the other checkpoints, and load() to load them."
    )


def _unreadable(store: Store, number: int, seq: int) -> Skipped:
    try:
        checkpoint_at(store, number, seq)
    except Damaged as damage:
        return Skipped("", seq, 0, str(damage))
    return Skipped("", seq, 0, "it could not be read")
