"""Removing while others store and read: what was acknowledged stays, and nobody sees half of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph import graphs
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, checkpoint_id, config, numbers
from tests.adapters.langgraph.meanwhile import meanwhile

LAST = 4
MANY = 200  # calls to a store that none of this comes to
LONG = "a text that is a cell of its own " * 200


def value(number: int) -> dict[str, Any]:
    return {"a": f"{number} {LONG}", "messages": [HumanMessage(f"{at} {LONG}", id=f"{at}") for at in range(number)]}


def fill(saver: Face, thread: str) -> None:
    for number in range(1, LAST + 1):
        saver.put(number, value(number), parent=number - 1 or None, thread=thread, metadata={"run_id": f"run {number}"})
        saver.write(number, [("a", f"written {number} {LONG}")], thread=thread)


def prune(saver: Face, thread: str) -> None:
    saver.prune([thread])


def delete_run(saver: Face, thread: str) -> None:
    saver.delete_for_runs(["run 1", "run 3"])


def delete_last_run(saver: Face, thread: str) -> None:
    saver.delete_for_runs([f"run {LAST}"])


def delete_all_runs(saver: Face, thread: str) -> None:
    saver.delete_for_runs([f"run {number}" for number in range(1, LAST + 1)])


REMOVALS = [prune, delete_run, delete_last_run, delete_all_runs]
Removal = Callable[[Face, str], None]


@pytest.fixture
def faces(savers: Savers) -> tuple[Face, Face, Face]:
    """Three savers such as three processes have."""
    one, other, looking = (Face(savers.open(), is_async=False) for _ in range(3))
    return one, other, looking


def handle(face: Face) -> holdfast.Holdfast:
    assert isinstance(face.saver, HoldfastSaver)
    return face.saver.hf


@pytest.mark.parametrize("removal", REMOVALS)
def test_what_another_stores_during_a_removal_stays(faces: tuple[Face, Face, Face], removal: Removal) -> None:
    removing, storing, looking = faces
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)
        stored: list[int | None] = []

        def store(thread: str = thread, stored: list[int | None] = stored) -> None:
            latest = storing.get_raw(config(thread))
            parent = None if latest is None else numbers([latest])[0]
            storing.put(9, {"a": "meanwhile"}, parent=parent, thread=thread)
            storing.write(9, [("a", "written meanwhile")], "task-2", thread=thread)
            stored.append(parent)

        with meanwhile(handle(removing), call, store) as moment:
            removal(removing, thread)
        if not moment.came:
            break
        assert stored[0] in (LAST, LAST - 1, None)
        for face in (looking, storing, removing):
            assert numbers([face.get(thread=thread)]) == [9]
            assert face.values(thread=thread) == {"a": "meanwhile"}
            assert face.writes(thread=thread) == [("task-2", "a", "written meanwhile")]
        removing.put(10, {"a": "after"}, parent=9, thread=thread)
        assert looking.values(thread=thread) == {"a": "after"}
        removing.delete_thread(thread)
    assert 3 < call < MANY


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_put_during_which_another_removes_is_stored_or_refused(
    faces: tuple[Face, Face, Face], removal: Removal
) -> None:
    removing, storing, looking = faces
    outcomes: set[str] = set()
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)
        with meanwhile(handle(storing), call, partial(removal, removing, thread)) as moment:
            latest = storing.get_raw(config(thread))
            started = None if latest is None else numbers([latest])[0]
            try:
                storing.put(9, {"a": "mine"}, parent=started, thread=thread)
                outcomes.add("stored")
            except holdfast.Conflict:
                outcomes.add("refused")
                assert looking.get_raw(config(thread, number=LAST)) is None, "what it went on from is still there"
                storing.get_raw(config(thread))
                storing.put(9, {"a": "mine"}, parent=LAST - 1 if removal is delete_last_run else None, thread=thread)
        if not moment.came:
            break
        for face in (looking, removing, storing):
            assert numbers([face.get(thread=thread)]) == [9]
            assert face.values(thread=thread) == {"a": "mine"}
        storing.put(10, {"a": "after"}, parent=9, thread=thread)
        assert looking.values(thread=thread) == {"a": "after"}
        removing.delete_thread(thread)
    assert 2 < call < MANY
    assert "stored" in outcomes


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_thread_that_is_started_again_during_a_removal_is_left(
    faces: tuple[Face, Face, Face], removal: Removal
) -> None:
    """Another thread of the same name, whose checkpoints have the numbers of the old one's."""
    removing, storing, looking = faces
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)

        def begin_again(thread: str = thread) -> None:
            storing.delete_thread(thread)
            for number in range(1, LAST + 2):
                storing.put(number, {"a": f"new {number}"}, parent=number - 1 or None, thread=thread)

        with meanwhile(handle(removing), call, begin_again) as moment:
            removal(removing, thread)
        if not moment.came:
            break
        for face in (looking, storing, removing):
            found = face.list(config(thread))
            assert numbers(found)[0] == LAST + 1
            assert [one.checkpoint["channel_values"] for one in found] == [{"a": f"new {at}"} for at in numbers(found)]
            assert len(found) == LAST + 1 or removal is prune
        removing.delete_thread(thread)
    assert 3 < call < MANY


