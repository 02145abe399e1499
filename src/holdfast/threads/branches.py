"""New checkpoints from stored ones: forks, labels, and saves under any parent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from holdfast.delta.base import Base
from holdfast.delta.load import load_base, read_skeleton, rebased
from holdfast.errors import Conflict, InvalidArgument, NotFound, OutcomeUnknown
from holdfast.signals import shield
from holdfast.stores.contract import CheckpointRow, Commit, Hashing, Head, Position, Refs, Store, ThreadRow
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.threads import metadata as metas
from holdfast.threads.context import UNOBSERVED, Context
from holdfast.threads.metadata import Details, Meta, Parent
from holdfast.threads.refs import find_row
from holdfast.threads.retention import remove
from holdfast.threads.save import commit_of, save_of, summary_of
from holdfast.threads.scan import PAGE, checkpoint_at, pages, thread_named
from holdfast.types import Checkpoint

# -- forks ------------------------------------------------------------------------------------------------------------


def fork_details(source: CheckpointRow, schema_version: int | None) -> Details:
    """The details of a fork's first checkpoint: those of its source, with a new time and trigger."""
    meta = metas.decode(source)
    if schema_version is None:
        schema_version = meta.schema_version
    meta = replace(meta, created_at=time.time_ns() // 1000, trigger="fork", schema_version=schema_version)
    return Details(source.step, source.label, meta)


def fork_of(
    name: str,
    source: CheckpointRow,
    origin: int,
    details: Details,
    hashing: Hashing,
    *,
    expect: Position | None = None,
    parent: Parent | None = None,
) -> tuple[Commit, Meta]:
    """The commit of a checkpoint that uses the cells of another thread's checkpoint, and its metadata.

    It creates a thread, or with `expect` follows `parent` in a thread that exists.
    """
    branch = 1 if expect is None else expect.last + 1
    skeleton = replace(read_skeleton(source), opened_by=branch, ends=(0, 0), wrote=())
    refs = seen_from_fork(source, origin).refs
    above = parent or Parent.of(source, origin)
    commit, meta = commit_of(name, details, skeleton, refs, hashing, expect=expect, parent=above)
    return replace(commit, bases=((origin, source.seq),), origins=(origin,)), meta


def seen_from_fork(source: CheckpointRow, origin: int) -> CheckpointRow:
    """A checkpoint with its references as another thread writes them."""
    spans = tuple([rebased(span, origin) for span in source.refs.spans])
    return replace(source, refs=Refs(spans, source.refs.blobs))


# -- labels -----------------------------------------------------------------------------------------------------------


def named(
    context: Context, thread: str, ref: str | Checkpoint, *, label: str | None = None, tags: Iterable[str] = ()
) -> Checkpoint:
    """Label a checkpoint: add a checkpoint with the same state, this label (the old one if None), and more tags.

    If the checkpoint is the head, the new one becomes the head; else the head stays. NotFound if there is no such
    checkpoint. Conflict if the thread has a run, unless the run is completed and the checkpoint is the head: a run
    finds its place by the moves of its thread, and a rewind would restart it.
    """
    context.check_open()
    label = metas.checked_text("label", label, context.redaction, empty=False)
    added = metas.checked_tags(tags, context.redaction)
    if label is None and not added:
        raise InvalidArgument("a label, a tag or both are needed; nothing was changed")
    store = context.store
    with context.lock(thread):
        row = thread_named(store, thread)
        if row is None:
            raise NotFound(f"there is no thread {quoted(thread)}; hf.threads() lists all threads")
        source = find_row(store, row, ref)
        require_run_unaffected(store, row, source)
        commit, meta = _labelled(context, row, source, label, added)
        with shield:  # in between, the copy of an earlier checkpoint is the head
            [at] = context.commit(commit)
            if source.seq != row.position.head:
                context.rewind(at, to=row.position.head, summary=row.summary)
    if context.saved is not None:
        context.saved(thread)
    return metas.checkpoint_from(thread, commit.row, meta)


def _labelled(
    context: Context, thread: ThreadRow, source: CheckpointRow, label: str | None, tags: tuple[str, ...]
) -> tuple[Commit, Meta]:
    meta = metas.decode(source)
    meta = replace(
        meta,
        created_at=time.time_ns() // 1000,
        trigger="label",
        tags=tuple(dict.fromkeys((*meta.tags, *tags))),
        parent_digest=b"",
    )
    position = thread.position
    # It opens logs of its own: later checkpoints may have appended to those of its source.
    skeleton = replace(read_skeleton(source), opened_by=position.last + 1, ends=(0, 0), wrote=())
    commit, meta = commit_of(
        thread.name,
        Details(source.step, source.label if label is None else label, meta),
        skeleton,
        source.refs,
        context.store.hashing,
        expect=position,
        parent=Parent.of(source),
    )
    return replace(commit, bases=((position.thread, source.seq),)), meta


def require_run_unaffected(store: Store, thread: ThreadRow, source: CheckpointRow) -> None:
    """Raise Conflict if a labelled copy of a checkpoint would restart the thread's run or end its open step."""
    run = store.run(thread.position.thread)
    if run is None or (run.status == "completed" and source.seq == thread.position.head):
        return
    raise Conflict(
        f"thread {quoted(thread.name)} has a run, and a new checkpoint would "
        f"{'restart it' if run.status == 'completed' else 'end its open step'}; nothing was changed. "
        "Fork the thread at that checkpoint and label the fork."
    )


# -- saves under any parent -------------------------------------------------------------------------------------------


class Placer:
    """Saves to a thread after any of its checkpoints, not only the head. Hold `lock` to call a verb that writes."""

    def __init__(self, context: Context, name: str) -> None:
        self.name: Final = name
        self.context: Final = context
        self.lock: Final = context.lock(name)

    def head(self) -> Head | None:
        self.context.check_open()
        return self.context.store.head(self.name)

    def row(self, number: int, seq: int) -> CheckpointRow | None:
        """A checkpoint with its skeleton; None if it was deleted."""
        row = checkpoint_at(self.context.store, number, seq)
        return None if row is None or row.deleted else row

    def rows(self, number: int, above: int) -> Iterator[CheckpointRow]:
        """The checkpoints with a seq above this, newest first, without skeletons."""
        store = self.context.store
        rows = pages(lambda before: store.checkpoints(number, before=before, limit=PAGE), lambda row: row.seq)
        for row in rows:
            if row.seq <= above:
                return
            yield row

    def base(self, number: int, row: CheckpointRow) -> Base:
        """The base of a checkpoint, loaded if needed."""
        bases = self.context.bases
        base = bases.get(number, row.seq)
        if base is None:
            base = load_base(self.context.store, number, row)
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
        run: RunRow | None = None,
    ) -> tuple[Position, CheckpointRow, Base]:
        """Save a state after the checkpoint `under`, whose base is `base`, as the new head. Returns when it is durable.

        `run` is the run of a thread that is created. Conflict if the thread is not at `expect`, or `under` was deleted.
        """
        save = save_of(
            self.name,
            state,
            details,
            expect=expect,
            parent=None if under is None else Parent.of(under),
            base=base,
            size_limit=self.context.max_state_bytes,
            hashing=self.context.store.hashing,
        )
        commit = save.commit
        if expect is not None and under is not None and under.seq != expect.head:
            # It uses cells of a checkpoint that is not the head, which must still be there.
            commit = replace(commit, bases=(*commit.bases, (expect.thread, under.seq)))
        if run is not None:
            commit = replace(commit, run=run)
        observer = self.context.observer
        with UNOBSERVED if observer is None else observer.saving(self.name, commit.row.step):
            position = self._stored(commit, save.meta)
        held = save.draft.base(save.root)
        self.context.bases.put(position.thread, held)
        if self.context.saved is not None:
            self.context.saved(self.name)
        return position, commit.row, held

    def point(self, expect: Position, to: CheckpointRow) -> Position:
        """Make a checkpoint the head again."""
        return self.context.rewind(expect, to=to.seq, summary=summary_of(to, metas.decode(to)))

    def copy(
        self, source: CheckpointRow, origin: int, *, expect: Position | None, under: CheckpointRow | None
    ) -> tuple[Position, CheckpointRow]:
        """Save the state of another thread's checkpoint by naming its cells. Nothing of the state is stored again."""
        commit, meta = fork_of(
            self.name,
            source,
            origin,
            fork_details(source, None),
            self.context.store.hashing,
            expect=expect,
            parent=None if under is None else Parent.of(under),
        )
        return self._stored(commit, meta), commit.row

    def remove(self, number: int, seqs: list[int]) -> None:
        """Delete checkpoints, none of which is the head, and the cells that only they used."""
        if seqs:
            remove(self.context.store, number, seqs)

    def drop(self, number: int) -> None:
        """Delete the whole thread."""
        self.context.drop(number)

    def _stored(self, commit: Commit, meta: Meta) -> Position:
        try:
            return self.context.commit(commit)[0]
        except OutcomeUnknown as error:
            error.checkpoint = metas.checkpoint_from(self.name, commit.row, meta)
            raise
