"""Naming a checkpoint after it was saved. Checkpoints do not change: a new one names the same cells, and has the label.

It stands under the one that it is of. If that is the head, it is the head then; if not, the head stays where it was.
Killed between the two, the thread is at the new one, as after a rewind, and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidArgument, NotFound
from holdfast.records import Checkpoint
from holdfast.state.loading import read_skeleton
from holdfast.stores.contract import CheckpointRow, Commit, Position, Store, ThreadRow
from holdfast.threads import meta as metas
from holdfast.threads.freeing import unless_dead
from holdfast.threads.references import find_row, shown
from holdfast.threads.saving import Details, Parent
from holdfast.threads.saving import _commit as commit_of
from holdfast.threads.session import Session


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
            raise NotFound(f"there is no thread {shown(thread)}; hf.threads() lists what there is")
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
        f"thread {shown(thread.name)} has a run, and a new checkpoint would "
        f"{'begin it anew' if run.status == 'completed' else 'end its open step'}; fork it at that checkpoint, and "
        "label the fork. Nothing was changed"
    )
