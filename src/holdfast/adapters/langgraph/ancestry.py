"""Collect the history of DeltaChannels, whose values are computed from the writes of a checkpoint's ancestors.

A thread that Holdfast forked starts with one checkpoint; its ancestors are in the thread it was forked from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.adapters.langgraph.layout import CELLS, HISTORY, WRITES, Held
from holdfast.adapters.langgraph.messages import unfolded
from holdfast.adapters.langgraph.notes import note_of
from holdfast.adapters.langgraph.recent import Recent
from holdfast.adapters.langgraph.track import Track, View
from holdfast.adapters.langgraph.written import in_order
from holdfast.delta.load import load_base
from holdfast.errors import Damaged, NotFound
from holdfast.text import quoted


def plain_history(track: Track, view: View, id: str | None, channels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The history of each channel before a checkpoint: `writes` as (task id, value), and `seed`, the last stored value.

    Damaged if an ancestor was deleted, so that the history is incomplete; NotFound if the checkpoint itself may have
    been deleted. A checkpoint that never existed has an empty history.
    """
    found: dict[str, dict[str, Any]] = {channel: {"writes": []} for channel in channels}
    left = set(channels)
    row = None if id is None else track.row_of(view, id)
    held = None if row is None else track.hold(view, row)
    line = _Line(track, view)
    if id is not None and held is None and view.position is not None and line.is_cut:
        raise NotFound(f"checkpoint {id} of thread {quoted(track.name)} does not exist; it may have been deleted")
    seen: set[str] = set()
    is_target = True
    while held is not None and left:
        cells = held.plain_list(CELLS)
        if not is_target:
            _gather(held, cells, found, left)
        is_target = False
        _take_over(held, cells, found, left)
        parent = held.note.parent
        if parent is None or parent in seen or not left:
            break
        seen.add(parent)
        held = line.find(parent)
        if held is None and line.is_cut:
            raise Damaged(
                f"an ancestor of checkpoint {id} was deleted, and with it writes to its DeltaChannels "
                f"({', '.join(sorted(left))}). Prune threads with DeltaChannels only with the saver's prune()."
            )
    for history in found.values():
        history["writes"].reverse()
    return found


class _Line:
    """Finds ancestors in a track, then in the thread that it was forked from."""

    def __init__(self, track: Track, view: View) -> None:
        self._track = track
        self._view = view
        self._store = Recent(track.store)
        self._number = 0 if view.position is None else view.position.thread
        self._home = self._number
        self._rows: dict[str, int] = {}

    @property
    def is_cut(self) -> bool:
        """Whether rows were deleted from the thread searched last, so that a missing ancestor may have been deleted."""
        position = self._view.position
        if self._number != self._home or position is None:
            return True
        return self._view.count < position.last

    def find(self, id: str) -> Held | None:
        track = self._track
        if self._number == self._home:
            row = track.row_of(self._view, id)
            if row is not None:
                return track.hold(self._view, row, self._store)
        elif id in self._rows:
            return self._held(self._rows[id])
        return self._find_in_origin(id)

    def _find_in_origin(self, id: str) -> Held | None:
        store = self._track.store
        first = store.checkpoint(self._number, 1)
        if first is None or first.parent is None or not first.parent[0]:
            return None
        self._number, fork = first.parent
        self._rows = {}
        for row in self._track.placer.rows(self._number, 0):
            note = note_of(row) if row.seq <= fork else None
            if note is not None and note.id is not None:
                self._rows.setdefault(note.id, row.seq)
        return self.find(id)

    def _held(self, seq: int) -> Held | None:
        row = self._track.placer.row(self._number, seq)
        note = None if row is None else note_of(row)
        if row is None or note is None:
            return None
        return Held(self._track.store, self._number, row, note, load_base(self._store, self._number, row))


def _gather(held: Held, cells: list[Any], found: dict[str, dict[str, Any]], left: set[str]) -> None:
    """Add the writes of one ancestor, newest first, and its stored values, which complete a channel."""
    for task_id, _, _, channel, value in reversed(in_order(held.plain_list(WRITES))):
        if channel in left:
            found[channel]["writes"].append((task_id, unfolded(value, cells)))
    for channel in list(left):
        if held.has(channel):
            found[channel]["seed"] = held.value(channel, cells)
            left.discard(channel)


def _take_over(held: Held, cells: list[Any], found: dict[str, dict[str, Any]], left: set[str]) -> None:
    """Add the history that was stored in place of deleted ancestors."""
    kept = held.plain(HISTORY, {})
    for channel in list(left):
        if channel in kept:
            history = kept[channel]
            found[channel]["writes"] += [
                (task_id, unfolded(value, cells)) for task_id, value in reversed(history["writes"])
            ]
            if "seed" in history:
                found[channel]["seed"] = unfolded(history["seed"], cells)
            left.discard(channel)
