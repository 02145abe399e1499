"""Which cells checkpoints need beside their own: those that others brought which are not there any more."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from holdfast.stores.contract import Span
from holdfast.threads.covering import Covered


class Stray(NamedTuple):
    """Cells that are named, and whose commit cannot say that it wrote them: it was deleted, or is lost.

    `seq` is a commit that can bring them so that whatever names them finds them; `span` reads them.
    """

    seq: int
    span: Span


class Gathered:
    """The cells of all threads that were named, and those that the commits which are left have written."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], Covered] = {}
        self._commits: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._named: dict[tuple[int, int], dict[tuple[int, int], tuple[int, int]]] = {}

    def wrote(self, thread: int, seq: int, ranges: tuple[tuple[int, int, int], ...]) -> None:
        """A commit is left, which wrote these (log, start, count)."""
        for log, start, count in ranges:
            if count:
                self._written.setdefault((thread, log), Covered()).add(start, start + count)
                self._commits.setdefault((thread, log), []).append((start, start + count, seq))

    def names(self, span: Span) -> None:
        """Something names these cells. What wrote them, if it is left, was told before."""
        place = span.thread, span.log
        written = self._written.get(place)
        end = span.start + span.count
        for gap in [(span.start, end)] if written is None else written.missing(span.start, end):
            if gap[0] < gap[1]:
                gaps = self._named.setdefault(place, {})
                first, last = gaps.get(gap, (span.first, span.last))
                gaps[gap] = max(first, span.first), min(last, span.last)

    def threads(self) -> set[int]:
        """Those of which something has strayed."""
        return {thread for thread, _ in self._named}

    def strays(self, thread: int) -> Iterator[Stray]:
        """What has strayed of a thread, log by log, in the order of the cells.

        Commits write a log in order, so no commit can have written a cell who comes before the one that wrote a cell
        below it; and all that names a cell says between which commits it was written.
        """
        for (number, log), gaps in self._named.items():
            if number == thread:
                yield from self._of_log(thread, log, gaps)

    def _of_log(self, thread: int, log: int, gaps: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Stray]:
        own = sorted(self._commits.get((thread, log), []))
        at = floor = 0
        for start, end, first, last in _apart(gaps):
            while at < len(own) and own[at][0] < start:
                floor = max(floor, own[at][2])
                at += 1
            floor = max(floor, first)
            yield Stray(floor, Span(thread, log, start, end - start, min(first, last), max(first, last)))


def _apart(gaps: dict[tuple[int, int], tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges that overlap, cut where one begins or ends: of each part, the latest first and the earliest last."""
    cuts = sorted({edge for gap in gaps for edge in gap})
    begins = sorted((start, end, *commits) for (start, end), commits in gaps.items())
    firsts: list[tuple[int, int]] = []
    lasts: list[tuple[int, int]] = []
    at = 0
    for start, after in pairwise(cuts):
        while at < len(begins) and begins[at][0] <= start:
            _, end, first, last = begins[at]
            heappush(firsts, (-first, end))
            heappush(lasts, (last, end))
            at += 1
        for heap in (firsts, lasts):
            while heap and heap[0][1] <= start:
                heappop(heap)
        if firsts:
            yield start, after, -firsts[0][0], lasts[0][0]
