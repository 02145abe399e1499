from __future__ import annotations

import decimal
import enum
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import ormsgpack
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec import extensions, storable
from holdfast.codec.msgpack import (
    CODEC,
    FIRST_RESERVED,
    MAX_DEPTH,
    array_header,
    check,
    decode,
    decode_items,
    decode_parts,
    deeper_than,
    encode,
    encode_items,
    encode_sorted,
    extension,
    map_header,
)
from holdfast.errors import Damaged, Unsupported
from tests.cases import for_each
from tests.codec.strategies import identical, values
from tests.covers import covers
from tests.selection import tries


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    A = "a"


class Text(str):
    __slots__ = ()


class Float(float):
    """What a numpy float is: a subclass of float."""


@dataclass
class Point:
    x: int = 1


class Record(msgspec.Struct):
    x: int = 1


@attrs.define
class Part:
    x: int = 1


class Model(pydantic.BaseModel):
    x: int = 1


class Zone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str:
        return "somewhere"


class Pair(NamedTuple):
    left: int
    right: int


TYPED: list[Any] = [Colour.RED, Number.ONE, Word.A, Point(), Record(), Part(), Model()]
REFUSED: list[Any] = [
    *TYPED,
    Text("a"),
    Float(1.5),
    Pair(1, 2),
    OrderedDict(a=1),
    defaultdict(list),
    Counter("a"),
    1j,
    range(3),
    object(),
    object,
    len,
    iter([1]),
    (item for item in [1]),
    Exception("x"),
    datetime(2024, 1, 1, tzinfo=Zone()),
    datetime(2024, 1, 1, tzinfo=ZoneInfo.no_cache("Europe/Berlin")),
    time(1, tzinfo=Zone()),
]
# ormsgpack encodes these without asking, so only `check` refuses them.
NATIVE: list[Any] = [
    bytearray(b"a"),
    memoryview(b"a"),
    ormsgpack.Ext(70, b"a"),
    ormsgpack.Fragment(b"\x01"),
]

NAIVE = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)

PAIRS: list[tuple[Any, Any]] = [
    (1, True),
    (0, False),
    (1, 1.0),
    (True, 1.0),
    (0.0, -0.0),
    ([1], (1,)),
    ([], ()),
    ({1}, frozenset({1})),
    ({1}, [1]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: 0, 2: 0}, {2: 0, 1: 0}),
    ("a", b"a"),
    ("\ud800", b"\xed\xa0\x80"),
    (NAIVE, datetime(2024, 1, 1, tzinfo=UTC)),
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=timezone(timedelta(0), "UTC"))),
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))),
    (NAIVE, NAIVE.replace(fold=1)),
    (time(1), time(1, fold=1)),
    (time(1), time(1, tzinfo=UTC)),
    (NAIVE, date(2024, 1, 1)),
    (Decimal("1.0"), Decimal("1.00")),
    (Decimal(0), Decimal("-0")),
    (Decimal(1), 1),
    ({1: 0}, {True: 0}),
    ({1: 0}, {1.0: 0}),
    ({1: 0}, {"1": 0}),
    ({"a": 0}, {b"a": 0}),
    ({(1, 2): 0}, {frozenset({1, 2}): 0}),
    (None, False),
    ({}, []),
    ({}, None),
    (UUID(int=1), UUID(int=1).bytes),
    (2**70, float(2**70)),
]

