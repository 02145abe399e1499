"""Layout of a thread's branches in lanes, to draw them newest first.

A rewind starts a new branch. Seqs and branch numbers grow together, so a branch is a range of seqs whose first
checkpoint has its parent below the range. The ranges are found by binary search, with a few reads per branch.

A checkpoint can also have another parent than the one before it without a rewind: a label that was added later, or a
parent that a framework chose. The range is split there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import msgspec

from holdfast.inspect.damage import Readable
from holdfast.stores.contract import CheckpointRow, ThreadRow
from holdfast.threads.ancestry import branch_of


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints from `first` to `last`, each the parent of the next.

    `parent` is the seq of the first one's parent, 0 if it is not in this thread. The parts of a split branch have the
    same number.
    """

    number: int
    first: int
    last: int
    parent: int


class LanePlace(NamedTuple):
    """The lane of a checkpoint, the lanes that pass it, and the lanes from above that join it."""

    lane: int
    passing: tuple[int, ...]
    joining: tuple[int, ...]


class Lanes:
    """The branches of a thread, with their lanes."""

    def __init__(self, branches: list[Branch], head: int) -> None:
        """`head` is the seq of the thread's head."""
        self.branches = branches
        self._firsts = [branch.first for branch in branches]
        self._line = self._leading_to(head)
        self._events: list[int] = []  # seqs at which the lanes change, in descending order
        self._open: list[tuple[int, ...]] = []  # per event, the seq that each lane leads to below it; 0: free
        self._places: dict[int, LanePlace] = {}
        self._lay_out()

    @classmethod
    def of(cls, readable: Readable, thread: ThreadRow, *, down_to: int | None = None) -> Lanes:
        """Return the lanes of a thread. Branches that start at unreadable checkpoints are merged.

        The parent of every checkpoint from the seq `down_to` on is read. Below it, and if it is None, only those of the
        first and the last checkpoint of each branch are read.
        """
        position = thread.position
        branches = _branches(readable, position.thread, position.last)
        if down_to is not None:
            branches = _parted(branches, _elsewhere(readable, thread, down_to))
        return cls(branches, position.head)

    def branch(self, seq: int) -> Branch | None:
        """Return the branch of a checkpoint."""
        at = bisect_left(self._firsts, seq + 1) - 1
        return self.branches[at] if at >= 0 else None

    def extent(self, number: int) -> tuple[int, int] | None:
        """Return the first and the last checkpoint of a branch, over all its parts."""
        parts = [branch for branch in self.branches if branch.number == number]
        return (parts[0].first, parts[-1].last) if parts else None

    def leads_to_head(self, seq: int) -> bool:
        """Whether a checkpoint is the head or one of its ancestors."""
        branch = self.branch(seq)
        return branch is not None and seq <= self._line.get(branch.first, 0)

    def place(self, seq: int) -> LanePlace:
        """Return the place of a checkpoint."""
        known = self._places.get(seq)
        if known is not None:
            return known
        # Between two events the parent of each checkpoint is the next one below it, and the lanes do not change.
        at = next((index for index, event in enumerate(self._events) if event < seq), len(self._events)) - 1
        lanes = self._open[at] if at >= 0 else ()
        branch = self.branch(seq)
        mine = next((lane for lane, to in enumerate(lanes) if to and branch == self.branch(to) and to >= seq), 0)
        passing = tuple(lane for lane, to in enumerate(lanes) if to and lane != mine)
        return LanePlace(mine, passing, ())

    def _leading_to(self, head: int) -> dict[int, int]:
        line: dict[int, int] = {}
        while head:
            branch = self.branch(head)
            if branch is None or branch.first in line:
                break
            line[branch.first] = head
            head = branch.parent
        return line

    def _lay_out(self) -> None:
        marks = {branch.last for branch in self.branches} | {branch.first for branch in self.branches}
        marks |= {branch.parent for branch in self.branches if branch.parent}
        lanes: list[int] = []  # the seq that each lane leads to; 0: free
        for seq in sorted(marks, reverse=True):
            branch = self.branch(seq)
            if branch is None:
                continue
            here = [lane for lane, to in enumerate(lanes) if to and to >= seq and self.branch(to) == branch]
            if not here:
                free = next((lane for lane, to in enumerate(lanes) if not to), len(lanes))
                lanes[free : free + 1] = [seq]
                here = [free]
            mine, *joining = here
            for lane in joining:
                lanes[lane] = 0
            passing = tuple(lane for lane, to in enumerate(lanes) if to and lane != mine)
            lanes[mine] = seq - 1 if seq > branch.first else branch.parent
            while lanes and not lanes[-1]:
                lanes.pop()
            self._places[seq] = LanePlace(mine, passing, tuple(joining))
            self._events.append(seq)
            self._open.append(tuple(lanes))


