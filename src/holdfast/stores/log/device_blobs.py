"""Blobs, each under its digest with nothing but its bytes, and the wrapped keys of an encrypted namespace."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import Blob, KeyRow
from holdfast.stores.log.device import BLOBS, KEYS, Device, Version
from holdfast.stores.rules import MAX_PIECE
from holdfast.types import UNREADABLE

_REMEMBERED: Final = 4096  # blobs known to be undamaged; others are checked again
_HEX: Final = frozenset("0123456789abcdef")


class Blobs:
    """The blobs of one namespace."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sound: dict[str, Version | None] = {}

    def read(self, digest: bytes) -> list[bytes] | None:
        """The verified pieces of a blob; None if it is missing. `Damaged` if it is wrong."""
        key = f"{BLOBS}/{digest.hex()}"
        data = self._device.get(key)
        if data is None:
            return None
        if hashlib.sha256(data).digest() != digest:
            raise Damaged(f"blob {digest.hex()} does not match its digest")
        return [data[at : at + MAX_PIECE] for at in range(0, len(data), MAX_PIECE)]

    def store(self, blob: Blob) -> None:
        """Write a blob, unless it already exists undamaged."""
        key = f"{BLOBS}/{blob.digest.hex()}"
        if not self._is_sound(key, blob.digest, sum(map(len, blob.pieces))):
            self._device.put(key, blob.pieces)
            self._remember(key, self._device.seen(key))

    def _is_sound(self, key: str, digest: bytes, size: int) -> bool:
        """Whether an undamaged blob exists. One that changed since the last check is checked again."""
        seen = self._device.seen(key)
        if seen is None or seen.size != size:
            return False
        if seen == self._sound.get(key):
            return True
        data = self._device.get(key)
        is_sound = data is not None and hashlib.sha256(data).digest() == digest
        if is_sound:
            self._remember(key, seen)
        return is_sound

    def _remember(self, key: str, seen: Version | None) -> None:
        if len(self._sound) >= _REMEMBERED:
            self._sound.clear()
        self._sound[key] = seen

    def all(self) -> list[str]:
        """The digests of all blobs, in hex."""
        names = (key.partition("/")[2] for key in self._device.keys(BLOBS))
        return [name for name in names if len(name) == 64 and _HEX.issuperset(name)]

    def remove(self, digests: Iterable[str]) -> None:
        self._sound.clear()
        self._device.remove([f"{BLOBS}/{digest}" for digest in digests])


class _KeyFile(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    wrapped: str
    thread: int = 0  # the number of the thread that it is the key of


class WrappedKeys:
    """The wrapped keys of one namespace, each a small blob."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def all(self, id: bytes | None, after: bytes, limit: int) -> list[KeyRow]:
        wanted = [each for each in self._ids() if each > after.hex()][:limit] if id is None else [id.hex()]
        return [row for each in wanted if (row := self._read(each)[0]) is not None]

    def put(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        there, thread = self._read(id.hex())
        if there != expect:
            return there
        if row is None:
            self.remove([id.hex()])
        else:
            self._write(row, thread)
        return row

    def put_new(self, row: KeyRow | None, thread: int) -> str:
        """Store the key of a thread that is about to be created. Return its id in hex; empty if there is no key."""
        if row is None:
            return ""
        self._write(row, thread)
        return row.id.hex()

    def remove(self, ids: Iterable[str]) -> None:
        self._device.remove([_key_of(id) for id in ids if id])

    def remove_unused(self, threads: Collection[int]) -> None:
        """Remove the keys of threads that do not exist: their creation or their removal was interrupted."""
        owners = {id: self._read(id)[1] for id in self._ids()}
        unused = [_key_of(id) for id, thread in owners.items() if thread and thread not in threads]
        self._device.remove(self._device.settled(unused))

    def _ids(self) -> list[str]:
        stems = [key.partition("/")[2].removesuffix(".json") for key in self._device.keys(KEYS)]
        return sorted(stem for stem in stems if len(stem) % 2 == 0 and _HEX.issuperset(stem))

    def _write(self, row: KeyRow, thread: int) -> None:
        made = msgspec.json.encode(_KeyFile(row.id.hex(), row.name, row.wrapped.hex(), thread)) + b"\n"
        self._device.put(_key_of(row.id.hex()), [made])

    def _read(self, id: str) -> tuple[KeyRow | None, int]:
        """A key, and the number of its thread, or 0."""
        stored = self._device.get(_key_of(id))
        if stored is None:
            return None, 0
        unreadable = KeyRow(bytes.fromhex(id), "", b"")
        try:
            read = msgspec.json.decode(stored, type=_KeyFile)
            row = KeyRow(bytes.fromhex(read.id), read.name, bytes.fromhex(read.wrapped))
        except (ValueError, *UNREADABLE):
            return unreadable, 0
        return row if row.id == unreadable.id else unreadable, read.thread


def _key_of(id: str) -> str:
    return f"{KEYS}/{id}.json"
