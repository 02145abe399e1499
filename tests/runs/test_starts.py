"""The start of a run: a run that exists is resumed only with the start that it had."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from holdfast import Conflict
from tests.runs.conftest import World


def test_a_completed_run_does_not_answer_another_start(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={"order": 1}, ends="completed") as run:
        run.finish("order 1 is paid")
    with pytest.raises(Conflict, match="'t' was started with another start state; nothing was changed"):
        hf.run("t", start={"order": 2}).__enter__()
    with hf.run("t", start={"order": 1}) as run:
        assert run.result == "order 1 is paid"
    with hf.run("t") as run:
        assert run.result == "order 1 is paid"


def test_an_unfinished_run_is_not_resumed_with_another_start(world: World) -> None:
    with world.dying("t", start={"order": 1}):
        pass
    with pytest.raises(Conflict, match="another start"):
        world.open().run("t", start={"order": 2}).__enter__()
    with world.running("t", start={"order": 1}) as run:
        assert run.state == {"order": 1}


def test_a_submitted_run_is_not_claimed_with_another_start(world: World) -> None:
    hf = world.open()
    hf.submit("pay", "t", start={"order": 1})
    with pytest.raises(Conflict, match="another start"):
        hf.run("t", start={"order": 2}).__enter__()
    with hf.run("t", start={"order": 1}) as run:
        run.finish()


@pytest.mark.parametrize(
    ("one", "other"),
    [({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"a": {"x", "y", "z"}}, {"a": {"z", "y", "x"}}), ((1, 2), (1, 2))],
    ids=["dict", "set", "tuple"],
)
def test_equal_starts_are_the_same_start_in_any_order(world: World, one: Any, other: Any) -> None:
    hf = world.open()
    with world.running("t", hf, start=one) as run:
        run.save()
    with world.running("t", hf, start=other):
        pass


def test_a_turn_uses_its_start_for_a_new_thread_only(world: World) -> None:
    hf = world.open()
    for turn, start in (("1", {"messages": []}), ("2", {"messages": [], "more": 1})):
        with world.running("t", hf, start=start, turn=turn, ends="completed") as run:
            assert run.state == {"messages": []}
            run.finish()


def test_a_thread_that_was_saved_before_its_run_has_no_start_to_compare(world: World) -> None:
    hf = world.open()
    hf.thread("t").save({"order": 1})
    with world.running("t", hf, start={}) as run:
        assert run.state == {"order": 1}


def test_a_start_in_another_schema_version_cannot_be_compared(world: World) -> None:
    hf = world.open()
    hf.migration(from_=1, to=2)(lambda state: {**state, "currency": "EUR"})
    with world.running("t", hf, start={"order": 1}, schema_version=1) as run:
        run.save()
    for _ in range(2):
        with world.running("t", hf, start={"order": 1, "currency": "EUR"}, schema_version=2) as run:
            assert run.state == {"order": 1, "currency": "EUR"}
            run.save()


@attrs.define
class Order:
    number: int


def test_typed_starts_are_compared_as_they_are_stored(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start=Order(1), type=Order) as run:
        run.save()
    with world.running("t", hf, start=Order(1), type=Order) as run:
        assert run.state == Order(1)
    with pytest.raises(Conflict, match="another start"):
        hf.run("t", start=Order(2), type=Order).__enter__()
