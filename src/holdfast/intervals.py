"""A set of integers as ranges: the positions of a log, or the commits of a thread."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Intervals:
    """Integers as sorted ranges that neither overlap nor touch. A range is (start, end), without its end."""

    __slots__ = ("ends", "starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """`ranges` may be in any order and overlap."""
        starts: list[int] = []
        ends: list[int] = []
        for start, end in sorted(ranges):
            if start >= end:
                continue
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        self.starts = starts
        self.ends = ends

    def add(self, start: int, end: int) -> None:
        """Add a range."""
        if start >= end:
            return
        ends = self.ends
        if ends and ends[-1] == start:  # cells appended to a log: nearly always
            ends[-1] = end
            return
        first = bisect_left(ends, start)
        after = bisect_right(self.starts, end)
        if first < after:
            start, end = min(start, self.starts[first]), max(end, ends[after - 1])
        self.starts[first:after] = [start]
        ends[first:after] = [end]

    def holds(self, start: int, end: int) -> bool:
        """Whether every integer of the range is in the set."""
        ends = self.ends
        if len(ends) == 1:
            return (self.starts[0] <= start and end <= ends[0]) or start >= end
        at = bisect_right(self.starts, start) - 1
        return start >= end or (at >= 0 and end <= ends[at])

    def touches(self, start: int, end: int) -> bool:
        """Whether any integer of the range is in the set."""
        at = bisect_right(self.ends, start)
        return start < end and at < len(self.starts) and self.starts[at] < end

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the range that are in the set."""
        at = bisect_right(self.ends, start)
        parts: list[tuple[int, int]] = []
        while at < len(self.starts) and self.starts[at] < end:
            parts.append((max(start, self.starts[at]), min(end, self.ends[at])))
            at += 1
        return parts

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the range that are not in the set."""
        gaps: list[tuple[int, int]] = []
        for first, last in self.within(start, end):
            if start < first:
                gaps.append((start, first))
            start = last
        if start < end:
            gaps.append((start, end))
        return gaps

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, in order."""
        return list(zip(self.starts, self.ends, strict=True))
