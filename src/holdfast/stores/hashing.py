"""How what is stored is named and signed by its content: plainly here, with a key in an encrypted store."""

from __future__ import annotations

import hashlib
from typing import Final, Protocol


class Hasher(Protocol):
    """A hash that is being computed, as those of hashlib and hmac."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class Hashing(Protocol):
    """What the layers above need to hash for a store."""

    def address(self, data: bytes) -> bytes:
        """Under which digest the store keeps a shared value of these bytes."""
        ...

    def signature(self) -> Hasher:
        """A hash for the digest of a checkpoint."""
        ...


class _Plain:
    def address(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    def signature(self) -> Hasher:
        return hashlib.sha256()


PLAIN: Final[Hashing] = _Plain()
