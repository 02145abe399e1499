"""Shared values: a file each, named by its digest, that holds the value's bytes and nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import SharedValue
from holdfast.stores.directory import files

_PIECE: Final = 8 << 20
_PIECES: Final = ".pieces"
_HEX: Final = frozenset("0123456789abcdef")


class Values:
    """The values of one namespace's folder."""

    def __init__(self, space: str) -> None:
        self._folder = os.path.join(space, "values")

    def path(self, digest: str) -> str:
        return os.path.join(self._folder, digest[:2], digest)

    def read(self, digest: bytes) -> list[bytes]:
        """The pieces, checked. `Damaged` if the value is missing or wrong."""
        path = self.path(digest.hex())
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise Damaged(f"the shared value {digest.hex()} is missing from the store ({path})") from None
        if hashlib.sha256(data).digest() != digest:
            raise Damaged(f"{path}: the shared value is not what its digest says")
        view = memoryview(data)
        pieces: list[bytes] = []
        at = 0
        for length in self._lengths(path, len(data)):
            pieces.append(bytes(view[at : at + length]))
            at += length
        return pieces

    def store(self, value: SharedValue, *, sync: bool) -> None:
        """Write a value, unless it is there already."""
        path = self.path(value.digest.hex())
        lengths = [len(piece) for piece in value.pieces]
        try:
            if os.stat(path).st_size == sum(lengths):
                return
        except FileNotFoundError:
            files.make_folder(os.path.dirname(path), sync=sync)
        if lengths != usual_lengths(sum(lengths)):
            files.replace_file(f"{path}{_PIECES}", [msgspec.json.encode(lengths)], sync=sync)
        files.replace_file(path, value.pieces, sync=sync)

    def all(self) -> Iterator[str]:
        """The digests of all values, in hex."""
        for folder in _listed(self._folder):
            yield from (
                name
                for name in _listed(os.path.join(self._folder, folder))
                if len(name) == 64 and _HEX.issuperset(name)
            )

    def remove(self, digest: str) -> None:
        path = self.path(digest)
        for gone in (path, f"{path}{_PIECES}"):
            try:
                os.unlink(gone)
            except FileNotFoundError:
                continue

    def sweep_leftovers(self) -> None:
        """Remove what writes that were cut off have left. Only under the gate: nobody is writing."""
        for folder in _listed(self._folder):
            for name in _listed(os.path.join(self._folder, folder)):
                if name.endswith(".new"):
                    os.unlink(os.path.join(self._folder, folder, name))

    def _lengths(self, path: str, size: int) -> Sequence[int]:
        """How the value was cut: as usual, or as the file beside it says."""
        try:
            with open(f"{path}{_PIECES}", "rb") as file:
                lengths = msgspec.json.decode(file.read(), type=list[int])
        except FileNotFoundError:
            return usual_lengths(size)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{path}{_PIECES}: cannot be read") from error
        return lengths if sum(lengths) == size else usual_lengths(size)


def usual_lengths(size: int) -> list[int]:
    """Pieces of 8 MiB and what is left."""
    return [min(_PIECE, size - at) for at in range(0, size, _PIECE)]


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
