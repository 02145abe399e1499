"""A thread in the memory store: plain lists of immutable records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.errors import Damaged, InvalidArgument, NotFound
from holdfast.stores import contract as c
from holdfast.stores.contract_runs import Entry, RunRow

_NO_SUMMARY: Final = c.Summary(step=0, status="", agent=None, size=0, updated_at=0)


class Segment(msgspec.Struct, frozen=True, gc=False):
    """Cells of one log that the commit `seq` appended."""

    seq: int
    start: int
    cells: tuple[bytes, ...]
    refs: tuple[c.Refs, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.cells)

    def between(self, start: int, end: int) -> Segment:
        """The part from `start` to `end`, which may lie beyond the segment on either side."""
        here = slice(max(start - self.start, 0), max(end - self.start, 0))
        return Segment(self.seq, max(start, self.start), self.cells[here], self.refs[here])


class Value(msgspec.Struct, frozen=True, gc=False):
    pieces: tuple[bytes, ...]
    stamp: int


@dataclass(slots=True)
class Thread:
    """A thread. A dropped thread has no name and no rows; it stays for the cells that its forks use.

    `last` is the last seq assigned, and `rows[seq - 1]` is the checkpoint `seq`: tombstones stay, so there are no gaps.
    The segments of a log are ordered by commit. `forks` are the existing threads that have this one among their
    `origins`. `effects[number - 1]` is the journal entry `number`.
    """

    number: int
    name: str | None = None
    key: bytes = b""  # the id of its wrapped key
    summary: c.Summary = _NO_SUMMARY
    head: int = 0
    move: int = 0
    last: int = 0
    count: int = 0
    rows: list[c.CheckpointRow] = field(default_factory=list[c.CheckpointRow])
    logs: dict[int, list[Segment]] = field(default_factory=dict[int, list[Segment]])
    origins: set[int] = field(default_factory=set[int])
    forks: set[int] = field(default_factory=set[int])
    run: RunRow | None = None
    effects: list[Entry] = field(default_factory=list[Entry])

    @property
    def position(self) -> c.Position:
        return c.Position(self.number, self.head, self.move, self.last)

    def row(self, seq: int) -> c.CheckpointRow | None:
        return self.rows[seq - 1] if 1 <= seq <= len(self.rows) else None

    def read(self, span: c.Span) -> c.Cells:
        """The cells of a span of this thread. `Damaged` if one is missing."""
        segments = self.logs.get(span.log, [])
        end = span.start + span.count
        cells: list[bytes] = []
        refs: list[c.Refs] = []
        bare = True
        for at in range(bisect_left(segments, span.first, key=lambda segment: segment.seq), len(segments)):
            position = span.start + len(cells)
            if position == end or segments[at].start > position or segments[at].seq > span.last:
                break
            part = segments[at].between(position, end)
            cells += part.cells
            # As soon as one cell has refs, every cell needs an entry, to keep the positions.
            refs += part.refs or [c.NO_REFS] * len(part.cells)
            bare = bare and not part.refs
        if len(cells) != span.count:
            where = f"{span.start + len(cells)} of log {span.log} of the thread with number {span.thread}"
            raise Damaged(f"cell {where} is missing")
        return c.Cells([c.Block(b"".join(cells), 0, list(map(len, cells)))], [] if bare else refs)

    def put_run(self, row: RunRow) -> None:
        self.run = row
        self.summary = msgspec.structs.replace(self.summary, status=row.status, updated_at=row.updated_at)

    def has(self, seq: int) -> bool:
        row = self.row(seq)
        return row is not None and not row.deleted


class Alive:
    """The cells that `Live` keeps, as sorted and disjoint ranges per log."""

    def __init__(self, thread: int, live: c.Live) -> None:
        self._horizon = live.horizon
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for span in sorted(live.spans, key=lambda span: span.start):
            if span.thread != thread:
                # Ignoring it would sweep cells that the caller wants to keep.
                raise InvalidArgument(
                    f"a live span names the thread with number {span.thread}, not {thread}; nothing was changed"
                )
            ranges = self._ranges.setdefault(span.log, [])
            start, end = span.start, span.start + span.count
            if ranges and start <= ranges[-1][1]:
                start, end = ranges[-1][0], max(ranges.pop()[1], end)
            ranges.append((start, end))

    def parts(self, log: int, segment: Segment) -> list[Segment]:
        """The parts of a segment to keep: all of it, some, or none."""
        if segment.seq > self._horizon:
            return [segment]
        ranges = self._ranges.get(log, [])
        first = bisect_right(ranges, segment.start, key=lambda pair: pair[1])
        after = bisect_left(ranges, segment.end, key=lambda pair: pair[0])
        parts = [segment.between(start, end) for start, end in ranges[first:after]]
        return [part for part in parts if part.cells]


def write_journal(thread: Thread, rows: Sequence[Entry]) -> None:
    for row in rows:
        thread.effects[row.number - 1 : row.number] = [row]


def tombstone(row: c.CheckpointRow) -> c.CheckpointRow:
    return c.CheckpointRow(
        seq=row.seq, id=row.id, parent=row.parent, digest=row.digest, step=row.step, move=row.move, deleted=True
    )


def check_appends(runs: Sequence[c.Append], logs: dict[int, list[Segment]]) -> None:
    """`InvalidArgument` if an append overlaps existing cells, because spans over them would be ambiguous."""
    ends = {run.log: logs[run.log][-1].end for run in runs if logs.get(run.log)}
    for run in runs:
        if run.start < ends.get(run.log, 0):
            raise InvalidArgument(f"log {run.log} already has cells at {run.start}; nothing was stored")
        ends[run.log] = run.start + len(run.cells)


def not_found(number: int) -> NotFound:
    return NotFound(f"the thread with number {number} does not exist; nothing was changed")