# The stored format. A change here makes what is stored unreadable.
GOLDEN: list[tuple[Any, str]] = [
    ({1: "a"}, "d601 9201a161"),
    ((1, 2), "c70302 920102"),
    ({2, 1}, "c70303 920102"),
    (frozenset({2, 1}), "c70304 920102"),
    (2**64, "c70905 010000000000000000"),
    (-(2**63) - 1, "c70905 ff7fffffffffffffff"),
    ("\ud800", "c70306 eda080"),
    (datetime(2024, 2, 3, 4, 5, 6, 7, UTC).replace(tzinfo=None), "c70c07 07e8 02 03 04 05 06 00000007 00"),
    (datetime(2024, 2, 3, 4, 5, 6, 7, UTC, fold=1), "c70c07 07e8 02 03 04 05 06 00000007 03"),
    (
        datetime(2024, 2, 3, tzinfo=timezone(timedelta(hours=-1))),
        "c71407 07e8 02 03 00 00 00 00000000 04 ffffffff296c5c00",
    ),
    (
        datetime(2024, 2, 3, tzinfo=timezone(timedelta(hours=-1), "A")),
        "c71507 07e8 02 03 00 00 00 00000000 06 ffffffff296c5c00 41",
    ),
    (datetime(2024, 2, 3, tzinfo=ZoneInfo("UTC")), "c70f07 07e8 02 03 00 00 00 00000000 08 555443"),
    (date(2024, 2, 3), "d608 07e80203"),
    (time(1, 2, 3, 4), "d709 010203 00000004 00"),
    (timedelta(-1, 2, 3), "c70c0a ffffffff 00000002 00000003"),
    (UUID(int=1), "d80b 00000000000000000000000000000001"),
    (Decimal("-1.50E+3"), "d70c 2d312e3530452b33"),
]


@covers("E6", "G2", "G3", "G10")
@given(values())
def test_what_is_accepted_comes_back_identical(value: Any) -> None:
    check(value)
    data = encode(value)
    assert identical(decode(data), value)
    assert encode(decode(data)) == data


@covers("G2", "continuum/ChecksumUtils canonical")
@given(values(), values())
def test_bytes_are_equal_exactly_when_values_are_identical(left: Any, right: Any) -> None:
    assert (encode(left) == encode(right)) == identical(left, right)


@for_each(("left", "right"), PAIRS)
@for_each("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": v}, lambda v: (v,), lambda v: {1: v}])
def test_values_that_differ_only_in_type_differ_in_bytes(left: Any, right: Any, wrap: Callable[[Any], Any]) -> None:
    left, right = wrap(left), wrap(right)
    assert encode(left) != encode(right)
    assert identical(decode(encode(left)), left)
    assert identical(decode(encode(right)), right)


@given(values())
def test_sorted_bytes_do_not_depend_on_the_order_of_keys(value: Any) -> None:
    data = encode_sorted(value)
    assert encode_sorted(_reversed(value)) == data
    assert encode_sorted(decode(data)) == data
    assert identical(_ordered(decode(data)), _ordered(value)), "nothing but the order is lost"


def _reversed(value: Any) -> Any:
    if type(value) is dict:
        return {key: _reversed(item) for key, item in reversed(value.items())}
    return type(value)(map(_reversed, value)) if type(value) in (list, tuple) else value


def _ordered(value: Any) -> Any:
    if type(value) is dict:
        return {key: _ordered(item) for key, item in sorted(value.items(), key=lambda item: encode(item[0]))}
    return type(value)(map(_ordered, value)) if type(value) in (list, tuple) else value


@given(st.lists(values(), max_size=20), st.lists(values(), max_size=20))
@settings(max_examples=50)
def test_encoded_items_can_be_put_together(left: list[Any], right: list[Any]) -> None:
    both = encode_items(left + right)
    assert encode_items(left) + encode_items(right) == both
    assert b"".join(encode_items([item]) for item in left) == b"".join(map(encode, left)) == encode_items(left)
    assert identical(decode_items(both, len(left) + len(right)), left + right)
    assert decode(array_header(len(left)) + encode_items(left)) is not None


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65535, 65536])
def test_items_lose_exactly_their_header(count: int) -> None:
    items: list[Any] = [7] * count
    assert encode_items(items) == b"\x07" * count
    assert decode_items(b"\x07" * count, count) == items
    assert array_header(count) + encode_items(items) == encode(items)


def test_items_of_the_careful_path_and_of_another_sequence() -> None:
    assert encode_items([{1: 2}] * 20) == encode({1: 2}) * 20
    other: Any = (1, 2)
    assert encode_items(other) == b"\x01\x02"


