"""Finding the change: whatever changed is stored, and little else."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import random
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from holdfast import Retention, Unsupported
from holdfast.codec import msgpack
from holdfast.delta import base, change, draft, parts, pieces
from tests.cases import for_each
from tests.codec.strategies import identical, values
from tests.covers import covers
from tests.delta.engine import Engine
from tests.selection import tries


@functools.cache
def text(i: int, size: int) -> str:
    source = random.Random(i)
    return " ".join(f"word{source.randrange(5_000)}" for _ in range(size // 9))


def message(i: int, size: int = 1_800) -> dict[str, Any]:
    return {"role": "assistant" if i % 2 else "user", "content": text(i, size), "id": f"m{i}"}


def chat(count: int) -> dict[str, Any]:
    return {"messages": [message(i) for i in range(count)], "step": 0, "config": {"model": "m", "temperature": 0.0}}


NOON = datetime(2026, 10, 25, 12, tzinfo=UTC)
TYPE_CHANGES: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (True, 1.0),
    (0, False),
    (0.0, -0.0),
    (0, None),
    ("1", 1),
    ("a", b"a"),
    ([1], (1,)),
    ([], ()),
    ({1}, frozenset({1})),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"1": 1}, {1: 1}),
    ({1: "x"}, {True: "x"}),
    (Decimal("1.0"), Decimal("1.00")),
    (2**64, float(2**64)),
    (NOON.replace(tzinfo=None), NOON),
    (NOON, NOON.replace(fold=1)),
    ("e\u0301", "\u00e9"),
    (None, "None"),
]


@for_each("size", [1, 40, 400])
@for_each(("before", "after"), TYPE_CHANGES)
def test_a_change_of_type_alone_is_noticed_at_any_depth(before: Any, after: Any, size: int) -> None:
    for first, second in ((before, after), (after, before)):
        engine = Engine()
        state: Any = {"list": [{"deep": {"er": [first]}, "filler": "x" * 50, "n": i} for i in range(size)]}
        engine.save(state)
        state["list"][size // 2]["deep"]["er"][0] = second
        engine.save(state)
        assert identical(engine.cold_state(), state)


@for_each("warm", [True, False])
def test_cells_with_equal_keys_are_told_apart_by_their_bytes(warm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, change, draft, parts, pieces):
        monkeypatch.setattr(module, "key_of", len)
    one, other = b"1" * 200, b"2" * 200
    filler = [{"n": i, "content": text(i, 400)} for i in range(40)]
    engine = Engine()
    states: list[dict[str, Any]] = [
        {"list": [*filler, one], "unit": other},
        {"list": [*filler, one, other], "unit": one},
        {"list": [other, *filler, one], "unit": other, "more": [*filler, other, one]},
        {"list": [*filler, other, one, other], "unit": one},
    ]
    for state in states:
        engine.save(state)
        assert identical(engine.cold_state(), state)
        if not warm:
            engine.cold()
            engine.thread.latest()


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda state: state["list"].clear(),
    lambda state: state["list"].__delitem__(slice(50, None)),
    lambda state: state["list"].extend([1, 2, 3]),
    lambda state: state["table"].popitem(),
    lambda state: state["table"].clear(),
    lambda state: state["map"].pop("a"),
    lambda state: state["map"].update({"d": state["map"].pop("a")}),
    lambda state: state["map"].update({1: 2}),
    lambda state: state.pop("map"),
    lambda state: state.update({"end": state.pop("list")}),
]


@for_each("at", [0, 1, 5, 60, 150])
@for_each("warm", [False, True])
@for_each("mutate", CHANGES)
def test_a_container_that_another_thread_changes_meanwhile_is_stored_as_it_was_at_one_moment(
    mutate: Callable[[dict[str, Any]], object], warm: bool, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(offset: int) -> dict[str, Any]:
        return {
            "list": [message(offset + i, 200) for i in range(90)],
            "table": {f"key {i}": message(offset + i, 200) for i in range(80)},
            "map": {key: message(offset + i, 900) for i, key in enumerate("abc", 300)},
            "last": 1,
        }

    def mutating(cell: bytes) -> int:
        if next(count) == at:
            mutate(state)
        return parts.key_of(cell)

    engine, count = Engine(), itertools.count()
    if warm:
        engine.save(made(0))
    state = made(1_000)
    before = copy.deepcopy(state)
    monkeypatch.setattr(change, "key_of", mutating)
    monkeypatch.setattr(draft, "key_of", mutating)
    engine.save(state)
    saved = engine.cold_state()
    assert saved.keys() == before.keys()
    for key, value in before.items():
        assert saved[key] in (value, state.get(key))


def test_a_short_item_that_another_thread_changes_meanwhile_moves_no_other_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def encoding(given: list[Any]) -> bytes:
        encoded = encode_items(given)
        if given == items:
            items[105][:] = [1] * 7  # it takes as many bytes as two items
        return encoded

    engine, encode_items = Engine(), msgpack.encode_items
    items = [[300 + i] for i in range(1_000)]
    engine.save({"items": items})
    items[100:110] = [[10_000 + i] for i in range(10)]
    before = copy.deepcopy(items)
    monkeypatch.setattr(msgpack, "encode_items", encoding)
    engine.save({"items": items})
    saved = engine.cold_state()["items"]
    assert items[105] != before[105]
    assert saved in (before, items)


@for_each("large", [lambda: {f"key {i}": message(i, 300) for i in range(30)}, lambda: [message(0, 9_000)]])
@for_each("mutate", [lambda item: item.clear(), lambda item: item.update(new=1), lambda item: item["large"].clear()])
@for_each("at", [1, 3, 5])
def test_an_item_that_another_thread_changes_while_it_is_judged_is_stored(
    at: int, mutate: Callable[[Any], object], large: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def judging(value: Any) -> bool:
        if next(count) == at:
            mutate(item)
        return judged(value)

    count, judged = itertools.count(), change._worth_splitting
    monkeypatch.setattr(change, "_worth_splitting", judging)
    item: dict[str, Any] = {"text": "hello", "large": large(), "end": 1}
    engine = Engine()
    engine.save({"list": [item, *[message(i, 300) for i in range(40)]]})
    assert len(engine.cold_state()["list"]) == 41


@given(values(), values(), st.integers(0, 99))
@settings(max_examples=tries(150, 25), deadline=None)
def test_any_value_put_in_place_of_any_other_is_noticed(before: Any, after: Any, at: int) -> None:
    engine = Engine()
    state = {"items": [{"i": i, "pad": "p" * 40, "value": before} for i in range(100)], "field": before}
    engine.save(state)
    state["items"][at]["value"] = after
    state["field"] = after
    engine.save(state)
    assert identical(engine.cold_state(), state)


@covers("C11", "E6")
@given(values())
@settings(max_examples=tries(200, 70), deadline=None)
def test_any_value_can_be_a_whole_state(value: Any) -> None:
    engine = Engine()
    engine.save(value)
    assert identical(engine.cold_state(), value)
    engine.save(value)
    assert identical(engine.cold_state(), value)


def test_saving_the_same_state_again_stores_no_cell() -> None:
    engine = Engine()
    state = chat(100)
    engine.save(state)
    assert engine.save(state).cells == 0
    assert engine.save(copy.deepcopy(state)).cells == 0


@covers("H1")
def test_appending_stores_what_was_appended_and_extends_one_span() -> None:
    engine = Engine()
    state = chat(10)
    engine.save(state)
    for i in range(10, 400, 2):
        state["messages"] += [message(i), message(i + 1)]
        state["step"] += 1
        added = engine.save(state)
        assert added.cells == 2
        assert added.spans == 1
        assert added.bytes < 1.15 * 2 * 1_900 + 400
    assert engine.cold_state() == state


def test_a_message_mutated_in_place_is_stored_anew_alone() -> None:
    engine = Engine()
    state = chat(1_000)
    engine.save(state)
    state["messages"][500]["content"] += "!"
    added = engine.save(state)
    assert added.cells == 1
    assert engine.cold_state() == state


@covers("E10")
def test_summarising_the_head_stores_the_summary_only() -> None:
    engine = Engine()
    state = chat(1_000)
    engine.save(state)
    state["messages"] = [{"role": "system", "content": "summary"}, *state["messages"][-100:]]
    assert engine.save(state).cells == 1
    assert engine.cold_state() == state


@for_each("at", [0, 1, 31, 32, 33, 500, 999, 1_000])
def test_one_insertion_anywhere_costs_one_cell(at: int) -> None:
    engine = Engine()
    state = chat(1_000)
    engine.save(state)
    state["messages"].insert(at, message(5_000))
    assert engine.save(state).cells == 1
    assert engine.cold_state() == state


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_a_list_moved_to_another_key_costs_nothing(warm: bool) -> None:
    engine = Engine()
    state = chat(1_000)
    engine.save(state)
    if not warm:
        engine.cold()
    state["archive"] = state.pop("messages")
    added = engine.save(state)
    assert added.cells == 0
    assert added.bytes < 500
    assert engine.cold_state() == state


def test_a_reordered_list_costs_no_item() -> None:
    engine = Engine()
    state = chat(300)
    engine.save(state)
    state["messages"].reverse()
    added = engine.save(state)
    assert added.bytes < 300 * 30
    assert engine.cold_state() == state


def test_one_random_edit_per_step_stays_as_large_as_the_edit() -> None:
    engine = Engine()
    state = chat(1_000)
    engine.save(state)
    source = random.Random(7)
    sizes = []
    for i in range(300):
        state["messages"][source.randrange(1_000)] = message(10_000 + i)
        sizes.append(engine.save(state).bytes)
    assert max(sizes) < 8_000
    assert sum(sizes[-50:]) / 50 < 5_500
    assert engine.cold_state() == state


@covers("A17")
def test_a_dict_of_thousands_of_files_with_one_changed_stays_as_large_as_the_change() -> None:
    engine = Engine()
    state: dict[str, Any] = {"files": {f"src/module_{i}.py": f"# file {i}\n" * 12 for i in range(3_000)}}
    engine.save(state)
    source = random.Random(3)
    sizes = []
    for i in range(200):
        state["files"][f"src/module_{source.randrange(3_000)}.py"] = f"# changed {i}\n" * 12
        sizes.append(engine.save(state).bytes)
    assert max(sizes) < 4_000
    assert engine.cold_state() == state
    del state["files"]["src/module_7.py"]
    state["files"]["new.py"] = "x"
    assert engine.save(state).bytes < 4_000
    assert list(engine.cold_state()["files"]) == list(state["files"])


def test_lists_deep_inside_a_state_profit_too() -> None:
    engine = Engine()
    state: Any = {
        "team": {"agents": [{"name": f"a{i}", "chat": {"messages": [message(j) for j in range(60)]}} for i in range(5)]}
    }
    engine.save(state)
    for i in range(20):
        state["team"]["agents"][i % 5]["chat"]["messages"].append(message(100 + i))
        assert engine.save(state).bytes < 3_500
    assert engine.cold_state() == state


def test_two_lists_that_grow_in_turns_keep_one_span_each() -> None:
    engine = Engine()
    state: dict[str, Any] = {"messages": [message(i) for i in range(5)], "events": [message(i + 50) for i in range(5)]}
    engine.save(state)
    for i in range(100):
        state["messages"].append(message(1_000 + i))
        state["events"].append(message(2_000 + i))
        added = engine.save(state)
        assert added.spans == 2
    engine.cold()
    state["messages"].append(message(9))
    state["events"].append(message(10))
    assert engine.save(state).spans == 2
    assert engine.cold_state() == state


def test_a_dict_with_many_fields_is_not_written_whole_for_one_of_them() -> None:
    engine = Engine()
    state = {f"group {g}": {f"field {f}": f"value {f}" * 4 for f in range(60)} for g in range(60)}
    engine.save(state)
    state["group 7"]["field 9"] = "changed"
    assert engine.save(state).bytes < 6_000
    assert engine.cold_state() == state


@covers("E10", "H7")
@pytest.mark.parametrize(
    "value", ["x" * 50_000, b"\x89PNG" * 20_000, "\ud800" + "y" * 50_000], ids=["text", "bytes", "surrogate"]
)
def test_a_large_value_is_stored_once(value: Any) -> None:
    engine = Engine()
    state = {"prompt": value, "messages": [{"image": value, "n": i} for i in range(3)]}
    assert engine.save(state).values == 1
    state["messages"].append({"image": (value + value)[: len(value)], "n": 4})
    added = engine.save(state)
    assert added.bytes < 1_500 + added.values * len(value) * 4
    assert engine.cold_state() == state
    engine.cold()
    assert engine.save(state).values == 0


def test_values_over_8_mib_are_stored_in_pieces() -> None:
    engine = Engine()
    state = {"dump": "0123456789abcdef" * (20 * 2**20 // 16)}
    engine.save(state)
    commit = engine.store.last_commit
    assert commit is not None
    assert [len(piece) for piece in commit.blobs[0].pieces] == [8 * 2**20, 8 * 2**20, 4 * 2**20]
    assert engine.cold_state() == state


def test_a_state_that_is_refused_leaves_the_base_as_it_was() -> None:
    engine = Engine()
    state = chat(200)
    engine.save(state)
    state["messages"].append({"role": "tool", "content": object()})
    with pytest.raises(Unsupported) as refused:
        engine.save(state)
    assert refused.value.path == "$.messages[200].content"
    state["messages"][-1]["content"] = "fine"
    assert engine.save(state).cells == 1
    assert engine.cold_state() == state


@for_each(
    ("place", "path"),
    [
        (lambda s, v: s.update(bad=v), "$.bad"),
        (lambda s, v: s["messages"][150].update(bad=[v]), "$.messages[150].bad[0]"),
        (lambda s, v: s["files"].update({"odd name": v}), '$.files["odd name"]'),
        (lambda s, v: s["nested"]["a"].append((1, v)), "$.nested.a[1][1]"),
    ],
)
@for_each("bad", [object(), bytearray(b"x"), memoryview(b"x"), 1j, range(3)])
def test_what_is_refused_is_named_by_its_path(place: Any, path: str, bad: Any) -> None:
    engine = Engine()
    state = chat(200) | {"files": {f"f{i}": "x" * 50 for i in range(100)}, "nested": {"a": ["y" * 3_000]}}
    engine.save(state)
    place(state, bad)
    with pytest.raises(Unsupported) as refused:
        engine.save(state)
    assert refused.value.path == path


def test_cycles_and_deep_nesting_are_refused() -> None:
    engine = Engine()
    state = chat(50)
    engine.save(state)
    state["self"] = state
    with pytest.raises(Unsupported):
        engine.save(state)
    deep: Any = 1
    for _ in range(2_000):
        deep = [deep]
    state["self"] = deep
    with pytest.raises(Unsupported, match="deep"):
        engine.save(state)
    state["self"] = "gone"
    engine.save(state)
    assert engine.cold_state() == state


@covers("C8", "F3")
def test_after_a_rewind_the_abandoned_branch_is_left_alone() -> None:
    engine = Engine()
    state = chat(50)
    first = engine.thread.save(state)
    abandoned = copy.deepcopy(state)
    abandoned["messages"] += [message(60), message(61)]
    second = engine.thread.save(abandoned)
    engine.thread.rewind(first.id)
    state["messages"] += [message(70)]
    engine.save(state)
    assert engine.thread.load(second.id).state == abandoned
    assert engine.cold_state() == state


@pytest.mark.parametrize(
    "state",
    [
        {"\ud800k": 1},
        {"a": {"\ud800": "y" * 3_000}},
        {"items": [{"\ud800": "z" * 70_000, "n": n} for n in range(3)]},
        {"ok": {("\ud800" if n == 3 else "") + f"k{n}": "v" * 100 for n in range(60)}},
    ],
    ids=["root", "map", "split item", "many"],
)
def test_half_a_surrogate_pair_in_a_key_comes_back(state: dict[str, Any]) -> None:
    engine = Engine()
    engine.save(state)
    assert identical(engine.cold_state(), state)
    engine.save({**state, "more": "x" * 3_000})
    assert identical(engine.cold_state(), {**state, "more": "x" * 3_000})


def test_a_fork_does_not_take_its_own_cells_for_those_of_its_origin() -> None:
    """Its logs are numbered as the origin's were, so tables of spans may read the same and mean other cells."""

    def edited(source: str) -> list[str]:
        return [f"{source} {n} " * 20 for n in range(300)]

    engine = Engine()
    engine.save({})
    state: dict[str, Any] = {"a": edited("origin")}
    engine.save(state)
    for n in range(100):
        state["a"][n * 3] = f"origin edit {n} " * 20
        engine.save(state)
    fork = engine.thread.fork("fork")
    state["b"] = edited("fork")
    fork.save(state)
    for n in range(100):
        state["b"][n * 3] = f"fork edit {n} " * 20
        fork.save(state)
    state["a"] = list(state["b"])
    fork.save(state)
    engine.cold()
    latest = engine.hf.thread("fork").latest()
    assert latest is not None
    assert latest.state == state


