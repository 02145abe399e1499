"""Messages within plain data: bodies and ids taken apart, hoisted, moved and put together are what they were."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast import Damaged
from holdfast.adapters.langgraph.layout import channel_key, ids_key, is_nameable, laid_out
from holdfast.adapters.langgraph.messages import apart, folded, is_message, moved, some, together, unfolded
from holdfast.adapters.langgraph.naming import of_track, track_name
from holdfast.adapters.langgraph.values import to_plain
from tests.adapters.langgraph.kinds import KINDS
from tests.cases import for_each
from tests.selection import tries

SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)


def plain(value: Any) -> Any:
    return to_plain(SERDE, value)


@for_each("message", KINDS)
def test_a_message_of_every_kind_is_known_as_one(message: Any) -> None:
    assert is_message(plain(message))


@for_each(
    "node",
    [
        None,
        "text",
        [],
        {},
        {"$ext": 5},
        {"$ext": 5, "payload": None},
        {"$ext": 5, "payload": ["langchain_core.messages.human", "HumanMessage"]},
        {"$ext": 5, "payload": ["langchain_core.messages.human", "HumanMessage", {}, "x"]},
        {"$ext": 5, "payload": ["langchain_core.messages.human", "HumanMessage", {"id": 1}, "x"]},
        {"$ext": 5, "payload": ["my.module", "Mine", {"id": "x"}, "x"]},
        {"$ext": 4, "payload": ["langchain_core.messages.human", "HumanMessage", {"id": "x"}, "x"]},
        {"$ext": 5, "payload": [5, "HumanMessage", {"id": "x"}, "x"]},
    ],
)
def test_nothing_else_is(node: Any) -> None:
    assert not is_message(node)


def test_bodies_of_messages_that_differ_only_in_their_ids_are_the_same() -> None:
    nodes = plain([HumanMessage("x", id="a"), HumanMessage("x"), HumanMessage("x", id="b")])
    before = copy.deepcopy(nodes)
    bodies, ids = apart(nodes)
    assert bodies[0] == bodies[1] == bodies[2]
    assert ids == ["a", None, "b"]
    assert together(bodies, ids) == before


def test_ids_are_left_out_if_there_are_none() -> None:
    assert some([None, None]) is None
    assert some([None, "a"]) == [None, "a"]
    assert some([]) is None


# -- hoisting --------------------------------------------------------------------------------------------------------

messages = st.sampled_from(
    [HumanMessage("a"), AIMessage("b", id="1"), AIMessage("b"), ToolMessage("c", tool_call_id="t")]
)
leaves = st.one_of(messages, st.none(), st.integers(-9, 9), st.text(max_size=4))
# Dicts that look like what is made here are among what a user may store.
keys = st.sampled_from(["messages", "$ext", "payload", "start", "count", "ids", "bodies", "alone", "x"])
values = st.recursive(
    leaves | st.sampled_from(["messages", "hoisted", 5]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(messages, max_size=4) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values, st.booleans())
@settings(max_examples=tries(300, 100), deadline=None)
def test_what_was_folded_is_unfolded_to_what_it_was(value: Any, hoist: bool) -> None:
    given = plain(value)
    cells: list[Any] | None = ["others", "before"] if hoist else None
    made = folded(copy.deepcopy(given), cells)
    assert unfolded(made, cells or []) == given


@given(st.lists(values, min_size=1, max_size=4))
@settings(max_examples=tries(200, 70), deadline=None)
def test_values_that_are_moved_together_stay_what_they_were(given: list[Any]) -> None:
    """Writes of several tasks, each with cells of its own, end up beside one list of cells."""
    wanted = [plain(value) for value in given]
    common: list[Any] = []
    made = []
    for value in wanted:
        own: list[Any] = []
        made.append(moved(folded(copy.deepcopy(value), own), own, common))
    assert [unfolded(one, common) for one in made] == wanted
    again: list[Any] = ["something else"]
    assert unfolded(moved(made, common, again), again) == wanted


def test_hoisted_bodies_have_no_ids_and_the_value_names_them() -> None:
    cells: list[Any] = []
    value = {"messages": [HumanMessage("x", id="a"), HumanMessage("y")], "last": AIMessage("z", id="b"), "n": 1}
    made = folded(plain(value), cells)
    assert [node["payload"][2]["content"] for node in cells] == ["x", "y", "z"]
    assert [node["payload"][2]["id"] for node in cells] == [None, None, None]
    assert "content" not in repr(made)
    assert unfolded(made, cells) == plain(value)


def test_two_values_that_name_the_same_cells_do_not_share_them() -> None:
    cells: list[Any] = []
    made = folded(plain([HumanMessage("x", id="a")]), cells)
    other = {**made, "ids": ["b"]}
    first, second = unfolded(made, cells), unfolded(other, cells)
    assert [node["payload"][2]["id"] for node in (*first, *second, *cells)] == ["a", "b", None]


def test_one_message_in_a_list_is_not_one_that_stands_alone() -> None:
    for value in ([HumanMessage("x")], HumanMessage("x"), [[HumanMessage("x")]]):
        cells: list[Any] = []
        assert unfolded(folded(plain(value), cells), cells) == plain(value)


@for_each(
    "stored",
    [
        {"$ext": "hoisted", "start": 0, "count": 2, "ids": None},
        {"$ext": "hoisted", "start": -1, "count": 1, "ids": None},
        {"$ext": "hoisted", "start": 0, "count": -1, "ids": None},
        {"$ext": "hoisted", "start": "0", "count": 1, "ids": None},
        {"$ext": "hoisted", "ids": None},
        {"$ext": "hoisted", "start": 0, "count": 1, "ids": []},
        {"$ext": "hoisted", "start": 0, "count": 1, "ids": "a"},
        {"$ext": "messages", "bodies": None, "ids": None},
        {"$ext": "messages", "bodies": [], "ids": ["a"]},
        {"$ext": "messages", "bodies": [1], "ids": ["a"]},
    ],
)
def test_what_does_not_fit_together_is_damage(stored: Any) -> None:
    (cell,) = plain([HumanMessage("x")])
    for within in (stored, [stored], {"a": stored}):
        with pytest.raises(Damaged):
            unfolded(copy.deepcopy(within), [cell])


def test_cells_that_are_no_messages_are_damage() -> None:
    with pytest.raises(Damaged):
        unfolded({"$ext": "hoisted", "start": 0, "count": 1, "ids": ["a"]}, ["text"])


# -- names -----------------------------------------------------------------------------------------------------------

ODD = st.text(st.sampled_from("$:#%ids2 53a"), max_size=6)


@given(ODD, ODD)
def test_no_two_channels_have_a_key_in_common(one: str, other: str) -> None:
    mine, others = {channel_key(one), ids_key(one)}, {channel_key(other), ids_key(other)}
    assert len(mine) == 2
    assert (mine & others == set()) is (one != other)


@given(ODD)
def test_no_channel_has_a_key_that_is_our_own(channel: str) -> None:
    for name in (channel, "$checkpoint", "$writes", "$cells", "$early", "$history", "$values"):
        keys = {channel_key(name), ids_key(name)}
        assert not keys & {"$checkpoint", "$writes", "$cells", "$early", "$history", "$values"}


@given(st.tuples(ODD, ODD), st.tuples(ODD, ODD))
def test_no_two_tracks_have_a_name_in_common(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (track_name(*one) == track_name(*other)) is (one == other)
    assert of_track(track_name(*one)) == one


def test_too_many_or_odd_channels_go_under_one_key() -> None:
    few = {f"c{number}": number for number in range(56)}
    many = {**few, "one": "more"}
    odd = {"\ud800": 1}
    assert laid_out(few) == few
    assert is_nameable({})
    for entries in (many, odd):
        assert not is_nameable(entries)
        assert laid_out(entries) == {"$values": entries}
