"""Seals: what is hashed into a nonce, and what does not open."""

from __future__ import annotations

import pytest

from holdfast import StoreError
from holdfast.crypto import seal as seal_module
from holdfast.crypto.records import hidden, value_place
from holdfast.crypto.seal import Seal
from holdfast.stores import segments

SEAL = Seal(b"12345678", bytes(32), "aes-256-gcm", b"ns")
NONCE = slice(10, 22)


def test_where_a_place_ends_makes_another_nonce() -> None:
    content = b"content"
    one, other = SEAL.seal(content, value_place(0, 10)), SEAL.seal(b"0" + content, value_place(0, 1))
    assert one[NONCE] != other[NONCE]


def test_whether_it_was_compressed_makes_another_nonce() -> None:
    text = b"the same words again " * 40
    deflated = segments.deflate(text)
    assert deflated is not None
    one, other = SEAL.seal(text, b"p"), SEAL.seal(len(text).to_bytes(4) + deflated, b"p")
    assert one[NONCE] != other[NONCE]


def test_equal_content_in_one_place_is_sealed_alike() -> None:
    assert SEAL.seal(b"a", b"p") == SEAL.seal(b"a", b"p")
    assert SEAL.seal(b"a", b"p") != SEAL.seal(b"a", b"q")


def test_each_algorithm_and_the_nonce_have_a_key_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    data_key = bytes(range(32))
    given: list[bytes] = []
    for name in ("AESGCM", "ChaCha20Poly1305"):
        monkeypatch.setattr(seal_module, name, given.append)
    seal = Seal(b"12345678", data_key, "aes-256-gcm", b"ns")
    assert len({*given, seal._nonce_key, data_key}) == 4
    assert [len(key) for key in given] == [32, 32]


@pytest.mark.parametrize("shown", ["\x01sealed:é", "\x01sealed:a", "\x01sealed:" + "QUJD" * 20])
def test_a_text_that_is_not_what_was_sealed(shown: str) -> None:
    with pytest.raises(StoreError):
        hidden(shown, SEAL, b"agent")
