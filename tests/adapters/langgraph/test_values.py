"""What a serde makes of a value, as plain data and back: exact, or refused by name."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import pathlib
import re
import uuid
import zoneinfo
from collections import deque
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Overwrite, Send

from holdfast import Damaged, Unsupported
from holdfast.adapters.langgraph.allowed_types import serde_for
from holdfast.adapters.langgraph.serde import Reader, Values
from holdfast.codec.msgpack import decode, encode
from tests.adapters.langgraph.sorts import Color, Holder, Inner, Level, Outer, Person, Plain, Point
from tests.cases import for_each
from tests.interruption import Interrupt as Strike

SERDE = serde_for()


def to_plain(serde: Any, value: Any, path: str = "$") -> Any:
    """As a strict saver stores a value."""
    return Values(serde, strict=True, is_default=True).to_plain(value, path)


def from_plain(serde: Any, plain: Any, path: str = "$") -> Any:
    return Values(serde, strict=True, is_default=True).from_plain(plain, path)


class Flip:
    """A cipher that is none: what it gives is not what it was given, which is all that matters here."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "flip", bytes(255 - byte for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(255 - byte for byte in ciphertext)


def there_and_back(serde: Any, value: Any) -> Any:
    """Through plain data and through the bytes in which Holdfast stores it."""
    return from_plain(serde, decode(encode(to_plain(serde, value))))


MESSAGES: list[Any] = [
    HumanMessage("hello", id="1", name="ann"),
    AIMessage(
        "let me see",
        id="2",
        tool_calls=[{"name": "look", "args": {"at": ["a", 1, None]}, "id": "c1", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m", "$ext": 1},
    ),
    AIMessage([{"type": "text", "text": "parts"}, "and text"], id="3"),
    ToolMessage("found", tool_call_id="c1", id="4", artifact={"raw": [1, 2]}, status="error"),
    SystemMessage("be brief", id="5"),
    ChatMessage(content="hi", role="guest", id="6"),
    FunctionMessage(content="done", name="f", id="7"),
    RemoveMessage(id="8"),
    AIMessageChunk(content="chunk", id="9"),
]

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**63 - 1,
        -(2**63),
        2**64 - 1,
        0.0,
        -0.0,
        1.0,
        1e308,
        math.inf,
        "",
        "text",
        "\0",
        "é😀",
    ),
    *(b"", b"bytes \xa4$ext", bytearray(b"array"), [], {}, [None], [[]], [b"x"], {"a": None}, "$ext", ["$ext"]),
    *("why?", "\ufffd", {"$": 1}, "$" * 100, {"key": {"$ext": 1, "payload": 2}}),
    {1: "a", None: "b", 1.5: "c", b"d": "e", False: "f", (1, (2, b"x")): "g"},
    {"$ext": 5, "payload": ["langchain_core.messages.human", "HumanMessage", {}, "x"]},
    [{"$ext": "typed", "payload": ["bytes", b""]}, {"$ext": "dict"}, {"$ext": {"$ext": HumanMessage("x", id="1")}}],
    {"prices": "$" * 100, "last": {"$ext": 1, "payload": 2}},
    [Interrupt(number, id="i") for number in range(150)],
    {"$ext": Send("node", {"$ext": uuid.UUID(int=1)}), 1: 2},
    *(datetime(2026, 11, 15, 12, 30, 1, 5, UTC), datetime(2026, 1, 1), date(2026, 1, 1), time(1, 2, 3)),  # noqa: DTZ001 - one without a zone too
    *(timedelta(days=-1, microseconds=1), uuid.UUID(int=7), Decimal("1.10"), zoneinfo.ZoneInfo("Europe/Berlin")),
    *(
        ipaddress.ip_address("::1"),
        ipaddress.ip_network("10.0.0.0/8"),
        pathlib.Path("/a/b"),
        re.compile("a?", re.IGNORECASE),
    ),
    *({1, 2}, frozenset({"a"}), deque([1, 2]), {"nested": [{"s": {uuid.UUID(int=1), uuid.UUID(int=2)}}]}),
    *MESSAGES,
    MESSAGES,
    Document(page_content="text", metadata={"source": "s"}, id="d"),
    Send("node", {"messages": MESSAGES}),
    Interrupt({"question": "really?"}, id="i"),
    Command(update={"messages": MESSAGES[:1]}, resume={"a": 1}, goto=[Send("n", Interrupt("x", id="1"))]),
    Overwrite([1, 2]),
    _DeltaSnapshot(MESSAGES),
    _DeltaSnapshot(None),
    Item(value={"a": 1}, key="k", namespace=("n",), created_at=datetime.now(UTC), updated_at=datetime.now(UTC)),
]


