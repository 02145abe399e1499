"""Values through a saver: what comes back is what was stored, or it was refused by name when it was to be stored."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
import math
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any

import numpy as np
import pydantic
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot
from langgraph.types import Command, Interrupt, Send

import holdfast
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, config, numbers

Another = Callable[[], Face]


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str] = dataclasses.field(default_factory=list)
    next: Point | None = None


class Form(pydantic.BaseModel):
    name: str
    fields_of: dict[str, list[int]] = {}
    when: dt.datetime | None = None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


OURS = (Point, Form, Colour)
NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)

PLAIN: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1],
    "floats": [0.0, -0.0, 1.5, 1e308, 5e-324, math.inf, -math.inf],
    "texts": ["", "a\0b", "\0", "ключ", "🔑", "e\u0301", "\u2028", "'; DROP TABLE x; --", "a\r\n", "$ref", "#"],
    "bytes": [b"", b"\0\xff", bytes(range(256))],
    "byte": b"alone",
    "array of bytes": bytearray(b"\0\1"),
    "empty": [[], {}, "", b"", [[]], {"": {}}],
    "keys": {"": 1, " ": 2, "a.b": 3, "a\0b": 4, "é": 5, "__pregel": 6, "$type": 7, "lc": 1, "type": "constructor"},
    "keys of other types": {1: "a", -1: "b", 1.5: "c", None: "e"},
    "like a stored one": {"__holdfast__": "ext", "$t": [5, "x"], "$ext": 5, "payload": b"x", "data": b"x"},
    "deep": [[[[[[[[[[{"a": [[[{"b": None}]]]}]]]]]]]]]],
    "many": list(range(3000)),
    "wide": {f"key-{number}": number for number in range(300)},
    "long": "x" * 100_000,
    "nested tuples": [(1, (2, [3]))],
}
SAFE: dict[str, Any] = {
    "moments": [NOW, NOW.replace(tzinfo=None), NOW.date(), NOW.time(), dt.timedelta(days=-1, microseconds=3)],
    "zone": NOW.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")),
    "id": uuid.UUID(int=7),
    "decimals": [Decimal("1.10"), Decimal("-0"), Decimal("1E+5")],
    "sets": [{1, 2}, frozenset({"a"}), set()],
    "queue": deque([1, [2]]),
    "path": pathlib.Path("a/b"),
    "addresses": [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8")],
    "pattern": re.compile("a+", re.IGNORECASE),
    "messages": [
        SystemMessage("be\0 kind", id="s"),
        HumanMessage([{"type": "text", "text": "hi"}, {"type": "image", "data": b"\xff"}], id="h", name="me"),
        AIMessage(
            "",
            id="a",
            tool_calls=[{"name": "f", "args": {"x": [1, None]}, "id": "c", "type": "tool_call"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            response_metadata={"model": "m", "nested": {"a": [1]}},
        ),
        ToolMessage("done", tool_call_id="c", id="t", artifact={"x": b"1"}, status="error"),
        RemoveMessage(id="a"),
        AIMessageChunk(content="part", id="p"),
    ],
    "document": Document("text", metadata={"a": 1}, id="d"),
    "send": [Send("node", {"messages": [HumanMessage("x", id="x")]}), Send("node", 1)],
    "command": Command(goto="node", update={"a": 1}),
    "interrupt": (Interrupt({"question": ["?"]}, id="i"),),
    "snapshot": _DeltaSnapshot([HumanMessage("x", id="x")]),
    "empty snapshot": _DeltaSnapshot(None),
}
ALL = {**PLAIN, **SAFE}


def through_langgraph(value: Any) -> Any:
    """What LangGraph's own serializer makes of a value: a tuple becomes a list, say."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(one.__module__, one.__name__) for one in OURS])
    return serde.loads_typed(serde.dumps_typed(value))


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types, at every depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        keys = [(type(key), key) for key in left] == [(type(key), key) for key in right]
        return keys and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return repr(left) == repr(right)
    return bool(left == right)


