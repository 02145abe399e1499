"""Copying a thread: everything, and the two know nothing of each other afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.faces import Face, config, numbers

Another = Callable[[], Face]
SPACES = ("", "child:1", "kept")


def fill(saver: Face) -> None:
    for ns in SPACES:
        saver.put(1, {"a": [ns]}, ns=ns, metadata={"run_id": "one"})
        saver.put(2, {"a": [ns, 2]}, parent=1, ns=ns)
        saver.get(1, ns=ns)  # a fork is asked for by its id
        saver.put(3, {"a": [ns, 3]}, parent=1, ns=ns)
        saver.put(4, {"b": 4}, parent=3, ns=ns, versions={"b": 4}, new={"b": 4})
        saver.write(2, [("a", "on the side")], ns=ns)
        saver.write(4, [("a", ns), ("b", 5)], "task-2", "path", ns=ns)
        saver.write(4, [("a", "first")], "task-3", ns=ns)


def content(saver: Face, thread: str) -> list[Any]:
    """All of a thread but its name."""
    found = []
    for one in saver.list(config(thread, None)):
        told = {**one.config["configurable"], "thread_id": None}
        parent = one.parent_config and {**one.parent_config["configurable"], "thread_id": None}
        found.append((told, one.checkpoint, one.metadata, parent, one.pending_writes))
    return found


def test_a_copy_has_every_checkpoint_namespace_and_write(saver: Face, another: Another) -> None:
    fill(saver)
    before = content(saver, "t")

    saver.copy_thread("t", "copy")

    for reading in (saver, another()):
        assert len(content(reading, "copy")) == 12
        assert content(reading, "copy") == before
        assert content(reading, "t") == before
        for ns in SPACES:
            assert numbers([reading.get(thread="copy", ns=ns)]) == [4]
            parent = reading.get(4, thread="copy", ns=ns).parent_config
            assert parent is not None
            assert parent["configurable"]["thread_id"] == "copy"


def test_source_and_copy_go_their_own_ways(saver: Face, another: Another) -> None:
    fill(saver)
    saver.copy_thread("t", "copy")
    before = content(saver, "t")

    saver.put(5, {"a": "new"}, parent=4, thread="copy")
    saver.write(4, [("c", "new")], "task-9", thread="copy")
    saver.put(4, {"a": "replaced"}, parent=3, thread="copy", ns="kept")

    for reading in (saver, another()):
        assert content(reading, "t") == before
        assert reading.values(thread="copy") == {"a": "new"}
        assert reading.values(thread="copy", ns="kept") == {"a": "replaced"}

    saver.put(6, {"a": "of the source"}, parent=4)
    assert reading.values(thread="copy") == {"a": "new"}


@pytest.mark.parametrize("deleted", ["t", "copy"])
def test_either_may_be_deleted(saver: Face, another: Another, deleted: str) -> None:
    fill(saver)
    before = content(saver, "t")
    saver.copy_thread("t", "copy")

    saver.delete_thread(deleted)

    other = {"t": "copy", "copy": "t"}[deleted]
    for reading in (saver, another()):
        assert content(reading, deleted) == []
        assert content(reading, other) == before


def test_a_copy_may_be_copied_and_pruned(saver: Face) -> None:
    fill(saver)
    before = content(saver, "t")
    saver.copy_thread("t", "copy")
    saver.copy_thread("copy", "copy of the copy")

    saver.prune(["copy"])
    saver.delete_thread("t")

    assert content(saver, "copy of the copy") == before
    assert numbers(saver.list(config("copy"))) == [4]


def test_writes_whose_checkpoint_is_still_to_come_are_copied_too(saver: Face) -> None:
    saver.put(1)
    saver.write(2, [("a", "early")])

    saver.copy_thread("t", "copy")
    saver.put(2, parent=1, thread="copy")

    assert saver.writes(2, thread="copy") == [("task", "a", "early")]


def test_a_fork_has_what_another_process_wrote_meanwhile(saver: Face, another: Another) -> None:
    """Otherwise its nodes would run again."""
    other, made = another(), cast(HoldfastSaver, saver.saver)
    saver.put(1, {"a": 1})
    saver.write(1, [("a", "own")], "task-1")
    assert len(saver.writes(1)) == 1
    other.write(1, [("a", "other")], "task-2")

    made.fork("t", "fork")
    made.copy_thread("fork", "copy")
    other.write(1, [("a", "last")], "task-3", thread="fork")
    made.fork("fork", "fork of the fork")
    made.copy_thread("fork", "copy of the fork")

    for thread, count in (("fork", 3), ("copy", 2), ("fork of the fork", 3), ("copy of the fork", 3)):
        assert len(another().writes(thread=thread)) == count, thread


def test_an_unknown_source_makes_no_target(saver: Face) -> None:
    saver.copy_thread("nobody", "copy")

    assert saver.list(config("copy", None)) == []
    assert saver.get_raw(config("copy")) is None
    saver.put(1, {"a": 1}, thread="copy")
    assert saver.values(thread="copy") == {"a": 1}


@pytest.mark.parametrize("ns", ["", "child:1"])
def test_a_target_that_is_there_is_left_as_it_is(saver: Face, another: Another, ns: str) -> None:
    fill(saver)
    saver.put(1, {"a": "there"}, thread="copy", ns=ns)

    with pytest.raises(holdfast.errors.AlreadyExists):
        saver.copy_thread("t", "copy")

    for reading in (saver, another()):
        assert [found.checkpoint["channel_values"] for found in reading.list(config("copy", None))] == [{"a": "there"}]


def test_a_thread_is_no_copy_of_itself(saver: Face) -> None:
    fill(saver)
    before = content(saver, "t")

    with pytest.raises(holdfast.HoldfastError):
        saver.copy_thread("t", "t")

    assert content(saver, "t") == before


def test_a_target_that_was_deleted_may_be_one_again(saver: Face) -> None:
    fill(saver)
    saver.put(1, thread="copy")
    saver.delete_thread("copy")

    saver.copy_thread("t", "copy")

    assert content(saver, "copy") == content(saver, "t")
