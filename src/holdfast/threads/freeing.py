"""Freeing a thread whose worker died: nobody has to wait for the lease of a process that is proven to be gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from holdfast.errors import Conflict, LeaseHeld
from holdfast.stores.contract import Store
from holdfast.threads import owner

T = TypeVar("T")


def unless_dead(store: Store, thread: int, verb: Callable[[], T]) -> T:
    """Do something to a thread; once more if it is held by a process that is proven dead. `LeaseHeld` if not proven.

    The run stays as it is, interrupted; only its lease is taken away.
    """
    try:
        return verb()
    except LeaseHeld:
        run = store.run(thread)
        if run is None or run.owner is None or not owner.is_dead(run.owner):
            raise
        try:
            store.claim(run, replace(run, owner=None, lease_until=0, fence=run.fence + 1))
        except Conflict:
            raise LeaseHeld("another worker has just taken the thread; nothing was changed") from None
        return verb()
