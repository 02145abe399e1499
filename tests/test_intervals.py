"""Sets of integers as ranges, compared with Python's sets."""

from __future__ import annotations

import random

from holdfast.intervals import Intervals


def test_intervals_are_a_set_of_integers() -> None:
    source = random.Random(7)
    for _ in range(300):
        found, model = Intervals(), set[int]()
        added: list[tuple[int, int]] = []
        for _ in range(12):
            start = source.randrange(40)
            end = start + source.randrange(6)
            wanted = set(range(start, end))
            assert found.holds(start, end) == (wanted <= model)
            assert found.touches(start, end) == bool(wanted & model)
            assert {at for part in found.within(start, end) for at in range(*part)} == wanted & model
            assert {at for gap in found.missing(start, end) for at in range(*gap)} == wanted - model
            found.add(start, end)
            added.append((start, end))
            model |= wanted
            assert {at for each in found.ranges() for at in range(*each)} == model
            assert all(a > b for a, b in zip(found.starts[1:], found.ends, strict=False))
        assert Intervals(added).ranges() == found.ranges()
