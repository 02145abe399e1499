"""The data key of each thread, and the removal of data keys that seal nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from holdfast.crypto import records
from holdfast.crypto.keyring import Keyring
from holdfast.crypto.records import ThreadKey, key_of_checkpoint
from holdfast.crypto.seal import Seal, key_id
from holdfast.delta.load import reachable
from holdfast.errors import Damaged
from holdfast.pages import PAGE, pages
from holdfast.stores.contract import Refs, Store

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

    def check(self, thread: int, owner: ThreadKey) -> None:
        """`Damaged` if a record of this owner was read as part of another thread."""
        if self.key(thread) is not None:
            self.learn(thread, *owner)

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


# -- keys that seal nothing ------------------------------------------------------------------------------------------

_PAGE: Final = 50


def remove_unused(store: Store, keyring: Keyring) -> None:
    """Remove the data keys that no record in the store is sealed by.

    `Damaged`, with no key removed, if a record does not show which key it needs: it is unreadable, or it belongs to a
    dropped thread, is not used by forks and was not swept yet. `NotEncrypted` if a record is not encrypted.
    """
    unused = keyring.of_threads()
    if unused:
        used = _used(store)
        unused = [row for row in unused if row.id not in used]
    suspected = [written for row in unused if (written := keyring.suspect(row)) is not None]
    if suspected:
        used = _used(store)
        for row in suspected:
            if row.id not in used:
                keyring.remove_suspect(row)


def key_id_of_thread(store: Store, thread: int) -> bytes | None:
    """The id of the key that sealed a thread's checkpoints; None if it has none. `Damaged` if it cannot be read."""
    try:
        newest = store.checkpoints(thread, before=None, limit=1)
    except Damaged:
        newest = None
    if newest is not None:
        return key_of_checkpoint(newest[0]) if newest else None
    # Any other checkpoint has the same key. Not done in the except block, where the error would keep a read open.
    after = 0
    while page := store.walk(thread, after=after, limit=_PAGE):
        for row in page:
            if not isinstance(row, Damaged) and (id := key_of_checkpoint(row)) is not None:
                return id
        after += len(page)
    raise Damaged(f"no checkpoint of the thread with number {thread} can be read, so its data key is not known")


def _used(store: Store) -> set[bytes]:
    used: set[bytes] = set()
    for thread in _numbers(store):
        id = key_id_of_thread(store, thread) or _key_of_cells(store, thread)
        if id is not None:
            used.add(id)
        elif thread in _numbers(store):
            raise Damaged(f"no record of the thread with number {thread} shows which data key it has")
    return used


def _numbers(store: Store) -> list[int]:
    """The numbers of all threads. `Damaged` if one cannot be read."""
    found = pages(lambda after: store.numbered(after=after, limit=PAGE), lambda thread: thread.number)
    return [thread.number for thread in found]


def _key_of_cells(store: Store, thread: int) -> bytes | None:
    """The key of a dropped thread, read from a cell that a fork uses; None if no fork uses one."""
    read: set[int] = set()
    # Repeated until there are no new forks: a fork may be forked and dropped meanwhile.
    while forks := [fork for fork in store.forks(thread) if fork not in read]:
        for fork in forks:
            for span, _ in reachable(store, fork, _refs(store, fork), nodes_only=True):
                if span.thread == thread and span.count:
                    (cells,) = store.cells([replace(span, count=1)])
                    return key_id(cells.cells[0])
        read.update(forks)
    return None


def _refs(store: Store, thread: int) -> Iterator[Refs]:
    """The references of every checkpoint of a thread. `Damaged` if one cannot be read."""
    after = 0
    while page := store.walk(thread, after=after, limit=_PAGE, refs_only=True):
        for row in page:
            if isinstance(row, Damaged):
                raise row
            yield row.refs
        after += len(page)
