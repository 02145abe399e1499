"""The data key of each thread."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from holdfast.crypto import records
from holdfast.crypto.keyring import Keyring
from holdfast.crypto.records import ThreadKey, key_of_checkpoint
from holdfast.crypto.seal import Seal
from holdfast.errors import Damaged
from holdfast.stores.contract import Store

_KEPT: Final = 10_000  # threads whose key and name a handle keeps in memory
_LOOKED_AT: Final = 100


class ThreadKeys:
    """The keys and names of threads that a handle has learned from authenticated records. Any thread may use it."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring
        # A name is empty if only cells of the thread, or a fork of it, were read so far.
        self._known: OrderedDict[int, ThreadKey] = OrderedDict()

    def learn(self, thread: int, key: bytes, name: str = "") -> None:
        """Record the key and name from an authenticated record. `Damaged` if an earlier record differs."""
        known = self._known.get(thread)
        if known is not None:
            if key != known.key:
                raise _of_another(thread)
            if not name or name == known.name:
                return
            if known.name:
                raise Damaged(f"a record of the thread with number {thread} belongs to a thread with another name")
        self._known[thread] = ThreadKey(key, name)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def forget(self, thread: int) -> None:
        self._known.pop(thread, None)

    def key(self, thread: int) -> bytes | None:
        """The id of a thread's data key; None if no record of the thread gives it."""
        known = self._known.get(thread) or self._look(thread)
        return None if known is None else known.key

    def owner(self, thread: int) -> ThreadKey | None:
        """A thread's key and name; None if the thread does not exist."""
        known = self._known.get(thread)
        return known if known is not None and known.name else self._look(thread)

    def seal(self, thread: int, key: bytes) -> Seal:
        """The seal for a record that was read. `Damaged` if it is another thread's.

        If the thread's key is not known yet, the caller records it with `learn` after opening the record.
        """
        its = self.key(thread)
        if its is not None and its != key:
            raise _of_another(thread)
        return self._keyring.seal(key)

    def _look(self, thread: int) -> ThreadKey | None:
        """The owner according to the newest readable checkpoint that is not deleted."""
        before: int | None = None
        damage: Damaged | None = None
        for _ in range(_LOOKED_AT):
            page = self._store.checkpoints(thread, before=before, limit=1)
            if not page:
                break
            [row] = page
            key = key_of_checkpoint(row)
            try:
                if key is not None:
                    name = records.open_checkpoint(row, self._keyring.seal(key)).thread
                    if name:
                        self.learn(thread, key, name)
                        return ThreadKey(key, name)
            except Damaged as error:
                damage = damage or error
            before = row.seq
        if damage is not None:
            raise damage
        return None


def _of_another(thread: int) -> Damaged:
    return Damaged(f"a record of the thread with number {thread} is sealed by the key of another thread")
