"""Hash functions for blob addresses and checkpoint digests: plain here, keyed in an encrypted store."""

from __future__ import annotations

import hashlib
from typing import Final, Protocol


class Hasher(Protocol):
    """A hash in progress, with the interface of hashlib and hmac."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class Hashing(Protocol):
    """The hash functions that the layers above a store need."""

    def address(self, data: bytes) -> bytes:
        """The digest under which the store keeps a blob with these bytes."""
        ...

    def signature(self) -> Hasher:
        """A new hash for the digest of a checkpoint."""
        ...


class _Plain:
    def address(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    def signature(self) -> Hasher:
        return hashlib.sha256()


PLAIN: Final[Hashing] = _Plain()
