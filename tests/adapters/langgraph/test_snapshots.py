"""Snapshots: whatever happens to a message, in place and at any depth, is noticed if it would be stored otherwise."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph.snapshots import Snapshot, Snapshots, collecting_later, taken

SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)

USAGE: Any = {
    "input_tokens": 1,
    "output_tokens": 2,
    "total_tokens": 3,
    "input_token_details": {"cache_read": 0, "audio": 1},
}
BLOCKS: list[Any] = [
    {"type": "text", "text": "look", "annotations": [{"type": "citation", "start_index": 0}]},
    {"type": "image", "source": {"data": "aGk=", "sizes": [1, 2, [3, 0.0]]}},
    "a text",
]
CALLS: list[Any] = [
    {
        "name": "search",
        "args": {"query": {"words": ["a", "b"], "limit": 1, "boost": 0.0}},
        "id": "c1",
        "type": "tool_call",
    },
    {"name": "add", "args": {}, "id": None, "type": "tool_call"},
]
SAID: dict[str, Any] = {
    "additional_kwargs": {"refusal": None, "flags": [True, 1, 1.0], "nested": {"deep": {"er": [0.0, "x"]}}},
    "response_metadata": {"model": "m", "logprobs": [{"token": "a", "logprob": -0.5}], "empty": {}, "none": []},
}

KINDS: list[BaseMessage] = [
    HumanMessage("hello"),
    HumanMessage(copy.deepcopy(BLOCKS), id="h1", name="bob", **copy.deepcopy(SAID)),
    HumanMessageChunk("hel", id="hc"),
    SystemMessage("be kind", id="s1", **copy.deepcopy(SAID)),
    SystemMessageChunk("be"),
    AIMessage("", id="a0"),
    AIMessage("answer", id="a1", tool_calls=CALLS, usage_metadata=USAGE, **copy.deepcopy(SAID)),
    AIMessage(
        copy.deepcopy(BLOCKS),
        id="a2",
        invalid_tool_calls=[{"name": "x", "args": "{", "id": "c9", "error": "bad", "type": "invalid_tool_call"}],
    ),
    AIMessageChunk(
        "ans",
        id="ac",
        usage_metadata=USAGE,
        tool_call_chunks=[{"name": "n", "args": '{"a": 1}', "id": "c", "index": 0, "type": "tool_call_chunk"}],
    ),
    ToolMessage("3", tool_call_id="c1", id="t1", artifact={"rows": [[1, 2.5], [3, None]]}, status="error"),
    ToolMessage(copy.deepcopy(BLOCKS), tool_call_id="c2"),
    ToolMessageChunk("3", tool_call_id="c1"),
    FunctionMessage("4", name="f", id="f1"),
    FunctionMessageChunk("4", name="f"),
    ChatMessage("said", role="critic", id="x1", **copy.deepcopy(SAID)),
    ChatMessageChunk("sa", role="critic"),
    RemoveMessage(id="gone"),
    # Fields that the class does not know, and one that was set to its default.
    HumanMessage("more", id="e1", mood={"level": [1, {"calm": True}]}, score=0.0, tags=["a"]),
    AIMessage("blank", name=None, example=False),
]
NAMES = [f"{type(one).__name__}-{at}" for at, one in enumerate(KINDS)]


def stored(message: BaseMessage) -> Any:
    """What would be stored of a message: the truth that a snapshot is measured by."""
    return SERDE.dumps_typed(message)


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


# -- places within a message -----------------------------------------------------------------------------------------


class Place:
    """Somewhere within a message: the container, and the key of a member."""

    def __init__(self, container: Any, key: Any) -> None:
        self.container = container
        self.key = key

    @property
    def value(self) -> Any:
        return self.container[self.key]

    def put(self, value: Any) -> None:
        self.container[self.key] = value


def places(message: BaseMessage) -> list[Place]:
    found = [*_places(message.__dict__)]
    return [*found, *_places(message.__pydantic_extra__ or {})]


def _places(container: Any) -> Iterator[Place]:
    keys = [*container] if isinstance(container, dict) else range(len(container))
    for key in keys:
        yield Place(container, key)
        if isinstance(container[key], dict | list):
            yield from _places(container[key])


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
        if value == value:
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
            try:
                differs = stored(message) != truth
            except Exception:  # whatever a serde raises: what cannot be stored has to be looked at, and be refused
                differs = True
            changed += differs
            if differs:
                assert held == (False, False), (place.key, place.value, new)
    assert changed > 0.5 * tried


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    try:
        differs = stored(message) != stored(source)
    except Exception:  # whatever a serde raises
        differs = True
    assert not differs or held == (False, False)


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

    assert both_notice(Scored("x", score=before), Scored("x", score=before), mutate) == (False, False)


def test_nan_is_what_it_was_or_is_looked_at_again() -> None:
    message = AIMessage("x", response_metadata={"score": NAN, "list": [NAN]})
    snapshot = taken(message)
    assert snapshot is not None
    assert snapshot.holds(message, None)
    message.response_metadata["score"] = 1.0
    assert not snapshot.holds(message, None)


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, object(), 1j, bytearray(b"x"), [(1, 2)], {"deep": [{1, 2}]}, {(1, 2): 3}, {0.5: 1}, HumanMessage("in")],
    ids=repr,
)
def test_a_message_with_anything_but_plain_data_has_no_snapshot(value: Any) -> None:
    assert taken(HumanMessage("x", additional_kwargs={"it": value})) is None
    assert taken(ToolMessage("x", tool_call_id="1", artifact=value)) is None
    assert taken(HumanMessage("x", more=value)) is None


class Text(str):
    """A text with a life of its own."""


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


@pytest.mark.parametrize("keep", [0, 1, 5, 10])
@pytest.mark.parametrize("odd", [False, True])
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
    more[0].tool_calls[0]["args"]["query"]["boost"] = -0.0
    assert known.unchanged(whole) == keep


def test_two_messages_that_changed_places_are_noticed() -> None:
    messages: list[BaseMessage] = [HumanMessage("a"), HumanMessage("b")]
    known = snapshots_of(messages)
    assert known.unchanged(messages[::-1]) == 0


# -- copies ----------------------------------------------------------------------------------------------------------


def mutable_parts(value: Any) -> Iterator[Any]:
    if isinstance(value, BaseMessage):
        yield value
        yield value.__dict__
        yield value.__pydantic_fields_set__
        members: Any = [*value.__dict__.values(), value.__pydantic_extra__]
    elif isinstance(value, dict):
        yield value
        members = value.values()
    elif isinstance(value, list | set):
        yield value
        members = value
    else:
        return
    for member in members:
        yield from mutable_parts(member)


@pytest.mark.parametrize("source", KINDS, ids=NAMES)
def test_copies_are_stored_alike_and_share_nothing_that_can_change(source: BaseMessage) -> None:
    snapshot = taken(source)
    assert snapshot is not None
    copies = [snapshot.copy(source.id), snapshot.copy(source.id), source]
    for one in copies:
        assert stored(one) == stored(source)
        assert type(one) is type(source)
        assert one == source
        assert one.model_fields_set == source.model_fields_set
        assert snapshot.holds(one, source.id)
    seen = [{id(part) for part in mutable_parts(one)} for one in copies]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    before = stored(copies[1])
    for place in reversed(places(copies[0])):
        place.put("spoilt")
    assert stored(copies[1]) == before
    assert stored(snapshot.copy(source.id)) == before
    assert stored(source) == before


def test_a_copy_can_be_used_as_any_message() -> None:
    source = AIMessage("x", tool_calls=CALLS, usage_metadata=USAGE)
    snapshot = taken(source)
    assert snapshot is not None
    made = snapshot.copy("new")
    assert made.id == "new"
    made.mood = "good"  # type: ignore[attr-defined]  # messages take any attribute
    assert made.model_copy(deep=True) == made
    assert copy.deepcopy(made).model_dump() == made.model_dump()
    assert "tool_calls" in made.model_dump_json()
    assert made.pretty_repr() == source.pretty_repr()
    assert snapshot.copy(None).id is None
    assert not hasattr(snapshot.copy(None), "mood")


def test_a_snapshot_is_of_its_moment() -> None:
    """What happens to a message later is not in the copies."""
    source = AIMessage("x", response_metadata={"list": [1]})
    snapshot = Snapshot(source)
    source.response_metadata["list"].append(2)
    source.content = "y"
    assert snapshot.copy(None) == AIMessage("x", response_metadata={"list": [1]})


@pytest.mark.parametrize("count", [1, 64, 1_000])
def test_garbage_is_collected_again_afterwards(count: int) -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), collecting_later(count):
        assert gc.isenabled() is (count < 64)
        raise ValueError("inside")
    assert gc.isenabled()


def test_who_has_switched_collecting_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collecting_later(1_000):
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
