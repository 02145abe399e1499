"""Loads take time in proportion to the state, however its cells are scattered, and never more than a forged size."""

from __future__ import annotations

import random
from pathlib import Path
from time import process_time
from typing import Any

import holdfast
from tests.cases import for_each
from tests.delta.test_salvage import damage


def item(n: int) -> str:
    return f"item {n:09} with some more text to make it a cell of its own"


def sorted_later(count: int) -> list[Any]:
    source = random.Random(count)
    items = [item(source.randrange(10**9)) for _ in range(count)]
    return [items, sorted(items)]


def with_duplicates(count: int) -> list[Any]:
    source = random.Random(count)
    return [[item(source.randrange(count // 10)) for _ in range(count)]]


def seconds(path: Path, states: list[Any]) -> float:
    """CPU time of a cold load of the last of these states."""
    with holdfast.open(path, durability="off") as hf:
        for state in states:
            hf.thread("t").save(state)
    best = 1e9
    for _ in range(3):
        with holdfast.open(path, durability="off") as hf:
            start = process_time()
            latest = hf.thread("t").latest()
            best = min(best, process_time() - start)
            assert latest is not None
            assert latest.state == states[-1]
    return best


@for_each("make", [sorted_later, with_duplicates])
def test_a_cold_load_of_scattered_cells_is_linear(make: Any, tmp_path: Path) -> None:
    # Eight times the items took 50 times as long when each span was found by a sum over its segment.
    small = seconds(tmp_path / "small.db", make(4_000))
    large = seconds(tmp_path / "large.db", make(32_000))
    assert large < 24 * small


def test_a_partial_load_reads_scattered_cells_together(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    unsorted, items = sorted_later(8_000)
    with holdfast.open(path, durability="off") as hf:
        hf.thread("t").save({"items": unsorted})
        hf.thread("t").save({"items": items})
        hf.thread("t").save({"items": items, "note": "lost " * 500})
        start = process_time()
        hf.thread("t").load("@2")
        whole = process_time() - start
    damage(path, [3])
    with holdfast.open(path, durability="off") as hf:
        start = process_time()
        found = hf.thread("t").load("@3", partial=True)
        assert process_time() - start < 24 * whole
        assert [mark.path for mark in found.lost] == ["$.note"]
        assert found.state["items"] == items
