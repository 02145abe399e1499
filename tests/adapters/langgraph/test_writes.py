"""Pending writes: which of two stays, in which order they come, and that they may be there before their checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

import holdfast
from tests.adapters.langgraph.faces import Face, config

Another = Callable[[], Face]


def test_writes_belong_to_their_checkpoint(saver: Face, another: Another) -> None:
    saver.put(1)
    saver.put(2, parent=1)
    saver.write(1, [("a", 1), ("b", [2])], "task-1")
    saver.write(2, [("a", 3)], "task-2")

    for reading in (saver, another()):
        assert reading.writes(1) == [("task-1", "a", 1), ("task-1", "b", [2])]
        assert reading.writes(2) == [("task-2", "a", 3)]
        assert reading.writes() == [("task-2", "a", 3)]
        assert [found.pending_writes for found in reading.list(config())] == [
            [("task-2", "a", 3)],
            [("task-1", "a", 1), ("task-1", "b", [2])],
        ]


def test_a_checkpoint_without_writes_has_none(saver: Face) -> None:
    saver.put(1)
    saver.write(1, [])

    assert saver.writes(1) == []


def test_writes_may_come_before_their_checkpoint(saver: Face, another: Another) -> None:
    saver.put(1, {"a": 1})
    saver.write(2, [("a", "early")], "task-1")
    another().write(2, [("a", "early too")], "task-2")

    assert saver.get_raw(config(number=2)) is None
    assert saver.values() == {"a": 1}
    assert len(saver.list(config())) == 1

    saver.put(2, {"a": 2}, parent=1)

    for reading in (saver, another()):
        assert reading.writes(2) == [("task-1", "a", "early"), ("task-2", "a", "early too")]
        assert reading.writes() == reading.writes(2)
        assert reading.values() == {"a": 2}


def test_writes_may_come_before_the_first_checkpoint_of_a_thread(saver: Face, another: Another) -> None:
    saver.write(1, [("a", "early")], ns="child:1")

    for reading in (saver, another()):
        assert reading.get_raw(config(ns="child:1")) is None
        assert reading.get_raw(config()) is None
        assert reading.list(config(ns=None)) == []
        assert reading.list(None) == []

    another().put(1, ns="child:1")

    assert saver.writes(1, ns="child:1") == [("task", "a", "early")]


def test_of_ordinary_writes_the_first_stays(saver: Face, another: Another) -> None:
    saver.put(1)
    saver.write(1, [("a", "first")])
    saver.write(1, [("a", "second"), ("b", "new")])
    another().write(1, [("c", "third"), ("b", "later"), ("d", "newer")])

    for reading in (saver, another()):
        assert reading.writes(1) == [("task", "a", "first"), ("task", "b", "new"), ("task", "d", "newer")]


def test_the_first_stays_also_before_the_checkpoint_is_there(saver: Face) -> None:
    saver.write(1, [("a", "first")])
    saver.write(1, [("a", "second")])
    saver.put(1)
    saver.write(1, [("a", "third")])

    assert saver.writes(1) == [("task", "a", "first")]


@pytest.mark.parametrize("channel", [ERROR, SCHEDULED, INTERRUPT, RESUME])
def test_of_special_writes_the_last_stays(saver: Face, another: Another, channel: str) -> None:
    saver.put(1)
    saver.write(1, [(channel, "first")])
    saver.write(1, [(channel, "second")])
    another().write(1, [(channel, "third")])

    for reading in (saver, another()):
        assert reading.writes(1) == [("task", channel, "third")]


def test_in_a_mixed_call_each_write_goes_by_its_own_rule(saver: Face, another: Another) -> None:
    saver.put(1)
    saver.write(1, [(RESUME, ["first"]), ("a", "first"), (INTERRUPT, "first")])
    saver.write(1, [(RESUME, ["second"]), ("a", "second"), (INTERRUPT, "second"), ("b", "new")])

    for reading in (saver, another()):
        assert reading.writes(1) == [
            ("task", RESUME, ["second"]),
            ("task", INTERRUPT, "second"),
            ("task", "a", "first"),
            ("task", "b", "new"),
        ]


def test_a_special_write_does_not_take_the_place_of_an_ordinary_one(saver: Face) -> None:
    """An ordinary write's index is its position in its call, special ones counted."""
    saver.put(1)
    saver.write(1, [("a", 0), ("a", 1)])
    saver.write(1, [(ERROR, "error"), ("a", "ignored"), ("a", 2)])

    assert saver.writes(1) == [("task", ERROR, "error"), ("task", "a", 0), ("task", "a", 1), ("task", "a", 2)]


