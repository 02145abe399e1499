"""Checkpoint ids."""

from __future__ import annotations

import os
import struct
import uuid
from typing import Final

SEQ_MAX = 2**32 - 1

_NOISE: Final = struct.Struct(">HI")
_LAYOUT: Final = struct.Struct(">IHHII")


def new_id(seq: int, milliseconds: int) -> bytes:
    """Make an id of 16 bytes: 48 bits of time, 42 random bits and 32 bits of seq, laid out as a version 7 UUID.

    The random bits keep ids of different threads apart; the last 8 hex digits are unique within a thread.
    """
    high, low = _NOISE.unpack(os.urandom(_NOISE.size))
    return _LAYOUT.pack(
        milliseconds >> 16 & 0xFFFFFFFF, milliseconds & 0xFFFF, 0x7000 | high & 0xFFF, low >> 2 | 1 << 31, seq
    )


def seq_of(id: bytes) -> int:
    return int.from_bytes(id[12:])


def to_text(id: bytes) -> str:
    """Return `str(uuid.UUID(bytes=id))`, in a third of the time: every save calls it."""
    digits = id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def from_text(text: str) -> bytes | None:
    """Return the id that a text writes in full, or None."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return None
    return parsed.bytes if str(parsed) == text.lower() else None
