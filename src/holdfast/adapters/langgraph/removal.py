"""Remove and copy threads of a graph, without breaking those with a DeltaChannel; the history of DeltaChannels.

The value of a DeltaChannel is not stored with each checkpoint; it is computed from the writes of the ancestors. Before
an ancestor is deleted, the writes that a remaining checkpoint needs are added to those of that checkpoint (`HISTORY`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from holdfast.adapters.langgraph.checkpoint_format import (
    CHECKPOINT,
    DELTA_COUNTERS,
    HISTORY,
    TASKS,
    Note,
    checked_thread_id,
    journal_name,
    metadata_of,
    note_of,
    of_name,
    without_parent,
)
from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.messages import StoredValue
from holdfast.adapters.langgraph.serde import Values
from holdfast.adapters.langgraph.shared_threads import SharedThreads
from holdfast.adapters.langgraph.stored import GraphHead, Stored
from holdfast.adapters.langgraph.writes import Write, WriteJournal, merged
from holdfast.delta.load import load_base
from holdfast.errors import Conflict, Damaged, InvalidArgument, NotFound, Protected
from holdfast.text import quoted
from holdfast.threads.context import MAX_RETRIES
from holdfast.threads.scan import checkpoint_at
from holdfast.types import EraseResult

T = TypeVar("T")

_STRATEGIES: Final = ("keep_latest", "delete")
_SENDS_ELSEWHERE: Final = 4  # before this checkpoint version, the sends of a checkpoint are in its parent's writes


# -- the history of DeltaChannels -------------------------------------------------------------------------------------


def history(
    thread: GraphThread, values: Values, asked: str | None, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """The writes to each channel before a checkpoint, back to where its value is stored."""
    stored = thread.racing(
        lambda head: _history(thread, head, asked, channels, may_be_copies=values.is_plain), is_reading=True
    )
    found: dict[str, DeltaChannelHistory] = {}
    for channel, one in stored.items():
        writes: list[PendingWrite] = [
            (task, channel, value.load(values, f"writes.{channel}")) for task, value in one.writes
        ]
        found[channel] = {"writes": writes}
        if one.seed is not None:
            found[channel]["seed"] = one.seed.load(values, channel)
    return found


class _History:
    """The writes to a channel, each with its task, and the last stored value."""

    __slots__ = ("seed", "writes")

    def __init__(self) -> None:
        self.writes: list[tuple[str, StoredValue]] = []
        self.seed: StoredValue | None = None


def _history(
    thread: GraphThread, head: GraphHead | None, asked: str | None, channels: Sequence[str], *, may_be_copies: bool
) -> dict[str, _History]:
    """The history of each channel. `may_be_copies`: whether its values may have been loaded before.

    Damaged if an ancestor was deleted, so that the history is incomplete; NotFound if the checkpoint itself may have
    been deleted. A checkpoint that never existed has an empty history.
    """
    found = {channel: _History() for channel in channels}
    id = asked or (None if head is None else head.note.id)
    if head is None or id is None:
        return found
    thread.journal.look(head.position.thread)
    line = _Ancestors(thread, head, may_be_copies=may_be_copies)
    left = set(channels)
    at: str | None = id
    while at is not None and left:
        note = line.note(at)
        if note is None:
            if thread.look() != head:
                raise Conflict(f"thread {quoted(thread.name)} was changed while it was read")
            if not line.is_cut:
                break
            if at == id:
                raise NotFound(f"checkpoint {id} of thread {quoted(thread.name)} does not exist; it may be deleted")
            raise Damaged(
                f"an ancestor of checkpoint {id} was deleted, and with it writes to its DeltaChannels "
                f"({', '.join(sorted(left))}). Prune threads with DeltaChannels only with the saver's prune()."
            )
        if at != id:
            _gather(line, note, found, left)
        _take_over(line, note, found, left)
        at = None if note.parent in line.seen else note.parent
    for one in found.values():
        one.writes.reverse()
    return found


class _Ancestors:
    """Finds checkpoints and their writes in a thread, then in the thread that it was forked from."""

    def __init__(self, thread: GraphThread, head: GraphHead, *, may_be_copies: bool) -> None:
        self._thread = thread
        self._may_be_copies = may_be_copies
        self._head = head
        self._number = head.position.thread
        self._origin: dict[str, Note] | None = None
        self._journal = thread.journal
        self.seen: set[str] = set()

    @property
    def is_cut(self) -> bool:
        """Whether rows were deleted from the thread searched last, so that a missing ancestor may have been deleted."""
        return self._origin is not None or self._head.count < self._head.position.last

    def note(self, id: str) -> Note | None:
        self.seen.add(id)
        if self._origin is not None:
            return self._origin.get(id) or self._find_in_origin(id)
        if self._head.note.id == id:
            return self._head.note
        return self._thread.index(self._head).get(id) or self._find_in_origin(id)

    def _find_in_origin(self, id: str) -> Note | None:
        store = self._thread.store
        first = checkpoint_at(store, self._number, 1)
        if first is None or first.parent is None or not first.parent[0]:
            return None
        self._number, fork = first.parent
        rows = self._thread.placer.rows(self._number, 0)
        notes = [note for row in rows if row.seq <= fork and (note := note_of(row)) is not None]
        self._origin = {note.id: note for note in reversed(notes) if note.id is not None}
        self._journal = WriteJournal(self._thread.placer.context, self._thread.lock)
        return self._origin.get(id) or self._find_in_origin(id)

    def writes(self, note: Note) -> list[Write]:
        """The writes of a checkpoint."""
        id = note.id or ""
        if self._origin is None and note.row.parent is not None and note.row.parent[0]:
            return merged(self._thread.writes(self._head, self.stored(note), id), lambda: self.stored(note))
        if self._may_be_copies:
            return self._journal.writes(self._number, id, lambda: self.stored(note))
        return merged(self._journal.of(self._number, id), lambda: self.stored(note))

    def seed(self, note: Note, channel: str) -> StoredValue | None:
        """The value of a channel in a checkpoint; None if it has none."""
        place, known = (self._number, note.seq, channel), self._thread.seed
        if self._may_be_copies and known is not None and known[0] == place:
            return known[1]
        stored = self.stored(note)
        if not stored.has(channel):
            return None
        found = StoredValue(stored.value(channel))
        if self._may_be_copies:
            self._thread.seed = place, found
        return found

    def stored(self, note: Note) -> Stored:
        thread, number = self._thread, self._number
        if self._head.position.thread == number:
            stored = thread.stored(self._head, note)
        else:
            row = thread.placer.row(number, note.seq)
            stored = None if row is None else Stored(thread.store, number, note, load_base(thread.store, number, row))
        if stored is None:
            raise Conflict(f"thread {quoted(self._thread.name)} was changed while it was read")
        return stored


def _gather(line: _Ancestors, note: Note, found: dict[str, _History], left: set[str]) -> None:
    """Add the writes of one ancestor, newest first, and its stored values, which complete a channel."""
    for write in reversed(line.writes(note)):
        if write.channel in left:
            found[write.channel].writes.append((write.task, write.value))
    for channel in left.difference(note.absent):
        found[channel].seed = line.seed(note, channel)
        left.discard(channel)  # without a value it has no version: nothing was written to it before


def _take_over(line: _Ancestors, note: Note, found: dict[str, _History], left: set[str]) -> None:
    """Add the history that was stored in place of deleted ancestors. Only a checkpoint without a parent has one."""
    stored = None if note.parent is not None or not left else line.stored(note)
    kept = {} if stored is None else stored.plain(HISTORY) or {}
    for channel in left.intersection(kept):
        found[channel].writes += [(task, StoredValue(value)) for task, value in reversed(kept[channel]["writes"])]
        if "seed" in kept[channel]:
            found[channel].seed = StoredValue(kept[channel]["seed"])
        left.discard(channel)


# -- removal ----------------------------------------------------------------------------------------------------------


def delete_thread(shared: SharedThreads, thread_id: object) -> None:
    """Delete every namespace of a thread, and the journal of its tools. LeaseHeld if a tool is being called."""
    name = checked_thread_id(thread_id)
    with suppress(NotFound):
        shared.hf.thread(journal_name(name)).drop()
    for thread in shared.threads_of(name):
        with thread.lock:
            _drop(thread)


def _drop(thread: GraphThread) -> None:
    found = thread.placer.head()
    if found is not None:
        thread.placer.drop(found.thread.position.thread)
    thread.forget()


def erase(shared: SharedThreads, thread_id: object, *, forks: bool) -> list[EraseResult]:
    """Erase a thread from the store and its files: every namespace, and the journal of its tools."""
    name = checked_thread_id(thread_id)
    names = [thread.name for thread in shared.threads_of(name)]
    names += [journal_name(name)] if shared.context.store.head(journal_name(name)) else []
    erased = [shared.hf.erase(each, forks=forks) for each in names or [name]]
    for each in names:
        shared.thread(*of_name(each)).forget()
    return erased


def delete_for_runs(shared: SharedThreads, run_ids: Sequence[object]) -> None:
    """Delete the checkpoints of these runs in all threads."""
    runs = {str(run_id) for run_id in _checked(run_ids, "run_ids") if run_id is not None}
    for thread in shared.all_threads() if runs else ():
        with thread.lock:
            _racing(thread, partial(_remove_runs, thread, runs))


def _remove_runs(thread: GraphThread, runs: set[str], head: GraphHead) -> None:
    index = thread.index(head)
    gone = {id for id, note in index.items() if _run_of(note) in runs}
    if gone:
        _remove(thread, head, [id for id in index if id not in gone])


def _run_of(note: Note) -> str | None:
    run_id: object = metadata_of(note).get("run_id")
    return None if run_id is None else str(run_id)


def _racing(thread: GraphThread, attempt: Callable[[GraphHead], T]) -> T | None:
    """Call `attempt` with the current head, and again if another writer changed the thread meanwhile."""
    for _ in range(MAX_RETRIES):
        head = thread.look()
        if head is None:
            return None
        try:
            return attempt(head)
        except (Conflict, Protected, NotFound):
            thread.forget()
        except Damaged:
            if thread.look() == head:
                raise
    raise Conflict(f"thread {quoted(thread.name)} was changed by other writers during each of {MAX_RETRIES} attempts")


def prune(shared: SharedThreads, thread_ids: Sequence[object], strategy: str) -> None:
    """Keep only the latest checkpoint of each namespace, or delete the threads."""
    if strategy not in _STRATEGIES:
        raise InvalidArgument(f"strategy must be one of {', '.join(_STRATEGIES)}, not {quoted(str(strategy))}")
    for thread_id in _checked(thread_ids, "thread_ids"):
        if strategy == "delete":
            delete_thread(shared, thread_id)
            continue
        going: set[str] = set()
        for thread in shared.threads_of(checked_thread_id(thread_id)):
            with thread.lock:
                removed = _racing(thread, partial(_keep_latest, thread, going))
            if not thread.namespace:
                going = removed or set()


def prune_idle(shared: SharedThreads, older_than: float | timedelta, strategy: str) -> int:
    """Prune the threads, with all their namespaces, that have not changed for this time. Returns their number."""
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if type(seconds) is bool or not isinstance(seconds, int | float) or seconds < 0:
        raise InvalidArgument("older_than must be a timedelta or a number of seconds, 0 or more")
    before = time.time_ns() // 1000 - round(seconds * 1_000_000)
    pruned = 0
    for thread in shared.all_threads():
        head = None if thread.namespace else thread.placer.head()
        if head is not None and head.thread.summary.updated_at <= before:
            prune(shared, [thread.thread_id], strategy)
            pruned += 1
    return pruned


def _keep_latest(thread: GraphThread, going: set[str], head: GraphHead) -> set[str]:
    """Keep only the latest checkpoint of one namespace. Returns the deleted ids."""
    index = dict(thread.index(head))
    if ":" in thread.namespace and _began_at(head.note) in going:
        # The subgraph of a single call: it ended with the step that called it.
        _drop(thread)
        return set()
    kept = _still_needed(thread, head)
    _remove(thread, head, kept)
    return set(index) - set(kept)


def _began_at(note: Note) -> str | None:
    """The checkpoint of the root namespace that a subgraph's checkpoint belongs to."""
    parents = metadata_of(note).get("parents")
    return parents.get("") if isinstance(parents, dict) else None