@covers("C11")
def test_a_message_that_spells_out_a_table_is_not_taken_for_one() -> None:
    engine = Engine()
    state: dict[str, Any] = {"list": [f"item {n} " * 30 for n in range(300)], "said": []}
    engine.save(state)
    for n in range(100):
        state["list"][n * 3] = f"edit {n} " * 30
        added = engine.store.last_commit
        assert added is not None
        # What an agent could be made to say: the very bytes of every table stored so far, as values.
        state["said"] = [
            [[[s.thread, s.log, s.start, s.count, s.first, s.last] for s in refs.spans], []]
            for run in added.appends
            for refs in run.refs
        ]
        engine.save(state)
        assert engine.cold_state() == state


def test_cells_that_left_the_state_are_not_named_again_however_long_they_are_kept_alive() -> None:
    engine = Engine()
    first = {"a": [f"old {n} " * 40 for n in range(100)]}
    engine.save(first)
    kept: list[BaseException] = []
    try:
        engine.save({**first, "b": object()})
    except Unsupported as refused:
        kept.append(refused)  # its traceback holds the base
    engine.save({"a": [f"new {n} " * 40 for n in range(100)]})
    engine.thread.prune(Retention(keep_last=1))
    engine.save(first)
    assert engine.cold_state() == first
    assert kept


