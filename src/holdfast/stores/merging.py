"""Decide from segment headers which segments are dead and which to merge; shared by all stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from holdfast.errors import Damaged, InvalidArgument
from holdfast.intervals import Intervals
from holdfast.stores import rows, segment
from holdfast.stores.contract import Append, Live
from holdfast.stores.pieces import NOTHING

# Size before compression. Segments of this size are left alone, so merged ones are one to two times as large.
TARGET: Final = 512 << 10
# Merged segments are written once and read often. Level 9 takes 20 ms per MB, saves 7 % over level 3 and is read as
# fast.
_LEVEL: Final = 9


class Source(NamedTuple):
    """A stored segment: its row key, its first commit, and whether it is a merged one."""

    row_key: int
    first: int
    merged: bool


class Plan(NamedTuple):
    """The groups of segments to merge, and the number of damaged segments."""

    groups: list[list[Source]]
    damaged: int


class Merged(NamedTuple):
    """The result of merging a group: one segment, or None if no cell is live, and the number of cells dropped."""

    cells: bytes | None
    dropped: int


def live_ranges(thread: int, live: Live) -> dict[int, Intervals]:
    """The live cells by log. `InvalidArgument` if a span names another thread: its cells would be swept."""
    logs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for span in live.spans:
        if span.thread != thread:
            raise InvalidArgument(
                f"a live span names the thread with number {span.thread}, not {thread}; nothing was changed"
            )
        logs[span.log].append((span.start, span.start + span.count))
    return {log: Intervals(ranges) for log, ranges in logs.items()}


def plan(sources: Iterable[tuple[Source, bytes | None]], alive: dict[int, Intervals]) -> Plan:
    """Choose the groups of segments to merge.

    A damaged segment is left in place and ends the current group, because the commit ranges of merged segments must not
    overlap.
    """
    groups: list[list[Source]] = []
    damaged = 0
    group: list[Source] = []
    size = 0
    worth = False

    def close() -> None:
        nonlocal group, size, worth
        if len(group) > 1 or worth:
            groups.append(group)
        group, size, worth = [], 0, False

    for source, blob in sources:
        try:
            header = _verified(source, blob)
        except Damaged:
            damaged += 1
            close()
            continue
        has_dead = any(
            alive.get(log, NOTHING).within(start, start + count) != [(start, start + count)]
            for log, start, count in header.ranges
            if count
        )
        if header.size >= TARGET and not has_dead:
            close()
            continue
        group.append(source)
        size += header.size
        worth = worth or has_dead
        if size >= TARGET:
            close()
    close()
    return Plan(groups, damaged)


def merge(group: Sequence[Source], blobs: Iterable[bytes | None], alive: dict[int, Intervals]) -> Merged:
    """Merge the segments of a group into one, without dead cells. `Damaged` if one of them is damaged."""
    runs: list[Append] = []
    dropped = 0
    for source, blob in zip(group, blobs, strict=True):
        for run in segment.unpack(blob, rows.context(source.row_key)):
            kept = _only_live(run, alive)
            dropped += len(run.cells) - sum(len(part.cells) for part in kept)
            runs += kept
    runs = _join(runs)
    packed = segment.pack(runs, rows.context(group[-1].row_key), level=_LEVEL) if runs else None
    return Merged(packed, dropped)


def _verified(source: Source, blob: bytes | None) -> segment.Header:
    context = rows.context(source.row_key)
    opened = segment.open_(blob, context)
    segment.verify(opened, context)
    return opened[0]


def is_dead(source: Source, blob: bytes | None, alive: dict[int, Intervals]) -> bool:
    """Whether the segment holds no live cells. False for a segment that cannot be verified."""
    try:
        header = _verified(source, blob)
    except Damaged:
        return False
    return not any(alive.get(log, NOTHING).touches(start, start + count) for log, start, count in header.ranges)


def _only_live(run: Append, alive: dict[int, Intervals]) -> list[Append]:
    end = run.start + len(run.cells)
    parts: list[Append] = []
    for low, high in alive.get(run.log, NOTHING).within(run.start, end):
        within = slice(low - run.start, high - run.start)
        parts.append(Append(run.log, low, run.cells[within], run.refs[within]))
    return parts


def _join(runs: list[Append]) -> list[Append]:
    """Join neighbouring appends. `Damaged` if two hold the same cell, which no writer produces."""
    joined: list[Append] = []
    pending: list[Append] = []

    def close() -> None:
        if pending:
            cells = tuple(chain.from_iterable(run.cells for run in pending))
            refs = tuple(chain.from_iterable(run.refs for run in pending))
            joined.append(Append(pending[0].log, pending[0].start, cells, refs))
            pending.clear()

    for run in sorted(runs, key=lambda run: (run.log, run.start)):
        if pending and pending[-1].log == run.log:
            end = pending[-1].start + len(pending[-1].cells)
            if run.start < end:
                raise Damaged("two segments hold the same cell")
            if run.start > end or bool(run.refs) != bool(pending[-1].refs):
                close()
        else:
            close()
        pending.append(run)
    close()
    return joined
