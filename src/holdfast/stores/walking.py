"""Reading a whole store: all threads, and all checkpoints of a thread, damaged ones included."""

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
        """At most `limit` complete checkpoints with seq above `after`, oldest first, including tombstones.

        An unreadable checkpoint is represented by its error. Fewer than `limit` are returned only at the end.
        """
        ...


@runtime_checkable
class Telling(Protocol):
    """A store whose listings stop at a damaged thread record, but that can still name the other threads."""

    def told(self) -> dict[int, str]:
        """The names, by thread number, of the threads that have a name and an undamaged record."""
        ...


@runtime_checkable
class Naming(Protocol):
    """A store that can look up the name of a thread by its number."""

    def name_of(self, thread: int) -> str | None:
        """The name of a thread; None if it has no name or does not exist. `Damaged` if it cannot be read."""
        ...


def name_of(store: Store, thread: int) -> str | None:
    """`Naming.name_of` for any store. A store without it is scanned until the thread is found."""
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
    """`Telling.told` for any store; empty if the store does not have it. Names are not encrypted."""
    plain = store.plain if isinstance(store, Rewrapping) else store
    return plain.told() if isinstance(plain, Telling) else {}


def walk(store: Store, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
    """`Walking.walk` for any store. `Damaged` if not even the number of checkpoints can be read."""
    if isinstance(store, Walking):
        return store.walk(thread, after=after, limit=limit)
    return one_by_one(store, thread, after=after, limit=limit)


def one_by_one(store: Store, thread: int, *, after: int, limit: int) -> list[CheckpointRow | Damaged]:
    """`walk` with one query per checkpoint."""
    last = store.last(thread)
    return [one(store, thread, seq) for seq in range(after + 1, min(after + limit, last) + 1)]


def one(store: Store, thread: int, seq: int) -> CheckpointRow | Damaged:
    """A checkpoint, or the error from reading it."""
    try:
        row = store.checkpoint(thread, seq)
    except Damaged as damage:
        return damage
    return Damaged(f"checkpoint {seq} of the thread with number {thread} is missing") if row is None else row
