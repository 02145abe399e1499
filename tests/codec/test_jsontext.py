"""Packed bytes as text: readable, and back to the same bytes, whatever they were."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.codec import msgpack
from holdfast.codec.jsontext import REFERENCES, from_text, from_texts, to_text
from holdfast.delta.parts import Ext
from holdfast.errors import Damaged
from tests.cases import for_each
from tests.codec.strategies import values
from tests.covers import covers
from tests.selection import tries

READABLE: list[tuple[Any, Any]] = [
    (
        {"role": "user", "content": "Grüße, 世界 \u2028 \0 \x7f"},
        {"role": "user", "content": "Grüße, 世界 \u2028 \0 \x7f"},
    ),
    (
        [1, -1, 2**64 - 1, -(2**63), 0.1, 1e22, -0.0, True, None],
        [1, -1, 2**64 - 1, -(2**63), 0.1, 1e22, -0.0, True, None],
    ),
    (2**64, {"$int": "18446744073709551616"}),
    (math.inf, {"$float": "inf"}),
    (b"\xff\0", {"$bytes": "/wA="}),
    ((1, (2,)), {"$tuple": [1, {"$tuple": [2]}]}),
    ({3, 1}, {"$set": [1, 3]}),
    (frozenset({"a"}), {"$frozenset": ["a"]}),
    ({1: "one", (2,): b""}, {"$dict": [[1, "one"], [{"$tuple": [2]}, {"$bytes": ""}]]}),
    (datetime(2026, 5, 1, 12, 30, 0, 5, UTC), {"$datetime": "2026-05-01T12:30:00.000005Z"}),
    (datetime(2026, 5, 1, 12, 30, tzinfo=UTC).replace(tzinfo=None), {"$datetime": "2026-05-01T12:30:00.000000"}),
    (
        datetime(2026, 5, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
        {"$datetime": "2026-05-01T00:00:00.000000-05:30"},
    ),
    (
        datetime(2026, 5, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        {"$datetime": "2026-05-01T00:00:00.000000[Europe/Berlin]"},
    ),
    (date(1, 2, 3), {"$date": "0001-02-03"}),
    (time(1, 2, 3, 4), {"$time": "01:02:03.000004"}),
    (timedelta(days=-1, seconds=2, microseconds=3), {"$timedelta": [-1, 2, 3]}),
    (UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
    (Decimal("1.20"), {"$decimal": "1.20"}),
    ({"$bytes": "mine"}, {"$object": {"$bytes": "mine"}}),
    ({"$object": {"$x": 1}}, {"$object": {"$object": {"$object": {"$x": 1}}}}),
    ({"$a": 1, "$b": 2}, {"$a": 1, "$b": 2}),
    ("$bytes", "$bytes"),
]


@for_each(("value", "shown"), READABLE)
def test_common_values_are_readable_and_come_back(value: Any, shown: Any) -> None:
    data = msgpack.encode(value)
    text = to_text(data)
    assert json.loads(text) == shown
    assert from_text(text) == data


@pytest.mark.parametrize(
    "value",
    [
        "a \ud800 half",
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2026, 5, 1, tzinfo=timezone(timedelta(hours=1), "MEZ")),
        datetime(2026, 5, 1, tzinfo=timezone(timedelta(seconds=1))),
        10**5000,
    ],
    ids=lambda value: str(type(value)),
)
def test_what_has_no_exact_text_is_kept_as_bytes(value: Any) -> None:
    data = msgpack.encode(value)
    text = to_text(data)
    assert list(json.loads(text)) == ["$ext"]
    assert from_text(text) == data


@covers("C11", "G8")
@given(values())
@settings(max_examples=tries(400, 130), deadline=None)
def test_every_value_comes_back(value: Any) -> None:
    data = msgpack.encode(value)
    text = to_text(data)
    assert b"\n" not in text
    # One NaN can be written as such; the many others are as they are, bit by bit.
    assert "$raw" not in text.decode() or "$raw" in repr(value) or "nan" in repr(value)
    assert from_text(text) == data
    assert from_texts([text, b"1", text]) == [data, b"\x01", data]


@given(st.binary())
@example(b"")
@example(b'"x"')
@example(b"\xcc\x01")  # a small int in a long form
@example(b"\xcb\x7f\xf8\0\0\0\0\0\1")  # a nan with a payload
@example(b"\x82\xa1a\x01\xa1a\x02")  # a key that stands twice
@example(b"\xc4\x02\x91\x01")  # bytes that are packed
@example(b"\xc7\x00\x02")  # a tuple whose payload is missing
@example(b"\xd4\x42\x93")  # a reference whose payload is cut off
@settings(max_examples=tries(600, 150), deadline=None)
def test_all_bytes_come_back_whatever_they_are(data: bytes) -> None:
    text = to_text(data)
    json.loads(text)
    assert b"\n" not in text
    assert from_text(text) == data
    assert from_texts([text]) == [data]


def test_a_key_and_its_value_that_lie_one_behind_the_other() -> None:
    data = msgpack.encode_items(["key", {"value": (1,)}])
    assert json.loads(to_text(data)) == {"$items": ["key", {"value": {"$tuple": [1]}}]}
    assert json.loads(to_text(b"")) == {"$items": []}


def test_packed_bytes_inside_bytes_are_shown() -> None:
    body = (
        msgpack.map_header(1) + msgpack.encode("messages") + msgpack.extension(Ext.SERIES, msgpack.encode([0, 0, 1, 9]))
    )
    data = msgpack.encode([1, body])
    assert json.loads(to_text(data)) == [1, {"$packed": {"messages": {"$series": [0, 0, 1, 9]}}}]
    assert from_text(to_text(data)) == data


def test_the_state_layers_codes_have_a_word_each() -> None:
    assert set(REFERENCES) == {code.value for code in Ext}


@for_each(
    "text",
    [
        b"",
        b"{",
        b"[1",
        b'{"$bytes":"?"}',
        b'{"$new":1}',
        b'{"$datetime":"today"}',
        b'{"$ext":[1]}',
        b'{"$items":1}',
        b"\xff",
    ],
)
def test_what_was_never_written_is_damage(text: bytes) -> None:
    with pytest.raises(Damaged):
        from_text(text)
    with pytest.raises(Damaged):
        from_texts([text])


def test_two_texts_in_the_place_of_one_are_damage() -> None:
    with pytest.raises(Damaged):
        from_texts([b"1,2"])