@pytest.mark.parametrize("value", [{"b", "a", "c", 1, None, (1, 2)}, frozenset(map(str, range(50)))])
def test_sets_are_encoded_alike_in_every_order_and_process(value: Any) -> None:
    again = type(value)(sorted(value, key=repr))
    assert encode(again) == encode(value)
    script = f"from holdfast.codec.msgpack import encode; print(encode({value!r}).hex())"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == encode(value).hex()


@for_each(("value", "data"), GOLDEN)
def test_the_stored_format(value: Any, data: str) -> None:
    assert encode(value) == bytes.fromhex(data)
    assert identical(decode(bytes.fromhex(data)), value)


def test_the_codec_has_a_name() -> None:
    assert CODEC == "packed-1"


def test_decimals_do_not_depend_on_the_context() -> None:
    value = Decimal("1.23456789E+50")
    data = encode(value)
    with decimal.localcontext(decimal.Context(prec=2, capitals=0, traps=[])):
        assert encode(value) == data
        assert identical(decode(data), value)
        with pytest.raises(Damaged):
            decode(extension(extensions.DECIMAL, b"nonsense"))
        with pytest.raises(Damaged):
            decode(extension(extensions.DECIMAL, b" 1_0"))


# -- refusals ---------------------------------------------------------------------------------------------------------

WRAPS: list[tuple[str, Callable[[Any], Any]]] = [
    ("$", lambda v: v),
    ("$[1]", lambda v: [0, v]),
    ("$.messages[3].args.when", lambda v: {"messages": [0, 1, 2, {"args": {"when": v}}]}),
    ('$["a key"]', lambda v: {"a key": v}),
    ('$[""]["1"]', lambda v: {"": {"1": v}}),
    ("$[<int key>]", lambda v: {1: v}),
    ("$[<tuple key>][0].x", lambda v: {(1, 2): ({"x": v},)}),
    ("$[0][0][0][0][0]", lambda v: (((([v],),),),)),
]


