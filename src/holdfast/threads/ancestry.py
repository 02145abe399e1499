"""The ancestors of a checkpoint, found past damaged ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Position, Store

_MOST: Final = 2_000


class Patience:
    """Counts checkpoints that cannot be read, one behind the other.

    A thread's record that was forged may speak of 4 billion, and each would be looked for.
    """

    def __init__(self) -> None:
        self._lost = 0

    def found(self) -> None:
        self._lost = 0

    def lost(self) -> None:
        """`Damaged` if there were too many."""
        self._lost += 1
        if self._lost > _MOST:
            raise Damaged(
                f"more than {_MOST} checkpoints one behind the other cannot be read: the record of their thread is "
                "wrong, or all of it is lost; what is left can be salvaged by `holdfast repair`"
            )


RACES_MAX = 50  # times a verb tries again because another writer was faster


def branch_of(position: Position | CheckpointRow) -> int:
    """How often a thread was rewound: a save counts as a move and gives out a seq, a rewind is a move only."""
    return position.move - (position.last if isinstance(position, Position) else position.seq)


class Line:
    """Which steps of which branches lead to a checkpoint of a thread, or to its head and what is open there."""

    def __init__(self, steps: dict[int, int], branch: int = -1) -> None:
        """`steps` are those after which branches were left; `branch` is the one that was not."""
        self._steps = steps
        self._branch = branch

    @classmethod
    def of(cls, store: Store, thread: Position) -> Line:
        """What leads to the head of a thread."""
        branch = branch_of(thread)
        head = store.checkpoint(thread.thread, thread.head) if branch else None
        return cls({} if head is None else dict(_ancestors(store, thread.thread, head)), branch)

    @classmethod
    def to(cls, store: Store, thread: int, checkpoint: CheckpointRow) -> Line:
        """What leads to a checkpoint of a thread."""
        return cls(dict(_ancestors(store, thread, checkpoint)))

    def holds(self, branch: int, step: int) -> bool:
        """Whether what was done in a step counts: its branch is the current one, or was left only after it."""
        return branch == self._branch or step <= self._steps.get(branch, -1)


def _ancestors(store: Store, thread: int, to: CheckpointRow) -> Iterator[tuple[int, int]]:
    """The branches that lead to a checkpoint, newest first, each with the step after which it was left.

    Within a branch each checkpoint comes from the one before it, so only its first says where the branch came from.
    Deleted ones leave tombstones, which know that too.
    """
    found: CheckpointRow | None = to
    while found is not None:
        yield branch_of(found), found.step
        first = _first_of_branch(store, thread, found) if branch_of(found) else None
        if first is None or first.parent is None or first.parent[0]:
            return
        require_older(first)
        found = store.checkpoint(thread, first.parent[1])


def require_older(row: CheckpointRow) -> None:
    """`Damaged` if a checkpoint has a parent in its thread that is not older: who follows it might go in circles."""
    if row.parent is not None and not row.parent[0] and row.parent[1] >= row.seq:
        raise Damaged(f"checkpoint {row.seq}: its parent is not older than itself")


def _first_of_branch(store: Store, thread: int, row: CheckpointRow) -> CheckpointRow:
    """Branches only grow along the seqs of a thread: a long one costs a few reads.

    `Damaged` if that may be one that cannot be read.
    """
    stride = 1
    below = 0  # the newest seq that is known to be of an earlier branch
    while row.seq - below > 1:
        at = max(row.seq - stride, (row.seq + below) // 2)
        found = _readable(store, thread, range(at, below, -1)) or _readable(store, thread, range(at + 1, row.seq))
        if found is None:
            # None of those in between can be read: to ask for one of them says why.
            found = store.checkpoint(thread, at)
        if found is not None and branch_of(found) == branch_of(row):
            row, stride = found, stride * 2
        else:
            below = at if found is None else found.seq
    return row


def ancestor_beyond(store: Store, position: Position, seq: int) -> int | None:
    """The newest readable ancestor of a checkpoint whose own record is not: 0 if there is none, None if nobody can say.

    Within a branch each checkpoint comes from the one stored before it, and branches only grow: between two checkpoints
    of one branch all are of it. Where a branch begins in between, a guess might give back what was abandoned.
    """
    below = _readable(store, position.thread, range(seq - 1, 0, -1))
    above = _readable(store, position.thread, range(seq + 1, position.last + 1))
    first = 0 if below is None else branch_of(below)
    last = branch_of(position if above is None else above)
    if first != last:
        return None
    return 0 if below is None else below.seq


def _readable(store: Store, thread: int, seqs: Iterable[int]) -> CheckpointRow | None:
    """The first of these checkpoints that can be read, tombstones among them. `Damaged` if too many cannot."""
    patience = Patience()
    for seq in seqs:
        with suppress(Damaged):
            found = store.checkpoint(thread, seq)
            if found is not None:
                return found
        patience.lost()
    return None
