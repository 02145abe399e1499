"""Sets of cells: which positions of a log are in, as ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Covered:
    """A set of positions that only grows, as sorted ranges that do not touch."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Take the positions from `start` to `end`, which is not among them."""
        if start >= end:
            return
        ends = self.ends
        if ends and ends[-1] == start:  # what is appended to a log: nearly always
            ends[-1] = end
            return
        first = bisect_left(ends, start)
        after = bisect_right(self.starts, end)
        if first < after:
            start, end = min(start, self.starts[first]), max(end, ends[after - 1])
        self.starts[first:after] = [start]
        ends[first:after] = [end]

    def holds(self, start: int, end: int) -> bool:
        """Whether all of these positions are in."""
        ends = self.ends
        if len(ends) == 1:
            return (self.starts[0] <= start and end <= ends[0]) or start >= end
        at = bisect_right(self.starts, start) - 1
        return start >= end or (at >= 0 and end <= ends[at])

    def touches(self, start: int, end: int) -> bool:
        """Whether any of these positions is in."""
        at = bisect_right(self.ends, start)
        return start < end and at < len(self.starts) and self.starts[at] < end

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Those of these positions that are not in, as ranges."""
        gaps: list[tuple[int, int]] = []
        at = bisect_right(self.ends, start)
        while start < end:
            if at >= len(self.starts) or self.starts[at] >= end:
                gaps.append((start, end))
                break
            if self.starts[at] > start:
                gaps.append((start, self.starts[at]))
            start = self.ends[at]
            at += 1
        return gaps