@pytest.mark.parametrize("name", ALL)
def test_a_value_comes_back_as_langgraph_would_give_it_back(saver: Face, another: Another, name: str) -> None:
    value = ALL[name]
    saver.put(1, {"a": value, "list": [value, {"nested": value}]})
    saver.write(1, [("a", value)])

    expected = through_langgraph(value)
    for reading in (saver, another()):
        found = reading.values()
        assert same(found["a"], expected)
        assert same(found["list"], through_langgraph([value, {"nested": value}]))
        assert same(reading.writes()[0][2], expected)


def test_what_is_not_a_number_comes_back(saver: Face) -> None:
    saver.put(1, {"a": math.nan, "b": [math.nan]})

    found = saver.values()
    assert math.isnan(found["a"])
    assert math.isnan(found["b"][0])


ARRAYS: dict[str, Any] = {
    "numbers": np.arange(12, dtype=np.int64).reshape(3, 4),
    "columns first": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "none": np.zeros((0, 3)),
    "one": np.array(1.5),
    "bools": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "steps": np.arange(10)[::2],
    "big end first": np.array([1, 2], dtype=">i4"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back(saver: Face, another: Another, name: str) -> None:
    array = ARRAYS[name]
    saver.put(1, {"a": array, "b": [array]})
    saver.write(1, [("a", array)])

    for reading in (saver, another()):
        found = reading.values()
        for one in (found["a"], found["b"][0], reading.writes()[0][2]):
            assert one.dtype == array.dtype
            assert one.shape == array.shape
            assert np.array_equal(one, array)


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", {"\ud800": 1}, 2**64, -(2**63) - 1, 2**200], ids=ascii)
def test_what_langgraph_cannot_hold_is_refused_or_as_with_langgraph(saver: Face, value: Any) -> None:
    saver.put(1, {"a": "before"})
    try:
        saver.put(2, {"a": [value]}, parent=1)
    except holdfast.Unsupported:
        assert saver.values() == {"a": "before"}
    else:
        assert same(saver.values(), {"a": through_langgraph([value])})


@pytest.mark.parametrize("kind", ["bytes", "text", "list", "dict"])
def test_a_large_value_comes_back(savers: Savers, kind: str) -> None:
    random = Random(3)
    mega = 1 << 20
    if kind == "bytes":
        value: Any = random.randbytes(50 * mega)
    elif kind == "text":
        value = random.randbytes(4 * mega).hex()
    elif kind == "list":
        value = [random.randbytes(mega) for _ in range(4)]
    else:
        value = {f"file-{number}": random.randbytes(mega // 4).hex() for number in range(8)}
    face = Face(savers.open(), is_async=False)
    face.put(1, {"a": value, "b": 1})

    assert Face(savers.open(), is_async=False).values() == {"a": value, "b": 1}


VALUES = {
    "dataclass": Point(1, ["a"], Point(2)),
    "pydantic": Form(name="x", fields_of={"a": [1, 2]}, when=NOW),
    "enum": Colour.BLUE,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_type_that_is_allowed_comes_back_as_itself(pair: tuple[Savers, bool], name: str) -> None:
    savers, is_async = pair
    value = VALUES[name]
    face = Face(savers.open(allow=OURS), is_async=is_async)
    face.put(1, {"a": value, "b": [value, {"c": value}]})
    face.write(1, [("a", value)])

    for reading in (face, *(Face(savers.open(allow=allow), is_async=is_async) for allow in (OURS, True))):
        assert same(reading.values(), {"a": value, "b": [value, {"c": value}]})
        assert same(reading.writes(), [("task", "a", value)])


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [{"deep": value}]], ids=["alone", "deep"])
def test_strict_refuses_a_type_that_is_not_allowed_by_name_and_nothing_is_stored(
    pair: tuple[Savers, bool], name: str, wrap: Callable[[Any], Any]
) -> None:
    savers, is_async = pair
    saver = Face(savers.open(strict=True), is_async=is_async)
    value = VALUES[name]
    saver.put(1, {"a": "before"})

    with pytest.raises(holdfast.Unsupported, match=type(value).__name__):
        saver.put(2, {"a": wrap(value)}, parent=1)
    with pytest.raises(holdfast.Unsupported, match=type(value).__name__):
        saver.write(1, [("a", wrap(value))])

    for reading in (saver, Face(savers.open(), is_async=is_async)):
        assert reading.values() == {"a": "before"}
        assert numbers(reading.list(config())) == [1]
        assert reading.writes() == []


def test_a_value_is_not_in_the_message_that_refuses_it(local: Savers) -> None:
    saver = Face(local.open(strict=True), is_async=False)
    with pytest.raises(holdfast.Unsupported) as refused:
        saver.put(1, {"a": Form(name="the secret")})

    assert "the secret" not in str(refused.value)


@pytest.mark.parametrize("name", VALUES)
def test_a_type_that_is_not_allowed_is_not_built_when_it_is_loaded(savers: Savers, name: str) -> None:
    value = VALUES[name]
    wide = Face(savers.open(allow=OURS), is_async=False)
    wide.put(1, {"a": 1})
    wide.put(2, {"a": [value]}, parent=1)
    narrow = Face(savers.open(strict=True), is_async=False)

    with pytest.raises(holdfast.Unsupported, match=type(value).__name__):
        narrow.get(2)

    assert narrow.values(1) == {"a": 1}


@pytest.mark.parametrize("name", VALUES)
def test_types_of_the_application_come_back_without_being_named(pair: tuple[Savers, bool], name: str) -> None:
    savers, is_async = pair
    face = Face(savers.open(), is_async=is_async)
    value = VALUES[name]
    face.put(1, {"a": value, "b": [value, {"c": value}]})
    face.write(1, [("a", value)])

    for reading in (face, Face(savers.open(), is_async=is_async)):
        assert same(reading.values(), {"a": value, "b": [value, {"c": value}]})
        assert same(reading.writes(), [("task", "a", value)])


def test_no_module_is_imported_because_stored_data_names_it(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    face = Face(local.open(), is_async=False)
    monkeypatch.setattr(Form, "__module__", "this_module_is_not_imported")
    face.put(1, {"a": Form(name="x")})
    monkeypatch.undo()

    found = Face(local.open(), is_async=False).values()["a"]

    assert found["name"] == "x"  # the stored data, as LangGraph gives it
    assert "this_module_is_not_imported" not in sys.modules


def test_langgraphs_own_strict_setting_is_respected(local: Savers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
    with pytest.raises(holdfast.Unsupported, match="Form"):
        Face(local.open(), is_async=False).put(1, {"a": Form(name="x")})


def test_a_class_of_a_function_comes_back_as_its_data(local: Savers) -> None:
    @dataclasses.dataclass
    class Inside:
        number: int

    face = Face(local.open(), is_async=False)
    face.put(1, {"a": Inside(1)})

    assert face.values() == {"a": through_langgraph(Inside(1))}


def test_the_graphs_own_types_may_be_told_by_langgraph(local: Savers) -> None:
    narrow = local.open(strict=True)
    wide = Face(narrow.with_allowlist([(Point.__module__, "Point")]), is_async=False)

    wide.put(1, {"a": Point(1)})

    assert wide.values() == {"a": Point(1)}
    with pytest.raises(holdfast.Unsupported, match="Form"):
        wide.put(2, {"a": Form(name="x")}, parent=1)
    with pytest.raises(holdfast.Unsupported, match="Point"):
        Face(narrow, is_async=False).put(2, {"a": Point(2)}, parent=1)


def test_all_types_are_taken_where_all_are_allowed(local: Savers) -> None:
    face = Face(local.open(allow=True), is_async=False)
    face.put(1, {"a": [Point(1), Form(name="x"), Colour.RED]})

    assert face.values() == {"a": [Point(1), Form(name="x"), Colour.RED]}


def test_an_error_is_kept_as_langgraph_keeps_it(saver: Face) -> None:
    """Under strict types too: what a node raised is stored by the loop, not by its author."""
    saver.put(1)
    saver.write(1, [(ERROR, ValueError("it broke"))])

    [(task, channel, found)] = saver.writes(1)
    assert (task, channel) == ("task", ERROR)
    assert found == through_langgraph(ValueError("it broke"))
