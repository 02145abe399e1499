"""The data keys of a namespace: made when they are needed, kept in the store, each wrapped by a key of the user's."""

from __future__ import annotations

import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.crypto.cipher import KEY_BYTES, Cipher
from holdfast.crypto.sealing import ID_BYTES, Seal
from holdfast.errors import Conflict, Damaged, WrongKey
from holdfast.stores.contract import Store
from holdfast.stores.hashing import Hasher
from holdfast.stores.keys import KeyRow

# Two keys that every encrypted namespace has. Threads have one each, of a random id.
_SIGNING: Final = b"signing\0"
_RECORDS: Final = b"records\0"

_NONCE_BYTES: Final = 12
_KEPT: Final = 4096  # seals of threads that a handle holds ready
_PAGE: Final = 500


class Ring:
    """Finds, makes and wraps the data keys of one store. Any thread may use it."""

    def __init__(self, store: Store, cipher: Cipher, namespace: str) -> None:
        """`WrongKey` if the store was encrypted with keys that the cipher does not have."""
        self._store = store
        self._cipher = cipher
        self._name = namespace
        self._namespace = namespace.encode("utf-8", "surrogatepass")
        self._lock = threading.Lock()
        self._seals: OrderedDict[bytes, Seal] = OrderedDict()
        self._signing = self._unwrapped(self._found_or_made(_SIGNING))
        self.records = self._seal_of(self._found_or_made(_RECORDS))

    def beside(self, store: Store) -> Ring:
        """The keys of another store of the same cipher and namespace."""
        return Ring(store, self._cipher, self._name)

    def found(self, store: Store) -> None:
        """Begin an empty store with the two keys that are not of a thread: digests and addresses stay what they are."""
        for id in (_SIGNING, _RECORDS):
            store.put_key(self._found_or_made(id), None)

    def signature(self) -> Hasher:
        """A keyed hash. Its key does not change with the user's keys: digests stay what they are."""
        return hmac.new(self._signing, digestmod="sha256")

    def token(self, kind: bytes, text: str) -> str:
        """What stands for a text that has to be found again: equal for equal texts, and nothing else is told by it."""
        message = kind + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._signing, message, "sha256")[:16].hex()

    def new(self) -> Seal:
        """The seal of a new data key, which is in the store."""
        return self._seal_of(self._made(os.urandom(ID_BYTES)))

    def seal(self, id: bytes) -> Seal:
        """The seal of a data key. `Damaged` if the store has no such key, or not any more."""
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
        return self._seal_of(row)

    def remove(self, id: bytes) -> None:
        """Forget a data key: what was sealed by it cannot be opened again."""
        with self._lock:
            self._seals.pop(id, None)
        self._store.remove_key(id)

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key by the current key; how many were not. What they encrypt is not touched."""
        changed = 0
        after = b""
        while True:
            page = self._store.keys(after=after, limit=_PAGE)
            for row in page:
                changed += self._rewrapped(row)
            if progress is not None:
                progress(len(page))
            if len(page) < _PAGE:
                return changed
            after = page[-1].id

    def _rewrapped(self, row: KeyRow) -> bool:
        if row.name == self._cipher.current:
            self._unwrapped(row)
            return False
        try:
            self._store.put_key(self._wrapped(row.id, self._unwrapped(row)), row)
        except Conflict:
            return False  # somebody else has just done it, or the thread was dropped
        return True

    def _found_or_made(self, id: bytes) -> KeyRow:
        return self._store.key(id) or self._made(id)

    def _made(self, id: bytes) -> KeyRow:
        return self._store.put_key(self._wrapped(id, os.urandom(KEY_BYTES)), None)

    def _seal_of(self, row: KeyRow) -> Seal:
        seal = Seal(row.id, self._unwrapped(row), self._cipher.algorithm, self._namespace)
        with self._lock:
            self._seals[row.id] = seal
            if len(self._seals) > _KEPT:
                self._seals.popitem(last=False)
        return seal

    def _wrapped(self, id: bytes, key: bytes) -> KeyRow:
        name = self._cipher.current
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._cipher.key(name)).encrypt(nonce, key, self._place(id, name))
        return KeyRow(id, name, nonce + sealed)

    def _unwrapped(self, row: KeyRow) -> bytes:
        user_key = self._cipher.key(row.name)
        try:
            return AESGCM(user_key).decrypt(
                row.wrapped[:_NONCE_BYTES], row.wrapped[_NONCE_BYTES:], self._place(row.id, row.name)
            )
        except (InvalidTag, ValueError) as error:
            raise WrongKey(
                f"the key named {row.name!r} is not the one the store was encrypted with, "
                "or the record of a data key is damaged"
            ) from error

    def _place(self, id: bytes, name: str) -> bytes:
        return b"holdfast key 1\0%d:%b%b%b" % (len(self._namespace), self._namespace, id, name.encode())