@for_each("value", VALUES)
def test_gives_back_what_the_serde_gives_back(value: Any) -> None:
    expected = SERDE.loads_typed(SERDE.dumps_typed(value))
    loaded = there_and_back(SERDE, value)

    assert repr(loaded) == repr(expected)
    assert type(loaded) is type(expected)
    assert loaded == expected


@for_each("value", VALUES)
def test_writes_the_bytes_that_the_serde_wrote(value: Any) -> None:
    class Listening(JsonPlusSerializer):
        got: tuple[str, bytes] = ("", b"")

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            type(self).got = data
            return None

    from_plain(Listening(), to_plain(SERDE, value))

    assert Listening.got == SERDE.dumps_typed(value)


def test_values_that_are_plain_stay_as_they_are() -> None:
    value = {"a": [1, 1.0, True, None, "x", b"y"], "b": {"c": {}}}

    assert to_plain(SERDE, value) == value


def test_an_object_is_a_dict_that_names_it() -> None:
    assert to_plain(SERDE, Send("node", 1)) == {"$ext": 1, "payload": ["langgraph.types", "Send", ["node", 1]]}


def test_nan_stays_nan() -> None:
    (loaded,) = there_and_back(SERDE, [math.nan])

    assert math.isnan(loaded)


@for_each(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.arange(10)[::2],
        np.zeros((0, 3)),
        np.array(1.5),
        np.array(["a", "bb"]),
        np.array([1 + 2j]),
        np.array([1], dtype=np.float16),
    ],
)
def test_arrays_keep_their_dtype_shape_and_order(array: np.ndarray[Any, Any]) -> None:
    loaded = there_and_back(SERDE, {"a": [array]})["a"][0]

    assert loaded.dtype == array.dtype
    assert loaded.shape == array.shape
    assert np.array_equal(loaded, array)


def test_large_texts_come_back() -> None:
    value = {"text": "0123456789" * 5_000_000}

    assert from_plain(SERDE, to_plain(SERDE, value)) == value


def test_allowed_classes_of_the_user_come_back() -> None:
    serde = serde_for([Outer, Person, Color, Level, Point, Inner])
    value = {
        "outer": Outer(Inner("a"), [Inner("b")]),
        "person": Person.model_validate({"name": "ann", "address": {"street": "s"}, "born": "2000-01-01T00:00:00Z"}),
        "rest": [Color.RED, Level.LOW, Point(1, 2)],
    }

    assert there_and_back(serde, value) == value


def test_exceptions_come_back_as_their_text() -> None:
    assert there_and_back(SERDE, ValueError("no?")) == "ValueError('no?')"
    assert there_and_back(SERDE, {"error": KeyError("\ud800")}) == {"error": r"KeyError('\ud800')"}


def test_what_is_loaded_shares_nothing_with_what_is_stored() -> None:
    plain = to_plain(SERDE, {"a": [1]})

    from_plain(SERDE, plain)["a"].append(2)

    assert plain == {"a": [1]}


# -- what the serde refuses, or would change --------------------------------------------------------------------------


