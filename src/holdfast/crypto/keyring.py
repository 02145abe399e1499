"""The data keys of a namespace: made when they are needed, kept in the store, each wrapped by a key of the user's."""

from __future__ import annotations

import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.crypto.cipher import KEY_BYTES, Cipher
from holdfast.crypto.seal import ID_BYTES, Seal
from holdfast.errors import Conflict, Damaged, WrongKey
from holdfast.stores.contract import Store
from holdfast.stores.hashing import Hasher
from holdfast.stores.keys import KeyRow

# Two keys that every encrypted namespace has, in the order in which they are made. Threads have one each, of a random
# id, and are made later.
_SIGNING: Final = b"signing\0"
_RECORDS: Final = b"records\0"
_OF_NAMESPACE: Final = (_SIGNING, _RECORDS)

_NONCE_BYTES: Final = 12
_KEPT: Final = 4096  # seals of threads that a handle holds ready
_PAGE: Final = 500
_PASSES: Final = 20  # over all keys, after which whoever goes on making them by an older key is told of
_TOLD: Final = 10  # keys that an error names


class Ring:
    """Finds, makes and wraps the data keys of one store. Any thread may use it."""

    def __init__(self, store: Store, cipher: Cipher, namespace: str, *, known: dict[str, bytes] | None = None) -> None:
        """`WrongKey` if the store was encrypted with keys that the cipher does not have.

        `Damaged` if one of the two keys of the namespace is lost. `known` are keys of the user's that were asked for.
        """
        self._store = store
        self._cipher = cipher
        self._name = namespace
        self._namespace = namespace.encode("utf-8", "surrogatepass")
        self._lock = threading.Lock()
        self._known: dict[str, bytes] = {} if known is None else known
        self._seals: OrderedDict[bytes, Seal] = OrderedDict()
        self._new: dict[bytes, KeyRow] = {}
        self._signing = self._unwrapped(self._found_or_made(_SIGNING))
        records = self._found_or_made(_RECORDS)
        self._records_key = self._unwrapped(records)
        self.records = self._seal_of(records)

    def beside(self, store: Store) -> Ring:
        """The keys of a copy of this store, or of what is to become one: it gets the keys of digests and values.

        `WrongKey`, with nothing changed, if it has others: nothing that is carried over could be read there.
        """
        own = {_SIGNING: self._signing, _RECORDS: self._records_key}
        there = {id: store.key(id) for id in own}
        for id, row in there.items():
            if row is not None and not hmac.compare_digest(self._unwrapped(row), own[id]):
                raise WrongKey(
                    "the other store was encrypted before, by data keys of its own, so that nothing can be copied into "
                    "it as it is: name a new store. Nothing was written"
                )
        for id, key in own.items():
            if there[id] is None:
                store.put_key(self._wrapped(id, key), None)
        return Ring(store, self._cipher, self._name, known=self._known)

    def signature(self) -> Hasher:
        """A keyed hash. Its key does not change with the user's keys: digests stay what they are."""
        return hmac.new(self._signing, digestmod="sha256")

    def token(self, kind: bytes, text: str) -> str:
        """What stands for a text that has to be found again: equal for equal texts, and nothing else is told by it."""
        message = kind + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._signing, message, "sha256")[:16].hex()

    def seal(self, id: bytes) -> Seal:
        """The seal of a data key. `Damaged` if the store has no such key, or not any more, or it cannot be used."""
        if id == _RECORDS:
            return self.records
        with self._lock:
            found = self._seals.get(id)
            if found is not None:
                self._seals.move_to_end(id)
                return found
        row = self._store.key(id)
        if row is None:
            raise Damaged("the data key of an encrypted record is missing from the store: it was erased, or lost")
        try:
            return self._seal_of(row)
        except WrongKey as error:
            # The keys of the namespace were opened: what is wrong is this one, and hurts what it encrypts.
            raise Damaged(f"the data key {id.hex()} cannot be used: {error}") from error

    # -- keys come and go --------------------------------------------------------------------------------------------

    def new(self) -> Seal:
        """The seal of a new data key, which is in the store. To be kept or removed."""
        row = self._made(os.urandom(ID_BYTES))
        seal = self._seal_of(row)
        self._new[row.id] = row
        return seal

    def keep(self, id: bytes) -> None:
        """A new key is in use, from now on for everybody to see: have it there.

        Before that, somebody may have taken it for one that nothing uses (`suspect`).
        """
        row = self._new.pop(id)
        there = self._store.key(id)
        while there != row:
            # As the one who suspects it did not write it. By the key it has: it may just have been wrapped anew.
            name = None if there is None or not self._has(there.name) else there.name
            row = self._wrapped(id, self._unwrapped(row), name)
            try:
                there = self._store.put_key(row, there)
            except Conflict:
                there = self._store.key(id)

    def remove(self, id: bytes) -> None:
        """Forget a data key: what was sealed by it cannot be opened again."""
        self._forget(id)
        self._store.remove_key(id)

    def of_threads(self) -> list[KeyRow]:
        """The keys of threads, as they are stored."""
        return [row for page in self._pages() for row in page if row.id not in _OF_NAMESPACE]

    def suspect(self, row: KeyRow) -> KeyRow | None:
        """Write a key that nothing seems to use anew, so that whoever has just begun to use it notices; as it is then.

        None if it is not as it was. A record that cannot be read is not touched: it stays for who may know better.
        """
        try:
            return self._store.put_key(self._wrapped(row.id, self._unwrapped(row), row.name), row)
        except (Conflict, WrongKey):
            return None

    def remove_suspect(self, row: KeyRow) -> None:
        """Forget a key, unless it was written again since it was suspected."""
        self._forget(row.id)
        self._store.remove_key(row.id, row)

    def _forget(self, id: bytes) -> None:
        with self._lock:
            self._seals.pop(id, None)
        self._new.pop(id, None)

    # -- wrapping anew -----------------------------------------------------------------------------------------------

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key by the current key; how many were not. What they encrypt is not touched.

        Passes are made until one finds nothing to do. `Damaged`, when all others are wrapped, if some cannot be;
        `Conflict` if somebody goes on making keys by another one.
        """
        changed = 0
        seen: set[bytes] = set()
        for _ in range(_PASSES):
            done = 0
            bad: dict[bytes, str] = {}
            for page in self._pages():
                new = [row.id for row in page if row.id not in seen]
                for row in page:
                    try:
                        done += self._rewrapped(row)
                    except (Damaged, WrongKey) as error:
                        bad[row.id] = str(error)
                seen.update(new)
                if progress is not None and new:
                    progress(len(new))
            changed += done
            if not done:
                if bad:
                    raise _not_wrapped(changed, bad)
                return changed
        raise Conflict(
            f"{changed} data keys were wrapped anew, and others go on making keys wrapped by another one: open every "
            "writer with the new key as the current one, then call rekey again"
        )

    def _rewrapped(self, row: KeyRow) -> bool:
        there: KeyRow | None = row
        while there is not None:
            key = self._unwrapped(there)
            if there.name == self._cipher.current:
                return False
            try:
                self._store.put_key(self._wrapped(there.id, key), there)
            except Conflict:
                there = self._store.key(row.id)  # somebody else has just wrapped it, or its thread was dropped
            else:
                return True
        return False

    def _pages(self) -> Iterator[list[KeyRow]]:
        after = b""
        while page := self._store.keys(after=after, limit=_PAGE):
            yield page
            after = page[-1].id

    # -- one key -----------------------------------------------------------------------------------------------------

    def _found_or_made(self, id: bytes) -> KeyRow:
        """A key of the namespace. `Damaged` if it is lost: another would read nothing, and hide that."""
        row = self._store.key(id)
        if row is not None:
            return row
        earlier = _OF_NAMESPACE[: _OF_NAMESPACE.index(id)]
        later = [other for other in self._store.keys(after=b"", limit=2) if other.id not in earlier]
        is_begun = bool(later or self._store.thread_numbers())
        # Once more: who has begun it since the first look made this key before anything else.
        row = self._store.key(id)
        if row is None and is_begun:
            what = "its digests are made with" if id == _SIGNING else "its runs and shared values are encrypted by"
            raise Damaged(
                f"the store is encrypted, and the key that {what} is lost: put it back from a backup. Nothing was "
                "made anew"
            )
        return row or self._made(id)

    def _made(self, id: bytes) -> KeyRow:
        return self._store.put_key(self._wrapped(id, os.urandom(KEY_BYTES)), None)

    def _seal_of(self, row: KeyRow) -> Seal:
        seal = Seal(row.id, self._unwrapped(row), self._cipher.algorithm, self._namespace)
        with self._lock:
            self._seals[row.id] = seal
            if len(self._seals) > _KEPT:
                self._seals.popitem(last=False)
        return seal

    def _wrapped(self, id: bytes, key: bytes, name: str | None = None) -> KeyRow:
        name = self._cipher.current if name is None else name
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._key(name)).encrypt(nonce, key, self._place(id, name))
        return KeyRow(id, name, nonce + sealed)

    def _unwrapped(self, row: KeyRow) -> bytes:
        if not row.name:
            raise WrongKey("the record of a data key cannot be read")
        user_key = self._key(row.name)
        try:
            return AESGCM(user_key).decrypt(
                row.wrapped[:_NONCE_BYTES], row.wrapped[_NONCE_BYTES:], self._place(row.id, row.name)
            )
        except (InvalidTag, ValueError) as error:
            raise WrongKey(
                f"the key named {row.name!r} is not the one the store was encrypted with, "
                "or the record of a data key is damaged"
            ) from error

    def _key(self, name: str) -> bytes:
        """A key of the user's. It is asked for once: a function may ask a service that is far away, or a person."""
        known = self._known.get(name)
        if known is None:
            # Without a lock, which a process forked meanwhile would find taken: two threads may ask at the same time.
            known = self._known[name] = self._cipher.key(name)
        return known

    def _has(self, name: str) -> bool:
        try:
            self._key(name)
        except WrongKey:
            return False
        return True

    def _place(self, id: bytes, name: str) -> bytes:
        return b"holdfast key 1\0%d:%b%b%b" % (len(self._namespace), self._namespace, id, name.encode())


def _not_wrapped(changed: int, bad: dict[bytes, str]) -> Damaged:
    told = ", ".join(f"{id.hex()} ({why})" for id, why in list(bad.items())[:_TOLD])
    more = ", …" if len(bad) > _TOLD else ""
    return Damaged(
        f"{changed} data keys were wrapped anew, and {len(bad)} could not be: {told}{more}. hf.verify() says which "
        "threads that hurts; until it is settled keep the older keys"
    )
