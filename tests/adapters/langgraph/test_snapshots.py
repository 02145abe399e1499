"""Snapshots: whatever happens to a message, in place and at any depth, is noticed if it would be stored otherwise."""

from __future__ import annotations

import copy
import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from holdfast.adapters.langgraph.snapshots import Snapshots, taken
from tests.adapters.langgraph.kinds import KINDS, NAMES, places, stored
from tests.cases import for_each
from tests.selection import tries


def both_notice(message: BaseMessage, was: BaseMessage, mutate: Any) -> tuple[bool, bool]:
    """Whether one snapshot, and the snapshots of a list, say that a mutated message is what it was."""
    before, after = HumanMessage("before"), HumanMessage("after")
    alone = taken(message)
    among = Snapshots([taken(before), alone, taken(after)], [None, message.id, None])
    assert alone is not None
    assert alone.holds(message, message.id)
    assert among.unchanged([before, message, after]) == 3
    mutate(message)
    return alone.holds(message, was.id), among.unchanged([before, message, after]) == 3


def _reversed(value: Any) -> Any:
    return dict(reversed(value.items())) if isinstance(value, dict) else value[::-1]


NEW_VALUES: list[Any] = [None, True, 1, 1.0, 0, False, 0.0, -0.0, "", "x", b"x", [], {}, (), ["x"], {"x": 1}, {1: "x"}]
NAN = float("nan")


def mutations(value: Any) -> list[Any]:
    """Values that may come in place of this one; some of them equal it."""
    found = [*NEW_VALUES, NAN, copy.deepcopy(value)]
    if isinstance(value, dict):
        found += [_reversed(value), {**value, "added": None}, {}, [*value.items()], dict(list(value.items())[1:])]
    elif isinstance(value, list):
        found += [_reversed(value), [*value, None], value[1:], tuple(value), [value]]
    elif isinstance(value, str):
        found += [value + "!", value.encode(), value.upper(), [value]]
    elif isinstance(value, bool | int | float):
        found += [float(value), -value, bool(value), str(value)]
        if not math.isnan(value):
            found.append(int(value))
    return found


@pytest.mark.parametrize("number", range(len(KINDS)), ids=NAMES)
def test_every_change_of_every_place_is_noticed(number: int) -> None:
    """All places of a message, each with all that may come there."""
    source = KINDS[number]
    truth = stored(source)
    tried = changed = 0
    for at, place in enumerate(places(source)):
        for new in mutations(place.value):
            message = copy.deepcopy(source)

            def mutate(message: BaseMessage, at: int = at, new: Any = new) -> None:
                places(message)[at].put(copy.deepcopy(new) if new is not NAN else NAN)

            held = both_notice(message, source, mutate)
            tried += 1
            # What cannot be stored any more has to be looked at, too, to be refused.
            differs = stored(message) != truth
            changed += differs
            if differs:
                assert held == (False, False), (place.key, place.value, new)
    assert changed > 0.5 * tried


