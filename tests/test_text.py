"""Names in messages, and texts that UTF-8 cannot express."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.text import age, counted, escaped, from_utf8, money, quoted, sized, span, stamp, to_utf8, unescaped


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


def test_amounts() -> None:
    assert [counted(n, "entry") for n in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]
    assert counted(1234, "call") == "1,234 calls"
    assert [span(s) for s in (0, 0.0004, 0.25, 3.14, 42, 61, 7200, 90_000)] == [
        *("0ms", "<1ms", "250ms", "3.1s"),
        *("42s", "1m", "2h", "1d"),
    ]
    assert [sized(n) for n in (0, 999, 1000, 12_345, 5_000_000)] == ["0 B", "999 B", "1.0 kB", "12 kB", "5.0 MB"]
    assert [money(0.5, "USD"), money(2, "EUR"), money(None, "USD")] == ["$0.5000", "2.00 EUR", ""]
    assert stamp(datetime(2026, 11, 15, 10, 0, tzinfo=UTC)) == "2026-11-15 10:00:00 UTC"
    assert age(datetime.now(UTC) - timedelta(hours=3, minutes=1)) == "3h"
