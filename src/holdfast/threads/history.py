"""A thread's checkpoints in order, where some of them may be lost: those that can be read are listed all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.identity import to_text
from holdfast.records import Checkpoint, Skipped
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.threads import meta as metas
from holdfast.threads.line import ancestor_beyond, require_older
from holdfast.threads.listing import listed
from holdfast.threads.references import shown

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
            f"thread {shown(name)}: what can be read of its history was listed, but {damages[0]}{more}"
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
    raise Damaged(f"thread {shown(thread.name)}: no ancestor of its head can be read; load() others by history()")


def _unreadable(store: Store, number: int, seq: int) -> Skipped:
    try:
        store.checkpoint(number, seq)
    except Damaged as damage:
        return Skipped("", seq, 0, str(damage))
    return Skipped("", seq, 0, "it could not be read")