def _still_needed(thread: GraphThread, head: GraphHead) -> list[str]:
    stored = thread.find(head, head.note.id)
    if stored is None or head.note.id is None:
        return []
    version, parent = (stored.plain(CHECKPOINT) or {}).get("v"), head.note.parent
    if type(version) is int and version < _SENDS_ELSEWHERE and parent is not None:
        before = thread.find(head, parent)
        if before is not None:
            thread.journal.forget()  # another process may have stored the checkpoint anew
            writes = merged(thread.writes(head, before, parent), lambda: before)
            if any(write.channel == TASKS for write in writes):
                return [head.note.id, parent]
    return [head.note.id]


def _remove(thread: GraphThread, head: GraphHead, kept: Collection[str]) -> None:
    """Delete all rows except the newest row of each id in `kept`. The history that these need is stored with them.

    Conflict if another writer stores something meanwhile: unknown rows are not deleted.
    """
    number = head.position.thread
    index = {id: note for id, note in thread.index(head).items() if note.seq <= head.position.last}
    known = {row.seq for row in thread.placer.rows(number, 0) if row.seq <= head.position.last}
    notes = {id: index[id] for id in sorted(kept) if id in index}
    # Entries of checkpoints that do not exist yet stay.
    dead = [entry for entry in thread.journal.all(number) if entry.topic in index and entry.topic not in notes]
    tip = head.note.id if head.note.id in notes else max(notes, default=None)
    now = head
    for id, note in notes.items():
        # The latest one is stored again last: others must not see an earlier one as the latest.
        if (id == tip or note.absent) and note.parent is not None and note.parent not in notes:
            now = _put_without_parent(thread, now, id, note)
            notes[id] = now.note
    if tip is None:
        # Dropping the thread could delete what another writer stores meanwhile. Placing a row raises Conflict then.
        now = thread.empty(now)
    elif now.note.id != tip:
        now = thread.point(now, notes[tip])
    stay = {now.position.head, *(note.seq for note in notes.values())}
    thread.placer.remove(number, sorted(known - stay))
    thread.journal.blank(number, dead)
    thread.forget()