@for_each("value", REFUSED + NATIVE)
@for_each(("path", "wrap"), WRAPS)
def test_check_refuses_every_other_type_by_path(value: Any, path: str, wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(Unsupported) as caught:
        check(wrap(value))
    assert caught.value.path == path
    assert str(caught.value).startswith(path + ": ")
    assert ("type=" in caught.value.problem) == any(value is typed for typed in TYPED)


@covers("G3")
@for_each("value", REFUSED)
@for_each(("path", "wrap"), WRAPS)
def test_encoding_refuses_by_path(value: Any, path: str, wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(Unsupported) as caught:
        encode(wrap(value))
    assert caught.value.path == path
    with pytest.raises(Unsupported) as caught:
        encode_items([0, wrap(value)])
    assert caught.value.path == "$[1]" + path[1:]


@pytest.mark.parametrize("key", [Number.ONE, Word.A, Text("a"), Colour.RED, Pair(1, 2)])
def test_keys_of_other_types_are_refused(key: Any) -> None:
    for refuse in (check, encode):
        with pytest.raises(Unsupported) as caught:
            refuse({"a": {key: 1}})
        assert caught.value.path.startswith("$.a[<")
        assert caught.value.path.endswith(" key>]")


def test_elements_of_sets_are_refused_by_type() -> None:
    with pytest.raises(Unsupported) as caught:
        check({"a": {Colour.RED}})
    assert caught.value.path == f"$.a[<{__name__}.Colour element>]"


def test_messages_show_no_values() -> None:
    shown = "s3cret"
    for value in ([shown, 1j], {1: shown, 2: 1j}, {(shown,): 1j}, {shown + "x", Text(shown)}, Text(shown)):
        with pytest.raises(Unsupported) as caught:
            check(value)
        assert shown not in str(caught.value)


def test_long_keys_are_cut() -> None:
    with pytest.raises(Unsupported) as caught:
        check({"k" * 10_000: 1j})
    assert len(caught.value.path) < 60


def _nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = wrap(value)
    return value


NESTS: list[Callable[[Any], Any]] = [
    lambda v: [v],
    lambda v: (v,),
    lambda v: {"a": v},
    lambda v: {1: v},
    lambda v: {"a": (v,)},
]


@pytest.mark.parametrize("wrap", NESTS[:4])
def test_depth_is_limited(wrap: Callable[[Any], Any]) -> None:
    deepest = _nested(MAX_DEPTH, wrap)
    check(deepest)
    assert identical(decode(encode(deepest)), deepest)
    assert encode_items([deepest]) == encode(deepest)
    check(deepest[0] if isinstance(deepest, (list, tuple)) else next(iter(deepest.values())), depth=1)
    with pytest.raises(Unsupported, match="nested more than 200 deep"):
        check(wrap(deepest))
    with pytest.raises(Unsupported, match="nested more than 200 deep"):
        check(deepest, depth=1)
    with pytest.raises(Unsupported, match="nested more than 200 deep"):
        encode(_nested(5_000, wrap))


@pytest.mark.parametrize("wrap", [*NESTS[1:4:2], lambda v: frozenset((v,))])
@pytest.mark.parametrize("depth", [201, 300])
def test_nothing_is_encoded_that_is_nested_too_deeply_to_be_decoded(depth: int, wrap: Callable[[Any], Any]) -> None:
    assert identical(decode(encode(_nested(200, wrap))), _nested(200, wrap))
    with pytest.raises(Unsupported, match="nested more than 200 deep"):
        encode(_nested(depth, wrap))


def test_cycles_are_refused_by_path() -> None:
    loop: list[Any] = [0]
    loop.append({"a": (loop,)})
    table: dict[Any, Any] = {}
    table["me"] = table
    twice: list[Any] = []
    twice += [twice, twice]
    for value, path in ((loop, "$[1].a[0]"), (table, "$.me"), (twice, "$[0]"), ({1: loop}, "$[<int key>][1].a[0]")):
        for refuse in (check, encode):
            with pytest.raises(Unsupported, match="contains itself") as caught:
                refuse(value)
            assert caught.value.path == path


def test_a_value_in_two_places_is_no_cycle() -> None:
    shared = [1]
    check([shared, shared, {"a": shared}])
    with pytest.raises(Unsupported) as caught:
        check([shared, shared, 1j])
    assert caught.value.path == "$[2]"


# -- damage -----------------------------------------------------------------------------------------------------------


def _value_or_damaged(data: bytes) -> None:
    for read in (lambda: decode(data), lambda: decode_items(data, 3), lambda: decode_parts(data, lambda c, p: (c, p))):
        with suppress(Damaged):
            read()


@given(st.binary(max_size=200))
@settings(max_examples=tries(300, 100))
def test_any_bytes_are_a_value_or_damaged(data: bytes) -> None:
    _value_or_damaged(data)


@given(st.sampled_from(range(-128, 128)), st.binary(max_size=40))
@settings(max_examples=tries(500, 150))
def test_any_extension_is_a_value_or_damaged(code: int, payload: bytes) -> None:
    _value_or_damaged(extension(code, payload))


@given(values(), st.data())
@settings(max_examples=tries(300, 100))
def test_mutated_bytes_are_a_value_or_damaged(value: Any, data: st.DataObject) -> None:
    packed = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                packed[at] = data.draw(st.integers(0, 255))
            case "cut" if len(packed) > 1:
                del packed[at:]
                packed = packed or bytearray(b"\xc1")
            case _:
                packed[at:at] = data.draw(st.binary(max_size=4))
    _value_or_damaged(bytes(packed))


@given(values(), st.binary(min_size=1, max_size=40))
def test_what_follows_or_lacks_is_damage(value: Any, more: bytes) -> None:
    packed = encode(value)
    with pytest.raises(Damaged):
        decode(packed + more)
    with pytest.raises(Damaged):
        decode(packed + packed)
    with pytest.raises(Damaged):
        decode(packed[:-1])
    with pytest.raises(Damaged):
        decode_items(packed + packed, 1)
    with pytest.raises(Damaged):
        decode_items(packed + packed, 3)
    with pytest.raises(Damaged):
        decode(extension(extensions.TUPLE, encode([value]) + more))


@for_each(
    "data",
    [
        b"",
        b"\xc1",
        b"\xd4\x0d\x00",
        b"\xd4\xff\x00",
        b"\xd6\xff\x00\x00\x00\x00",  # msgpack's own timestamp
        extension(FIRST_RESERVED, b""),
        extension(extensions.TUPLE, b"\x01"),
        extension(extensions.TUPLE, b"\x81\xa1a\x01"),
        extension(extensions.SET, b"\x92\x01\x01"),
        extension(extensions.SET, b"\x91\x90"),
        extension(extensions.DICT, b"\x91\x01"),
        extension(extensions.DICT, b"\x94\x01\x02\x01\x03"),
        extension(extensions.DICT, b"\x92\x90\x02"),
        extension(extensions.STR, b"\xff"),
        extension(extensions.DATE, b"\x00\x00\x00\x00"),
        extension(extensions.UUID_, b"\x00"),
        extension(extensions.DATETIME, b"\x00"),
        extension(extensions.TIME, bytes.fromhex("010203 00000004 0a")),
        extension(extensions.TIME, bytes.fromhex("010203 00000004 00 00")),
        *(
            extension(extensions.TIME, bytes.fromhex("010203 00000004 08") + key)
            for key in (b"", b"../etc/passwd", b"/etc/passwd", b"Europe", b"os.path", b"No/Where", b"zone.tab", b"\xff")
        ),
    ],
)
def test_bytes_never_written_are_damaged(data: bytes) -> None:
    for wrapped in (data, b"\x91" + data, extension(extensions.TUPLE, b"\x91" + data)):
        with pytest.raises(Damaged):
            decode(wrapped)


@pytest.mark.parametrize(
    "key", [b"", b"../etc/passwd", b"/etc/passwd", b"os.path", b"zone.tab", b"a//b", b"a/", b"a\n"]
)
def test_no_file_or_module_is_looked_up_by_a_stored_name(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_up(name: str) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr(extensions, "ZoneInfo", looked_up)
    with pytest.raises(Damaged):
        decode(extension(extensions.TIME, bytes.fromhex("010203 00000004 08") + key))


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
def test_huge_lengths_reserve_nothing(head: bytes) -> None:
    for data in ((head + b"\xff" * 4) * 10, b"\x91" * 9 + head + b"\x7f\xff\xff\xff\x02"):
        tracemalloc.start()
        try:
            with pytest.raises(Damaged):
                decode(data)
            with pytest.raises(Damaged):
                decode_items(data, 0xFFFFFFFE)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@for_each("lists", [0, 1, 1000])
@for_each("code", sorted(extensions.CONTAINERS))
def test_forged_nesting_is_damage_and_overflows_no_stack(code: int, lists: int) -> None:
    data = b"\xc0"
    for _ in range(2000 if lists < 1000 else 60):
        data = extension(code, b"\x91" * lists + data)
    raised: list[BaseException] = []

    def read() -> None:
        try:
            decode(data)
        except Damaged as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join()
    assert raised


@given(values())
def test_depth_is_told_without_decoding(value: Any) -> None:
    data = encode(value)
    measured = next(limit for limit in range(100) if not deeper_than(data, limit, extensions.CONTAINERS))
    assert measured == _height(value)


def _height(value: Any) -> int:
    """Containers nested in the stored form, where an extension holds a list."""
    kind = type(value)
    if kind is dict:
        plain = all(type(key) is str and not any("\ud800" <= c <= "\udfff" for c in key) for key in value)
        inside = max((_height(item) for item in (*value, *value.values())), default=0)
        return inside + (1 if plain else 2)
    if kind in (tuple, set, frozenset):
        return 2 + max(map(_height, value), default=0)
    return 1 + max(map(_height, value), default=0) if kind is list else 0


# -- parts ------------------------------------------------------------------------------------------------------------


def test_parts_are_resolved_wherever_they_stand() -> None:
    part = extension(FIRST_RESERVED + 1, b"here")
    data = (
        map_header(2)
        + encode("a")
        + part
        + encode("b")
        + array_header(2)
        + extension(extensions.TUPLE, array_header(1) + part)
        + extension(127, b"")
    )
    seen: list[tuple[int, bytes]] = []

    def resolve(code: int, payload: bytes) -> Any:
        seen.append((code, payload))
        return len(seen)

    assert decode_parts(data, resolve) == {"a": 1, "b": [(2,), 3]}
    assert seen == [(65, b"here"), (65, b"here"), (127, b"")]
    with pytest.raises(Damaged):
        decode(data)


@pytest.mark.parametrize("error", [LookupError("no such part"), KeyboardInterrupt(), ValueError("x"), Damaged("y")])
def test_what_resolve_raises_is_raised(error: BaseException) -> None:
    def resolve(code: int, payload: bytes) -> Any:
        raise error

    part = extension(FIRST_RESERVED, b"")
    for data in (part, b"\x91" + part):
        with pytest.raises(type(error)) as caught:
            decode_parts(data, resolve)
        assert caught.value is error


def test_resolve_gets_no_codes_but_its_own() -> None:
    def resolve(code: int, payload: bytes) -> Any:
        raise AssertionError

    for code in (-1, 0, 13, FIRST_RESERVED - 1):
        with pytest.raises(Damaged):
            decode_parts(extension(code, b"a"), resolve)
    assert decode_parts(encode({"a": (1, {2})}), resolve) == {"a": (1, {2})}


# -- framing ----------------------------------------------------------------------------------------------------------


@for_each("size", [0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 255, 256, 65535, 65536])
def test_framing_is_that_of_the_encoder(size: int) -> None:
    assert extension(5, b"a" * size) == ormsgpack.packb(ormsgpack.Ext(5, b"a" * size))
    assert array_header(size) + b"\x01" * size == ormsgpack.packb([1] * size)
    pairs = {str(number): 1 for number in range(size)}
    assert map_header(size) == ormsgpack.packb(pairs)[: len(map_header(size))]
    assert decode(map_header(size) + b"".join(encode(key) + b"\x01" for key in pairs)) == pairs


# -- other threads ----------------------------------------------------------------------------------------------------

MUTATIONS: list[Callable[[Any, Any], object]] = [
    lambda table, _: table.update(new=1),
    lambda table, _: table.popitem(),
    lambda table, _: table.clear(),
    lambda table, _: table.update({1: (2,)}),
    lambda _, items: items.append(1),
    lambda _, items: items.pop(),
    lambda _, items: items.clear(),
]


@for_each("at", [1, 3, 5, 6, 8])
@for_each("mutate", MUTATIONS)
def test_a_container_that_another_thread_changes_is_encoded_as_it_was_at_one_moment(
    mutate: Callable[[Any, Any], object], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(value: Decimal) -> Any:
        calls.append(value)
        if len(calls) == at:
            mutate(table, items)
        return pack(value)

    table: dict[Any, Any] = {f"key {i}": Decimal(i) for i in range(5)}
    items: list[Any] = [Decimal(i) for i in range(5)]
    calls: list[Decimal] = []
    before, pack = ({**table}, [*items]), extensions.PACK[Decimal]
    monkeypatch.setitem(extensions.PACK, Decimal, packed)
    found_table, found_items = decode(encode([table, items]))
    assert found_table in (before[0], table)
    assert found_items in (before[1], items)


def test_a_dict_that_another_thread_changes_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(zone: Any) -> None:
        table["new"] = 1

    table: dict[str, Any] = {"at": datetime(2024, 1, 1, tzinfo=UTC), "more": [datetime(2024, 1, 1, tzinfo=UTC)]}
    monkeypatch.setattr(storable, "zone_problem", known)
    check(table)
    assert table["new"] == 1


# -- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [date(2024, 1, 1), [(date(2024, 1, 1),)], {1: {date(2024, 1, 1)}}])
def test_an_interruption_while_encoding_is_not_lost(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(extensions.PACK, date, interrupted)
        with pytest.raises(KeyboardInterrupt):
            encode(value)
    assert identical(decode(encode(value)), value)


def test_an_interruption_while_decoding_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    data = encode([(date(2024, 1, 1),)])
    monkeypatch.setitem(extensions.UNPACK, extensions.DATE, interrupted)
    with pytest.raises(KeyboardInterrupt):
        decode(data)
