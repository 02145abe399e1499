"""Sealing: encrypt bytes so that they can be opened only in the place they were sealed for.

Layout of sealed data: 0xC1 (which the codec never writes as a first byte), the format (1 byte), the id of the key (8
bytes), then what AES-SIV (RFC 5297, with AES-256) returns: a tag of 16 bytes and the ciphertext. Encrypted is one byte
that says whether the content is compressed, then the content, or its size (4 bytes) and the compressed content.

AES-SIV is deterministic: equal content in one place is sealed to equal bytes. Compare-and-set and the sharing of blobs
need that. There is no nonce that a forked process or a restored machine could use twice.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from holdfast.errors import Damaged, NewerFormat, NotEncrypted, NotInstalled
from holdfast.stores import segments

FORMAT: Final = 1
ID_BYTES: Final = 8

_HEADER: Final = bytes((0xC1, FORMAT))
_ID: Final = slice(len(_HEADER), len(_HEADER) + ID_BYTES)
_TAG_BYTES: Final = 16
_SHORTEST: Final = _ID.stop + _TAG_BYTES + 1
_SIV_KEY_BYTES: Final = 64  # one key of 32 bytes for the tag, one for the encryption
_SIZE_BYTES: Final = 4

_PLAIN: Final = b"\0"
_COMPRESSED: Final = b"\1"


class Seal:
    """Seals and opens with one key of 32 bytes. `place` is authenticated, as are the namespace and the key's id."""

    def __init__(self, id: bytes, key: bytes, namespace: bytes) -> None:
        self.id = id
        self._header = _HEADER + id
        self._context = b"%b%d:%b" % (self._header, len(namespace), namespace)
        derived = hashlib.blake2b(key=key, person=b"holdfast seal", digest_size=_SIV_KEY_BYTES).digest()
        try:
            self._siv = AESSIV(derived)
        except UnsupportedAlgorithm as cause:
            raise NotInstalled(
                "encryption needs a build of cryptography with OpenSSL 3.0 or newer; nothing was changed. "
                "Install one of its wheels."
            ) from cause

    def seal(self, content: bytes, place: bytes) -> bytes:
        compressed = segments.compress(content)
        if compressed is None:
            plain = _PLAIN + content
        else:
            plain = b"%b%b%b" % (_COMPRESSED, len(content).to_bytes(_SIZE_BYTES), compressed)
        return self._header + self._siv.encrypt(plain, [self._context + place])

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """The content. `Damaged` if it was sealed by another key, for another place, or was changed.

        `NotEncrypted` if it is not sealed at all.
        """
        if key_id(sealed) != self.id:
            raise Damaged("an encrypted record is sealed by another key")
        try:
            plain = self._siv.decrypt(sealed[_ID.stop :], [self._context + place])
        except InvalidTag as error:
            raise Damaged("an encrypted record was changed or moved to another place") from error
        if plain[:1] == _PLAIN:
            return plain[1:]
        start = 1 + _SIZE_BYTES
        return segments.decompress(plain[start:], int.from_bytes(plain[1:start]))


def key_id(sealed: bytes) -> bytes:
    """The id of the key that sealed the data. `NotEncrypted` if it is not sealed; `Damaged` if it is cut short."""
    if not is_sealed(sealed):
        if sealed[:1] in (b"", _HEADER[:1]):
            raise Damaged("an encrypted record was changed: it is cut short or was not written by Holdfast")
        raise NotEncrypted(
            "the store holds a record that is not encrypted, but a cipher was given; the record was not returned"
        )
    return sealed[_ID]


def require_format(sealed: bytes) -> None:
    """`NewerFormat` if a newer Holdfast sealed the data."""
    if sealed[:1] == _HEADER[:1] and sealed[1:2] > _HEADER[1:]:
        raise NewerFormat(
            f"the store is encrypted in format {sealed[1]}, this Holdfast reads up to {FORMAT}; nothing was changed. "
            "Upgrade Holdfast."
        )


def is_sealed(data: bytes) -> bool:
    return len(data) >= _SHORTEST and data.startswith(_HEADER)
