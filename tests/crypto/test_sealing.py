"""Seals: what is hashed into a nonce, and what does not open."""

from __future__ import annotations

import pytest

from holdfast import StoreError
from holdfast.crypto.records import open_text, value_place
from holdfast.crypto.sealing import Seal
from holdfast.stores import segment

SEAL = Seal(b"12345678", bytes(32), "aes-256-gcm", b"ns")
NONCE = slice(10, 22)


def test_where_a_place_ends_makes_another_nonce() -> None:
    content = b"content"
    one, other = SEAL.seal(content, value_place(0, 10)), SEAL.seal(b"0" + content, value_place(0, 1))
    assert one[NONCE] != other[NONCE]


def test_whether_it_was_compressed_makes_another_nonce() -> None:
    text = b"the same words again " * 40
    deflated = segment.deflate(text)
    assert deflated is not None
    one, other = SEAL.seal(text, b"p"), SEAL.seal(len(text).to_bytes(4) + deflated, b"p")
    assert one[NONCE] != other[NONCE]


def test_equal_content_in_one_place_is_sealed_alike() -> None:
    assert SEAL.seal(b"a", b"p") == SEAL.seal(b"a", b"p")
    assert SEAL.seal(b"a", b"p") != SEAL.seal(b"a", b"q")


@pytest.mark.parametrize("shown", ["\x01sealed:é", "\x01sealed:a", "\x01sealed:" + "QUJD" * 20])
def test_a_text_that_is_not_what_was_sealed(shown: str) -> None:
    with pytest.raises(StoreError):
        open_text(shown, SEAL, b"agent")
