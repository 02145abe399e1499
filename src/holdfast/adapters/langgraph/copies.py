"""Copies of threads of a graph: whole copies, forks at a checkpoint, and rewinds, each with all namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.base.id import uuid6
from msgspec.structs import replace

from holdfast.adapters.langgraph.checkpoint_format import (
    Note,
    checked_thread_id,
    journal_name,
    metadata_of,
    note_of,
    without_parent,
)
from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.removal import needed_history
from holdfast.adapters.langgraph.shared_threads import SharedThreads
from holdfast.adapters.langgraph.stored import GraphHead
from holdfast.adapters.langgraph.writes import COPIED, entry_of, idle_run
from holdfast.errors import AlreadyExists, Conflict, InvalidArgument, NotFound
from holdfast.stores.contract import CheckpointRow, Position
from holdfast.stores.contract_runs import Entry
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.scan import PAGE, thread_named


def copy_thread(shared: SharedThreads, source_thread_id: object, target_thread_id: object) -> None:
    """Copy all checkpoints of all namespaces. The copies refer to the stored data; no state is stored twice."""
    source, target = checked_thread_id(source_thread_id), checked_thread_id(target_thread_id)
    if source == target:
        raise InvalidArgument("a thread cannot be copied onto itself")
    _require_new(shared, target)
    _copy_calls(shared, source, target)
    # The root namespace is last, so that an interrupted copy has no latest checkpoint.
    for thread in reversed(shared.threads_of(source)):
        copy = shared.thread(target, thread.namespace)
        with thread.lock:
            head = thread.look()
            newest = {note.seq for note in thread.index(head).values()}
        if head is not None:
            with copy.lock:
                _copy(thread, head, copy, newest)


def _copy(thread: GraphThread, head: GraphHead, copy: GraphThread, newest: set[int]) -> None:
    number, latest = head.position.thread, head.position.head
    position: Position | None = None
    copied: dict[int, CheckpointRow] = {}
    last: CheckpointRow | None = None
    for seq in sorted({*newest, latest}):
        row = thread.placer.row(number, seq)
        if row is None:
            continue
        under = copied.get(row.parent[1]) if row.parent is not None and not row.parent[0] else None
        position, last = copy.placer.copy(row, number, expect=position, under=under or last)
        copied[seq] = last
    copy.forget()
    # The first row of a fork has its writes in the journal of its origin.
    forked = thread.find(head, head.note.id)
    own = thread.journal.all(number)
    first = note_of(copied[min(copied)]) if copied else None
    if first is not None and first.id is not None:
        copy.append(entry_of(first.id, COPIED, "", []))
    if forked is not None and forked.row.parent is not None and forked.row.parent[0]:
        thread.journal.forget()
        own = thread.writes(head, forked, head.note.id or "") + [e for e in own if e.topic != head.note.id]
    for entry in own:
        copy.append(entry)
    if position is not None and latest in copied and position.head != copied[latest].seq:
        copy.placer.point(position, copied[latest])
    copy.forget()


def fork(shared: SharedThreads, source_thread_id: object, target_thread_id: object, checkpoint_id: str | None) -> None:
    """Start a thread at a checkpoint of another one, the latest by default, with the subgraphs as they were then.

    A fork of the latest checkpoint has its pending writes: its open questions, and the results of its step.
    """
    source, target = checked_thread_id(source_thread_id), checked_thread_id(target_thread_id)
    _require_new(shared, target)
    root, head, note = _found(shared, source, checkpoint_id)
    is_latest = note.id == head.note.id
    _copy_calls(shared, source, target)
    # The root namespace is last, so that an interrupted fork has no latest checkpoint.
    for thread, at, of_thread in [*_subgraphs_at(shared, source, note, is_latest=is_latest), (root, head, note)]:
        if of_thread is None:
            continue
        writes: list[Entry] = []
        with thread.lock:
            stored = thread.find(at, of_thread.id)
            if stored is None or of_thread.id is None:
                raise Conflict(f"thread {quoted(source)} was changed meanwhile. Delete {quoted(target)} and try again.")
            history = needed_history(thread, at, of_thread)
            if is_latest:
                thread.journal.forget()  # another process may have written, or stored the checkpoint anew
                writes = thread.writes(at, stored, of_thread.id)
        copy = shared.thread(target, thread.namespace)
        with copy.lock:
            copy.placer.copy(stored.row, stored.number, expect=None, under=None)
            copy.forget()
            if of_thread.absent:  # its ancestors may be pruned or deleted later
                _keep_history(copy, history)
            copy.append(entry_of(of_thread.id, COPIED, "", []))
            for entry in writes:
                if entry.result is not None:
                    copy.append(entry)


def _keep_history(copy: GraphThread, history: dict[str, Any]) -> None:
    """Store the only checkpoint of a fork again, with the history of its DeltaChannels instead of a parent."""
    head = copy.look()
    stored = None if head is None else copy.stored(head, head.note)
    if head is None or stored is None:
        raise Conflict(f"thread {quoted(copy.name)} was changed meanwhile. Delete it and try again.")
    copy.put_again(head, stored, history, without_parent(stored.note), metadata_of(stored.note))


def _copy_calls(shared: SharedThreads, source: str, target: str) -> None:
    """Copy the finished calls of tools to the journal of a fork: it gets their results, and does not repeat them."""
    store = shared.context.store
    origin = thread_named(store, journal_name(source))
    if origin is None:
        return
    ended = [entry for entry in scan.entries(store, origin.position.thread) if entry.status in ("done", "given_up")]
    shared.hf.thread(origin.name).fork(journal_name(target))
    copy = thread_named(store, journal_name(target))
    if copy is not None:
        number = copy.position.thread
        store.claim(None, replace(idle_run(number), status="idle", closed=len(ended)))
        for at in range(0, len(ended), PAGE):
            page = [replace(entry, number=number) for number, entry in enumerate(ended[at : at + PAGE], at + 1)]
            store.journal(copy.position.thread, None, page, last=at)


def rewind(shared: SharedThreads, thread_id: object, checkpoint_id: str) -> None:
    """Continue a thread from an earlier checkpoint, with the subgraphs as they were then. Nothing is deleted.

    A copy of the checkpoint becomes the latest one, as with LangGraph's time travel: its nodes run again, and its
    questions are asked again.
    """
    name = checked_thread_id(thread_id)
    root, head, note = _found(shared, name, checkpoint_id)
    if note.id == head.note.id:
        return
    for thread, at, of_thread in [*_subgraphs_at(shared, name, note, is_latest=False), (root, head, note)]:
        if at.note.id == (None if of_thread is None else of_thread.id):
            continue
        with thread.lock:
            if of_thread is None:
                thread.empty(at)
                continue
            stored = thread.find(at, of_thread.id)
            if stored is None:
                raise Conflict(f"thread {quoted(thread.name)} was changed meanwhile; try again")
            metadata = metadata_of(stored.note)
            step = metadata.get("step")
            history = needed_history(thread, at, of_thread)
            copied = replace(of_thread, id=str(uuid6(clock_seq=-2)), parent=of_thread.id)
            if of_thread.absent:  # the writes of the original are not part of the copy
                copied = without_parent(copied)
            more = {"source": "fork", "step": step + 1 if type(step) is int else step}
            thread.put_again(at, stored, history, copied, {**metadata, **more})


def _found(shared: SharedThreads, thread_id: str, checkpoint_id: str | None) -> tuple[GraphThread, GraphHead, Note]:
    """The root namespace of a thread, its head, and the note of a checkpoint."""
    thread = shared.thread(thread_id, "")
    with thread.lock:
        head = thread.look()
        note = None if head is None else head.note if checkpoint_id is None else thread.index(head).get(checkpoint_id)
    if head is None or note is None or note.id is None:
        what = "has no checkpoint" if checkpoint_id is None else f"has no checkpoint {checkpoint_id}"
        raise NotFound(f"thread {quoted(thread_id)} {what}; nothing was changed")
    return thread, head, note


def _subgraphs_at(
    shared: SharedThreads, thread_id: str, note: Note, *, is_latest: bool
) -> Iterator[tuple[GraphThread, GraphHead, Note | None]]:
    """The other namespaces of a thread, and their checkpoints at the time of one of the root. None: not called yet.

    The namespace of a single call (with a colon) is needed only while that call has not ended.
    """
    for thread in shared.threads_of(thread_id):
        with thread.lock:
            head = thread.look()
            index = dict(thread.index(head))
        if head is None or not thread.namespace or (":" in thread.namespace and not is_latest):
            continue
        # The ids of checkpoints grow with time.
        before = [id for id in index if note.id is not None and id < note.id]
        if is_latest:
            yield thread, head, None if head.note.id is None else head.note
        else:
            yield thread, head, index[max(before)] if before else None


def _require_new(shared: SharedThreads, target: str) -> None:
    if shared.threads_of(target):
        raise AlreadyExists(
            f"thread {quoted(target)} already exists; nothing was copied. Use another name, or delete it first."
        )
