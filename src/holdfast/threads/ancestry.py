"""The ancestors of a checkpoint, found also where some of them are damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Position, Store
from holdfast.stores.contract_runs import Boundary, Entry, RunRow
from holdfast.threads.scan import checkpoint_at

_DAMAGED_MAX: Final = 2_000


def branch_of(position: Position | CheckpointRow) -> int:
    """The branch of a position: how many rewinds came before it. A save adds a move and a seq, a rewind only a move."""
    return position.move - (position.last if isinstance(position, Position) else position.seq)


def boundary_of(run: RunRow, position: Position) -> Boundary | None:
    """The checkpoint from which a run resumes; None if that is the head of its thread."""
    boundary = run.boundary
    if boundary is None or boundary.head != position.head or run.branch != branch_of(position):
        return None  # the thread was saved or rewound from outside since
    return boundary


class Ancestry:
    """The steps and branches that lead to a checkpoint of a thread, or to its head and the open step there."""

    def __init__(self, steps: dict[int, int], branch: int = -1) -> None:
        """`steps` maps each branch to the step after which it was left. `branch` is the one that was not left."""
        self._steps = steps
        self._branch = branch

    @classmethod
    def of(cls, store: Store, thread: Position) -> Ancestry:
        """The ancestry of the head of a thread."""
        branch = branch_of(thread)
        head = checkpoint_at(store, thread.thread, thread.head) if branch else None
        return cls({} if head is None else dict(_branches(store, thread.thread, head)), branch)

    @classmethod
    def to(cls, store: Store, thread: int, checkpoint: CheckpointRow) -> Ancestry:
        """The ancestry of a checkpoint of a thread."""
        return cls(dict(_branches(store, thread, checkpoint)))

    def holds(self, branch: int, step: int) -> bool:
        """Whether a step is part of the ancestry: its branch is the current one, or was left only after the step."""
        return branch == self._branch or step <= self._steps.get(branch, -1)

    def has(self, row: Entry) -> bool:
        """Whether the step of a journal entry is part of the ancestry."""
        return self.holds(row.branch, row.step)


def _branches(store: Store, thread: int, to: CheckpointRow) -> Iterator[tuple[int, int]]:
    """The branches that lead to a checkpoint, newest first, each with the step after which it was left.

    Within a branch the parent of each checkpoint is the one before it, so only the first has another parent. Tombstones
    of deleted checkpoints keep their parent.
    """
    found: CheckpointRow | None = to
    while found is not None:
        yield branch_of(found), found.step
        first = first_of_branch(store, thread, found) if branch_of(found) else None
        if first is None or first.parent is None or first.parent[0]:
            return
        require_older(first)
        found = checkpoint_at(store, thread, first.parent[1])


def require_older(row: CheckpointRow) -> None:
    """Raise Damaged if the parent of a checkpoint is in its thread and not older: following it might never end."""
    if row.parent is not None and not row.parent[0] and row.parent[1] >= row.seq:
        raise Damaged(f"checkpoint {row.seq}: its parent is not older than the checkpoint itself")


def first_of_branch(store: Store, thread: int, row: CheckpointRow) -> CheckpointRow:
    """The first checkpoint of a branch, found in a few reads: branch numbers only grow with the seqs of a thread.

    Raises Damaged if the first one may be among those that cannot be read.
    """
    stride = 1
    below = 0  # the newest seq that is known to be of an earlier branch
    while row.seq - below > 1:
        at = max(row.seq - stride, (row.seq + below) // 2)
        found = _readable(store, thread, range(at, below, -1)) or _readable(store, thread, range(at + 1, row.seq))
        if found is None:
            # No checkpoint in between can be read. Reading one of them raises the error that tells why.
            found = checkpoint_at(store, thread, at)
        if found is not None and branch_of(found) == branch_of(row):
            row, stride = found, stride * 2
        else:
            below = at if found is None else found.seq
    return row


def same_branch(store: Store, thread: int, row: CheckpointRow, seq: int) -> bool:
    """Whether an older checkpoint is on the branch of `row`, so that every checkpoint in between is, too."""
    if seq == row.seq:
        return True
    if not 1 <= seq < row.seq:
        return False
    with suppress(Damaged):
        found = checkpoint_at(store, thread, seq)
        return found is not None and branch_of(found) == branch_of(row)
    return False


def ancestor_beyond(store: Store, position: Position, seq: int) -> int | None:
    """The newest readable ancestor of a checkpoint that cannot be read: 0 if it has none, None if it is not known.

    Within a branch the parent of each checkpoint is the one stored before it, and branch numbers only grow. So between
    two checkpoints of the same branch all are of that branch. If another branch starts in between, a guess might return
    a checkpoint that was abandoned.
    """
    below = _readable(store, position.thread, range(seq - 1, 0, -1))
    above = _readable(store, position.thread, range(seq + 1, position.last + 1))
    first = 0 if below is None else branch_of(below)
    last = branch_of(position if above is None else above)
    if first != last:
        return None
    return 0 if below is None else below.seq


def _readable(store: Store, thread: int, seqs: Iterable[int]) -> CheckpointRow | None:
    """The first of these checkpoints that can be read, also a tombstone. Raises Damaged if too many cannot."""
    limit = DamageLimit()
    for seq in seqs:
        with suppress(Damaged):
            found = checkpoint_at(store, thread, seq)
            if found is not None:
                return found
        limit.lost()
    return None


class DamageLimit:
    """Stops a scan after 2,000 unreadable checkpoints in a row.

    The stored number of checkpoints may itself be wrong: a forged record may give 4 billion.
    """

    def __init__(self) -> None:
        self._lost = 0

    def found(self) -> None:
        """Note that a checkpoint could be read."""
        self._lost = 0

    def lost(self) -> None:
        """Note that a checkpoint could not be read. Raises Damaged if there were too many in a row."""
        self._lost += 1
        if self._lost > _DAMAGED_MAX:
            raise Damaged(
                f"more than {_DAMAGED_MAX} checkpoints in a row cannot be read: the record of their thread is wrong, "
                "or all of them are lost. `holdfast repair` copies what is left to a new store."
            )
