"""diff: every difference is found, exact types count, and one edit is one change."""

from __future__ import annotations

import doctest
import math
import random
import struct
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Unsupported
from holdfast.threads import diff as diff_module
from holdfast.threads.diff import diff
from holdfast.types import ABSENT, Change, Diff
from tests.cases import for_each

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, -math.nan, math.inf]),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.sampled_from([Decimal("1.0"), Decimal("1.00"), UUID(int=1), datetime(2024, 1, 1, tzinfo=UTC)]),
)
keys = st.one_of(st.text(max_size=2), st.integers(0, 2), st.booleans(), st.floats(), st.tuples(st.integers(0, 1)))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=3),
        st.frozensets(keys, max_size=3),
    ),
    max_leaves=12,
)


def canon(value: Any) -> Any:
    """A form in which `==` is exact equality; shares nothing with the code under test."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(canon(key), canon(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return kind, [canon(item) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(canon(item)) for item in value)
    return kind, repr(value)


def copy(value: Any) -> Any:
    """An equal value that shares no container and no NaN with the first, so that identity cannot help."""
    if isinstance(value, dict):
        return {copy(key): copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(map(copy, value))
    return struct.unpack(">d", struct.pack(">d", value))[0] if isinstance(value, float) else value


def summary(before: Any, after: Any) -> list[tuple[str, str]]:
    return [(change.kind, change.path) for change in diff(before, after).changes]


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(diff_module)
    assert result.attempted >= 1
    assert result.failed == 0


def test_an_empty_diff_is_false() -> None:
    assert not Diff()
    assert Diff((Change("added", "$.a", after=1),))
    assert not diff({"a": [1]}, {"a": [1]})
    assert diff({"a": [1]}, {"a": [2]})


@given(values)
def test_equal_values_have_no_diff(value: Any) -> None:
    assert diff(value, value) == Diff()
    assert diff(value, copy(value)) == Diff()


@given(values, values)
def test_a_diff_is_empty_only_for_exactly_equal_values(before: Any, after: Any) -> None:
    assert bool(diff(before, after)) == (canon(before) != canon(after))


near: st.SearchStrategy[Any] = st.sampled_from(
    [1, True, 1.0, Decimal(1), 0, False, 0.0, -0.0, math.nan, -math.nan, "1", b"1", [], (), None]
)
near_values = st.recursive(
    near, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([1, True, 1.0, "a", "b"]), inner)
)


@given(near_values, near_values)
def test_values_that_python_takes_for_equal(before: Any, after: Any) -> None:
    assert bool(diff(before, after)) == (canon(before) != canon(after))


@for_each(
    ("before", "after"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (False, 0),
        ([1], (1,)),
        ({1}, frozenset({1})),
        (b"a", "a"),
        (Decimal("1.0"), Decimal("1.00")),
        (datetime(2024, 1, 1, fold=0, tzinfo=UTC), datetime(2024, 1, 1, fold=1, tzinfo=UTC)),
        ({}, []),
        (None, False),
    ],
)
def test_exact_types_count(before: Any, after: Any) -> None:
    assert diff(before, after).changes == (Change("changed", "$", before=before, after=after),)
    change = diff({"x": [before]}, {"x": [after]}).changes[0]
    assert (change.kind, change.path) == ("changed", "$.x[0]")
    assert type(change.before) is type(before)
    assert type(change.after) is type(after)


def test_nan_equals_nan_whatever_its_bits() -> None:
    other = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
    for nan in (float("nan"), -math.nan, math.inf - math.inf, other):
        assert diff(math.nan, nan) == Diff()
        assert diff([math.nan, nan, 1], [nan, math.nan, 1]) == Diff()
        assert diff({"a": (nan,), math.nan: 0}, {"a": (math.nan,), nan: 0}) == Diff()
    assert summary({math.nan, -math.nan}, {math.nan}) == [("removed", "${nan}")]
    assert summary([1.0, math.nan], [math.nan, math.nan]) == [("changed", "$[0]")]


def test_dicts_key_by_key() -> None:
    before = {"role": "user", "usage": {"input": 1, "output": 2}, "old": 0}
    after = {"role": "user", "usage": {"input": 1, "output": 3}, "new": None}
    assert diff(before, after).changes == (
        Change("removed", "$.old", before=0),
        Change("changed", "$.usage.output", before=2, after=3),
        Change("added", "$.new", after=None),
    )


def test_sides_without_a_value_are_absent() -> None:
    added, removed = diff({"a": 1}, {"b": 1}).changes[1], diff({"a": 1}, {"b": 1}).changes[0]
    assert added.before is ABSENT
    assert removed.after is ABSENT
    assert repr(ABSENT) == "ABSENT"


def test_keys_that_python_takes_for_one() -> None:
    assert summary({1: "a"}, {True: "a"}) == [("removed", "$[1]"), ("added", "$[True]")]
    assert summary({(1, 0): "a"}, {(1, False): "a"}) == [("removed", "$[(1, 0)]"), ("added", "$[(1, False)]")]
    assert summary({1: "a"}, {1: "b"}) == [("changed", "$[1]")]


def test_keys_in_another_order_are_one_change_of_the_dict() -> None:
    before, after = {"x": {"a": 1, "b": [2]}, "y": 1}, {"x": {"b": [2], "a": 1}, "y": 1}
    assert diff(before, after).changes == (Change("changed", "$.x", before=before["x"], after=after["x"]),)
    change = diff(before, after).changes[0]
    assert (list(change.before), list(change.after)) == (["a", "b"], ["b", "a"])


def test_keys_in_another_order_are_not_reported_beside_other_changes() -> None:
    assert summary({"a": 1, "b": [2]}, {"b": [3], "a": 1}) == [("changed", "$.b[0]")]
    # A change before or after the dict is no change in it.
    assert summary([0, {"a": 1, "b": 2}, 0], [1, {"b": 2, "a": 1}, 1]) == [
        ("changed", "$[0]"),
        ("changed", "$[1]"),
        ("changed", "$[2]"),
    ]


def test_sets_element_by_element() -> None:
    assert diff({"seen": {"a", "b", 1}}, {"seen": {"b", "c", True}}).changes == (
        Change("removed", "$.seen{1}", before=1),
        Change("removed", '$.seen{"a"}', before="a"),
        Change("added", '$.seen{"c"}', after="c"),
        Change("added", "$.seen{True}", after=True),
    )


@for_each(
    ("key", "path"),
    [
        ("messages", "$.messages"),
        ("odd key", '$["odd key"]'),
        ("", '$[""]'),
        ('say "x"', '$["say \\"x\\""]'),
        ("3", '$["3"]'),
        (3, "$[3]"),
        (b"x", "$[b'x']"),
        (None, "$[None]"),
        (10**5000, "$[<int>]"),  # too long to show
        ("k" * 100, "$." + "k" * 100),
    ],
)
def test_paths(key: Any, path: str) -> None:
    assert summary({}, {key: 1}) == [("added", path)]
    assert summary([{key: [1]}], [{key: [2]}]) == [("changed", f"$[0]{path[1:]}[0]")]


def message(number: int, content: str = "text " * 100) -> dict[str, Any]:
    return {"role": "user", "id": f"m{number}", "content": content, "meta": {"tokens": number, "at": 0.5}}


def messages(count: int) -> list[dict[str, Any]]:
    return [message(number) for number in range(count)]


items = st.lists(st.sampled_from(["a", "b", 1, True, 1.0, 0.0, -0.0]) | values, max_size=30)


@given(items, st.data())
def test_one_insertion_is_one_change(before: list[Any], data: st.DataObject) -> None:
    at, item = data.draw(st.integers(0, len(before))), data.draw(values)
    change = only(diff(before, [*copy(before[:at]), item, *copy(before[at:])]))
    assert change.kind == "added"
    # Among equal neighbours nobody can tell which one is new.
    assert canon(change.after) == canon(item)
    assert change.before is ABSENT


@given(items.filter(bool), st.data())
def test_one_removal_is_one_change(before: list[Any], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(before) - 1))
    change = only(diff(before, [*copy(before[:at]), *copy(before[at + 1 :])]))
    assert change.kind == "removed"
    assert canon(change.before) == canon(before[at])
    assert change.after is ABSENT


@given(items.filter(bool), st.data())
def test_one_edit_is_one_change(before: list[Any], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(before) - 1))
    before[at], after = {"x": 1}, copy(before)
    after[at] = {"x": 2}
    assert only(diff(before, after)) == Change("changed", f"$[{at}].x", before=1, after=2)


def only(found: Diff) -> Change:
    assert len(found.changes) == 1
    return found.changes[0]


def applied(before: list[Any], changes: tuple[Change, ...]) -> list[Any]:
    """`before` with the changes made to it: removals count in `before`, the rest in what comes out."""
    by_kind: dict[str, list[tuple[int, Change]]] = {"removed": [], "added": [], "changed": []}
    for change in changes:
        by_kind[change.kind].append((int(change.path[2:-1]), change))
    result = list(before)
    for index, change in reversed(by_kind["removed"]):
        assert canon(result.pop(index)) == canon(change.before)
    for index, change in by_kind["added"]:
        result.insert(index, change.after)
    for index, change in by_kind["changed"]:
        assert canon(result[index]) == canon(change.before)
        result[index] = change.after
    return result


scalars = st.lists(st.sampled_from([0, False, 0.0, -0.0, "a", "b", "c"]), max_size=25)


@given(scalars, scalars)
def test_the_changes_of_a_list_lead_to_the_other(before: list[Any], after: list[Any]) -> None:
    assert canon(applied(before, diff(before, after).changes)) == canon(after)


@given(st.permutations(range(30)), st.lists(st.integers(0, 40), max_size=30))
def test_the_changes_of_a_list_of_mostly_unique_items_lead_to_the_other(before: list[int], after: list[int]) -> None:
    assert applied(before, diff(before, after).changes) == after


def test_several_edits_far_apart_stay_small() -> None:
    before, after = messages(50), messages(50)
    after[40]["content"] = "edited"
    after.insert(30, message(-1))
    del after[10]
    after[5]["meta"]["tokens"] = 5.0
    assert summary(before, after) == [
        ("changed", "$[5].meta.tokens"),
        ("removed", "$[10]"),
        ("added", "$[29]"),
        ("changed", "$[40].content"),
    ]


def test_what_moved_is_removed_and_added() -> None:
    before, after = messages(50), messages(50)
    after.insert(40, after.pop(3))
    assert summary(before, after) == [("removed", "$[3]"), ("added", "$[40]")]


def test_a_summarised_head_leaves_the_tail_alone() -> None:
    before = messages(60)
    after = [{"role": "system", "content": "summary"}, *messages(60)[40:]]
    found = summary({"messages": before}, {"messages": after})
    assert [path for kind, path in found if kind == "removed"][-39:] == [f"$.messages[{at}]" for at in range(1, 40)]
    assert all(path.startswith("$.messages[0].") for _, path in found[:-39])


def test_repeated_items_are_aligned() -> None:
    before = ["a", "b"] * 20
    after = ["c", *before[:9], *before[11:20], "c", *before[20:], "c"]
    assert len(diff(before, after).changes) == 4
    # Beside an item that occurs once, too.
    assert len(diff([*before, "x", *before], [*after, "x", *after]).changes) == 8


def test_a_tuple_is_aligned_too() -> None:
    assert summary((1, 2, 3), (1, 9, 2, 3)) == [("added", "$[1]")]


def test_deep_states_need_no_deep_stack() -> None:
    before: Any = 1
    after: Any = 2
    for _ in range(190):
        before, after = [before], [after]
    assert summary(before, after) == [("changed", "$" + "[0]" * 190)]


@pytest.mark.parametrize("odd", [object(), bytearray(b"x"), {1: [object()]}, message])
def test_what_cannot_be_stored_is_refused_with_its_path(odd: Any) -> None:
    for before, after in (({"a": [0, odd]}, {"a": [1, 0]}), ({"a": [1, 0]}, {"a": [0, odd]})):
        with pytest.raises(Unsupported) as caught:
            diff(before, after)
        assert caught.value.path.startswith("$.a[1]")


def test_two_long_lists_in_a_moment() -> None:
    before, after = {"messages": messages(3000)}, {"messages": messages(3000)}
    after["messages"].insert(1234, message(-1))
    assert summary(before, after) == [("added", "$.messages[1234]")]
    assert fastest(before, after) < 0.5, "a square would take seconds"


def fastest(before: Any, after: Any) -> float:
    """Processor time of the best of a few, untraced: neither the machine's other work nor coverage may fail a test."""
    times: list[float] = []
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        for _ in range(5):
            times.append(time.process_time())
            diff(before, after)
        times.append(time.process_time())
    finally:
        sys.settrace(tracer)
    return min(end - start for start, end in pairwise(times))


def test_the_worst_case_is_bounded() -> None:
    # Every second item changed.
    assert len(diff(list(range(20_000)), [n if n % 2 else -n - 1 for n in range(20_000)]).changes) == 10_000
    # Nothing but repetitions: 400 million possible pairs.
    generator = random.Random(1)
    before, after = ([generator.choice("ab") for _ in range(20_000)] for _ in range(2))
    began = time.process_time()
    changes = diff(before, after).changes
    assert time.process_time() - began < 60
    assert applied(before, changes) == after
    # Many lists that are each short enough, 40 million possible pairs: what one call may spend is bounded too.
    many_before = [[str(n), *"ab" * 100] for n in range(1000)]
    many_after = [[str(n), *"aabb" * 50] for n in range(1000)]
    began = time.process_time()
    found = diff(many_before, many_after)
    assert time.process_time() - began < 60
    assert {change.path.split("]")[0] for change in found.changes} == {f"$[{n}" for n in range(1000)}
