"""Shared values as they are stored: pieces compressed where that helps, checked against their digest when read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores import segment
from holdfast.stores.contract import SharedValue

MAX_PIECE: Final = 8 << 20


class Packed(NamedTuple):
    """A piece as stored: its size before compression, 0 if it is raw, and its bytes."""

    size: int
    data: bytes


def pack(value: SharedValue) -> list[Packed]:
    """The pieces of a value as they are stored."""
    packed: list[Packed] = []
    for piece in value.pieces:
        if len(piece) > MAX_PIECE:
            raise InvalidArgument(f"a piece of a shared value has {len(piece)} bytes; {MAX_PIECE} is the most")
        stored = segment.deflate(piece)
        packed.append(Packed(0, piece) if stored is None else Packed(len(piece), stored))
    return packed


def unpack(digest: bytes, count: int, stored: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """The pieces of a value, in order. `Damaged` if they are not those of its digest."""
    whole = hashlib.sha256()
    pieces: list[bytes] = []
    try:
        for size, data in stored:
            piece = segment.inflate(data, size) if size else data
            whole.update(piece)
            pieces.append(piece)
    except TypeError as error:  # the type code of a column is damaged
        raise Damaged(f"shared value {digest.hex()} cannot be read") from error
    if len(pieces) != count or whole.digest() != digest:
        raise Damaged(f"shared value {digest.hex()} does not match its digest")
    return pieces


def missing(digest: bytes) -> Damaged:
    return Damaged(f"shared value {digest.hex()} is missing")
