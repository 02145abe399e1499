"""Walking a thread: all of its checkpoints, whole, for whoever looks at every one of them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Store


@runtime_checkable
class Walking(Protocol):
    """A store that reads many checkpoints at once faster than one by one."""

    def walk(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
        """The checkpoints of the seqs above `after`, at most `limit`, oldest first, whole, tombstones among them.

        In the place of one that cannot be read is what is wrong with it. Fewer than `limit` only at the end.
        """
        ...


def walk(store: Store, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
    """As `Walking.walk`, of any store. `Damaged` if not even the number of checkpoints can be read."""
    if isinstance(store, Walking):
        return store.walk(thread, after=after, limit=limit)
    last = store.last(thread)
    return [one(store, thread, seq) for seq in range(after + 1, min(after + limit, last) + 1)]


def one(store: Store, thread: int, seq: int) -> CheckpointRow | Damaged:
    """A checkpoint, or what is wrong with it."""
    try:
        row = store.checkpoint(thread, seq)
    except Damaged as damage:
        return damage
    return Damaged(f"checkpoint {seq} of thread number {thread} is missing") if row is None else row
