"""Which data key and which name each thread has: what is read is held against it.

A thread has one key for its life. Which one is sealed with its name, beside what listings show, and its checkpoints say
the name, too: so nothing that is whole, and sealed by a key of this store, passes for a part of another thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from holdfast.crypto import records
from holdfast.crypto.records import Owner
from holdfast.crypto.ring import Ring
from holdfast.crypto.sealing import Seal
from holdfast.errors import Damaged
from holdfast.stores.contract import Store

_KEPT: Final = 10_000
_LOOKED_AT: Final = 100


class _Known(NamedTuple):
    key: bytes
    name: str | None  # of a thread that only its cells, or a fork of it, told of


class Owners:
    """What a handle has learned of threads, from nothing that was not authenticated. Any thread may use it."""

    def __init__(self, store: Store, ring: Ring) -> None:
        self._store = store
        self._ring = ring
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def learn(self, thread: int, key: bytes, name: str | None = None) -> None:
        """Take note of what an authenticated record says. `Damaged` if another said otherwise."""
        known = self._known.get(thread)
        if known is not None:
            if key != known.key:
                raise _of_another(thread)
            if name is None or name == known.name:
                return
            if known.name is not None:
                raise Damaged(f"a record of thread number {thread} is one of a thread of another name")
        self._known[thread] = _Known(key, name)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def forget(self, thread: int) -> None:
        self._known.pop(thread, None)

    def check(self, thread: int, owner: Owner) -> None:
        """`Damaged` if something that says whose it is was read as a part of another thread."""
        key = self.key(thread)
        if key is not None:
            self.learn(thread, owner.key, owner.name)

    def key(self, thread: int) -> bytes | None:
        """The id of a thread's data key. None if nothing of the thread is there that says so."""
        known = self._known.get(thread)
        if known is not None:
            return known.key
        owner = self._look(thread)
        return None if owner is None else owner.key

    def owner(self, thread: int) -> Owner | None:
        """A thread's key and name. None if there is no such thread."""
        known = self._known.get(thread)
        if known is not None and known.name is not None:
            return Owner(known.key, known.name)
        return self._look(thread)

    def seal(self, thread: int, key: bytes) -> Seal:
        """The seal of something that was read. `Damaged` if it is another thread's.

        Where nothing says which key the thread has, whoever opens it with that takes note of it then.
        """
        its = self.key(thread)
        if its is not None and its != key:
            raise _of_another(thread)
        return self._ring.seal(key)

    def _look(self, thread: int) -> Owner | None:
        """What the newest checkpoint says that is not deleted, or, where it is damaged, the newest that is not."""
        before: int | None = None
        damage: Damaged | None = None
        for _ in range(_LOOKED_AT):
            page = self._store.checkpoints(thread, before=before, limit=1)
            if not page:
                break
            [row] = page
            key = records.key_of_checkpoint(row)
            try:
                if key is not None:
                    name = records.open_checkpoint(row, self._ring.seal(key)).thread
                    if name is not None:
                        self.learn(thread, key, name)
                        return Owner(key, name)
            except Damaged as error:
                damage = damage or error
            before = row.seq
        if damage is not None:
            raise damage
        return None


def _of_another(thread: int) -> Damaged:
    return Damaged(f"a record of thread number {thread} is sealed by the key of another thread")
