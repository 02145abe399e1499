"""Growth: a save writes what is new, however large the list or the text is that it is added to."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from operator import xor
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import holdfast
from holdfast.codec import msgpack
from holdfast.delta.base import HOLDERS, Index
from holdfast.delta.parts import Pieces, Unit, key_of
from holdfast.stores.contract import Span
from tests.cases import for_each
from tests.codec.strategies import identical
from tests.delta.engine import Engine
from tests.selection import tries

STEP_MAX = 10_000  # bytes that a save may write besides the change: its record, tables, the pieces that are cut
FACTOR = 4  # bytes that it may write per byte of the change

Change = tuple[Any, int]  # a state, and the bytes by which it differs from the one before


def words(source: random.Random, count: int) -> str:
    return " ".join(f"wörd{source.randrange(5_000)}" for _ in range(count))


def short(source: random.Random) -> Any:
    return source.choice([source.randrange(10**9), source.random(), f"id-{source.randrange(10**6)}", None, (1, 2)])


def append(source: random.Random, size: int) -> Iterator[Change]:
    items = [short(source) for _ in range(size)]
    for _ in range(20):
        new = [short(source) for _ in range(source.randrange(1, 40))]
        items += new
        yield items, len(msgpack.encode(new))


def prepend(source: random.Random, size: int) -> Iterator[Change]:
    items = [short(source) for _ in range(size)]
    for _ in range(20):
        new = [short(source) for _ in range(source.randrange(1, 40))]
        items[:0] = new
        yield items, len(msgpack.encode(new))


def edit(source: random.Random, size: int) -> Iterator[Change]:
    items = [short(source) for _ in range(size)]
    for _ in range(20):
        count = source.randrange(1, 5)
        for _ in range(count):
            at = source.randrange(len(items))
            items[at : at + source.randrange(3)] = [
                source.random(),
                *(short(source) for _ in range(source.randrange(2))),
            ]
        yield items, 500 * count


def sort(source: random.Random, size: int) -> Iterator[Change]:
    items = [source.randrange(10**6) for _ in range(size)]
    for _ in range(10):
        items = sorted(items, key=lambda _: source.random())
        yield items, len(msgpack.encode(items))


def already_sorted(source: random.Random, size: int) -> Iterator[Change]:
    items = sorted(source.randrange(10**6) for _ in range(size))
    for _ in range(15):
        items.append(source.randrange(10**6))
        items.sort()
        yield items, 10


def window(source: random.Random, size: int) -> Iterator[Change]:
    items = [short(source) for _ in range(size)]
    for _ in range(30):
        new = [short(source) for _ in range(source.randrange(1, 200))]
        items = [*items, *new][-size:]
        yield items, len(msgpack.encode(new))


def text(source: random.Random, size: int) -> Iterator[Change]:
    grown = words(source, size)
    for _ in range(20):
        new = words(source, source.randrange(1, 200))
        grown += new
        yield grown, len(new.encode())


def data(source: random.Random, size: int) -> Iterator[Change]:
    grown = source.randbytes(size)
    for _ in range(20):
        new = source.randbytes(source.randrange(1, 3_000))
        grown += new
        yield grown, len(new)


def edited_text(source: random.Random, size: int) -> Iterator[Change]:
    grown = words(source, size)
    for _ in range(20):
        for _ in range(3):
            at = source.randrange(len(grown))
            grown = grown[:at] + words(source, 3) + grown[at + source.randrange(40) :]
        yield grown, 3_000


def text_window(source: random.Random, size: int) -> Iterator[Change]:
    grown = words(source, size)
    length = len(grown)
    for _ in range(30):
        new = words(source, source.randrange(1, 500))
        grown = (grown + new)[-length:]
        yield grown, len(new.encode())


def counters(source: random.Random, size: int) -> Iterator[Change]:
    counts = [0] * size
    for _ in range(20):
        for _ in range(3):
            counts[source.randrange(size)] += source.randrange(1, 1_000)
        yield counts, 3_000


def named_counters(source: random.Random, size: int) -> Iterator[Change]:
    counts = {f"key {n}": 0 for n in range(size)}
    for _ in range(20):
        counts[f"key {source.randrange(size)}"] += 1
        yield counts, 1_000


WAYS: list[Callable[[random.Random, int], Iterator[Change]]] = [
    append,
    prepend,
    edit,
    sort,
    already_sorted,
    window,
    text,
    data,
    edited_text,
    text_window,
    counters,
    named_counters,
]
PLACES: dict[str, Callable[[Any], Any]] = {
    "root": lambda value: value,
    "member": lambda value: {"step": 1, "value": value, "config": {"model": "m"}},
    "deep": lambda value: {"team": {"agents": [{"name": "a"}, {"name": "b", "notes": value}]}},
    "tuple": lambda value: {"value": tuple(value) if isinstance(value, list) else value},
}


@given(
    st.sampled_from(WAYS),
    st.sampled_from(sorted(PLACES)),
    st.integers(0, 2**32),
    st.integers(2_000, 8_000),
    st.sampled_from(["warm", "cold", "read"]),
)
@settings(max_examples=tries(150, 24), deadline=None)
def test_a_save_writes_a_constant_times_the_change(
    way: Callable[[random.Random, int], Iterator[Change]], place: str, seed: int, size: int, start: str
) -> None:
    engine = Engine()
    state: Any = None
    written = changed = 0
    for number, (value, change) in enumerate(way(random.Random(seed), size)):
        if number > 1 and start != "warm":
            engine.cold()
            if start == "read":
                engine.thread.latest()
        state = PLACES[place](value)
        added = engine.save(state)
        if number >= 3:  # at first a text is stored as a whole; it is cut into pieces when it is seen to grow
            assert added.bytes < STEP_MAX + FACTOR * change, (way.__name__, number)
            written += added.bytes
            changed += change + 4_000
    assert written < FACTOR * changed
    assert identical(engine.cold_state(), state)
    assert identical(engine.thread.latest().state, state)  # type: ignore[union-attr]


@for_each("store", ["sqlite", "dir"])
@for_each(
    ("grow", "limit"),
    [
        (lambda state, source: state["list"].append(source.randrange(10**6)), 600 * 4_200),
        (lambda state, source: state.update(text=state["text"] + words(source, 80)), 600 * 7_000),
    ],
)
def test_a_store_grows_by_what_is_new(
    grow: Callable[[dict[str, Any], random.Random], None], limit: int, store: str, tmp_path: Path
) -> None:
    source = random.Random(1)
    state: dict[str, Any] = {"list": list(range(2_000)), "text": words(source, 3_000)}
    url = f"sqlite:///{tmp_path}/a.db" if store == "sqlite" else f"dir:{tmp_path}/a"
    with holdfast.open(url) as hf:
        thread = hf.thread("a")
        for _ in range(600):
            grow(state, source)
            thread.save(state)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < limit


def test_a_message_that_is_streamed_is_not_written_again_with_every_word() -> None:
    engine = Engine()
    source = random.Random(2)
    state: dict[str, Any] = {"messages": [{"role": "user", "content": words(source, 50)} for _ in range(40)]}
    state["messages"].append({"role": "assistant", "content": words(source, 700)})
    engine.save(state)
    written = []
    for _ in range(300):
        state["messages"][-1]["content"] += words(source, 20)
        written.append(engine.save(state).bytes)
        assert written[-1] < 12_000 or len(written) < 4
    assert sum(written) / len(written) < 3_000
    assert engine.cold_state() == state


def test_numbers_in_a_message_that_grow_are_not_written_again_with_every_number() -> None:
    engine = Engine()
    state: dict[str, Any] = {"tasks": [{"name": f"task {n}", "scores": list(range(n))} for n in range(40)]}
    state["tasks"][20]["scores"] = list(range(3_000))
    engine.save(state)
    written = []
    for n in range(100):
        state["tasks"][20]["scores"].append(n * 1_000)
        written.append(engine.save(state).bytes)
    assert sum(written[3:]) / len(written) < 2_500
    assert engine.cold_state() == state


def test_appends_name_as_many_spans_after_ten_thousand_as_after_ten() -> None:
    engine = Engine()
    state: dict[str, Any] = {"list": list(range(2_000)), "text": "x" * 5_000}
    for n in range(1_000):
        state["list"] += [n, n + 1, n + 2]
        state["text"] += f"line {n}\n"
        engine.save(state)
        if n % 300 == 299:
            engine.cold()
    assert engine.cold_state() == state
    assert engine.save({**state, "n": 1}).spans <= 8


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0] * 3_000, [False] * 3_000),
        ([1] * 3_000, [1] * 2_999 + [True]),
        ([1] * 3_000, [1.0] + [1] * 2_999),
        (list(range(3_000)), tuple(range(3_000))),
        ("x" * 20_000, b"x" * 20_000),
        ("é" * 20_000, "é" * 20_000 + "e\u0301"),
        ("x" * 20_000, "x" * 20_000 + "\ud800"),
        ("x" * 20_000 + "\ud800", "x" * 20_000 + "\ud800" * 2),
        ([0] * 3_000, [256] + [0] * 2_999),
        ([1, 256] * 1_500, [256, 1] * 1_500),
        ([None] * 3_000, [[]] * 3_000),
        (["ab"] * 3_000, ["a"] * 3_000),
        ([7] * 3_000, [7] * 40_000 + ["long " * 5_000]),
        ([7] * 3_000 + ["long " * 5_000], [7] * 2_999 + ["long " * 5_000]),
        (list(range(5_000)), {"dict": 1}),
        ("x" * 20_000, ["x"] * 20_000),
    ],
)
def test_pieces_of_one_value_are_not_taken_for_those_of_another(before: Any, after: Any) -> None:
    for first, second in ((before, after), (after, before)):
        for warm in (True, False):
            engine = Engine()
            for state in (first, second, first, second, second):
                engine.save({"value": state})
                if not warm:
                    engine.cold()
                assert identical(engine.cold_state(), {"value": state})


@given(st.data())
@settings(max_examples=tries(150, 25), deadline=None)
def test_any_edits_of_short_items_and_texts_are_stored_exactly(choices: st.DataObject) -> None:
    """Few different items, so that equal bytes occur at wrong places."""
    item = st.sampled_from([0, 1, 255, 256, 65_536, "", "a", "ab", None, [], [1], (1,), b"\x01", 1.0, True, "é"])
    items: list[Any] = choices.draw(st.lists(item, min_size=1, max_size=6)) * 1_500
    grown = choices.draw(st.text(alphabet="aé\n€", min_size=1, max_size=6)) * 3_000
    engine = Engine()
    for _ in range(4):
        for _ in range(choices.draw(st.integers(0, 4))):
            at = choices.draw(st.integers(0, len(items)))
            items[at : at + choices.draw(st.integers(0, 700))] = choices.draw(st.lists(item, max_size=5))
            at = choices.draw(st.integers(0, len(grown)))
            grown = grown[:at] + choices.draw(st.text(alphabet="aé€", max_size=3)) + grown[at + 5 :]
        state = {"items": list(items), "text": grown, "pair": tuple(items)}
        engine.save(state)
        if choices.draw(st.booleans()):
            engine.cold()
        assert identical(engine.cold_state(), state)


def test_short_items_that_become_long_are_stored_one_by_one() -> None:
    engine = Engine()
    state: dict[str, Any] = {"list": list(range(3_000))}
    engine.save(state)
    for n in range(500):
        state["list"].append({"role": "user", "content": f"message {n} " * 50})
        engine.save(state)
    assert not isinstance(engine.hf.context.bases.get(1, 501).root.parts[0], Pieces)  # type: ignore[union-attr]
    state["list"][1_000] = "changed"
    assert engine.save(state).bytes < 4_000
    assert engine.cold_state() == state


def test_a_text_that_is_replaced_is_stored_once_per_namespace_again() -> None:
    engine = Engine()
    source = random.Random(4)
    state = {"text": words(source, 5_000)}
    engine.save(state)
    for _ in range(3):
        state["text"] += words(source, 10)
        assert engine.save(state).values == 0
    state["text"] = words(source, 5_000)
    assert engine.save(state).values == 1
    engine.hf.thread("other").save(state)
    commit = engine.store.last_commit
    assert commit is not None
    assert not commit.appends
    assert engine.cold_state() == state


@for_each("value", ["text " * 5_000, b"bytes" * 5_000])
def test_a_blob_that_was_not_read_is_known_to_grow(value: Any) -> None:
    engine = Engine()
    engine.save({"value": value})
    written = []
    for _ in range(5):
        engine.cold()
        value += value[:500]
        written.append(engine.save({"value": value}))
    assert [added.values for added in written] == [0] * 5
    assert max(added.bytes for added in written[1:]) < 4_000
    assert engine.cold_state() == {"value": value}
    engine.cold()
    assert engine.save({"value": value}).cells == 0


def test_a_fork_and_a_rewind_keep_their_pieces() -> None:
    engine = Engine()
    source = random.Random(5)
    state: dict[str, Any] = {"list": list(range(3_000)), "text": words(source, 4_000)}
    for _ in range(4):
        state = {"list": [*state["list"], 1], "text": state["text"] + words(source, 30)}
        engine.thread.save(state)
    first = engine.thread.save(state)
    later = {"list": [*state["list"], 2], "text": state["text"] + "later"}
    second = engine.thread.save(later)
    fork = engine.thread.fork("fork")
    forked = {"list": [0, *later["list"]], "text": later["text"] + "forked"}
    fork.save(forked)
    assert engine.store.last_commit is not None
    assert sum(len(c) for a in engine.store.last_commit.appends for c in a.cells) < 5_000
    engine.thread.rewind(first.id)
    other = {"list": [*state["list"], 3], "text": state["text"] + "other"}
    assert engine.save(other).bytes < 6_000
    assert engine.thread.load(second.id).state == later
    engine.cold()
    assert engine.cold_state() == other
    assert engine.hf.thread("fork").latest().state == forked  # type: ignore[union-attr]


def same_checksum(count: int) -> list[str]:
    """Different texts of one length whose CRCs are equal, as anyone can make them."""
    size = 60
    plain = crc32(b"a" * size)
    pivots: dict[int, tuple[int, int]] = {}  # by highest bit: what changing some letters to "c" changes in the CRC
    neutral: list[int] = []  # which letters can be changed together
    for at in range(size):
        letters = 1 << at
        effect = crc32(b"a" * at + b"c" + b"a" * (size - at - 1)) ^ plain
        while effect and effect.bit_length() in pivots:
            known, others = pivots[effect.bit_length()]
            effect ^= known
            letters ^= others
        if effect:
            pivots[effect.bit_length()] = effect, letters
        else:
            neutral.append(letters)
    found: list[str] = []
    for number in range(count):
        chosen = functools.reduce(xor, (each for bit, each in enumerate(neutral) if number >> bit & 1), 0)
        found.append("".join("c" if chosen >> at & 1 else "a" for at in range(size)))
    assert len(set(found)) == count
    assert len({crc32(text.encode()) for text in found}) == 1
    return found


@for_each("warm", [True, False])
def test_an_insertion_is_found_among_items_that_were_made_to_collide(warm: bool) -> None:
    engine = Engine()
    items = same_checksum(500)
    engine.save({"list": items})
    if not warm:
        engine.cold()
        engine.thread.latest()
    assert engine.save({"list": ["new " * 10, *items]}).cells <= 5


def test_the_index_keeps_few_of_the_parts_that_hold_the_same_cell() -> None:
    """A list may repeat an item in thousands of chunks. Looking at all of them for each item would take too long."""
    cell = b"the same item"
    parts = [Unit(cell, Span(0, 1, at, 1, 1, 1)) for at in range(1_000)]
    index = Index()
    for part in parts:
        index.add(part, [key_of(cell)])
    assert list(index.holders(key_of(cell))) == parts[: -HOLDERS - 1 : -1]