def test_one_task_may_write_a_channel_more_than_once(saver: Face) -> None:
    saver.put(1)
    saver.write(1, [("a", number) for number in range(12)])

    assert saver.writes(1) == [("task", "a", number) for number in range(12)]


def test_tasks_do_not_share_indexes(saver: Face) -> None:
    saver.put(1)
    saver.write(1, [("a", 1), (ERROR, "one")], "task-1")
    saver.write(1, [("a", 2), (ERROR, "two")], "task-2")

    assert saver.writes(1) == [
        ("task-1", ERROR, "one"),
        ("task-1", "a", 1),
        ("task-2", ERROR, "two"),
        ("task-2", "a", 2),
    ]


def test_the_order_is_by_path_then_task_then_index(saver: Face, another: Another) -> None:
    saver.put(1)
    random = Random(7)
    calls: list[tuple[str, str, list[tuple[str, Any]]]] = []
    for path in ("", "~__pregel_pull, a", "~__pregel_push, 0", "~__pregel_push, 1", "é", "Z"):
        for task in ("9", "10", "b", "B"):
            writes = [(random.choice(["x", "y", ERROR, RESUME]), [path, task, at]) for at in range(3)]
            calls.append((path, f"{path[-1:]}{task}", writes))
    random.shuffle(calls)
    expected: dict[tuple[str, str, int], tuple[str, str, Any]] = {}
    for path, task, writes in calls:
        saver.write(1, writes, task, path)
        for at, (channel, value) in enumerate(writes):
            expected[writes_sort_key(path, task, WRITES_IDX_MAP.get(channel, at))] = (task, channel, value)

    for reading in (saver, another()):
        assert reading.writes(1) == [expected[key] for key in sorted(expected)]


def test_the_order_holds_for_writes_that_came_before_their_checkpoint(saver: Face) -> None:
    saver.write(1, [("a", "b")], "1", "path-2")
    saver.write(1, [("a", "c")], "0", "path-3")
    saver.put(1)
    saver.write(1, [("a", "a")], "2", "path-1")

    assert [value for _, _, value in saver.writes(1)] == ["a", "b", "c"]


def test_writes_without_a_path_come_first(saver: Face) -> None:
    saver.put(1)
    saver.write(1, [("a", "with")], "1", "path")
    saver.write(1, [("a", "without")], "2")

    assert [value for _, _, value in saver.writes(1)] == ["without", "with"]


def test_a_write_that_was_ignored_leaves_the_path_as_it_was(saver: Face) -> None:
    saver.put(1)
    saver.write(1, [("a", "x")], "1", "path-1")
    saver.write(1, [("a", "y")], "2", "path-2")
    saver.write(1, [("a", "ignored")], "1", "path-3")

    assert saver.writes(1) == [("1", "a", "x"), ("2", "a", "y")]


def test_writes_keep_to_their_namespace_and_thread(saver: Face) -> None:
    for thread, ns in (("t", ""), ("t", "child"), ("u", "")):
        saver.put(1, thread=thread, ns=ns)
        saver.write(1, [("a", f"{thread}{ns}")], thread=thread, ns=ns)

    assert saver.writes(1) == [("task", "a", "t")]
    assert saver.writes(1, ns="child") == [("task", "a", "tchild")]
    assert saver.writes(1, thread="u") == [("task", "a", "u")]


def test_a_write_to_an_older_checkpoint_does_not_make_it_the_latest(saver: Face, another: Another) -> None:
    saver.put(1, {"a": 1})
    saver.put(2, {"a": 2}, parent=1)
    saver.write(1, [("a", "late")])

    for reading in (saver, another()):
        assert reading.values() == {"a": 2}
        assert reading.writes(1) == [("task", "a", "late")]
        assert reading.writes(2) == []


def test_a_write_is_not_taken_over_by_the_next_checkpoint(saver: Face) -> None:
    saver.put(1, {"a": [1]})
    saver.write(1, [("a", [2])])
    saver.put(2, {"a": [1, 2]}, parent=1)

    assert saver.writes(2) == []
    assert saver.writes(1) == [("task", "a", [2])]


def test_a_write_that_cannot_be_stored_is_raised_and_none_of_its_call_is_stored(saver: Face) -> None:
    saver.put(1)

    with pytest.raises(holdfast.Unsupported):
        saver.write(1, [("a", 1), ("b", object())])

    assert saver.writes(1) == []
