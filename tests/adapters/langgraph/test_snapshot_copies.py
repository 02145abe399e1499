"""Copies of messages: as they were, and sharing nothing with what they were taken from."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from holdfast.adapters.langgraph.snapshots import Snapshot, collecting_later, taken
from tests.adapters.langgraph.kinds import CALLS, KINDS, USAGE, places, stored
from tests.cases import for_each


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


@for_each("source", KINDS)
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
    with contextlib.suppress(ValueError), collecting_later(count):
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
