"""Delete, prune and copy threads, without breaking those with a DeltaChannel.

The value of a DeltaChannel is not stored with each checkpoint; it is computed from the writes of the ancestors. Before
an ancestor is deleted, the writes that a remaining checkpoint needs are stored with that checkpoint (`history`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holdfast.adapters.langgraph.ancestry import plain_history
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.describing import details_of
from holdfast.adapters.langgraph.layout import CELLS, CHECKPOINT, EARLY, HISTORY, WRITES, Held
from holdfast.adapters.langgraph.messages import moved
from holdfast.adapters.langgraph.naming import checked_thread_id, journal_name, of_track
from holdfast.adapters.langgraph.notes import Note, metadata_of
from holdfast.adapters.langgraph.track import Track, View
from holdfast.adapters.langgraph.written import channels_of
from holdfast.delta.hints import Kept
from holdfast.errors import AlreadyExists, Conflict, Damaged, InvalidArgument, NotFound, Protected
from holdfast.stores.contract import CheckpointRow, Position
from holdfast.text import quoted
from holdfast.threads.context import MAX_RETRIES
from holdfast.types import EraseResult

T = TypeVar("T")

_STRATEGIES = ("keep_latest", "delete")
_SENDS_ELSEWHERE = 4  # before this checkpoint version, the sends of a checkpoint are in its parent's writes


def delete_thread(core: Core, thread_id: object) -> None:
    """Delete every namespace of a thread, and the journal of its tools. LeaseHeld if a tool is being called."""
    name = checked_thread_id(thread_id)
    journal = core.hf.thread(journal_name(name))
    with suppress(NotFound):
        journal.drop()
    for track in core.tracks_of(name):
        with track.line:
            track.drop()


def erase(core: Core, thread_id: object, *, forks: bool) -> list[EraseResult]:
    """Erase a thread from the store and its files: every namespace, and the journal of its tools."""
    name = checked_thread_id(thread_id)
    names = [track.name for track in core.tracks_of(name)]
    names += [journal_name(name)] if core.context.store.head(journal_name(name)) else []
    erased = [core.hf.erase(each, forks=forks) for each in names or [name]]
    for track in names:
        core.track(*of_track(track)).forget()
    return erased


def delete_for_runs(core: Core, run_ids: Sequence[object]) -> None:
    """Delete the checkpoints of these runs in all threads."""
    runs = {str(run_id) for run_id in _checked(run_ids, "run_ids") if run_id is not None}
    if not runs:
        return
    for track in core.all_tracks():
        with track.line:
            _racing(track, partial(_remove_runs, track, runs))


def _remove_runs(track: Track, runs: set[str], view: View) -> None:
    index = track.index(view)
    gone = {id for id, notes in index.items() if _run_of(notes[-1]) in runs}
    if gone:
        _remove(track, view, [id for id in index if id not in gone])


def _run_of(note: Note) -> str | None:
    run_id: object = metadata_of(note.row).get("run_id")
    return None if run_id is None else str(run_id)


def _racing(track: Track, attempt: Callable[[View], T]) -> T:
    """Call `attempt` with the current view, and again if another writer moved the track meanwhile."""
    for _ in range(MAX_RETRIES):
        view = track.look()
        try:
            return attempt(view)
        except (Conflict, Protected, NotFound):
            track.forget()
        except Damaged:
            if track.moved_from(view) is None:
                raise
    raise Conflict(f"thread {quoted(track.name)} was changed by other writers during each of {MAX_RETRIES} attempts")


def prune(core: Core, thread_ids: Sequence[object], strategy: str) -> None:
    """Keep only the latest checkpoint of each namespace, or delete the threads."""
    if strategy not in _STRATEGIES:
        raise InvalidArgument(f"strategy must be one of {', '.join(_STRATEGIES)}, not {quoted(str(strategy))}")
    for thread_id in _checked(thread_ids, "thread_ids"):
        if strategy == "delete":
            delete_thread(core, thread_id)
        else:
            _keep_latest(core, checked_thread_id(thread_id))


def _keep_latest(core: Core, thread_id: str) -> None:
    tracks = core.tracks_of(thread_id)
    going: set[str] = set()
    for track in tracks:
        with track.line:
            removed = _racing(track, partial(_prune, track, going))
        if not track.namespace:
            going = removed


def _prune(track: Track, going: set[str], view: View) -> set[str]:
    """Keep only the latest checkpoint of one namespace. Returns the deleted ids."""
    index = track.index(view)
    if ":" in track.namespace and _began_at(index, view.tip) in going:
        # The subgraph of a single call: it ended with the step that called it.
        track.drop()
        return set()
    kept = _still_needed(track, view)
    removed = set(index) - set(kept)
    if view.tip is not None:
        _remove(track, view, kept)
    return removed


def _began_at(index: dict[str, list[Note]], tip: str | None) -> str | None:
    """The checkpoint of the root namespace that a subgraph's checkpoint belongs to."""
    notes = index.get(tip or "", [])
    parents = metadata_of(notes[-1].row).get("parents") if notes else None
    return parents.get("") if isinstance(parents, dict) else None


def _still_needed(track: Track, view: View) -> list[str]:
    if view.tip is None:
        return []
    row = track.row_of(view, view.tip)
    if row is None:
        return []
    held = track.hold(view, row)
    version = held.plain(CHECKPOINT, {}).get("v")
    if type(version) is int and version < _SENDS_ELSEWHERE and held.note.parent is not None:
        before = track.row_of(view, held.note.parent)
        if before is not None and _has_sends(track.hold(view, before)):
            return [view.tip, held.note.parent]
    return [view.tip]


