"""Checkpoints: what is stored, what comes back, and which one is the latest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from tests.adapters.langgraph.faces import Face, checkpoint, checkpoint_id, config, id_of, in_time, numbers, version

Another = Callable[[], Face]


def test_a_put_answers_with_the_config_of_what_it_stored(saver: Face) -> None:
    stored = saver.put(1, {"a": 1}, ns="child:1")

    told = stored["configurable"]
    assert {key: told[key] for key in ("thread_id", "checkpoint_ns", "checkpoint_id")} == {
        "thread_id": "t",
        "checkpoint_ns": "child:1",
        "checkpoint_id": checkpoint_id(1),
    }
    found = saver.get_raw(stored)
    assert found is not None
    assert found.config["configurable"]["checkpoint_ns"] == "child:1"


def test_a_checkpoint_comes_back_whole_with_keys_nobody_knows_of(saver: Face, another: Another) -> None:
    given: Any = {
        "v": 1,
        "id": checkpoint_id(1),
        "ts": "2026-01-01T00:00:00.000001+00:00",
        "channel_values": {"a": [1, {"b": None}]},
        "channel_versions": {"a": version(3), "b": 7, "c": 1.5},
        "versions_seen": {"__input__": {}, "node": {"a": version(2), "b": 6}},
        "updated_channels": ["a"],
        "pending_sends": [],
        "from_the_future": {"x": [1, 2]},
    }

    saver.put_raw(config(), given, {"source": "input", "step": -1, "parents": {}}, {"a": version(3)})

    for reading in (saver, another()):
        assert reading.get(1).checkpoint == given
        assert reading.get(1).metadata == {"source": "input", "step": -1, "parents": {}}
        versions = reading.get(1).checkpoint["channel_versions"]
        assert [type(versions[name]) for name in "abc"] == [str, int, float]


@pytest.mark.parametrize("updated", [None, [], ["b", "a"]])
def test_updated_channels_come_back_as_they_were(saver: Face, updated: list[str] | None) -> None:
    saver.put(1, {"a": 1}, updated_channels=updated)

    assert saver.get(1).checkpoint["updated_channels"] == updated


def test_a_checkpoint_without_updated_channels_comes_back_without(saver: Face) -> None:
    given: Any = checkpoint(1, {}, {})
    del given["updated_channels"]

    saver.put_raw(config(), given, {}, {})

    assert saver.get(1).checkpoint.get("updated_channels") is None


def test_the_parent_is_the_checkpoint_that_the_config_named(saver: Face, another: Another) -> None:
    saver.put(1)
    saver.put(2, parent=1)

    for reading in (saver, another()):
        assert reading.get(1).parent_config is None
        parent = reading.get(2).parent_config
        assert parent is not None
        assert parent["configurable"] == {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint_id(1)}


def test_what_is_not_there_is_none(saver: Face) -> None:
    assert saver.get_raw(config()) is None
    assert saver.get_raw(config(number=1)) is None

    saver.put(1)

    assert saver.get_raw(config(number=2)) is None
    assert saver.get_raw(config(ns="child")) is None
    assert saver.get_raw(config(ns="child", number=1)) is None
    assert saver.get_raw(config("another")) is None
    assert saver.get_raw(config("another", number=1)) is None


def test_without_an_id_or_with_an_empty_one_the_latest_is_meant(saver: Face) -> None:
    saver.put(1)
    saver.put(2, parent=1)

    assert numbers([saver.get()]) == [2]
    found = saver.get_raw({"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ""}})
    assert found is not None
    assert id_of(found.config) == checkpoint_id(2)


def test_without_a_namespace_the_root_is_meant(saver: Face) -> None:
    saver.put(1, {"a": "root"})
    saver.put(2, {"a": "child"}, ns="child")

    found = saver.get_raw(config(ns=None))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": "root"}


def test_get_gives_the_checkpoint_alone(saver: Face) -> None:
    saver.put(1, {"a": 1})

    assert saver._call("get", config()) == saver.get().checkpoint


def test_the_latest_is_the_child_even_if_its_id_sorts_below_its_parents(saver: Face, another: Another) -> None:
    """Ids are of the clocks of two machines; the order of the history stays that of the ids."""
    saver.put(9, {"a": "parent"})
    saver.put(5, {"a": "child"}, parent=9)

    for reading in (saver, another()):
        assert reading.values() == {"a": "child"}
        assert numbers(reading.list(config())) == [9, 5]


def test_namespaces_and_threads_keep_to_themselves(saver: Face) -> None:
    saver.put(1, {"a": "root"})
    saver.put(1, {"a": "child"}, ns="child")
    saver.put(1, {"a": "another"}, thread="u")

    assert saver.values() == {"a": "root"}
    assert saver.values(ns="child") == {"a": "child"}
    assert saver.values(thread="u") == {"a": "another"}


def test_a_value_that_did_not_change_is_found_by_its_version(saver: Face, another: Another) -> None:
    saver.put(1, {"a": "kept", "b": "old"})
    saver.put(2, {"b": "new"}, parent=1, versions={"a": version(1), "b": version(2)}, new={"b": version(2)})
    saver.put(3, {"b": "newer"}, parent=2, versions={"a": version(1), "b": version(3)}, new={"b": version(3)})

    for reading in (saver, another()):
        assert reading.values(1) == {"a": "kept", "b": "old"}
        assert reading.values(2) == {"a": "kept", "b": "new"}
        assert reading.values(3) == {"a": "kept", "b": "newer"}


def test_a_new_version_without_a_value_is_an_empty_channel(saver: Face, another: Another) -> None:
    saver.put(1, {"a": "old"})
    saver.put(2, {}, parent=1, versions={"a": version(2)}, new={"a": version(2)})
    saver.put(3, {}, parent=2, versions={"a": version(2)}, new={})

    for reading in (saver, another()):
        assert reading.values(1) == {"a": "old"}
        assert reading.values(2) == {}
        assert reading.values(3) == {}


def test_a_channel_that_is_in_no_version_is_not_refilled(saver: Face) -> None:
    saver.put(1, {"a": "old"})
    saver.put(2, {}, parent=1, versions={}, new={})

    assert saver.values(2) == {}


def test_none_is_a_value_and_a_missing_channel_is_not(saver: Face) -> None:
    saver.put(1, {"a": None}, versions={"a": version(1), "b": version(1)})
    saver.put(2, {}, parent=1, versions={"a": version(1), "b": version(1)}, new={})

    assert saver.values(1) == {"a": None}
    assert saver.values(2) == {"a": None}


def test_versions_are_a_hint_and_values_the_truth(saver: Face, another: Another) -> None:
    for number in (1, 2, 3):
        saver.put(number, {"a": number}, parent=number - 1 or None, versions={"a": 1})

    for reading in (saver, another()):
        assert [reading.values(number) for number in (1, 2, 3)] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_values_are_kept_where_no_version_is_told(saver: Face, another: Another) -> None:
    saver.put(1, {"a": [1]}, versions={}, new={})
    saver.put(2, {"a": [1, 2]}, parent=1, versions={}, new={})

    for reading in (saver, another()):
        assert reading.values(1) == {"a": [1]}
        assert reading.values(2) == {"a": [1, 2]}


def test_a_value_that_shrank_or_changed_in_the_middle_is_what_it_became(saver: Face, another: Another) -> None:
    states = [[1, 2, 3], [1, 9, 3], [9], [], [9, 9, 9], [[9], [9]], {"x": [1]}, "text", None, [1, 2, 3]]

    for number, state in enumerate(states, 1):
        saver.put(number, {"a": state}, parent=number - 1 or None)

    for reading in (saver, another()):
        assert [reading.values(number)["a"] for number in range(1, len(states) + 1)] == states


def test_a_checkpoint_put_again_replaces_itself_and_keeps_its_writes(saver: Face, another: Another) -> None:
    saver.put(1)
    saver.put(2, {"a": "first"}, parent=1, metadata={"tag": "first"})
    saver.write(2, [("a", "written")])

    saver.put(2, {"a": "second"}, parent=1, metadata={"tag": "second"})

    for reading in (saver, another()):
        assert reading.values(2) == {"a": "second"}
        assert reading.values() == {"a": "second"}
        assert reading.get(2).metadata.get("tag") == "second"
        assert reading.writes(2) == [("task", "a", "written")]
        assert numbers(reading.list(config())) == [2, 1]
        assert id_of(reading.get(2).parent_config) == checkpoint_id(1)


def test_an_older_checkpoint_put_again_does_not_become_the_latest(saver: Face) -> None:
    saver.put(1, {"a": "old"})
    saver.put(2, {"a": "new"}, parent=1)

    saver.put(1, {"a": "again"})

    assert saver.values(1) == {"a": "again"}
    assert saver.values(2) == {"a": "new"}
    assert saver.values() == {"a": "new"}


@pytest.mark.parametrize("parent", [1, 2])
def test_parents_that_go_round_in_a_circle_end_every_walk(saver: Face, parent: int) -> None:
    saver.put(1, {"a": 1})
    saver.put(2, {"b": 2}, parent=1)

    def walk() -> None:
        saver.put(1, {"b": 1}, parent=parent)
        saver.put(3, {"b": 3}, parent=2)
        assert numbers(saver.list(config())) == [3, 2, 1]
        assert saver.values() == {"b": 3}
        saver.history(3, ["c"])
        saver.copy_thread("t", "copy")
        assert numbers(saver.list(config("copy"))) == [3, 2, 1]
        saver.prune(["t"])
        assert numbers(saver.list(config())) == [3]

    in_time(walk)


def test_metadata_takes_in_what_the_config_says(saver: Face) -> None:
    saver.put_raw(
        {
            "metadata": {"user": "u\0ser", "step": 99, "score": 1.5, "list": [1], "__hidden": 1, "langgraph_node": "n"},
            "configurable": {"thread_id": "t", "checkpoint_ns": "", "tenant": "x", "flag": True, "__pregel_x": "y"},
        },
        checkpoint(1, {}, {}),
        {"source": "loop", "step": 3, "parents": {"": "abc"}, "text": "a\0b"},
        {},
    )

    expected = {"source": "loop", "step": 3, "parents": {"": "abc"}, "text": "ab"}
    assert saver.get(1).metadata == {**expected, "user": "user", "score": 1.5, "tenant": "x", "flag": True}
    assert numbers(saver.list(config(), filter={"user": "user", "tenant": "x"})) == [1]


def test_metadata_of_a_config_that_asks_does_not_change_what_is_stored(saver: Face) -> None:
    saver.put(1)

    found = saver.get_raw({"metadata": {"user": "me"}, "configurable": {"thread_id": "t", "tenant": "x"}})

    assert found is not None
    assert found.metadata == {"source": "loop", "step": 1, "parents": {}}


def test_counters_of_delta_channels_come_back(saver: Face) -> None:
    saver.put(1, metadata={"counters_since_delta_snapshot": {"messages": (3, 7)}})

    counters: Any = saver.get(1).metadata["counters_since_delta_snapshot"]
    assert list(counters["messages"]) == [3, 7]


def test_what_cannot_be_stored_is_raised_and_nothing_is_stored(saver: Face) -> None:
    saver.put(1, {"a": 1})

    with pytest.raises(holdfast.Unsupported):
        saver.put(2, {"a": object()}, parent=1)

    assert numbers([saver.get()]) == [1]
    assert numbers(saver.list(config())) == [1]
