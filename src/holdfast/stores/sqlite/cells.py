"""Reading cells: from spans to the segments that hold them, each unpacked once."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores import segment
from holdfast.stores.contract import NO_REFS, Block, Cells, Refs, Span
from holdfast.stores.sqlite import reading, rows, schema
from holdfast.stores.sqlite.errors import FAILURES, primary
from holdfast.stores.sqlite.rows import MAX_SEQ, SEQ_BITS

_SQL: Final = schema.statements("reading.sql")


class Ranges:
    """A set of integers as sorted, disjoint ranges."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """`ranges` are (start, end), the end excluded, in any order."""
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted(ranges):
            if start >= end:
                continue
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)

    def touches(self, start: int, end: int) -> bool:
        """Whether any integer of the range is in the set."""
        found = bisect_right(self.ends, start)
        return found < len(self.starts) and self.starts[found] < end

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the range that are in the set."""
        found = bisect_right(self.ends, start)
        parts: list[tuple[int, int]] = []
        while found < len(self.starts) and self.starts[found] < end:
            parts.append((max(start, self.starts[found]), min(end, self.ends[found])))
            found += 1
        return parts


NOTHING: Final = Ranges(())


# The cells of one log in one segment: where they start, the first and last commit of the segment, the segment's bytes,
# where in them the cells begin, their lengths and their refs. A plain tuple: there may be one for every save.
_Piece = tuple[int, int, int, bytes, int, tuple[int, ...], tuple[Refs, ...]]


def cells(connection: sqlite3.Connection, namespace: bytes, spans: Sequence[Span]) -> list[Cells]:
    by_thread: defaultdict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if min(span.log, span.start, span.count) < 0 or not 1 <= span.first <= span.last <= MAX_SEQ:
            raise InvalidArgument("a span names cells that cannot exist")
        if span.count:
            by_thread[span.thread].append(span)
    found: dict[tuple[int, int], list[_Piece]] = {}
    for thread, wanted in by_thread.items():
        if reading.find_number(connection, namespace, thread) is None:
            raise Damaged(f"cells of thread number {thread} are missing: there is no such thread")
        found.update({(thread, log): pieces for log, pieces in _pieces(connection, thread, wanted).items()})
    return [_assemble(span, found.get((span.thread, span.log), [])) for span in spans]


def _pieces(connection: sqlite3.Connection, thread: int, spans: list[Span]) -> dict[int, list[_Piece]]:
    """By log, and in order of their cells, the runs of every segment that holds something wanted."""
    logs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for span in spans:
        logs[span.log].append((span.start, span.start + span.count))
    wanted = {log: Ranges(ranges) for log, ranges in logs.items()}
    commits = Ranges((span.first, span.last + 1) for span in spans)
    pieces: defaultdict[int, list[_Piece]] = defaultdict(list)
    seen: set[int] = set()
    for first, end in zip(commits.starts, commits.ends, strict=True):
        keys = (thread << SEQ_BITS | first, thread << SEQ_BITS | end - 1)
        for row_key, first_seq, blob in chain(
            walk_commits(connection, *keys), connection.execute(_SQL["segments"], keys)
        ):
            # A segment that reaches over a gap between two ranges of commits comes up in both.
            if first_seq != row_key & MAX_SEQ:
                if row_key in seen:
                    continue
                seen.add(row_key)
            # A damaged segment is as good as missing. Whether that hurts shows when the spans are put together.
            try:
                context = rows.context(row_key)
                opened = segment.open_(blob, context)
                for log, start, count in opened[0].ranges:
                    if log in wanted and wanted[log].touches(start, start + count):
                        break
                else:
                    continue
                _add_pieces(pieces, opened, segment.body(opened, context), first_seq, row_key & MAX_SEQ)
            except Damaged:
                continue
    for held in pieces.values():
        held.sort(key=_start)
    return pieces


def walk_commits(connection: sqlite3.Connection, low: int, high: int) -> Iterator[tuple[int, int, bytes | None]]:
    """The rows of commits that hold cells, in order: key, seq, segment.

    Where a page is damaged SQLite gives up on the whole range; what lies beside it is then read row by row, and rows
    that cannot be read come with None.
    """
    try:
        for row in connection.execute(_SQL["cells"], (low, high)):
            yield row
            low = row[0] + 1
    except FAILURES as error:
        if primary(error) != sqlite3.SQLITE_CORRUPT:
            raise
    else:
        return
    newest = connection.execute(_SQL["last_of"], (low >> SEQ_BITS,)).fetchone()
    for row_key in range(low, min(high, rows.key(low >> SEQ_BITS, newest[0])) + 1):
        try:
            # Not a range of one: that would look at the next row, too, before it gives this one.
            yield from connection.execute(_SQL["cells_of_one"], (row_key,)).fetchall()
        except FAILURES as error:
            if primary(error) != sqlite3.SQLITE_CORRUPT:
                raise
            yield row_key, row_key & MAX_SEQ, None


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
    """The span's cells out of the pieces of its log. `Damaged` if they leave a gap."""
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
            f"cells {at} to {end - 1} of log {span.log} of thread number {span.thread} "
            f"(commits {span.first} to {span.last}) are missing or damaged"
        )
    if refs:
        refs += [NO_REFS] * (span.count - len(refs))
    return Cells(blocks, refs)
