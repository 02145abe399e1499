"""Pruning: one checkpoint of each namespace is left, and all it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from langgraph.checkpoint.serde.types import TASKS

import holdfast
from tests.adapters.langgraph.conftest import Savers
from tests.adapters.langgraph.faces import Face, checkpoint_id, config, numbers

Another = Callable[[], Face]


def fill(saver: Face, count: int = 4, *, thread: str = "t", ns: str = "") -> None:
    for number in range(1, count + 1):
        saver.put(number, {"a": list(range(number))}, parent=number - 1 or None, thread=thread, ns=ns)
        saver.write(number, [("a", number)], thread=thread, ns=ns)


def test_the_latest_is_left_with_its_writes_and_without_a_parent(saver: Face, another: Another) -> None:
    fill(saver)

    saver.prune(["t"])

    for reading in (saver, another()):
        [left] = reading.list(config(ns=None))
        assert numbers([left]) == [4]
        assert left.checkpoint["channel_values"] == {"a": [0, 1, 2, 3]}
        assert left.pending_writes == [("task", "a", 4)]
        assert left.parent_config is None
        assert reading.get() == left
        assert reading.get_raw(config(number=3)) is None


def test_values_that_the_latest_took_over_by_version_are_left(saver: Face, another: Another) -> None:
    saver.put(1, {"a": "from the first", "b": 1})
    at = saver.get(1).checkpoint["channel_versions"]["a"]
    saver.put(2, {"b": 2}, parent=1, versions={"a": at, "b": 2}, new={"b": 2})
    saver.put(3, {"b": 3}, parent=2, versions={"a": at, "b": 3}, new={"b": 3})

    saver.prune(["t"], strategy="keep_latest")

    for reading in (saver, another()):
        assert reading.values() == {"a": "from the first", "b": 3}


def test_a_pruned_thread_goes_on(saver: Face, another: Another) -> None:
    fill(saver)
    saver.prune(["t"])

    saver.put(5, {"a": "new"}, parent=4)
    saver.write(5, [("a", "newer")])

    for reading in (saver, another()):
        assert numbers(reading.list(config())) == [5, 4]
        assert reading.values() == {"a": "new"}
        assert reading.writes() == [("task", "a", "newer")]
    saver.prune(["t"])
    assert numbers(saver.list(config())) == [5]


def test_each_namespace_keeps_its_own_latest(saver: Face) -> None:
    fill(saver, 3)
    fill(saver, 2, ns="child:1")
    fill(saver, 4, ns="kept")

    saver.prune(["t"])

    assert numbers(saver.list(config(ns=""))) == [3]
    assert numbers(saver.list(config(ns="child:1"))) == [2]
    assert numbers(saver.list(config(ns="kept"))) == [4]


def test_only_the_threads_that_are_named_are_pruned(saver: Face) -> None:
    for thread in ("t", "u", "v"):
        fill(saver, thread=thread)

    saver.prune(["t", "v", "nobody"])

    assert [len(saver.list(config(thread))) for thread in ("t", "u", "v")] == [1, 4, 1]


def test_nothing_to_prune_is_no_error(saver: Face) -> None:
    fill(saver)

    saver.prune([])
    saver.prune(["nobody"])
    saver.prune([], strategy="delete")
    saver.prune(["nobody"], strategy="delete")

    assert len(saver.list(None)) == 4


def test_delete_leaves_nothing(saver: Face) -> None:
    fill(saver)
    fill(saver, ns="child:1")
    fill(saver, thread="u")

    saver.prune(["t"], strategy="delete")

    assert saver.list(config(ns=None)) == []
    assert saver.get_raw(config()) is None
    assert len(saver.list(config("u"))) == 4


def test_a_bare_text_is_refused(saver: Face) -> None:
    for thread in ("t", "e", "x"):
        fill(saver, thread=thread)

    with pytest.raises((TypeError, ValueError)):
        saver.prune("text", strategy="delete")

    assert len(saver.list(None)) == 12


@pytest.mark.parametrize("strategy", ["", "keep_last", "KEEP_LATEST", "delete_all", None])
def test_an_unknown_strategy_is_refused(saver: Face, strategy: str | None) -> None:
    fill(saver)

    with pytest.raises((holdfast.InvalidArgument, ValueError)):
        saver.prune(["t"], strategy=strategy)

    assert len(saver.list(config())) == 4


def test_writes_whose_checkpoint_is_still_to_come_are_left(saver: Face) -> None:
    fill(saver)
    saver.write(5, [("a", "early")])

    saver.prune(["t"])
    saver.put(5, {"a": 5}, parent=4)

    assert saver.writes(5) == [("task", "a", "early")]


def test_a_subgraphs_call_goes_with_the_root_checkpoint_it_began_from(saver: Face) -> None:
    fill(saver, 3)
    saver.put(8, ns="call:1", metadata={"parents": {"": checkpoint_id(2)}})
    saver.put(9, ns="call:2", metadata={"parents": {"": checkpoint_id(3)}})
    saver.put(10, ns="call:3", metadata={"parents": {"": checkpoint_id(7)}})

    saver.prune(["t"])

    assert saver.list(config(ns="call:1")) == []
    assert numbers(saver.list(config(ns="call:2"))) == [9]
    # Its root is not saved yet: a run under way.
    assert numbers(saver.list(config(ns="call:3"))) == [10]
    assert numbers(saver.list(config(ns=""))) == [3]


def test_a_subgraph_with_a_memory_of_its_own_keeps_it(saver: Face) -> None:
    fill(saver, 3)
    saver.put(7, ns="kept", metadata={"parents": {"": checkpoint_id(1)}})
    saver.put(8, {"a": "memory"}, ns="kept", parent=7, metadata={"parents": {"": checkpoint_id(1)}})

    saver.prune(["t"])

    assert numbers(saver.list(config(ns="kept"))) == [8]
    assert saver.values(ns="kept") == {"a": "memory"}


def test_the_sends_of_an_old_format_keep_their_parent(saver: Face) -> None:
    """Before version 4 what was sent was read from the writes of the parent."""
    saver.put(1, v=3)
    saver.put(2, parent=1, v=3)
    saver.write(2, [(TASKS, "sent")])
    saver.put(3, parent=2, v=3)

    saver.prune(["t"])

    assert numbers([saver.get()]) == [3]
    parent = saver.get().parent_config
    assert parent is not None
    before = saver.get_raw(parent)
    assert before is not None
    assert before.pending_writes == [("task", TASKS, "sent")]
    assert saver.get_raw(config(number=1)) is None


def test_the_tip_of_a_fork_is_the_latest(saver: Face) -> None:
    fill(saver, 3)
    saver.get(1)  # a fork is asked for by its id
    saver.put(7, {"a": "fork"}, parent=1)

    saver.prune(["t"])

    assert numbers(saver.list(config())) == [7]
    assert saver.values() == {"a": "fork"}


def test_pruning_again_changes_nothing(saver: Face) -> None:
    fill(saver)
    saver.prune(["t"])
    before = saver.list(config(ns=None))

    saver.prune(["t", "t"])

    assert saver.list(config(ns=None)) == before


def test_another_process_that_holds_the_tip_goes_on_after_a_prune(saver: Face, another: Another) -> None:
    fill(saver)
    other = another()
    other.get()

    saver.prune(["t"])
    other.write(4, [("b", "late")], "task-2")
    other.put(5, {"a": "new"}, parent=4)

    assert saver.values() == {"a": "new"}
    assert saver.writes(4) == [("task", "a", 4), ("task-2", "b", "late")]


@pytest.mark.parametrize("is_async", [False, True])
def test_idle_threads_are_pruned_with_their_namespaces(savers: Savers, is_async: bool) -> None:
    saver = savers.open()
    face = Face(saver, is_async=False)
    for thread in ("old", "new"):
        for number in range(1, 4):
            face.put(number, {"a": number}, parent=number - 1 or None, thread=thread)
            face.put(number, {"b": number}, parent=number - 1 or None, thread=thread, ns="child")
    limit = timedelta(hours=1)
    assert (asyncio.run(saver.aprune_idle(older_than=limit)) if is_async else saver.prune_idle(older_than=limit)) == 0
    face.put(4, {"a": 4}, parent=3, thread="new")
    old = saver.hf.thread("old").latest()
    new = saver.hf.thread("new").latest()
    assert old is not None
    assert new is not None
    between = (datetime.now(UTC) - old.created_at + (datetime.now(UTC) - new.created_at)) / 2
    assert saver.prune_idle(older_than=between) == 1
    assert numbers(face.list(config("old", None))) == [3, 3]
    assert numbers(face.list(config("new", ""))) == [4, 3, 2, 1]
    assert saver.prune_idle(older_than=0, strategy="delete") == 2
    assert face.list(None) == []
    with pytest.raises(holdfast.InvalidArgument):
        saver.prune_idle(older_than=-1)