def _has_sends(held: Held) -> bool:
    return any(channel == "__pregel_tasks" for _, _, _, channel, _ in held.plain_list(WRITES))


def _remove(track: Track, view: View, kept: Collection[str]) -> None:
    """Delete all rows except the newest row of each id in `kept`. The history that these need is stored with them.

    Conflict if another writer stores something meanwhile: unknown rows are not deleted.
    """
    if view.position is None:
        return
    number = view.position.thread
    known = {row.seq for row in track.placer.rows(number, 0) if row.seq <= view.position.last}
    rows = {id: row for id in sorted(kept) if (row := track.row_of(view, id)) is not None}
    tip = view.tip if view.tip in rows else max(rows, default=None)
    early = view.row is not None and EARLY in track.hold(view, view.row).parts
    if tip is None and not early:
        # Dropping the thread could delete what another writer stores meanwhile. Placing a row raises Conflict then.
        empty = details_of(track, {}, (), None, None, None, None)
        track.place(view, {CHECKPOINT: None, WRITES: []}, empty, None)
        track.remove(number, sorted(known))
        return
    head = view.row if view.row is not None and (tip == view.tip) else None
    for id, row in rows.items():
        anew = _needs_anew(track, view, id, row, rows)
        if anew is not None or (id == tip and (head is None or head.seq != row.seq)):
            view, rows[id] = _place_anew(track, view, row, tip, anew)
    if tip is not None and view.position is not None and view.position.head != rows[tip].seq:
        track.point(rows[tip])
        view = track.view()
    stay = {row.seq for row in rows.values()} | ({view.position.head} if view.position is not None else set())
    track.remove(number, sorted(known - stay))


def _needs_anew(
    track: Track, view: View, id: str, row: CheckpointRow, rows: dict[str, CheckpointRow]
) -> dict[str, Any] | None:
    """The history to store with a checkpoint whose parent is deleted; None if its row can stay as it is."""
    held = track.hold(view, row)
    if held.note.parent is None or held.note.parent in rows:
        return None
    versions = held.plain(CHECKPOINT, {}).get("versions", {})
    missing = [channel for channel in versions if not held.has(channel)]
    histories = plain_history(track, view, id, missing) if missing else {}
    return {channel: history for channel, history in histories.items() if history["writes"] or "seed" in history}


def _place_anew(
    track: Track, view: View, row: CheckpointRow, tip: str | None, history: dict[str, Any] | None
) -> tuple[View, CheckpointRow]:
    """Store the row of a checkpoint again, without its parent if `history` is given. Returns the view and the row."""
    held = track.hold(view, row)
    state: dict[str, Any] = {key: Kept(part) for key, part in held.parts.items() if key != EARLY}
    if history:
        state[HISTORY] = {
            channel: {**entry, "writes": [list(write) for write in entry["writes"]]}
            for channel, entry in history.items()
        }
    state |= _carried(track, view, held)
    parent = None if history is not None else held.note.parent
    highest = None if view.note is None else view.note.highest
    channels = channels_of(held.plain_list(WRITES))
    details = details_of(track, metadata_of(row), channels, held.note.id, parent, tip, highest)
    placed = track.place(view, state, details, held)
    return track.view(), placed.row


def _carried(track: Track, now: View, held: Held) -> dict[str, Any]:
    """The early writes, which only the newest row has."""
    if now.row is None:
        return {}
    head = track.hold(now, now.row)
    if EARLY not in head.parts:
        return {}
    if head.row.seq == held.row.seq:
        return {EARLY: Kept(head.parts[EARLY])}
    cells = held.plain_list(CELLS)
    early = moved(head.plain_list(EARLY), head.plain_list(CELLS), cells)
    return {EARLY: early, CELLS: cells}


def copy_thread(core: Core, source_thread_id: object, target_thread_id: object) -> None:
    """Copy all checkpoints of all namespaces. The copies refer to the stored data; no data is stored twice."""
    source, target = checked_thread_id(source_thread_id), checked_thread_id(target_thread_id)
    if source == target:
        raise InvalidArgument("a thread cannot be copied onto itself")
    if core.tracks_of(target):
        raise AlreadyExists(
            f"thread {quoted(target)} already exists; nothing was copied. Use another name, or delete it first."
        )
    # The root namespace is last, so that an interrupted copy has no latest checkpoint.
    for track in reversed(core.tracks_of(source)):
        copy = core.track(target, track.namespace)
        with track.line:
            view = track.look()
            newest = {notes[-1].seq for notes in track.index(view).values()}
        with copy.line:
            _copy(track, view, copy, newest)


def _copy(track: Track, view: View, copy: Track, newest: set[int]) -> None:
    if view.position is None:
        return
    number, head = view.position.thread, view.position.head
    seqs = sorted({*newest, head})
    position: Position | None = None
    copied: dict[int, CheckpointRow] = {}
    last: CheckpointRow | None = None
    for seq in seqs:
        row = track.placer.row(number, seq)
        if row is None:
            continue
        parent = row.parent
        under = copied.get(parent[1]) if parent is not None and not parent[0] else None
        position, placed = copy.placer.copy(row, number, expect=position, under=under or last)
        copied[seq] = last = placed
    if position is not None and head in copied and position.head != copied[head].seq:
        copy.placer.point(position, copied[head])
    copy.forget()
    copy.reindex()


def _checked(given: Sequence[object], name: str) -> list[object]:
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise InvalidArgument(f"{name} must be a list, not a string")
    return list(given)