def test_items_with_large_values_may_shift() -> None:
    engine = Engine()
    state: dict[str, Any] = {"messages": [{"image": f"{n:05}" * 4_000, "n": n} for n in range(50)]}
    engine.save(state)
    state["messages"].insert(0, {"text": "first", "n": -1})
    assert engine.save(state).values == 0
    state["messages"] = state["messages"][-20:]
    assert engine.save(state).values == 0
    state["kept"] = {"image": state["messages"][0]["image"]}
    assert engine.save(state).values == 0
    assert engine.cold_state() == state


def test_after_a_rewind_growing_lists_have_logs_of_their_own() -> None:
    engine = Engine()
    state: dict[str, Any] = {"b": [message(n) for n in range(5)], "a": [message(n + 50) for n in range(5)]}
    first = engine.thread.save(state)
    state["a"].append(message(99))
    engine.save(state)
    engine.thread.rewind(first.id)
    engine.cold()
    state["a"].pop()
    spans = []
    for n in range(30):
        state["a"].append(message(1_000 + n))
        state["b"].append(message(2_000 + n))
        spans.append(engine.save(state).spans)
    assert max(spans) == 4  # each list: the part before the rewind, and the part after it
    assert engine.cold_state() == state


def test_a_dict_around_the_size_at_which_it_is_split_is_not_rewritten_each_time() -> None:
    engine = Engine()
    state = {"files": {f"f{n}": f"{n} " * 2_000 for n in range(65)}}
    engine.save(state)
    for n in range(5):
        state["files"].pop(f"f{64 + n}")
        engine.save(state)
        state["files"][f"f{65 + n}"] = "new"
        assert engine.save(state).bytes < 3_000
    assert engine.cold_state() == state


def test_embeddings_are_not_cut_into_numbers() -> None:
    engine = Engine()
    source = random.Random(5)
    state = {"vectors": [[source.random() for _ in range(1_536)] for _ in range(20)]}
    assert engine.save(state).cells <= 25
    state["vectors"].append([source.random() for _ in range(1_536)])
    assert engine.save(state).cells <= 3
    assert engine.cold_state() == state


def test_states_nested_as_deep_as_may_be_come_back() -> None:
    engine = Engine()
    deep: Any = ["z" * 70_000]
    for n in range(190):
        deep = ["p" * 50, deep] if n % 2 else {"k": deep}
    engine.save(deep)
    assert engine.cold_state() == deep


@pytest.mark.parametrize("item", [1, True, "x" * 20, "x" * 40], ids=["int", "bool", "text", "long text"])
def test_what_a_handle_holds_is_counted_with_what_it_costs(item: Any) -> None:
    engine = Engine()
    tracemalloc.start()
    try:
        engine.save({"many": [item] * 20_000 + ["end"]})
        counted = engine.hf.context.bases.size
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        engine.hf.context.bases.clear()
        gc.collect()
        held -= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert counted > 0.5 * held > 0