@given(st.data())
@settings(max_examples=tries(300, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_changes_is_noticed(data: Any) -> None:
    source = data.draw(st.sampled_from(KINDS))
    message = copy.deepcopy(source)

    def mutate(message: BaseMessage) -> None:
        for _ in range(data.draw(st.integers(1, 4))):
            found = places(message)
            if found:
                place = data.draw(st.sampled_from(found))
                place.put(copy.deepcopy(data.draw(st.sampled_from(mutations(place.value)))))

    held = both_notice(message, source, mutate)
    assert stored(message) == stored(source) or held == (False, False)


# -- changes that are no other value at a place ----------------------------------------------------------------------


def _swapped(message: BaseMessage) -> None:
    message.__class__ = SystemMessage


def _id(message: BaseMessage) -> None:
    message.id = "another"


def _no_id(message: BaseMessage) -> None:
    message.id = None


def _added(message: BaseMessage) -> None:
    message.mood = "good"  # type: ignore[attr-defined]  # messages take any attribute


def _deleted(message: BaseMessage) -> None:
    del message.name


def _hidden(message: BaseMessage) -> None:
    message.__dict__["hidden"] = 1


def _extra(message: BaseMessage) -> None:
    object.__setattr__(message, "__pydantic_extra__", {"kept": 0})


@pytest.mark.parametrize("mutate", [_swapped, _id, _no_id, _added, _deleted, _hidden, _extra])
def test_a_change_of_the_message_itself_is_noticed(mutate: Any) -> None:
    source = HumanMessage("hello", id="h", name="bob")
    assert both_notice(copy.deepcopy(source), source, mutate) == (False, False)


def test_fields_that_the_class_does_not_know_are_watched_when_they_change_or_go() -> None:
    source = HumanMessage("hello", mood=[1, {"deep": 0.0}])

    def deepened(message: Any) -> None:
        message.mood[1]["deep"] = -0.0

    def gone(message: Any) -> None:
        del message.mood

    for mutate in (deepened, gone):
        assert both_notice(copy.deepcopy(source), source, mutate) == (False, False)


class Scored(HumanMessage):
    """A message of a user's own, with fields of any plain type."""

    score: float = 0.0
    flag: Any = 0


@pytest.mark.parametrize(("before", "after"), [(0.0, -0.0), (-0.0, 0.0), (0.5, 0.25), (0.0, 0), (0.0, False)])
def test_a_number_that_is_a_field_is_compared_by_its_sign_and_type(before: Any, after: Any) -> None:
    def mutate(message: Any) -> None:
        message.score = after

    assert both_notice(Scored(content="x", score=before), Scored(content="x", score=before), mutate) == (False, False)


def test_nan_is_what_it_was_or_is_looked_at_again() -> None:
    message = AIMessage("x", response_metadata={"score": NAN, "list": [NAN]})
    snapshot = taken(message)
    assert snapshot is not None
    assert snapshot.holds(message, None)
    message.response_metadata["score"] = 1.0
    assert not snapshot.holds(message, None)


@for_each(
    "value",
    [(1,), {1}, object(), 1j, bytearray(b"x"), [(1, 2)], {"deep": [{1, 2}]}, {(1, 2): 3}, {0.5: 1}, HumanMessage("in")],
)
def test_a_message_with_anything_but_plain_data_has_no_snapshot(value: Any) -> None:
    assert taken(HumanMessage("x", additional_kwargs={"it": value})) is None
    assert taken(ToolMessage("x", tool_call_id="1", artifact=value)) is None
    assert taken(HumanMessage("x", more=value)) is None


class Text(str):
    """A text with a life of its own."""

    __slots__ = ()


def test_a_subclass_of_a_plain_type_is_not_plain() -> None:
    assert taken(HumanMessage("x", additional_kwargs={"it": Text("x")})) is None
    message = HumanMessage("x", additional_kwargs={"it": "x"})
    snapshot = taken(message)
    assert snapshot is not None
    message.additional_kwargs["it"] = Text("x")
    assert not snapshot.holds(message, None)


# -- many messages ---------------------------------------------------------------------------------------------------


def snapshots_of(messages: list[BaseMessage]) -> Snapshots:
    return Snapshots([taken(one) for one in messages], [one.id for one in messages])


def talk(count: int) -> list[BaseMessage]:
    return [copy.deepcopy(KINDS[number % len(KINDS)]) for number in range(count)]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "with one that has no snapshot"])
def test_how_many_at_the_front_are_what_they_were(plain: bool) -> None:
    for changed in range(20):
        messages: list[BaseMessage] = [HumanMessage(f"text {number}", id=f"m{number}") for number in range(20)]
        if not plain:
            messages[15] = HumanMessage("odd", additional_kwargs={"it": (1,)})
        known = snapshots_of(messages)
        messages[changed].additional_kwargs["new"] = 1
        assert known.unchanged(messages) == min(changed, 20 if plain else 15)


def test_messages_that_came_or_went_at_the_end_do_not_hide_those_before() -> None:
    messages = talk(30)
    known = snapshots_of(messages)
    assert known.unchanged([]) == 0
    assert known.unchanged(messages[:7]) == 7
    assert known.unchanged([*messages, HumanMessage("new")]) == 30
    messages[3].content = "other"
    assert known.unchanged([*messages, HumanMessage("new")]) == 3


@for_each("keep", [0, 1, 5, 10])
@for_each("odd", [False, True])
def test_extended_snapshots_are_those_of_the_whole_list(keep: int, odd: bool) -> None:
    first: list[BaseMessage] = [HumanMessage(f"{number}", id=f"m{number}") for number in range(10)]
    more: list[BaseMessage] = [copy.deepcopy(KINDS[6]), AIMessage("y", id="y")]
    if odd:
        first[2] = HumanMessage("with more", mood=["good"])
    known = snapshots_of(first).extended(keep, [taken(one) for one in more], [one.id for one in more])
    whole = first[:keep] + more
    assert known.ids == [one.id for one in whole]
    assert known.unchanged(whole) == len(whole)
    for at, message in enumerate(whole):
        changed = copy.deepcopy(whole)
        changed[at].response_metadata["x"] = 0
        assert known.unchanged(changed) == at
        changed = copy.deepcopy(whole)
        changed[at].id = f"{message.id}!"
        assert known.unchanged(changed) == at
    more[0].additional_kwargs["nested"]["deep"]["er"][0] = -0.0
    assert known.unchanged(whole) == keep


def test_two_messages_that_changed_places_are_noticed() -> None:
    messages: list[BaseMessage] = [HumanMessage("a"), HumanMessage("b")]
    known = snapshots_of(messages)
    assert known.unchanged(messages[::-1]) == 0
