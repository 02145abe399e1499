"""Seals: the bytes they write, and what they do not open."""

from __future__ import annotations

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from holdfast import Damaged, StoreError
from holdfast.crypto import seal as seal_module
from holdfast.crypto.records import from_text
from holdfast.crypto.seal import Seal, is_sealed, key_id
from holdfast.errors import NotEncrypted, NotInstalled
from holdfast.stores import segments

ID, KEY = b"12345678", bytes(range(32))
SEAL = Seal(ID, KEY, b"ns")
TEXT = b"the same words again " * 40
OVERHEAD = 27

# What format 1 writes. If this changes, so does the format.
GOLDEN = "c10131323334353637383028b599a76c8d331ac372a902c75f9f6856e6bb09f971dd"


def test_the_bytes_of_format_1() -> None:
    assert SEAL.seal(b"content", b"place").hex() == GOLDEN
    assert SEAL.open(bytes.fromhex(GOLDEN), b"place") == b"content"


def test_the_algorithm_is_the_one_of_rfc_5297() -> None:
    """The example of its appendix A.1."""
    key = bytes.fromhex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    about = bytes.fromhex("101112131415161718191a1b1c1d1e1f2021222324252627")
    plain = bytes.fromhex("112233445566778899aabbccddee")
    sealed = AESSIV(key).encrypt(plain, [about])
    assert sealed.hex() == "85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c"


@pytest.mark.parametrize("content", [b"", b"\0", b"\1", b"short", TEXT, bytes(range(256)) * 4, bytes(5_000_000)])
def test_content_is_returned_as_it_was_sealed(content: bytes) -> None:
    sealed = SEAL.seal(content, b"p")
    assert SEAL.open(sealed, b"p") == content
    assert (is_sealed(sealed), key_id(sealed)) == (True, ID)
    assert len(sealed) <= len(content) + OVERHEAD


def test_equal_content_in_one_place_is_sealed_to_equal_bytes() -> None:
    for content in (b"a", TEXT):
        assert SEAL.seal(content, b"p") == Seal(ID, KEY, b"ns").seal(content, b"p")


def test_no_two_places_keys_or_namespaces_share_bytes() -> None:
    others = [
        (SEAL, b"place"),
        (SEAL, b"other"),
        (SEAL, b""),
        (Seal(b"87654321", KEY, b"ns"), b"place"),
        (Seal(ID, bytes(32), b"ns"), b"place"),
        (Seal(ID, KEY, b"other"), b"place"),
        (Seal(ID, KEY, b""), b"place"),
        (Seal(ID, KEY, b"nsp"), b"lace"),
        (Seal(ID, KEY, b"n"), b"splace"),
    ]
    written = [seal.seal(b"content", place) for seal, place in others]
    assert len({sealed[10:] for sealed in written}) == len(others)
    for seal, place in others:
        for sealed in written:
            if sealed != seal.seal(b"content", place):
                with pytest.raises(Damaged):
                    seal.open(sealed, place)


def test_compressed_bytes_that_were_the_content_are_not_decompressed() -> None:
    compressed = segments.compress(TEXT)
    assert compressed is not None
    content = len(TEXT).to_bytes(4) + compressed
    assert SEAL.open(SEAL.seal(content, b"p"), b"p") == content
    assert SEAL.seal(content, b"p") != SEAL.seal(TEXT, b"p")


@pytest.mark.parametrize("content", [b"", b"a", TEXT])
def test_every_changed_or_missing_byte_is_damage(content: bytes) -> None:
    sealed = SEAL.seal(content, b"p")
    for at in range(len(sealed)):
        for cut in (sealed[:at], sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]):
            with pytest.raises(NotEncrypted if cut and cut[0] != sealed[0] else Damaged):
                SEAL.open(cut, b"p")
    for longer in (sealed + b"\0", sealed + sealed):
        with pytest.raises(Damaged):
            SEAL.open(longer, b"p")


def test_a_build_without_the_algorithm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(key: bytes) -> None:
        raise UnsupportedAlgorithm("AES-SIV is not supported by this version of OpenSSL")

    monkeypatch.setattr(seal_module, "AESSIV", missing)
    with pytest.raises(NotInstalled, match=r"OpenSSL 3\.0"):
        Seal(ID, KEY, b"ns")


@pytest.mark.parametrize("shown", ["\x01sealed:é", "\x01sealed:a", "\x01sealed:" + "QUJD" * 20])
def test_a_text_that_is_not_what_was_sealed(shown: str) -> None:
    with pytest.raises(StoreError):
        SEAL.open(from_text(shown), b"agent")
