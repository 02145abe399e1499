"""Save under any parent, and label a stored checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from holdfast.delta.base import Base
from holdfast.delta.load import load_base, read_skeleton
from holdfast.errors import Conflict, InvalidArgument, NotFound, OutcomeUnknown
from holdfast.stores.contract import CheckpointRow, Commit, Position, Store, ThreadRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.context import Session
from holdfast.threads.process import unless_dead
from holdfast.threads.refs import find_row
from holdfast.threads.retention import remove
from holdfast.threads.save import Details, Parent, fork_details, fork_of, save_of, summary_of
from holdfast.threads.save import _commit as commit_of
from holdfast.types import Checkpoint


def named(
    session: Session, thread: str, ref: str | Checkpoint, *, label: str | None = None, tags: Iterable[str] = ()
) -> Checkpoint:
    """A checkpoint with the state of another and this label, the one it had if None, and these tags beside its own.

    NotFound if there is no such checkpoint. Conflict if the thread has a run, unless that is completed and the
    checkpoint is the head: a run is told by the moves of its thread where it stands, and a rewind begins it anew.
    """
    session.check_open()
    label = metas.checked_text("label", label, session.redaction, empty=False)
    added = metas.checked_tags(tags, session.redaction)
    if label is None and not added:
        raise InvalidArgument("give a label, or a tag")
    store = session.store
    with session.line(thread):
        row = store.thread(thread)
        if row is None:
            raise NotFound(f"there is no thread {quoted(thread)}; hf.threads() lists what there is")
        source = find_row(store, row, ref)
        _require_no_run(store, row, source)
        commit = _commit(session, row, source, label, added)
        at = _stored(store, row.position.thread, commit)
        if source.seq != row.position.head:
            head, summary = row.position.head, row.summary
            unless_dead(store, at.thread, lambda: store.rewind(at, to=head, summary=summary))
    session.saved(thread)
    return metas.checkpoint_of(thread, commit.row)


def _commit(
    session: Session, thread: ThreadRow, source: CheckpointRow, label: str | None, tags: tuple[str, ...]
) -> Commit:
    meta = metas.decode(source)
    meta = replace(
        meta,
        created_at=time.time_ns() // 1000,
        trigger="label",
        tags=tuple(dict.fromkeys((*meta.tags, *tags))),
        parent_digest=b"",
    )
    position = thread.position
    # Logs of its own: others may have written behind the ends that its source knew.
    skeleton = replace(read_skeleton(source), branch=position.last + 1, ends=(0, 0), wrote=())
    commit = commit_of(
        thread.name,
        Details(source.step, source.label if label is None else label, meta),
        skeleton,
        source.refs,
        session.store.hashing,
        expect=position,
        parent=Parent(0, source.seq, source.id, source.digest, source.step),
    )
    return replace(commit, bases=((position.thread, source.seq),))


def _stored(store: Store, number: int, commit: Commit) -> Position:
    return unless_dead(store, number, lambda: store.commit(commit))


def _require_no_run(store: Store, thread: ThreadRow, source: CheckpointRow) -> None:
    run = store.run(thread.position.thread)
    if run is None or (run.status == "completed" and source.seq == thread.position.head):
        return
    raise Conflict(
        f"thread {quoted(thread.name)} has a run, and a new checkpoint would "
        f"{'begin it anew' if run.status == 'completed' else 'end its open step'}; fork it at that checkpoint, and "
        "label the fork. Nothing was changed"
    )


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