def test_writes_during_which_another_prunes_are_stored(faces: tuple[Face, Face, Face]) -> None:
    removing, storing, looking = faces
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)
        with meanwhile(handle(storing), call, partial(prune, removing, thread)) as moment:
            storing.write(LAST, [("a", "more")], "task-2", thread=thread)
        if not moment.came:
            break
        written = [("task", "a", f"written {LAST} {LONG}"), ("task-2", "a", "more")]
        for face in (looking, removing, storing):
            assert face.writes(thread=thread) == written
            assert numbers(face.list(config(thread))) == [LAST]
        removing.delete_thread(thread)
    assert 2 < call < MANY


@pytest.mark.parametrize("warm", [False, True])
def test_a_reader_beside_a_prune_gets_the_latest(savers: Savers, warm: bool) -> None:
    removing, reading = (Face(savers.open(), is_async=False) for _ in range(2))
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)
        if warm:
            reading.list(config(thread))
        with meanwhile(handle(reading), call, partial(prune, removing, thread)) as moment:
            found = reading.get(thread=thread)
        if not moment.came:
            break
        assert numbers([found]) == [LAST]
        assert found.checkpoint["channel_values"] == value(LAST)
        assert found.pending_writes == [("task", "a", f"written {LAST} {LONG}")]
        assert reading.get(thread=thread).checkpoint == found.checkpoint
    assert 1 < call < MANY


def test_a_reader_of_what_is_being_pruned_gets_all_of_it_or_nothing(savers: Savers) -> None:
    removing, reading = (Face(savers.open(), is_async=False) for _ in range(2))
    answers: set[bool] = set()
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)
        with meanwhile(handle(reading), call, partial(prune, removing, thread)) as moment:
            found = reading.get_raw(config(thread, number=2))
        if not moment.came:
            break
        answers.add(found is None)
        if found is not None:
            assert found.checkpoint["channel_values"] == value(2)
            assert found.pending_writes == [("task", "a", f"written 2 {LONG}")]
        assert reading.get_raw(config(thread, number=2)) is None
    assert 1 < call < MANY
    assert True in answers


@pytest.mark.parametrize("removal", REMOVALS[:2])
def test_a_list_beside_a_removal_has_the_latest_and_only_whole_ones(savers: Savers, removal: Removal) -> None:
    removing, reading = (Face(savers.open(), is_async=False) for _ in range(2))
    for call in count(1):
        thread = f"t{call}"
        fill(removing, thread)
        with meanwhile(handle(reading), call, partial(removal, removing, thread)) as moment:
            found = reading.list(config(thread))
        if not moment.came:
            break
        listed = numbers(found)
        assert listed[0] == LAST
        assert listed == sorted(set(listed), reverse=True)
        for number, one in zip(listed, found, strict=True):
            assert one.checkpoint["channel_values"] == value(number)
            assert one.pending_writes == [("task", "a", f"written {number} {LONG}")]
            assert one.config["configurable"]["checkpoint_id"] == checkpoint_id(number)
        removing.delete_thread(thread)
    assert 1 < call < MANY


@pytest.mark.parametrize("build", [graphs.chat, graphs.delta(100)], ids=["plain", "delta"])
def test_the_state_of_a_graph_beside_a_prune(savers: Savers, build: Callable[[Any], Any]) -> None:
    """Its history, too: what is listed of it is right."""
    saver, reading = savers.open(), savers.open()
    graph, looking = build(saver), build(reading)
    for turn in range(3):
        graph.invoke(_input(build, turn), config("source"), durability="sync")
    states = {
        one.config["configurable"]["checkpoint_id"]: one.values for one in graph.get_state_history(config("source"))
    }
    latest = graph.get_state(config("source")).values
    for call in count(1):
        thread = f"t{call}"
        saver.copy_thread("source", thread)
        history: list[Any] = []
        with meanwhile(reading.hf, call, partial(saver.prune, [thread])) as moment:
            assert looking.get_state(config(thread)).values == latest
            # A state that is put together of two looks may be gone at the second; it is not given as an empty one.
            with suppress(holdfast.NotFound):
                history.extend(looking.get_state_history(config(thread)))
        assert history[0].values == latest if history else build is not graphs.chat
        for one in history:
            assert one.values == states[one.config["configurable"]["checkpoint_id"]]
        saver.delete_thread(thread)
        if not moment.came:
            break
    assert 2 < call < MANY


def _input(build: Any, turn: int) -> dict[str, Any]:
    if build is graphs.chat:
        return {"messages": [HumanMessage(f"{turn} {LONG}", id=f"in-{turn}")]}
    return {"turn": turn, "line": [f"input {turn} {LONG}"], "table": {f"input-{turn}": turn}}
