"""Find the commits that hold the cells of spans, and assemble the cells from their segments."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.errors import Damaged, InvalidArgument
from holdfast.intervals import Intervals
from holdfast.stores import rows, segment
from holdfast.stores.contract import NO_REFS, Block, Cells, Refs, Span
from holdfast.stores.rows import MAX_SEQ

NOTHING: Final = Intervals()


# The cells of one log in one segment: index of the first, first and last commit of the segment, the segment's bytes,
# the offset of the first cell, lengths, refs. A plain tuple, because there may be one for every save.
_Piece = tuple[int, int, int, bytes, int, tuple[int, ...], tuple[Refs, ...]]


ByLog = dict[int, list[_Piece]]


class Wanted:
    """The cells that spans of one thread name, and the pieces of segments that hold them."""

    def __init__(self, spans: Iterable[Span]) -> None:
        logs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        commits: list[tuple[int, int]] = []
        for span in spans:
            logs[span.log].append((span.start, span.start + span.count))
            commits.append((span.first, span.last + 1))
        self._logs = {log: Intervals(ranges) for log, ranges in logs.items()}
        self._commits = Intervals(commits)
        self._pieces: defaultdict[int, list[_Piece]] = defaultdict(list)
        self._seen: set[int] = set()

    def commits(self) -> list[tuple[int, int]]:
        """The commits to read, as (first, last)."""
        return [(first, end - 1) for first, end in self._commits.ranges()]

    def add(self, found: Iterable[tuple[int, int, bytes | None]]) -> None:
        """Take the wanted cells from stored segments, given as (row key, first commit, bytes)."""
        wanted, seen = self._logs, self._seen
        for row_key, first_seq, blob in found:
            # A segment that spans a gap between two ranges of commits is found in both.
            if first_seq != row_key & MAX_SEQ:
                if row_key in seen:
                    continue
                seen.add(row_key)
            # A damaged segment is treated as missing. `assemble` reports it if its cells are needed.
            try:
                context = rows.context(row_key)
                opened = segment.open_(blob, context)
                for log, start, count in opened[0].ranges:
                    if log in wanted and wanted[log].touches(start, start + count):
                        break
                else:
                    continue
                _add_pieces(self._pieces, opened, segment.body(opened, context), first_seq, row_key & MAX_SEQ)
            except Damaged:
                continue

    def pieces(self) -> ByLog:
        """The pieces by log, ordered by their cells."""
        for held in self._pieces.values():
            held.sort(key=_start)
        return self._pieces


def by_thread(spans: Iterable[Span]) -> dict[int, list[Span]]:
    """The non-empty spans by thread. `InvalidArgument` if a span is impossible."""
    found: defaultdict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if min(span.log, span.start, span.count) < 0 or not 1 <= span.first <= span.last <= MAX_SEQ:
            raise InvalidArgument("a span has a negative field or an invalid range of commits; nothing was read")
        if span.count:
            found[span.thread].append(span)
    return found


def assemble(spans: Sequence[Span], found: dict[int, ByLog]) -> list[Cells]:
    """The cells of each span, from pieces by thread and log. `Damaged` if cells are missing."""
    return [_assemble(span, found.get(span.thread, {}).get(span.log, [])) for span in spans]


def _start(piece: _Piece) -> int:
    return piece[0]


def _add_pieces(
    pieces: defaultdict[int, list[_Piece]],
    opened: segment.Opened,
    body: tuple[bytes, tuple[int, ...], int],
    first: int,
    last: int,
) -> None:
    header = opened[0]
    plain, lengths, at = body
    if len(header.ranges) == 1:
        log, start, _ = header.ranges[0]
        pieces[log].append((start, first, last, plain, at, lengths, header.refs[0] if header.refs else ()))
        return
    taken = 0
    for index, (log, start, count) in enumerate(header.ranges):
        own = lengths[taken : taken + count]
        pieces[log].append((start, first, last, plain, at, own, header.refs[index] if header.refs else ()))
        taken += count
        at += sum(own)


def _assemble(span: Span, pieces: list[_Piece]) -> Cells:
    """The cells of a span, from the pieces of its log. `Damaged` if cells are missing."""
    blocks: list[Block] = []
    refs: list[Refs] = []
    at, end = span.start, span.start + span.count
    index = bisect_right(pieces, at, key=_start) - 1
    while at < end and 0 <= index < len(pieces):
        start, first, last, plain, offset, own, own_refs = pieces[index]
        index += 1
        if start > at:
            break
        if start + len(own) <= at or first > span.last or last < span.first:
            continue
        if at > start or end < start + len(own):
            part = slice(at - start, end - start)
            offset += sum(own[: at - start])
            own, own_refs = own[part], own_refs[part]
        if own_refs:
            refs += [NO_REFS] * (at - span.start - len(refs))
            refs += own_refs
        blocks.append(Block(plain, offset, own))
        at += len(own)
    if at < end:
        raise Damaged(
            f"cells {at} to {end - 1} of log {span.log} of the thread with number {span.thread} "
            f"(commits {span.first} to {span.last}) are missing or damaged"
        )
    if refs:
        refs += [NO_REFS] * (span.count - len(refs))
    return Cells(blocks, refs)
