"""Walking a store: all of its threads, all checkpoints of one, for whoever looks at every one of them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from holdfast.errors import Damaged
from holdfast.stores.abilities import Rewrapping
from holdfast.stores.contract import CheckpointRow, Store

_PAGE = 500


@runtime_checkable
class Walking(Protocol):
    """A store that reads many checkpoints at once faster than one by one."""

    def walk(self, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
        """The checkpoints of the seqs above `after`, at most `limit`, oldest first, whole, tombstones among them.

        In the place of one that cannot be read is what is wrong with it. Fewer than `limit` only at the end.
        """
        ...


@runtime_checkable
class Telling(Protocol):
    """A store whose listings end at a thread whose record is damaged, and that can tell the others all the same."""

    def told(self) -> dict[int, str]:
        """The names, by number, of the threads that have one and whose record is sound."""
        ...


@runtime_checkable
class Naming(Protocol):
    """A store that finds the name of a thread by its number."""

    def name_of(self, thread: int) -> str | None:
        """The name of a thread; None if it has none, or there is no such thread. `Damaged` if it cannot be read."""
        ...


def name_of(store: Store, thread: int) -> str | None:
    """As `Naming.name_of`, of any store: one that cannot look it up is read until it is found."""
    plain = store.plain if isinstance(store, Rewrapping) else store
    if isinstance(plain, Naming):
        return plain.name_of(thread)
    after: str | None = None
    while page := plain.threads(prefix="", after=after, limit=_PAGE):
        for row in page:
            if row.position.thread == thread:
                return row.name
        after = page[-1].name
    return None


def told(store: Store) -> dict[int, str]:
    """As `Telling.told`, of any store; empty where it cannot be done. With a cipher, too: names are in clear."""
    plain = store.plain if isinstance(store, Rewrapping) else store
    return plain.told() if isinstance(plain, Telling) else {}


def walk(store: Store, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
    """As `Walking.walk`, of any store. `Damaged` if not even the number of checkpoints can be read."""
    if isinstance(store, Walking):
        return store.walk(thread, after=after, limit=limit)
    return one_by_one(store, thread, after=after, limit=limit)


def one_by_one(store: Store, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
    """As `walk`, with a question for each."""
    last = store.last(thread)
    return [one(store, thread, seq) for seq in range(after + 1, min(after + limit, last) + 1)]


def one(store: Store, thread: int, seq: int) -> CheckpointRow | Damaged:
    """A checkpoint, or what is wrong with it."""
    try:
        row = store.checkpoint(thread, seq)
    except Damaged as damage:
        return damage
    return Damaged(f"checkpoint {seq} of thread number {thread} is missing") if row is None else row
