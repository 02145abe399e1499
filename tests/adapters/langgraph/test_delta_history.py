"""What a DeltaChannel is rebuilt from: the nearest stored value up the line of parents, and the writes since."""

from __future__ import annotations

from collections.abc import Callable

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tests.adapters.langgraph.faces import Face, config, version

Another = Callable[[], Face]


def line(saver: Face, count: int = 5, *, snapshot: int | None = None, thread: str = "t") -> None:
    """Checkpoints without the value of "d", but for one; each with a write to it."""
    for number in range(1, count + 1):
        saver.put(
            number,
            {"d": _DeltaSnapshot([f"up to {number}"])} if number == snapshot else {},
            parent=number - 1 or None,
            versions={"d": version(number)},
            thread=thread,
        )
        saver.write(number, [("d", [number]), ("other", 0)], thread=thread)


def test_no_channels_nothing(saver: Face) -> None:
    line(saver, 2)

    assert saver.history(2, []) == {}


def test_without_a_stored_value_all_writes_of_the_line_count(saver: Face, another: Another) -> None:
    line(saver)

    for reading in (saver, another()):
        assert reading.history(5, ["d"]) == {"d": {"writes": [("task", "d", [number]) for number in (1, 2, 3, 4)]}}


def test_the_writes_of_the_target_itself_are_left_out(saver: Face) -> None:
    line(saver, 1)

    assert saver.history(1, ["d"]) == {"d": {"writes": []}}


def test_the_nearest_value_is_the_seed_and_the_writes_beside_it_count(saver: Face, another: Another) -> None:
    line(saver, snapshot=3)

    for reading in (saver, another()):
        assert reading.history(5, ["d"]) == {
            "d": {"seed": _DeltaSnapshot(["up to 3"]), "writes": [("task", "d", [3]), ("task", "d", [4])]}
        }
        assert reading.history(3, ["d"]) == {"d": {"writes": [("task", "d", [1]), ("task", "d", [2])]}}
        assert isinstance(reading.history(5, ["d"])["d"]["seed"], _DeltaSnapshot)


def test_a_plain_value_is_a_seed_too(saver: Face) -> None:
    saver.put(1, {"d": ["plain"]})
    saver.write(1, [("d", [1])])
    saver.put(2, {}, parent=1, versions={"d": version(2)})

    assert saver.history(2, ["d"]) == {"d": {"seed": ["plain"], "writes": [("task", "d", [1])]}}


def test_a_value_that_is_none_is_a_seed(saver: Face) -> None:
    saver.put(1, {"d": None})
    saver.put(2, {}, parent=1, versions={"d": version(2)})

    assert saver.history(2, ["d"]) == {"d": {"seed": None, "writes": []}}


def test_each_channel_ends_where_its_own_value_is(saver: Face) -> None:
    saver.put(1, {"d": "d1", "e": "e1"})
    saver.write(1, [("d", 1), ("e", 1)])
    saver.put(2, {"d": "d2"}, parent=1, versions={"d": version(2), "e": version(2)})
    saver.write(2, [("d", 2), ("e", 2)])
    saver.put(3, {}, parent=2, versions={"d": version(3), "e": version(3)})

    assert saver.history(3, ["e", "d", "unknown"]) == {
        "d": {"seed": "d2", "writes": [("task", "d", 2)]},
        "e": {"seed": "e1", "writes": [("task", "e", 1), ("task", "e", 2)]},
        "unknown": {"writes": []},
    }


def test_without_an_id_the_latest_is_the_target(saver: Face) -> None:
    line(saver, 3)

    assert saver.history(None, ["d"]) == saver.history(3, ["d"])


def test_an_unknown_target_has_no_history(saver: Face) -> None:
    line(saver, 2)

    assert saver.history(9, ["d"]) == {"d": {"writes": []}}
    assert saver.history(None, ["d"], thread="nobody") == {"d": {"writes": []}}


def test_the_walk_follows_parents_and_not_ids(saver: Face, another: Another) -> None:
    """A fork's line leaves out the abandoned branch, also where an id sorts below its parent's."""
    line(saver, 4)
    saver.get(2)  # a fork is asked for by its id
    saver.put(8, {}, parent=2, versions={"d": version(8)})
    saver.write(8, [("d", [8])])
    saver.put(6, {}, parent=8, versions={"d": version(9)})

    for reading in (saver, another()):
        assert [value for _, _, value in reading.history(6, ["d"])["d"]["writes"]] == [[1], [2], [8]]


def test_within_a_checkpoint_writes_go_by_path(saver: Face) -> None:
    saver.put(1, {}, versions={})
    saver.write(1, [("d", "c"), ("d", "d")], "1", "path-2")
    saver.write(1, [("d", "b")], "9", "path-1")
    saver.write(1, [("d", "a")], "5")
    saver.put(2, {}, parent=1, versions={})

    assert [value for _, _, value in saver.history(2, ["d"])["d"]["writes"]] == ["a", "b", "c", "d"]


def test_an_empty_channel_does_not_end_the_walk(saver: Face) -> None:
    saver.put(1, {"d": "seed"})
    saver.put(2, {}, parent=1, versions={"d": version(2)})
    saver.write(2, [("d", 2)])
    saver.put(3, {}, parent=2, versions={"d": version(3)})

    assert saver.history(3, ["d"]) == {"d": {"seed": "seed", "writes": [("task", "d", 2)]}}


def test_namespaces_have_lines_of_their_own(saver: Face) -> None:
    line(saver, 2)
    saver.put(1, {"d": "child"}, ns="child:1")
    saver.put(2, {}, ns="child:1", parent=1, versions={"d": version(2)})

    assert saver.history(2, ["d"], ns="child:1") == {"d": {"seed": "child", "writes": []}}


def test_upstreams_own_walk_over_get_tuple_gives_the_same(saver: Face) -> None:
    line(saver, 6, snapshot=3)

    walked = BaseCheckpointSaver.get_delta_channel_history(saver.saver, config=config(number=6), channels=["d", "x"])

    assert walked == saver.history(6, ["d", "x"])


def test_what_was_given_may_be_changed(saver: Face) -> None:
    line(saver, 5, snapshot=3)
    first = saver.history(5, ["d"])
    second = saver.history(5, ["d"])

    second["d"]["writes"][0][2].append("spoilt")
    second["d"]["writes"].clear()
    second["d"]["seed"].value.append("spoilt")

    assert first == saver.history(5, ["d"])
    assert first["d"]["seed"] == _DeltaSnapshot(["up to 3"])