@for_each(
    ("value", "path", "problem"),
    [
        ({"a": [1, "x\ud800y?"]}, "$.a[1]", "not valid Unicode"),
        ([HumanMessage("ok?"), HumanMessage("\udc80")], "$[1].content", "not valid Unicode"),
        (AIMessage("x", additional_kwargs={"deep": ["\udfff"]}), "$.additional_kwargs.deep[0]", "not valid Unicode"),
        (Send("n", {"text": "\ud83d\ude00"}), "$.arg.text", "not valid Unicode"),
        ({"\ud800": 1}, "$", "the serde rejects type dict: string contains surrogates"),
        ({"big": [2**64]}, "$.big[0]", "the serde rejects type int: Integer exceeds 64-bit range"),
        ({"a": {"b": Plain()}}, "$.a.b", "tests.adapters.langgraph.sorts.Plain"),
        (Send("n", {"x": [object()]}), "$.arg.x[0]", "type object"),
        ([np.float64(1.5)], "$[0]", "numpy.float64"),
        ([1, {frozenset({1}): 2}], "$[1]", "type dict"),
        ([np.array([1], dtype="datetime64[s]")], "$[0]", "numpy.ndarray"),
        ({"a": np.array([object()])}, "$.a", "would be loaded as"),
        ({"pairs": {(1, 2)}}, "$.pairs", "type set would be loaded as list"),
        (Send("n", {"pairs": [{1}, {(1, 2)}]}), "$.arg.pairs[1]", "type set would be loaded as list"),
    ],
)
def test_refuses_with_the_path(value: Any, path: str, problem: str) -> None:
    with pytest.raises(Unsupported) as caught:
        to_plain(SERDE, value)

    assert caught.value.path == path
    assert problem in caught.value.problem


def test_keeps_the_cause_of_a_refusal() -> None:
    with pytest.raises(Unsupported) as caught:
        to_plain(SERDE, [Plain()])

    assert isinstance(caught.value.__cause__, ormsgpack.MsgpackEncodeError)


def test_a_path_begins_where_the_caller_says() -> None:
    with pytest.raises(Unsupported, match=r"^\$\.values\.x\[0\]: "):
        to_plain(SERDE, [Plain()], "$.values.x")


def test_refuses_what_holds_itself() -> None:
    value: list[Any] = []
    value.append([value, value])

    with pytest.raises(Unsupported):
        to_plain(SERDE, value)


def test_refuses_objects_that_are_nested_too_deeply() -> None:
    value: Any = 1
    for _ in range(120):
        value = Overwrite(value)

    with pytest.raises(Unsupported, match="nested too deeply"):
        to_plain(SERDE, value)


# -- other serdes -----------------------------------------------------------------------------------------------------


def test_what_an_encrypting_serde_gives_is_kept_whole() -> None:
    serde = EncryptedSerializer(Flip(), serde_for())
    value = {"a": MESSAGES}

    plain = to_plain(serde, value)

    assert plain["$ext"] == "typed"
    assert plain["payload"][0] == "msgpack+flip"
    assert from_plain(serde, plain) == value
    assert [from_plain(serde, to_plain(serde, other)) for other in (None, b"x", bytearray(b"y"))] == [None, b"x", b"y"]


class Backwards(JsonPlusSerializer):
    """A serde with ways of its own, which calls what it writes msgpack."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        typ, data = super().dumps_typed(obj)
        return typ, data[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0], data[1][::-1]))


class Loose(JsonPlusSerializer):
    """Writes msgpack that is longer than it has to be."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "msgpack", b"\xdd\x00\x00\x00\x01\xd2\x00\x00\x00\x05"


