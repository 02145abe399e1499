"""Stray cells: cells in use whose commit was deleted or is lost, so that another commit must carry them in a copy."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from holdfast.intervals import Intervals
from holdfast.stores.contract import Append, Span, Store


class Stray(NamedTuple):
    """Stray cells. `seq` is a commit that can carry them so that every reference finds them; `span` reads them."""

    seq: int
    span: Span


class UsedCells:
    """The cells of all threads that are referred to, and the cells that the remaining commits have written."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], Intervals] = {}
        self._commits: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._named: dict[tuple[int, int], dict[tuple[int, int], tuple[int, int]]] = {}

    def wrote(self, thread: int, seq: int, ranges: tuple[tuple[int, int, int], ...]) -> None:
        """Add a remaining commit, which wrote these (log, start, count)."""
        for log, start, count in ranges:
            if count:
                self._written.setdefault((thread, log), Intervals()).add(start, start + count)
                self._commits.setdefault((thread, log), []).append((start, start + count, seq))

    def names(self, span: Span) -> None:
        """Add a reference to cells. It takes less memory if the commit that wrote them was added before."""
        place = span.thread, span.log
        written = self._written.get(place)
        end = span.start + span.count
        for gap in [(span.start, end)] if written is None else written.missing(span.start, end):
            if gap[0] < gap[1]:
                gaps = self._named.setdefault(place, {})
                first, last = gaps.get(gap, (span.first, span.last))
                gaps[gap] = max(first, span.first), min(last, span.last)

    def threads(self) -> set[int]:
        """The threads that have stray cells."""
        return {place[0] for place in self._named if self._gaps(place)}

    def strays(self, thread: int) -> Iterator[Stray]:
        """The stray cells of a thread, log by log, in the order of the cells.

        Commits write a log in order, so the commit of a cell is not older than the one that wrote a cell below it. And
        each reference to a cell has the first and last commit that may have written it.
        """
        for number, log in self._named:
            if number == thread:
                yield from self._of_log(thread, log, self._gaps((number, log)))

    def _gaps(self, place: tuple[int, int]) -> dict[tuple[int, int], tuple[int, int]]:
        """The cells of a log that are referred to and that no remaining commit has written."""
        written = self._written.get(place, Intervals())
        gaps: dict[tuple[int, int], tuple[int, int]] = {}
        for (start, end), (first, last) in self._named[place].items():
            for gap in written.missing(start, end):
                known = gaps.get(gap, (first, last))
                gaps[gap] = max(known[0], first), min(known[1], last)
        return gaps

    def _of_log(self, thread: int, log: int, gaps: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Stray]:
        own = sorted(self._commits.get((thread, log), []))
        at = floor = 0
        for start, end, first, last in _cut(gaps):
            while at < len(own) and own[at][0] < start:
                floor = max(floor, own[at][2])
                at += 1
            floor = max(floor, first)
            yield Stray(floor, Span(thread, log, start, end - start, min(first, last), max(first, last)))


def _cut(gaps: dict[tuple[int, int], tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Ranges that overlap, cut where one starts or ends: each part with its latest first and earliest last commit."""
    cuts = sorted({edge for gap in gaps for edge in gap})
    starts = sorted((start, end, *commits) for (start, end), commits in gaps.items())
    firsts: list[tuple[int, int]] = []
    lasts: list[tuple[int, int]] = []
    at = 0
    for start, after in pairwise(cuts):
        while at < len(starts) and starts[at][0] <= start:
            _, end, first, last = starts[at]
            heappush(firsts, (-first, end))
            heappush(lasts, (last, end))
            at += 1
        for heap in (firsts, lasts):
            while heap and heap[0][1] <= start:
                heappop(heap)
        if firsts:
            yield start, after, -firsts[0][0], lasts[0][0]


def append_of(source: Store, span: Span) -> Append:
    """Cells as they were written."""
    (read,) = source.cells([span])
    return Append(span.log, span.start, tuple(read.cells), tuple(read.refs))
