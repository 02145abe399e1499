"""Shared values: cut into pieces, sealed, and addressed by what is stored of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.crypto import records
from holdfast.crypto.ring import Ring
from holdfast.crypto.sealing import Seal, is_sealed, key_id
from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores.contract import SharedValue
from holdfast.stores.hashing import Hasher

# A piece with its seal has to fit into the 8 MiB that stores take.
_PIECE: Final = (8 << 20) - 64


class KeyedHashing:
    """Addresses and digests that say nothing to whoever has not the keys."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def address(self, data: bytes) -> bytes:
        """That of the sealed bytes, which a handle makes always alike: stores check what they read by it."""
        return _address(sealed_pieces(data, self._ring.records))

    def signature(self) -> Hasher:
        return self._ring.signature()


def seal_value(value: SharedValue, seal: Seal) -> SharedValue:
    """A value as it is stored. One that is sealed already, as copies bring it, stays as it is: so does its address.

    The address depends on algorithm, compressor and key. `InvalidArgument` if it is not that of what would be stored:
    nobody could read it there. `Damaged` if it was sealed by another key.
    """
    if value.pieces and is_sealed(value.pieces[0]) and _address(value.pieces) == value.digest:
        open_value(value.digest, value.pieces, seal)
        return value
    pieces = sealed_pieces(b"".join(value.pieces), seal)
    if _address(pieces) != value.digest:
        raise InvalidArgument(
            f"shared value {value.digest.hex()} was addressed under another key, algorithm or compressor than it would "
            "be stored with, and could not be found again; nothing was stored"
        )
    return SharedValue(value.digest, pieces)


def open_value(digest: bytes, sealed: Sequence[bytes], seal: Seal) -> list[bytes]:
    opened: list[bytes] = []
    for index, piece in enumerate(sealed):
        if key_id(piece) != seal.id:
            raise Damaged(f"shared value {digest.hex()} was put in another one's place")
        opened.append(seal.open(piece, records.value_place(index, len(sealed))))
    return opened


def sealed_pieces(data: bytes, seal: Seal) -> tuple[bytes, ...]:
    """A shared value, cut and sealed."""
    view = memoryview(data)
    starts = range(0, len(data), _PIECE)
    return tuple(
        [
            seal.seal(bytes(view[start : start + _PIECE]), records.value_place(index, len(starts)))
            for index, start in enumerate(starts)
        ]
    )


def _address(pieces: Iterable[bytes]) -> bytes:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
