"""Names in messages, and texts that UTF-8 cannot express."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.text import escaped, from_utf8, quoted, to_utf8, unescaped


class Inner(msgspec.Struct, frozen=True):
    text: str


class Record(msgspec.Struct, frozen=True):
    text: str
    inner: Inner
    number: int = 7
    more: tuple[Inner, ...] = ()


def test_a_quoted_name_is_short_and_plain() -> None:
    assert quoted("a\n\u202eb") == r"'a\n\u202eb'"
    assert quoted("x" * 81) == f"'{'x' * 77}...'"


@pytest.mark.parametrize("text", ["", "plain", "Grüße", "half \ud800", "\udfff🙂"])
def test_escaped_records_can_be_encoded_and_are_restored(text: str) -> None:
    assert from_utf8(to_utf8(text)) == text
    record = Record(text, Inner(text), more=(Inner("x"), Inner(text)))
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(escaped(record)), type=Record)
    assert unescaped(decoded) == record
    plain = {"a": [text, {"b": (text, None, b"x")}]}
    assert unescaped(escaped(plain)) == plain


def test_a_text_that_is_not_escaped_is_refused() -> None:
    for text in ("\xff", "🙂"):
        with pytest.raises(UnicodeError):
            unescaped([text])
