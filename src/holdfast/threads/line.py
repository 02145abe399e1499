"""The line of a thread: what its head came from, and what was abandoned by rewinding."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.stores.contract import CheckpointRow, Position, Store


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
        found = store.checkpoint(thread, first.parent[1])


def _first_of_branch(store: Store, thread: int, row: CheckpointRow) -> CheckpointRow:
    """Branches only grow along the seqs of a thread: a long one costs a few reads."""
    stride = 1
    below = 0  # the newest seq that is known to be of an earlier branch
    while row.seq - below > 1:
        at = max(row.seq - stride, (row.seq + below) // 2)
        found = store.checkpoint(thread, at)
        if found is not None and branch_of(found) == branch_of(row):
            row, stride = found, stride * 2
        else:
            below = at
    return row
