"""Blobs: one file each, named by its digest, with the bytes of the blob and nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import Blob
from holdfast.stores.directory import files
from holdfast.types import UNREADABLE

_PIECE: Final = 8 << 20
_PIECES: Final = ".pieces"
_REMEMBERED: Final = 4096  # blobs known to be undamaged; others are checked again
_HEX: Final = frozenset("0123456789abcdef")


class _Seen(NamedTuple):
    inode: int
    size: int
    changed: int


class Values:
    """The blobs in one namespace's folder."""

    def __init__(self, space: str) -> None:
        self._folder = os.path.join(space, "values")
        self._entered: set[str] = set()
        self._sound: dict[str, _Seen] = {}
        self._emptied: set[str] = set()

    def path(self, digest: str) -> str:
        return os.path.join(self._folder, digest[:2], digest)

    def read(self, digest: bytes) -> list[bytes]:
        """The verified pieces of a blob. `Damaged` if it is missing or wrong."""
        path = self.path(digest.hex())
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise Damaged(f"blob {digest.hex()} is missing ({path})") from None
        if hashlib.sha256(data).digest() != digest:
            raise Damaged(f"blob {digest.hex()} does not match its digest ({path})")
        view = memoryview(data)
        pieces: list[bytes] = []
        at = 0
        for length in self._lengths(path, len(data)):
            pieces.append(bytes(view[at : at + length]))
            at += length
        return pieces

    def store(self, value: Blob, *, sync: bool) -> None:
        """Write a blob, unless it already exists undamaged."""
        path = self.path(value.digest.hex())
        lengths = [len(piece) for piece in value.pieces]
        if self._is_sound(path, value.digest, sum(lengths)):
            return
        for folder in (self._folder, os.path.dirname(path)):
            files.enter(folder, self._entered, sync=sync)
        if lengths != usual_lengths(sum(lengths)):
            files.replace_file(f"{path}{_PIECES}", [msgspec.json.encode(lengths)], sync=sync)
        files.replace_file(path, value.pieces, sync=sync)
        self._remember(path, _seen(path))

    def _is_sound(self, path: str, digest: bytes, size: int) -> bool:
        """Whether an undamaged blob exists at the path. A file that changed since the last check is checked again."""
        try:
            seen = _seen(path)
            if seen == self._sound.get(path):
                return True
            if seen.size != size:
                return False
            with open(path, "rb") as file:
                is_sound = hashlib.file_digest(file, "sha256").digest() == digest
        except FileNotFoundError:
            return False
        if is_sound:
            self._remember(path, seen)
        return is_sound

    def _remember(self, path: str, seen: _Seen) -> None:
        if len(self._sound) >= _REMEMBERED:
            self._sound.clear()
        self._sound[path] = seen

    def all(self) -> Iterator[str]:
        """The digests of all blobs, in hex."""
        for folder in _listed(self._folder):
            yield from (
                name
                for name in _listed(os.path.join(self._folder, folder))
                if len(name) == 64 and _HEX.issuperset(name)
            )

    def remove(self, digest: str) -> None:
        path = self.path(digest)
        self._sound.pop(path, None)
        self._emptied.add(os.path.dirname(path))
        for gone in (path, f"{path}{_PIECES}"):
            try:
                os.unlink(gone)
            except FileNotFoundError:
                continue

    def sync_removed(self) -> None:
        """Make the removal of blobs durable: a power cut must not restore them."""
        for folder in list(self._emptied):
            files.sync_folder(folder)
            self._emptied.discard(folder)

    def sweep_leftovers(self) -> None:
        """Remove what interrupted writes left. The caller holds the gate, so no write is in progress."""
        for folder in _listed(self._folder):
            for name in _listed(os.path.join(self._folder, folder)):
                if name.endswith(".new"):
                    os.unlink(os.path.join(self._folder, folder, name))

    def _lengths(self, path: str, size: int) -> Sequence[int]:
        """The lengths of the pieces: the usual ones, or those in a separate file."""
        try:
            with open(f"{path}{_PIECES}", "rb") as file:
                lengths = msgspec.json.decode(file.read(), type=list[int])
        except FileNotFoundError:
            return usual_lengths(size)
        except UNREADABLE as error:
            raise Damaged(f"{path}{_PIECES}: the lengths of the blob's pieces cannot be read") from error
        return lengths if sum(lengths) == size else usual_lengths(size)


def usual_lengths(size: int) -> list[int]:
    """Lengths of 8 MiB each, and the rest."""
    return [min(_PIECE, size - at) for at in range(0, size, _PIECE)]


def _seen(path: str) -> _Seen:
    found = os.stat(path)
    return _Seen(found.st_ino, found.st_size, found.st_mtime_ns)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
