"""Listing: which checkpoints, in which order, and filters that take any key as a key and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.adapters.langgraph.faces import Face, checkpoint_id, config, id_of, numbers

Another = Callable[[], Face]


def fill(saver: Face, count: int = 5, *, thread: str = "t", ns: str = "") -> None:
    for number in range(1, count + 1):
        saver.put(number, {"a": number}, parent=number - 1 or None, thread=thread, ns=ns)


def test_the_newest_is_first_and_each_is_whole(saver: Face, another: Another) -> None:
    fill(saver)
    saver.write(3, [("a", "written")])

    for reading in (saver, another()):
        found = reading.list(config())
        assert numbers(found) == [5, 4, 3, 2, 1]
        assert found == [reading.get(number) for number in (5, 4, 3, 2, 1)]
        assert [one.checkpoint["channel_values"] for one in found] == [{"a": number} for number in (5, 4, 3, 2, 1)]
        assert [id_of(one.parent_config) for one in found] == [*map(checkpoint_id, (4, 3, 2, 1)), None]
        assert found[2].pending_writes == [("task", "a", "written")]


def test_the_order_is_that_of_the_ids_and_not_of_the_puts(saver: Face) -> None:
    saver.put(1)
    saver.put(7, parent=1)
    saver.get(1)  # a fork is asked for by its id
    saver.put(3, parent=1)
    saver.put(5, parent=3)

    assert numbers(saver.list(config())) == [7, 5, 3, 1]


def test_limit_counts_what_is_listed(saver: Face) -> None:
    fill(saver)

    assert saver.list(config(), limit=0) == []
    assert numbers(saver.list(config(), limit=2)) == [5, 4]
    assert numbers(saver.list(config(), limit=5)) == [5, 4, 3, 2, 1]
    assert numbers(saver.list(config(), limit=99)) == [5, 4, 3, 2, 1]
    assert numbers(saver.list(config(), filter={"source": "loop"}, limit=1)) == [5]
    assert numbers(saver.list(config(), filter={"step": 2}, limit=1)) == [2]


def test_before_leaves_out_itself_and_what_is_newer(saver: Face) -> None:
    fill(saver)

    assert numbers(saver.list(config(), before=config(number=3))) == [2, 1]
    assert numbers(saver.list(config(), before=config(number=3), limit=1)) == [2]
    assert saver.list(config(), before=config(number=1)) == []
    assert numbers(saver.list(config(), before=config(number=99))) == [5, 4, 3, 2, 1]
    assert numbers(saver.list(config(), before=config())) == [5, 4, 3, 2, 1]


def test_of_before_only_the_id_counts(saver: Face) -> None:
    fill(saver, 3)
    fill(saver, 3, ns="child:1")

    assert numbers(saver.list(config(ns="child:1"), before=config("another", "ns", 3), limit=1)) == [2]


def test_an_id_in_the_config_asks_for_that_one(saver: Face) -> None:
    fill(saver)

    assert numbers(saver.list(config(number=3))) == [3]
    assert saver.list(config(number=77)) == []
    assert saver.list(config(number=3), before=config(number=3)) == []
    assert saver.list(config(number=3), filter={"step": 4}) == []


def test_no_namespace_means_all_of_them_and_an_empty_one_the_root(saver: Face, another: Another) -> None:
    saver.put(1)
    saver.put(2, ns="child:1")
    saver.put(3, ns="other")
    saver.put(4, parent=1)

    for reading in (saver, another()):
        assert numbers(reading.list(config(ns=""))) == [4, 1]
        assert numbers(reading.list(config(ns="child:1"))) == [2]
        assert reading.list(config(ns="chil")) == []
        found = reading.list(config(ns=None))
        assert numbers(found) == [4, 3, 2, 1]
        assert [one.config["configurable"]["checkpoint_ns"] for one in found] == ["", "other", "child:1", ""]


def test_no_config_means_all_threads(saver: Face, another: Another) -> None:
    assert saver.list(None) == []
    saver.put(1, thread="one")
    saver.put(2, thread="two")
    saver.put(3, thread="two", ns="child")
    saver.put(4, thread="one", parent=1)

    for reading in (saver, another()):
        found = reading.list(None)
        assert numbers(found) == [4, 3, 2, 1]
        assert [one.config["configurable"]["thread_id"] for one in found] == ["one", "two", "two", "one"]
        assert numbers(reading.list(None, limit=2)) == [4, 3]
        assert numbers(reading.list(None, filter={"step": 2})) == [2]
        assert numbers(reading.list(None, before=config(number=3))) == [2, 1]


def test_an_unknown_thread_lists_nothing(saver: Face) -> None:
    fill(saver, 1)

    assert saver.list(config("another")) == []


def test_all_keys_of_a_filter_must_match(saver: Face) -> None:
    saver.put(1, metadata={"user": "a", "score": 1})
    saver.put(2, parent=1, metadata={"user": "a", "score": 2})
    saver.put(3, parent=2, metadata={"user": "b", "score": 2})

    assert numbers(saver.list(config(), filter={"user": "a"})) == [2, 1]
    assert numbers(saver.list(config(), filter={"user": "a", "score": 2})) == [2]
    assert saver.list(config(), filter={"user": "b", "score": 1}) == []
    assert saver.list(config(), filter={"user": "a", "nowhere": 1}) == []
    assert numbers(saver.list(config(), filter={})) == [3, 2, 1]


KEYS = [
    "a.b",
    "a'b",
    'a"b',
    "$.a",
    "a[0]",
    "a b",
    "",
    "x' OR '1'='1",
    "') OR 1=1 --",
    "source') = 'loop' OR ('1",
    "%",
    "ключ",
    "鍵\u200b🔑",
    "a\\b",
    "{}",
    ":name",
    "?",
    "%s",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_filter_takes_any_key_as_a_key(saver: Face, key: str) -> None:
    saver.put(1, metadata={key: "yes", "a": {"b": "nested"}})
    saver.put(2, parent=1, metadata={key: "no"})
    saver.put(3, parent=2)

    assert numbers(saver.list(config(), filter={key: "yes"})) == [1]
    assert numbers(saver.list(config(), filter={key: "no"})) == [2]
    assert saver.list(config(), filter={key: "nested"}) == []
    assert saver.get(1).metadata.get(key) == "yes"


@pytest.mark.parametrize("value", ["x' OR '1'='1", 'a"b', "%", "_", "ключ 🔑", "", "a\\", "null", "1"])
def test_a_filter_takes_any_text_as_a_text(saver: Face, value: str) -> None:
    saver.put(1, metadata={"key": value})
    saver.put(2, parent=1, metadata={"key": "another"})

    assert numbers(saver.list(config(), filter={"key": value})) == [1]


def test_a_filter_compares_nested_values_exactly(saver: Face) -> None:
    saver.put(1, metadata={"key": {"a": 1, "b": [1, 2]}})
    saver.put(2, parent=1, metadata={"key": {"a": 1}})
    saver.put(3, parent=2, metadata={"key": [1, 2]})

    assert numbers(saver.list(config(), filter={"key": {"b": [1, 2], "a": 1}})) == [1]
    assert numbers(saver.list(config(), filter={"key": {"a": 1}})) == [2]
    assert numbers(saver.list(config(), filter={"key": [1, 2]})) == [3]
    assert saver.list(config(), filter={"key": [1]}) == []
    assert saver.list(config(), filter={"key": {}}) == []
    assert saver.list(config(), filter={"parents": {"": "x"}}) == []


@pytest.mark.parametrize(("value", "other"), [(1, "1"), (0, ""), (1.5, 1), ("true", True), (10**18, 10**18 + 1)])
def test_a_filter_tells_values_apart(saver: Face, value: Any, other: Any) -> None:
    saver.put(1, metadata={"key": value})
    saver.put(2, parent=1, metadata={"key": other})

    assert numbers(saver.list(config(), filter={"key": value})) == [1]
    assert numbers(saver.list(config(), filter={"key": other})) == [2]


def test_a_long_history_is_listed_from_any_point(saver: Face) -> None:
    fill(saver, 60)

    assert numbers(saver.list(config())) == [*range(60, 0, -1)]
    assert numbers(saver.list(config(), before=config(number=31), limit=3)) == [30, 29, 28]
    assert numbers(saver.list(config(), filter={"step": 1})) == [1]
