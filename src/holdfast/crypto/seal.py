"""Sealing: encrypt bytes so that they can be opened only in the place they were sealed for.

Layout: 0xC1 (which the codec never writes as a first byte), flags, id of the data key (8 bytes), nonce (12 bytes),
ciphertext with its tag. The content is compressed before encryption when that helps, after its size in 4 bytes.

The nonce is a keyed hash of the content and its place. So equal content in one place is sealed to equal bytes, which
compare-and-set and the sharing of blobs need. Random or counted nonces could be used for two contents by a forked
process or by a machine that was restored from a snapshot; these cannot.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from holdfast.crypto.cipher import KEY_BYTES, Algorithm
from holdfast.errors import Damaged, NotEncrypted
from holdfast.stores import segments

MAGIC: Final = 0xC1
ID_BYTES: Final = 8

_ID: Final = slice(2, 2 + ID_BYTES)
_NONCE_BYTES: Final = 12
_NONCE: Final = slice(_ID.stop, _ID.stop + _NONCE_BYTES)
_TAG_BYTES: Final = 16
_SHORTEST: Final = _NONCE.stop + _TAG_BYTES
_SIZE_BYTES: Final = 4

_ALGORITHM_BITS: Final = 0x0F
_COMPRESSED: Final = 0x10
_NUMBERS: Final[dict[Algorithm, int]] = {"aes-256-gcm": 1, "chacha20-poly1305": 2}
_KNOWN_FLAGS: Final = frozenset(flag | more for flag in _NUMBERS.values() for more in (0, _COMPRESSED))


class _Aead(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Seal:
    """Seals and opens with one data key. `place` is authenticated: content sealed for another place does not open.

    The namespace and the id of the key are authenticated, too.
    """

    def __init__(self, id: bytes, key: bytes, algorithm: Algorithm, namespace: bytes) -> None:
        self.id = id
        self._namespace = b"%d:%b" % (len(namespace), namespace)
        self._writes = _NUMBERS[algorithm]
        self._aeads: dict[int, _Aead] = {
            _NUMBERS["aes-256-gcm"]: AESGCM(_derived(key, b"holdfast aes")),
            _NUMBERS["chacha20-poly1305"]: ChaCha20Poly1305(_derived(key, b"holdfast chacha")),
        }
        self._nonce_key = _derived(key, b"holdfast nonce")

    def seal(self, plain: bytes, place: bytes) -> bytes:
        flags = self._writes
        deflated = segments.deflate(plain)
        if deflated is not None:
            flags |= _COMPRESSED
            plain = len(plain).to_bytes(_SIZE_BYTES) + deflated
        prefix = bytes((MAGIC, flags)) + self.id
        authenticated = prefix + self._namespace + place
        # The length is included, so that moving bytes between place and content changes the nonce.
        hasher = hashlib.blake2b(len(authenticated).to_bytes(8), digest_size=_NONCE_BYTES, key=self._nonce_key)
        hasher.update(authenticated)
        hasher.update(plain)
        nonce = hasher.digest()
        sealed = self._aeads[self._writes].encrypt(nonce, plain, authenticated)
        return prefix + nonce + sealed

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """The content. `Damaged` if it was sealed by another key, for another place, or was changed.

        `NotEncrypted` if it is not sealed at all.
        """
        require_sealed(sealed)
        flags = sealed[1]
        try:
            aead = self._aeads[flags & _ALGORITHM_BITS]
            plain = aead.decrypt(sealed[_NONCE], sealed[_NONCE.stop :], sealed[: _ID.stop] + self._namespace + place)
        except (InvalidTag, KeyError, ValueError) as error:
            raise Damaged("an encrypted record was changed or moved to another place") from error
        if flags & _COMPRESSED:
            return segments.inflate(plain[_SIZE_BYTES:], int.from_bytes(plain[:_SIZE_BYTES]))
        return plain


def _derived(key: bytes, use: bytes) -> bytes:
    """A key for one purpose only, so that a weakness of one algorithm does not expose the others."""
    return hashlib.blake2b(key=key, person=use, digest_size=KEY_BYTES).digest()


def key_id(sealed: bytes) -> bytes:
    """The id of the data key that sealed the data. `NotEncrypted` if it is not sealed."""
    require_sealed(sealed)
    return sealed[_ID]


def require_sealed(data: bytes) -> None:
    """`NotEncrypted` if the data is not sealed; `Damaged` if it is cut short or its method is unknown."""
    if not is_sealed(data):
        if data[:1] in (b"", bytes((MAGIC,))):
            raise Damaged("an encrypted record was changed: it is cut short or was not written by Holdfast")
        raise NotEncrypted(
            "the store holds a record that is not encrypted, but a cipher was given; the record was not returned"
        )


def is_sealed(data: bytes) -> bool:
    return len(data) >= _SHORTEST and data[0] == MAGIC and data[1] in _KNOWN_FLAGS