class Odd:
    """A serde of somebody else."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "odd", repr(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[1] == b"'secret'":
            raise ValueError("secret")
        return data


@pytest.mark.parametrize("value", [None, b"abc", 1, "text", [None], MESSAGES, {"$ext": 1}])
def test_a_serde_of_other_ways_gets_its_own_bytes_back(value: Any) -> None:
    serde = Backwards()

    assert there_and_back(serde, value) == value


def test_bytes_that_would_not_be_written_again_are_kept_whole() -> None:
    plain = to_plain(Loose(), [5])

    assert plain == {"$ext": "typed", "payload": ["msgpack", b"\xdd\x00\x00\x00\x01\xd2\x00\x00\x00\x05"]}
    assert from_plain(Loose(), plain) == [5]


def test_the_type_of_a_foreign_serde_is_kept() -> None:
    assert there_and_back(Odd(), [1]) == ("odd", b"[1]")


@pytest.mark.parametrize(
    ("serde", "expected"),
    [
        (JsonPlusSerializer(), True),
        (type("Same", (JsonPlusSerializer,), {})(), True),
        (JsonPlusSerializer(pickle_fallback=True), False),
        (Backwards(), False),
        (Odd(), False),
        (EncryptedSerializer(Flip()), False),
    ],
)
def test_says_whether_a_list_is_its_items(serde: Any, expected: bool) -> None:
    assert Values(serde).is_plain is expected


def test_a_list_is_its_items() -> None:
    values = [value for value in VALUES if not isinstance(value, bytearray)]

    assert to_plain(SERDE, values) == [to_plain(SERDE, value) for value in values]


def test_a_bytearray_of_a_list_that_was_saved_item_by_item_is_read_as_in_a_list() -> None:
    assert from_plain(SERDE, [to_plain(SERDE, bytearray(b"x"))]) == SERDE.loads_typed(
        SERDE.dumps_typed([bytearray(b"x")])
    )


# -- what is not as it was written ------------------------------------------------------------------------------------


def _deep(levels: int, wrap: Callable[[Any], Any]) -> Any:
    plain: Any = 1
    for _ in range(levels):
        plain = wrap(plain)
    return plain


@for_each(
    "plain",
    [
        {"$ext": 5},
        {"$ext": 5, "payload": 1, "more": 2},
        {"$ext": 300, "payload": 1},
        {"$ext": True, "payload": 1},
        {"$ext": None, "payload": 1},
        {"$ext": [], "payload": 1},
        {"$ext": "dict", "payload": 1},
        {"$ext": "dict", "payload": [[1]]},
        {"$ext": "dict", "payload": [[[1], {}, 2]]},
        {"$ext": "dict", "payload": [[{}, 2]]},
        {"$ext": "typed", "payload": 1},
        {"$ext": "typed", "payload": ["msgpack"]},
        {"$ext": "typed", "payload": [b"msgpack", b""]},
        {"$ext": "typed", "payload": ["msgpack", b""]},
        {"$ext": "typed", "payload": ["msgpack", b"\x91" * 1000 + b"\xc0"]},
        {"$ext": "typed", "payload": ["json", b"{"]},
        [{"$ext": "typed", "payload": ["msgpack", b"\x01"]}],
        [{"$ext": "other", "payload": 1}],
        [{1, 2}],
        [(1, 2)],
        [datetime.now(UTC)],
        [2**70],
        ["\ud800"],
        [Plain()],
        [dataclasses.replace(Inner("x"))],
        _deep(1000, lambda plain: [plain]),
        _deep(1000, lambda plain: {"a": plain}),
        _deep(1000, lambda plain: {"$ext": 7, "payload": plain}),
        _deep(1000, lambda plain: {"$ext": "dict", "payload": [["a", plain]]}),
        _deep(1000, lambda plain: [{"$ext": 0, "payload": ["builtins", "set", [plain]]}]),
        _deep(240, lambda plain: [plain, {"$ext": 7, "payload": 1}]),
    ],
)
def test_forged_data_is_damaged(plain: Any) -> None:
    with pytest.raises(Damaged):
        from_plain(SERDE, plain)


def test_forged_bytes_do_not_overflow_the_stack() -> None:
    data = b"\xc0"
    for _ in range(20_000):
        data = (
            b"\xc9" + len(data).to_bytes(4, "big") + b"\x07" + data
            if len(data) > 255
            else ormsgpack.packb(ormsgpack.Ext(7, data))
        )

    with pytest.raises(Damaged, match="nested too deeply"):
        from_plain(SERDE, {"$ext": "typed", "payload": ["msgpack", data]})


def test_a_form_that_the_serde_does_not_know_is_named_as_that() -> None:
    with pytest.raises(Unsupported, match="another serde"):
        from_plain(SERDE, {"$ext": "typed", "payload": ["msgpack+aes", b"x"]})


def test_a_value_within_a_user_class_is_refused_too() -> None:
    serde = serde_for([Holder])

    with pytest.raises(Unsupported) as caught:
        to_plain(serde, [Holder({"pairs": {(1, 2)}})])

    assert caught.value.path == "$[0].held.pairs"


def test_an_interrupt_at_any_line_of_a_reading_is_raised() -> None:
    """What is raised at the start of the function that ormsgpack calls for an object is dropped there."""
    typ, data = SERDE.dumps_typed([HumanMessage("a"), {"b": {1, 2}}])
    assert typ == "msgpack"
    tree = Reader().read(data)
    for at in count(1):
        strike, result = Strike(at), None
        with strike.strike():
            result = Reader().read(data)
        assert strike.ended_block == strike.came, f"the interrupt at {strike.place} was lost"
        if not strike.came:
            assert result == tree
            assert at > 30
            return