def _branches(readable: Readable, thread: int, last: int) -> list[Branch]:
    """Return the branches, oldest first."""
    ends = _ends(readable, thread, last)
    found: list[Branch] = []
    first = 1
    for row in ends:
        begin = readable.checkpoint(thread, first)
        parent = 0 if begin is None else _parent(begin)
        found.append(Branch(number=branch_of(row), first=first, last=row.seq, parent=parent))
        first = row.seq + 1
    return _parted(found, {row.seq: _parent(row) for row in ends if _is_elsewhere(row)})


def _parted(branches: list[Branch], elsewhere: dict[int, int]) -> list[Branch]:
    """Split branches at the seqs in `elsewhere`, which maps them to their parents."""
    found: list[Branch] = []
    cuts = sorted(elsewhere)
    for branch in branches:
        first, parent = branch.first, branch.parent
        for seq in cuts[bisect_right(cuts, branch.first) : bisect_right(cuts, branch.last)]:
            found.append(Branch(number=branch.number, first=first, last=seq - 1, parent=parent))
            first, parent = seq, elsewhere[seq]
        found.append(Branch(number=branch.number, first=first, last=branch.last, parent=parent))
    return found


def _elsewhere(readable: Readable, thread: ThreadRow, down_to: int) -> dict[int, int]:
    """Return the checkpoints from a seq on whose parent is not the one before them, with their parents."""
    found: dict[int, int] = {}
    for row, _ in readable.checkpoints(thread):
        if row.seq < down_to:
            break
        if _is_elsewhere(row):
            found[row.seq] = _parent(row)
    return found


def _parent(row: CheckpointRow) -> int:
    """Return the seq of a checkpoint's parent in the same thread, 0 if there is none."""
    return 0 if row.parent is None or row.parent[0] or row.parent[1] >= row.seq else row.parent[1]


def _is_elsewhere(row: CheckpointRow) -> bool:
    return row.seq > 1 and _parent(row) != row.seq - 1


def _ends(readable: Readable, thread: int, last: int) -> list[CheckpointRow]:
    """Return the last checkpoint of each branch, oldest first."""
    lowest, highest = _first_of(readable, thread, range(1, last + 1)), _first_of(readable, thread, range(last, 0, -1))
    if lowest is None or highest is None:
        return []
    found = [highest]
    todo = [(lowest, highest)]
    while todo:
        low, high = todo.pop()
        if branch_of(low) == branch_of(high):
            continue
        middle = _first_of(readable, thread, range((low.seq + high.seq) // 2, low.seq, -1))
        if middle is None:
            if high.seq - low.seq > 2:  # nothing is readable in the lower half, so try the upper half
                middle = _first_of(readable, thread, range((low.seq + high.seq) // 2 + 1, high.seq))
            if middle is None:
                found.append(low)
                continue
        todo += [(low, middle), (middle, high)]
    return sorted(found, key=lambda row: row.seq)


def _first_of(readable: Readable, thread: int, seqs: range) -> CheckpointRow | None:
    """Return the first of these checkpoints that can be read."""
    return next((row for seq in seqs if (row := readable.checkpoint(thread, seq)) is not None), None)