def _put_without_parent(thread: GraphThread, head: GraphHead, id: str, note: Note) -> GraphHead:
    """Store a checkpoint whose parent is deleted again, with the history of its DeltaChannels."""
    stored = thread.find(head, id)
    if stored is None:
        raise Conflict(f"thread {quoted(thread.name)}: a checkpoint was deleted meanwhile")
    history = needed_history(thread, head, note)
    return thread.put_again(head, stored, history, without_parent(stored.note), metadata_of(stored.note))


def needed_history(thread: GraphThread, head: GraphHead, note: Note) -> dict[str, Any]:
    """The history of a checkpoint's DeltaChannels, to be stored with a copy that has no parent."""
    thread.journal.forget()  # another process may have stored a checkpoint anew, and its writes with it
    counted = note.metadata.get(DELTA_COUNTERS) or {}
    delta = [channel for channel in note.absent if channel in counted]
    history = _history(thread, head, note.id, delta, may_be_copies=False)
    with suppress(Damaged):  # channels of another kind also may have no value, and need no ancestors
        others = [channel for channel in note.absent if channel not in counted]
        history |= _history(thread, head, note.id, others, may_be_copies=False)
    found: dict[str, Any] = {}
    for channel, one in history.items():
        if one.writes or one.seed is not None:
            seed = {} if one.seed is None else {"seed": one.seed.plain}
            found[channel] = {**seed, "writes": [[task, value.plain] for task, value in one.writes]}
    return found


def _checked(given: Sequence[object], name: str) -> list[object]:
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise InvalidArgument(f"{name} must be a list, not a string")
    return list(given)
