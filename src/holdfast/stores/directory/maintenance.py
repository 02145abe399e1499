"""Removing what is dead: a sweep says so in the log, and a rewrite leaves it out.

A rewrite puts a new file in the place of the old one, at once; readers that have the old one open read on in it. Lines
are copied as they lie, the damaged ones too: nothing is left out because it could not be read.
"""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from holdfast.errors import InvalidArgument
from holdfast.stores import contract as c
from holdfast.stores.directory import files, lines
from holdfast.stores.directory import records as r
from holdfast.stores.directory.replay import Cell, Thread
from holdfast.stores.directory.space import LOG, Followed, Sealed, Space, group, sealed
from holdfast.stores.directory.writing import Plan

# A log is rewritten by a sweep when more than half of it is dead, so that all rewrites together cost what was appended.
_WORTH_REWRITING: Final = 64 << 10
_UNKNOWN: Final = "z"  # stands for a damaged line in the composition of a group


class Rewrite(NamedTuple):
    """A log to be rewritten without some of its cells."""

    followed: Followed
    dead: frozenset[int]  # offsets of lines


class Alive:
    """What `Live` keeps of a thread, as sorted ranges of each log that do not overlap."""

    def __init__(self, thread: int, live: c.Live) -> None:
        self._horizon = live.horizon
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for span in sorted(live.spans, key=lambda span: span.start):
            if span.thread != thread:
                # Ignoring it would sweep what the caller meant to keep.
                raise InvalidArgument(f"A live span names thread {span.thread}, not {thread}; nothing was swept.")
            ranges = self._ranges.setdefault(span.log, [])
            start, end = span.start, span.start + span.count
            if ranges and start <= ranges[-1][1]:
                start, end = ranges[-1][0], max(ranges.pop()[1], end)
            ranges.append((start, end))

    def dead(self, log: int, cells: Sequence[Cell]) -> list[Cell]:
        ranges = self._ranges.get(log, [])
        return [cell for cell in cells if cell.seq <= self._horizon and not _within(ranges, cell.at)]


def _within(ranges: Sequence[tuple[int, int]], at: int) -> bool:
    found = bisect_right(ranges, at, key=lambda pair: pair[0]) - 1
    return found >= 0 and at < ranges[found][1]


def plan_sweep(space: Space, number: int, live: c.Live) -> Plan[int]:
    """Plan to drop the cells of those commits that have none left that is live."""
    alive = Alive(number, live)
    found = space.numbered(number)
    if found is None:
        return Plan(0)
    ranges: list[tuple[int, int, int]] = []
    dropped = 0
    for log, cells in found.thread.logs.items():
        dead = set(alive.dead(log, cells))
        for _, run in groupby(cells, key=lambda cell: cell.seq):
            segment = list(run)
            if dead.issuperset(segment):
                dropped += 1
                ranges.append((log, segment[0].at, segment[-1].at - segment[0].at + 1))
    if not ranges:
        return Plan(0)
    return Plan(dropped, [sealed(r.SweepLine(cells=tuple(_joined(ranges))))], followed=found)


