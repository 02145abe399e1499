"""Lanes: where the checkpoints of a thread stand beside each other when its branches are drawn, newest first.

A rewind leaves a branch and begins the next. Seqs and branches grow together, so a branch is a range of seqs that comes
from one checkpoint below it. A few reads per branch tell all of them, however many checkpoints there are.

Some checkpoints stand under another than the one before them without a rewind: labels that were given later, and what a
framework put under a parent of its own choice. There the range is parted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.history import listed

_PAGE: Final = 500


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints from `first` to `last`, each of which came from the one before it.

    `parent` is the seq that the first came from, 0 if from none here. Where a branch is parted, each part has its
    number.
    """

    number: int
    first: int
    last: int
    parent: int


class Place(NamedTuple):
    """Where a checkpoint stands: its lane, the lanes that pass it by, and those that come from above and end in it."""

    lane: int
    passing: tuple[int, ...]
    joining: tuple[int, ...]


class Lanes:
    """The branches of a thread, laid out."""

    def __init__(self, branches: list[Branch], head: int) -> None:
        """`head` is the seq of the thread's head."""
        self.branches = branches
        self._firsts = [branch.first for branch in branches]
        self._line = self._leading_to(head)
        self._events: list[int] = []  # seqs, falling, at which the lanes change; from each on down to the next
        self._open: list[tuple[int, ...]] = []  # the lanes below each, by which seq each goes to; 0: free
        self._places: dict[int, Place] = {}
        self._lay_out()

    @classmethod
    def of(cls, store: Store, thread: ThreadRow, *, down_to: int | None = None) -> Lanes:
        """The lanes of a thread. Where checkpoints cannot be read, branches that begin there are taken for one.

        Every checkpoint from the seq `down_to` on is asked what it came from; of those below, and of all without it,
        only the first and the last of each branch.
        """
        position = thread.position
        branches = _branches(store, position.thread, position.last)
        if down_to is not None:
            branches = _parted(branches, _elsewhere(store, thread, down_to))
        return cls(branches, position.head)

    def branch(self, seq: int) -> Branch | None:
        """The branch that a checkpoint is of."""
        at = bisect_left(self._firsts, seq + 1) - 1
        return self.branches[at] if at >= 0 else None

    def extent(self, number: int) -> tuple[int, int] | None:
        """The first and the last checkpoint of a branch, parted or not."""
        parts = [branch for branch in self.branches if branch.number == number]
        return (parts[0].first, parts[-1].last) if parts else None

    def leads_to_head(self, seq: int) -> bool:
        """Whether a checkpoint is the head, or what it came from."""
        branch = self.branch(seq)
        return branch is not None and seq <= self._line.get(branch.first, 0)

    def place(self, seq: int) -> Place:
        """Where a checkpoint stands."""
        known = self._places.get(seq)
        if known is not None:
            return known
        # Between two events every checkpoint comes from the next below it, and nothing else changes.
        at = next((index for index, event in enumerate(self._events) if event < seq), len(self._events)) - 1
        lanes = self._open[at] if at >= 0 else ()
        branch = self.branch(seq)
        mine = next((lane for lane, to in enumerate(lanes) if to and branch == self.branch(to) and to >= seq), 0)
        passing = tuple(lane for lane, to in enumerate(lanes) if to and lane != mine)
        return Place(mine, passing, ())

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
        lanes: list[int] = []  # by which seq each goes to
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
            self._places[seq] = Place(mine, passing, tuple(joining))
            self._events.append(seq)
            self._open.append(tuple(lanes))


def _branches(store: Store, thread: int, last: int) -> list[Branch]:
    """Oldest first."""
    ends = _ends(store, thread, last)
    found: list[Branch] = []
    first = 1
    for row in ends:
        begin = _checkpoint(store, thread, first)
        parent = 0 if begin is None else _parent(begin)
        found.append(Branch(number=branch_of(row), first=first, last=row.seq, parent=parent))
        first = row.seq + 1
    return _parted(found, {row.seq: _parent(row) for row in ends if _is_elsewhere(row)})


def _parted(branches: list[Branch], elsewhere: dict[int, int]) -> list[Branch]:
    """Branches, with a new part at each of some checkpoints, which are given with their parents."""
    found: list[Branch] = []
    cuts = sorted(elsewhere)
    for branch in branches:
        first, parent = branch.first, branch.parent
        for seq in cuts[bisect_right(cuts, branch.first) : bisect_right(cuts, branch.last)]:
            found.append(Branch(number=branch.number, first=first, last=seq - 1, parent=parent))
            first, parent = seq, elsewhere[seq]
        found.append(Branch(number=branch.number, first=first, last=branch.last, parent=parent))
    return found


def _elsewhere(store: Store, thread: ThreadRow, down_to: int) -> dict[int, int]:
    """The checkpoints from a seq on that do not come from the one before them, with what they come from."""
    found: dict[int, int] = {}
    for row in listed(store, thread, page=_PAGE):
        if isinstance(row, Damaged):
            continue
        if row.seq < down_to:
            break
        if _is_elsewhere(row):
            found[row.seq] = _parent(row)
    return found


def _parent(row: CheckpointRow) -> int:
    """The seq of the checkpoint of the same thread that one came from, 0 if there is none."""
    return 0 if row.parent is None or row.parent[0] or row.parent[1] >= row.seq else row.parent[1]


def _is_elsewhere(row: CheckpointRow) -> bool:
    return row.seq > 1 and _parent(row) != row.seq - 1


def _ends(store: Store, thread: int, last: int) -> list[CheckpointRow]:
    """The last checkpoint of each branch, oldest first."""
    lowest, highest = _readable(store, thread, range(1, last + 1)), _readable(store, thread, range(last, 0, -1))
    if lowest is None or highest is None:
        return []
    found = [highest]
    todo = [(lowest, highest)]
    while todo:
        low, high = todo.pop()
        if branch_of(low) == branch_of(high):
            continue
        middle = _readable(store, thread, range((low.seq + high.seq) // 2, low.seq, -1))
        if middle is None:
            if high.seq - low.seq > 2:  # the lower half tells nothing: the upper may
                middle = _readable(store, thread, range((low.seq + high.seq) // 2 + 1, high.seq))
            if middle is None:
                found.append(low)
                continue
        todo += [(low, middle), (middle, high)]
    return sorted(found, key=lambda row: row.seq)


def _readable(store: Store, thread: int, seqs: range) -> CheckpointRow | None:
    return next((row for seq in seqs if (row := _checkpoint(store, thread, seq)) is not None), None)


def _checkpoint(store: Store, thread: int, seq: int) -> CheckpointRow | None:
    try:
        return store.checkpoint(thread, seq)
    except Damaged:
        return None
