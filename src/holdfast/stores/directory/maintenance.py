"""Remove dead cells: a sweep records them in the log, and a rewrite leaves them out.

A rewrite replaces the file in one step. Readers that have the old file open continue to read from it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from holdfast.errors import InvalidArgument
from holdfast.stores import contract as c
from holdfast.stores.directory import files
from holdfast.stores.directory import records as r
from holdfast.stores.directory.names import LOG
from holdfast.stores.directory.replay import Cell, Thread
from holdfast.stores.directory.rewriting import Rewriting
from holdfast.stores.directory.settling import settle_log, settle_users
from holdfast.stores.directory.space import Followed, Space, sealed
from holdfast.stores.directory.writing import Plan

# A sweep rewrites a log when more than half of it is dead, so that rewrites cost no more than the appends did.
_WORTH_REWRITING: Final = 64 << 10


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

    def dead(self, log: int, cells: Sequence[Cell]) -> list[Cell]:
        ranges = self._ranges.get(log, [])
        return [cell for cell in cells if cell.seq <= self._horizon and not _within(ranges, cell.at)]


def _within(ranges: Sequence[tuple[int, int]], at: int) -> bool:
    found = bisect_right(ranges, at, key=lambda pair: pair[0]) - 1
    return found >= 0 and at < ranges[found][1]


def plan_sweep(space: Space, number: int, live: c.Live) -> Plan[int]:
    """Plan to drop the cells of commits that have no live cells."""
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


def plan_compaction(space: Space, number: int, live: c.Live) -> tuple[c.Compacted, Rewriting | None]:
    """The result of a compaction, and the rewrite that does it. The caller holds the gate."""
    alive = Alive(number, live)
    found = space.numbered(number)
    if found is None:
        return c.Compacted(), None
    thread = found.thread
    damaged = len(thread.damages) + (thread.tail_damage is not None)
    if not can_be_rewritten(thread):
        return c.Compacted(damaged=damaged), None
    dead = [cell for log, cells in thread.logs.items() for cell in alive.dead(log, cells)]
    if not dead and not is_worth_rewriting(found, part=8):
        return c.Compacted(damaged=damaged), None
    rewriting = Rewriting(space, found, frozenset(cell.offset for cell in dead))
    return c.Compacted(damaged=damaged, dropped=len(dead)), rewriting


def plan_rewriting(space: Space, number: int) -> Rewriting | None:
    """The rewrite that removes what sweeps dropped, if that is worth it. The caller holds the gate."""
    found = space.numbered(number)
    if found is None or found.thread.is_gone or not is_worth_rewriting(found):
        return None
    return Rewriting(space, found, frozenset())


def can_be_rewritten(thread: Thread) -> bool:
    """Whether the thread's position is known, which a new log needs."""
    return thread.tail_damage is None and thread.stand_damage is None


def is_worth_rewriting(found: Followed, *, part: int = 2) -> bool:
    """Whether more than one `part`-th of a log is dead, and enough to matter."""
    thread = found.thread
    if not can_be_rewritten(thread):
        return False
    kept = sum(cell.length + 1 for cells in thread.logs.values() for cell in cells)
    kept += sum(row.place.length + 1 for row in thread.rows.values() if row.place is not None)
    kept += sum(entry.place.length + 1 for entry in thread.entries.values())
    dead = found.log.end - kept
    return dead > _WORTH_REWRITING and dead * part > found.log.end


# -- folders --------------------------------------------------------------------------------------------------------


def bury(space: Space, number: int) -> None:
    """Move a dropped thread out of the folder for its name; remove it if its cells are not needed.

    `Damaged`, with the cells kept, if it is not known whether they are needed.
    """
    found = space.numbered(number)
    if found is None or not found.thread.is_gone:
        return
    settle_users(space, number)
    lay_aside(space, found)
    if any(found.thread.logs.values()) and space.forks(number):
        return
    grave = space.dropped_folder(number)
    space.forget(grave)
    # First: a folder without a log is not a thread, whatever else is left in it.
    _unlink(os.path.join(grave, LOG))
    shutil.rmtree(grave, ignore_errors=True)


def lay_aside(space: Space, found: Followed) -> None:
    """Move a dropped thread out of the folder for its name."""
    grave = space.dropped_folder(found.thread.number)
    if found.folder == grave:
        return
    files.make_folder(os.path.dirname(grave), sync=space.sync)
    settle_log(space, found)
    above = os.path.dirname(found.folder)
    with files.renaming_in(above, sync=space.sync), files.renaming_in(os.path.dirname(grave), sync=space.sync):
        os.rename(found.folder, grave)
        space.forget(found.folder)


def sweep_leftovers(space: Space) -> None:
    """Remove what a crash left of rewrites and drops. The caller holds the gate; only new logs may be being written."""
    for folder in list(space.folders()):
        for name in _listed(folder):
            if name.startswith(LOG) and name.endswith(".new"):
                unlink_unless_locked(os.path.join(folder, name))
        is_grave = os.path.basename(os.path.dirname(folder)) == "dropped"
        if is_grave and not files.is_there(os.path.join(folder, LOG)):
            shutil.rmtree(folder, ignore_errors=True)
    for found in space.everything():
        if found.thread.is_gone:
            bury(space, found.thread.number)
    _unlink(f"{space.ledger_log.path}.new")
    space.tidy_ledger()


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def unlink_unless_locked(path: str) -> None:
    """Remove a file, unless another process is writing it and has locked it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
