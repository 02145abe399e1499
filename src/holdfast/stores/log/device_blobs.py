"""Blobs, each under its digest with nothing but its bytes, and the wrapped keys of an encrypted namespace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import Blob, KeyRow
from holdfast.stores.log.device import BLOBS, KEYS, Device, Version
from holdfast.types import UNREADABLE

_PIECE: Final = 8 << 20
_PIECES: Final = ".pieces"
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
        view = memoryview(data)
        pieces: list[bytes] = []
        at = 0
        for length in self._lengths(key, len(data)):
            pieces.append(bytes(view[at : at + length]))
            at += length
        return pieces

    def store(self, blob: Blob) -> None:
        """Write a blob, unless it already exists undamaged."""
        key = f"{BLOBS}/{blob.digest.hex()}"
        lengths = [len(piece) for piece in blob.pieces]
        if self._is_sound(key, blob.digest, sum(lengths)):
            return
        if lengths != usual_lengths(sum(lengths)):
            self._device.put(f"{key}{_PIECES}", [msgspec.json.encode(lengths)])
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
        keys = [f"{BLOBS}/{digest}" for digest in digests]
        self._sound.clear()
        self._device.remove([*keys, *(f"{key}{_PIECES}" for key in keys)])

    def _lengths(self, key: str, size: int) -> list[int]:
        """The lengths of the pieces: the usual ones, or those in a separate blob."""
        stored = self._device.get(f"{key}{_PIECES}")
        if stored is None:
            return usual_lengths(size)
        try:
            lengths = msgspec.json.decode(stored, type=list[int])
        except UNREADABLE as error:
            raise Damaged(f"{key}{_PIECES}: the lengths of the blob's pieces cannot be read") from error
        return lengths if sum(lengths) == size else usual_lengths(size)


def usual_lengths(size: int) -> list[int]:
    """Lengths of 8 MiB each, and the rest."""
    return [min(_PIECE, size - at) for at in range(0, size, _PIECE)]


class _KeyFile(msgspec.Struct, frozen=True):
    id: str
    name: str
    wrapped: str


class WrappedKeys:
    """The wrapped keys of one namespace, each a small blob."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def all(self, id: bytes | None, after: bytes, limit: int) -> list[KeyRow]:
        stems = [key.partition("/")[2].removesuffix(".json") for key in self._device.keys(KEYS)]
        ids = sorted(bytes.fromhex(stem) for stem in stems if len(stem) % 2 == 0 and _HEX.issuperset(stem))
        wanted = [each for each in ids if each > after][:limit] if id is None else [id]
        return [row for each in wanted if (row := self._read(each)) is not None]

    def put(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        there = self._read(id)
        if there != expect:
            return there
        if row is None:
            self._device.remove([_key_of(id)])
        else:
            made = msgspec.json.encode(_KeyFile(row.id.hex(), row.name, row.wrapped.hex())) + b"\n"
            self._device.put(_key_of(id), [made])
        return row

    def _read(self, id: bytes) -> KeyRow | None:
        stored = self._device.get(_key_of(id))
        if stored is None:
            return None
        try:
            read = msgspec.json.decode(stored, type=_KeyFile)
            row = KeyRow(bytes.fromhex(read.id), read.name, bytes.fromhex(read.wrapped))
        except (ValueError, *UNREADABLE):
            return KeyRow(id, "", b"")
        return row if row.id == id else KeyRow(id, "", b"")


def _key_of(id: bytes) -> str:
    return f"{KEYS}/{id.hex()}.json"
