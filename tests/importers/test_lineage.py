"""Conversations with branches: what was said on the way to each message, read as seldom as can be."""

from __future__ import annotations

from holdfast.importers.lineage import Lineage


def test_branches_that_take_turns_are_not_read_again_each_time() -> None:
    """Two terminals in one session."""
    read: list[str] = []

    def reading(key: str) -> list[str]:
        read.append(key)
        return [key]

    lineage = Lineage(reading)
    lineage.put("root", None, ["root"])
    ends = dict.fromkeys("abc", "root")
    ways = {name: ["root"] for name in "abc"}
    for number in range(50):
        for name in "abc":
            key = f"{name}{number}"
            lineage.put(key, ends[name], [key])
            ends[name] = key
            ways[name].append(key)
            assert lineage.up_to(key) == ways[name]
    assert len(read) <= 3


def test_what_is_no_end_any_more_is_read() -> None:
    lineage = Lineage(lambda key: [key])
    keys = [f"{number}" for number in range(20)]
    for before, key in zip([None, *keys], keys, strict=False):
        lineage.put(key, before, [key])
    assert lineage.up_to("7") == keys[:8]
    lineage.put("other", "7", ["other"])
    assert lineage.up_to("other") == [*keys[:8], "other"]
    assert lineage.up_to("19") == keys
    assert lineage.up_to("other", "5") == ["5", "6", "7", "other"]


def test_what_was_given_does_not_grow() -> None:
    lineage = Lineage(lambda key: [key])
    lineage.put("1", None, ["1"])
    given = lineage.up_to("1")
    lineage.put("2", "1", ["2"])
    assert given == ["1"]