def _joined(ranges: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    current: tuple[int, int, int] | None = None
    for log, start, count in ranges:
        if current is not None and current[0] == log and current[1] + current[2] == start:
            current = (log, current[1], current[2] + count)
            continue
        if current is not None:
            yield current
        current = (log, start, count)
    if current is not None:
        yield current


def plan_compaction(space: Space, number: int, live: c.Live) -> tuple[c.Compacted, Rewrite | None]:
    """What a compaction would do, and how."""
    alive = Alive(number, live)
    found = space.numbered(number)
    if found is None:
        return c.Compacted(), None
    thread = found.thread
    damaged = len(thread.damages) + (thread.tail_damage is not None)
    if thread.tail_damage is not None or thread.stand_damage is not None:
        return c.Compacted(damaged=damaged), None
    dead = [cell for log, cells in thread.logs.items() for cell in alive.dead(log, cells)]
    if not dead and not is_worth_rewriting(found, part=8):
        return c.Compacted(damaged=damaged), None
    rewrite = Rewrite(found, frozenset(cell.offset for cell in dead))
    return c.Compacted(damaged=damaged, dropped=len(dead)), rewrite


def is_worth_rewriting(found: Followed, *, part: int = 2) -> bool:
    """Whether more than one part in so many of a log is dead, and that is much."""
    thread = found.thread
    if thread.tail_damage is not None or thread.stand_damage is not None:
        return False
    kept = sum(cell.length + 1 for cells in thread.logs.values() for cell in cells)
    kept += sum(row.place.length + 1 for row in thread.rows.values() if row.place is not None)
    kept += sum(entry.place.length + 1 for entry in thread.entries.values())
    dead = found.log.end - kept
    return dead > _WORTH_REWRITING and dead * part > found.log.end


def rewritten(space: Space, rewrite: Rewrite) -> bytes:
    """A log without what is dead: one group."""
    found = rewrite.followed
    thread = found.thread
    head = r.ThreadLine(
        format=r.FORMAT,
        number=thread.number,
        **r.shown_name(thread.name or ""),
        made=time.time_ns(),
        origins=tuple(sorted(thread.origins)),
        gone=thread.is_gone,
    )
    made: list[Sealed] = [sealed(head)]
    made += [sealed(_tombstone(row.head)) for _, row in sorted(thread.rows.items()) if row.place is None]
    data = os.pread(found.log.descriptor(), found.log.end, 0)
    kept = _kept(thread, rewrite.dead)
    lost_run = thread.run_damage
    for line in lines.split(data, 0)[0]:
        raw = data[line.offset : line.offset + line.length + 1]
        if line.body is None:
            made.append(("r" if lost_run is not None else _UNKNOWN, raw))
            lost_run = None
        elif line.offset in kept:
            made.append((kept[line.offset], raw))
    if thread.run_row is not None and thread.run_damage is None:
        made.append(sealed(r.show_run(thread.run_row, space.form)))
    return group(made, thread.number, thread.at)


def _kept(thread: Thread, dead: frozenset[int]) -> dict[int, str]:
    """The offsets of the lines that stay, and the letters of their kinds."""
    kept = {cell.offset: "c" for cells in thread.logs.values() for cell in cells if cell.offset not in dead}
    kept |= {row.place.offset: "k" for row in thread.rows.values() if row.place is not None}
    return kept | {entry.place.offset: "e" for entry in thread.entries.values()}


# -- folders --------------------------------------------------------------------------------------------------------


def bury(space: Space, number: int) -> None:
    """A dropped thread leaves its folder to whoever takes its name; where nothing needs its cells it goes for good."""
    found = space.numbered(number)
    if found is None or not found.thread.is_gone:
        return
    is_used = any(found.thread.logs.values()) and bool(space.forks(number))
    grave = space.dropped_folder(number)
    if found.folder != grave:
        files.make_folder(os.path.dirname(grave), sync=space.sync)
        os.rename(found.folder, grave)
        space.forget(found.folder)
        if space.sync:
            files.sync_folder(os.path.dirname(grave))
            files.sync_folder(os.path.dirname(found.folder))
    if not is_used:
        space.forget(grave)
        # First: a folder without a log is no thread, whatever else is left in it.
        _unlink(os.path.join(grave, LOG))
        shutil.rmtree(grave, ignore_errors=True)


def sweep_leftovers(space: Space) -> None:
    """Remove what a crash left of rewrites and drops. Only under the gate: nobody is writing."""
    for folder in list(space.folders()):
        _unlink(os.path.join(folder, f"{LOG}.new"))
        is_grave = os.path.basename(os.path.dirname(folder)) == "dropped"
        if is_grave and not os.path.exists(os.path.join(folder, LOG)):
            shutil.rmtree(folder, ignore_errors=True)
    for found in space.everything():
        if found.thread.is_gone:
            bury(space, found.thread.number)
    _unlink(f"{space.ledger_log.path}.new")


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return


def _tombstone(head: r.CheckpointHead) -> r.TombstoneLine:
    return r.TombstoneLine(
        seq=head.seq, id=head.id, digest=head.digest, step=head.step, move=head.move, parent=head.parent
    )
