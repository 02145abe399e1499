"""The data keys of a namespace: created when needed and kept in the store, each wrapped by a key of the user."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from holdfast.crypto.cipher import KEY_BYTES, Cipher
from holdfast.crypto.seal import ID_BYTES, Seal, require_format
from holdfast.errors import Conflict, Damaged, NotEncrypted, WrongKey
from holdfast.stores.contract import Hasher, KeyRow, Store

# The key that every encrypted namespace has. Each thread has a key with a random id, created later.
_RECORDS: Final = b"records\0"

_USER_KEY: Final = b"user key"  # takes the place of the id in what a user's key seals
_KEPT: Final = 4096  # seals of threads that a handle keeps in memory
_PAGE: Final = 500
_PASSES: Final = 20  # over all keys, before giving up because other processes keep using an older key
_NAMED: Final = 10  # keys that an error lists


class Keyring:
    """Finds, creates and wraps the data keys of one store. Any thread may use it."""

    def __init__(
        self, store: Store, cipher: Cipher, namespace: str, *, user_seals: dict[str, Seal] | None = None
    ) -> None:
        """`WrongKey` if the store was encrypted with keys that the cipher does not have.

        `Damaged` if the key of the namespace is lost; `NewerFormat` if a newer Holdfast wrote it.
        `user_seals` are the seals of the user's keys that were requested before.
        """
        self._store = store
        self._cipher = cipher
        self._name = namespace
        self._namespace = namespace.encode("utf-8", "surrogatepass")
        # No locks for these two, because a process forked meanwhile would find them held.
        self._user_seals: dict[str, Seal] = {} if user_seals is None else user_seals
        self._seals: OrderedDict[bytes, Seal] = OrderedDict()
        records = self._found_or_made()
        require_format(records.wrapped)
        self._records_key = self._unwrapped(records)
        self._signing = hashlib.blake2b(key=self._records_key, person=b"holdfast sign", digest_size=KEY_BYTES).digest()
        self.records = self._seal_of(records)

    def for_copy(self, store: Store) -> Keyring:
        """The keys for a copy of this store, or for an empty store that will become one.

        It gets the key of the namespace. `WrongKey`, with nothing changed, if it has a different one: copied records
        could not be read there.
        """
        row = _stored(store, _RECORDS)
        if row is None:
            store.put_key(_RECORDS, None, self._wrapped(_RECORDS, self._records_key))
        elif not hmac.compare_digest(self._unwrapped(row), self._records_key):
            raise WrongKey(
                "the other store is already encrypted with its own data keys, so records cannot be copied to it; "
                "nothing was written. Use a new store."
            )
        return Keyring(store, self._cipher, self._name, user_seals=self._user_seals)

    def signature(self) -> Hasher:
        """A keyed hash. Its key does not change with the user's keys, so digests stay the same."""
        return hmac.new(self._signing, digestmod="sha256")

    def token(self, kind: bytes, text: str) -> str:
        """A token to look up a text: equal for equal texts, and reveals nothing else about them."""
        message = kind + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._signing, message, "sha256")[:16].hex()

    def seal(self, id: bytes) -> Seal:
        """The seal of a data key. `Damaged` if the store does not have the key or it cannot be used."""
        if id == _RECORDS:
            return self.records
        found = self._seals.get(id)
        if found is not None:
            with suppress(KeyError):  # another thread has just removed it
                self._seals.move_to_end(id)
            return found
        row = _stored(self._store, id)
        if row is None:
            raise Damaged("the data key of an encrypted record is missing: it was erased or lost")
        try:
            return self._seal_of(row)
        except WrongKey as error:
            # The keys of the namespace were opened, so this key itself is damaged. It affects only what it encrypts.
            raise Damaged(f"the data key {id.hex()} cannot be used: {error}") from error

    def new(self) -> tuple[Seal, KeyRow]:
        """The seal of a new data key, and its record, which the commit that creates its thread stores."""
        row = self._wrapped(os.urandom(ID_BYTES), os.urandom(KEY_BYTES))
        return self._seal_of(row), row

    # -- rewrapping --------------------------------------------------------------------------------------------------

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every data key with the current key; return how many had another. Encrypted data is not touched.

        Repeats until a pass finds nothing to do. `Damaged`, after all other keys are wrapped, if some cannot be
        unwrapped. `Conflict` if other processes keep wrapping keys with another key.
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
            f"{changed} data keys were rewrapped, but other processes keep wrapping new keys with an older key. Open "
            "every writer with the new key as the current one, then call rekey again."
        )

    def _rewrapped(self, row: KeyRow) -> bool:
        there: KeyRow | None = row
        while there is not None:
            key = self._unwrapped(there)
            if there.name == self._cipher.current:
                return False
            new = self._wrapped(there.id, key)
            there = self._store.put_key(row.id, there, new)
            if there == new:
                return True
            # Another process has just wrapped it, or its thread was dropped.
        return False

    def _pages(self) -> Iterator[list[KeyRow]]:
        after = b""
        while page := self._store.keys(after=after, limit=_PAGE):
            yield page
            after = page[-1].id

    # -- one key -----------------------------------------------------------------------------------------------------

    def _found_or_made(self) -> KeyRow:
        """The key of the namespace. `Damaged` if it is lost: a new key could read nothing and would hide the loss."""
        row = _stored(self._store, _RECORDS)
        if row is not None:
            return row
        is_used = bool(self._store.keys(limit=1) or self._store.numbered(after=None, limit=1))
        # Look again: a process that has started to use the store since the first look created this key before all else.
        row = _stored(self._store, _RECORDS)
        if row is None and is_used:
            raise Damaged(
                "the store is encrypted, and the key of its runs, blobs and digests is lost; no new key was created. "
                "Restore the key from a backup."
            )
        new = row or self._wrapped(_RECORDS, os.urandom(KEY_BYTES))
        return row or self._store.put_key(_RECORDS, None, new) or new

    def _seal_of(self, row: KeyRow) -> Seal:
        seal = Seal(row.id, self._unwrapped(row), self._namespace)
        self._seals[row.id] = seal
        if len(self._seals) > _KEPT:
            self._seals.popitem(last=False)
        return seal

    def _wrapped(self, id: bytes, key: bytes) -> KeyRow:
        """The record of a data key."""
        name = self._cipher.current
        return KeyRow(id, name, self._user_seal(name).seal(key, _place(id, name)))

    def _unwrapped(self, row: KeyRow) -> bytes:
        if not row.name:
            raise WrongKey("the record of a data key cannot be read")
        seal = self._user_seal(row.name)
        try:
            return seal.open(row.wrapped, _place(row.id, row.name))
        except (Damaged, NotEncrypted) as error:
            raise WrongKey(
                f"the key named {row.name!r} is not the one the store was encrypted with, "
                "or the record of a data key is damaged; nothing was changed"
            ) from error

    def _user_seal(self, name: str) -> Seal:
        """The seal of a user's key. The key is requested once: a function may ask a remote service or a person."""
        known = self._user_seals.get(name)
        if known is None:
            # Two threads may request the key at once.
            known = self._user_seals[name] = Seal(_USER_KEY, self._cipher.key(name), self._namespace)
        return known


def _stored(store: Store, id: bytes) -> KeyRow | None:
    """The record of a data key; None if there is none."""
    found = store.keys(id=id, limit=1)
    if found and not found[0].name:
        raise Damaged("the record of a data key cannot be read")
    return found[0] if found else None


def _place(id: bytes, name: str) -> bytes:
    return b"key\0%d:%b%b" % (len(id), id, name.encode())


def _not_wrapped(changed: int, bad: dict[bytes, str]) -> Damaged:
    named = ", ".join(f"{id.hex()} ({why})" for id, why in list(bad.items())[:_NAMED])
    more = ", …" if len(bad) > _NAMED else ""
    return Damaged(
        f"{changed} data keys were rewrapped, {len(bad)} could not be: {named}{more}. Keep the older keys. "
        "hf.verify() shows the affected threads."
    )
