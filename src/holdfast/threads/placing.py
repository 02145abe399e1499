"""Saving under any checkpoint of a thread, not only under its head: for callers that keep a tree of their own.

`Thread` goes on from its head. Frameworks name the parent of each checkpoint themselves: what they save is put under
that one, in one commit, as a rewind and a save would, and the compare-and-set on the thread's position stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown
from holdfast.state.base import Base
from holdfast.state.loading import load_base
from holdfast.stores.contract import CheckpointRow, Commit, Position, ThreadRow
from holdfast.threads import meta as metas
from holdfast.threads.freeing import unless_dead
from holdfast.threads.retention import remove
from holdfast.threads.saving import Details, Parent, fork_details, fork_of, save_of, summary_of
from holdfast.threads.session import Session

_PAGE: Final = 500


class Placer:
    """One thread, seen as a set of checkpoints that each know their parent."""

    def __init__(self, session: Session, name: str) -> None:
        self.name: Final = name
        self.session: Final = session
        self.line: Final = session.line(name)

    def thread(self) -> ThreadRow | None:
        self.session.check_open()
        return self.session.store.thread(self.name)

    def row(self, number: int, seq: int) -> CheckpointRow | None:
        """A checkpoint, whole; None if there is none any more."""
        row = self.session.store.checkpoint(number, seq)
        return None if row is None or row.deleted else row

    def rows(self, number: int, above: int) -> Iterator[CheckpointRow]:
        """The checkpoints with a seq above this, newest first, without skeletons. Holds nothing open."""
        before: int | None = None
        while page := self.session.store.checkpoints(number, before=before, limit=_PAGE):
            for row in page:
                if row.seq <= above:
                    return
                yield row
            before = page[-1].seq

    def base(self, number: int, row: CheckpointRow) -> Base:
        """What the handle holds of a checkpoint, loading it if need be."""
        bases = self.session.bases
        base = bases.get(number, row.seq)
        if base is None:
            base = load_base(self.session.store, number, row)
            bases.put(number, base)
        return base

    def place(
        self,
        state: Any,
        details: Details,
        *,
        expect: Position | None,
        under: CheckpointRow | None,
        base: Base | None,
    ) -> tuple[Position, CheckpointRow, Base]:
        """Save a state under a checkpoint, as the new head; `base` is that of `under`. When it returns, it is durable.

        Conflict if the thread is not at `expect`, or `under` was deleted meanwhile.
        """
        save = save_of(
            self.name,
            state,
            details,
            expect=expect,
            parent=None if under is None else Parent(0, under.seq, under.id, under.digest, under.step),
            base=base,
            size_limit=self.session.max_state_bytes,
            hashing=self.session.store.hashing,
        )
        commit = save.commit
        if expect is not None and under is not None and under.seq != expect.head:
            commit = _building_on(commit, expect.thread, under.seq)
        observer = self.session.observer
        if observer is None:
            position = self._stored(commit)
        else:
            with observer.saving(self.name, commit.row.step):
                position = self._stored(commit)
        held = save.base()
        self.session.bases.put(position.thread, held)
        self.session.saved(self.name)
        return position, commit.row, held

    def point(self, expect: Position, to: CheckpointRow) -> Position:
        """Make a checkpoint the head again."""
        store, summary = self.session.store, summary_of(to, metas.decode(to))
        return unless_dead(store, expect.thread, lambda: store.rewind(expect, to=to.seq, summary=summary))

    def copy(
        self, source: CheckpointRow, origin: int, *, expect: Position | None, under: CheckpointRow | None
    ) -> tuple[Position, CheckpointRow]:
        """Save what a checkpoint of another thread holds, naming its cells: nothing of the state is stored again."""
        parent = None if under is None else Parent(0, under.seq, under.id, under.digest, under.step)
        commit = fork_of(
            self.name,
            source,
            origin,
            fork_details(source, None),
            self.session.store.hashing,
            expect=expect,
            parent=parent,
        )
        return self._stored(commit), commit.row

    def remove(self, number: int, seqs: list[int]) -> None:
        """Delete checkpoints, none of which is the head, and the cells that only they used."""
        if seqs:
            remove(self.session.store, number, seqs)

    def drop(self, number: int) -> None:
        """Delete the whole thread."""
        store = self.session.store
        unless_dead(store, number, lambda: store.drop(number))
        self.session.bases.forget(number)

    def _stored(self, commit: Commit) -> Position:
        store = self.session.store
        try:
            if commit.expect is None:
                return store.commit(commit)
            return unless_dead(store, commit.expect.thread, lambda: store.commit(commit))
        except OutcomeUnknown as error:
            error.checkpoint = metas.checkpoint_of(self.name, commit.row)
            raise


def _building_on(commit: Commit, thread: int, seq: int) -> Commit:
    """A commit that names cells of a checkpoint which is not the head: it has to be there still."""
    return replace(commit, bases=(*commit.bases, (thread, seq)))
