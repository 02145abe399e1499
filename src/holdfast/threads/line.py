"""The line of a thread: what its head came from, and what was abandoned by rewinding."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import EffectsAhead
from holdfast.stores.contract import CheckpointRow, Position, Store, ThreadRow
from holdfast.stores.running import EffectRow
from holdfast.threads.references import shown

_PAGE = 200
_ACTING = ("idempotent", "irreversible")
_NOTHING_HAPPENED = ("not_done", "failed", "late")


def branch_of(position: Position) -> int:
    """How often a thread was rewound: a save counts as a move and gives out a seq, a rewind is a move only."""
    return position.move - position.last


class Line:
    """Which steps of which branches lead to a thread's head."""

    def __init__(self, store: Store, thread: ThreadRow) -> None:
        self._branch = branch_of(thread.position)
        self._steps: dict[int, int] = {}
        for branch, step in _ancestors(store, thread) if self._branch else ():
            self._steps.setdefault(branch, step)

    def holds(self, branch: int, step: int) -> bool:
        """Whether what was done in a step counts: its branch is the current one, or was left only after it."""
        return branch == self._branch or step <= self._steps.get(branch, -1)


def acted(store: Store, thread: int) -> Iterator[EffectRow]:
    """The entries of a journal that changed the world, or may have, oldest first; none that was undone."""
    undone: set[int] = set()
    rows: list[EffectRow] = []
    after = 0
    while page := store.effects(thread, after=after, limit=_PAGE):
        after = page[-1].number
        for row in page:
            if row.kind == "undo" and row.status == "done":
                undone.add(row.matches)
            elif row.kind in _ACTING and row.status not in _NOTHING_HAPPENED:
                rows.append(row)
    return (row for row in rows if row.number not in undone)


def require_none_ahead(store: Store, thread: ThreadRow, to: CheckpointRow) -> None:
    """`EffectsAhead` if something irreversible was done on the way from a checkpoint to the head of its thread."""
    line = Line(store, thread)
    branch = to.move - to.seq
    ahead = sorted(
        {
            row.name
            for row in acted(store, thread.position.thread)
            if row.kind == "irreversible"
            and line.holds(row.branch, row.step)
            and (row.branch, row.step) > (branch, to.step)
        }
    )
    if ahead:
        raise EffectsAhead(
            f"thread {shown(thread.name)}: {', '.join(ahead)} ran after that checkpoint and cannot be taken back by "
            "rewinding; hf.undo what can be undone, or pass past_effects=True (--past-effects)"
        )


def _ancestors(store: Store, thread: ThreadRow) -> Iterator[tuple[int, int]]:
    """The branches and steps of the head and what it came from, newest first, back to the first branch."""
    number = thread.position.thread
    before: int | None = None
    wanted = thread.position.head
    while page := store.checkpoints(number, before=before, limit=_PAGE):
        for row in page:
            before = row.seq
            while row.seq < wanted:
                # Deleted, so not on the page; its tombstone knows where it came from.
                tombstone = store.checkpoint(number, wanted)
                if tombstone is None or tombstone.parent is None or tombstone.parent[0]:
                    return
                yield tombstone.move - tombstone.seq, tombstone.step
                wanted = tombstone.parent[1]
            if row.seq == wanted:
                branch = row.move - row.seq
                yield branch, row.step
                if not branch or row.parent is None or row.parent[0]:
                    return
                wanted = row.parent[1]
