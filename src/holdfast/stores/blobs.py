"""Encode blobs: pieces are compressed when that helps, and verified by their digest when read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.stores import segments
from holdfast.stores.contract import Blob

# A blob's pieces are keyed by `blob_no << PIECE_BITS | index`.
PIECE_BITS: Final = 24


class Packed(NamedTuple):
    """A piece as stored: its size before compression (0 if stored raw) and its bytes."""

    size: int
    data: bytes


def pack(blob: Blob) -> list[Packed]:
    """The pieces of a blob in stored form."""
    packed: list[Packed] = []
    for piece in blob.pieces:
        stored = segments.compress(piece)
        packed.append(Packed(0, piece) if stored is None else Packed(len(piece), stored))
    return packed


def unpack(digest: bytes, count: int, stored: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """The pieces of a blob, in order. `Damaged` if they do not match its digest."""
    whole = hashlib.sha256()
    pieces: list[bytes] = []
    try:
        for size, data in stored:
            piece = segments.decompress(data, size) if size else data
            whole.update(piece)
            pieces.append(piece)
    except TypeError as error:  # the type code of a column is damaged
        raise Damaged(f"blob {digest.hex()} cannot be read") from error
    if len(pieces) != count or whole.digest() != digest:
        raise Damaged(f"blob {digest.hex()} does not match its digest")
    return pieces


def missing(digest: bytes) -> Damaged:
    return Damaged(f"blob {digest.hex()} is missing")
