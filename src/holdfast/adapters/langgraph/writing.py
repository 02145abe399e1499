"""Store checkpoints and writes: each call is one durable commit.

LangGraph's objects are first copied (`Put`, `Writes`), before anything is awaited or read. The commit uses only the
copy, so it can be retried when another writer was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS
from msgspec.structs import replace

from holdfast.adapters.langgraph.channels import Encoded, encoded
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.describing import details_of
from holdfast.adapters.langgraph.layout import (
    CELLS,
    CHECKPOINT,
    EARLY,
    HISTORY,
    WRITES,
    Held,
    channel_key,
    ids_key,
    is_nameable,
    laid_out,
)
from holdfast.adapters.langgraph.messages import folded, moved
from holdfast.adapters.langgraph.naming import checkpoint_id_of, namespace_of, thread_id_of
from holdfast.adapters.langgraph.notes import metadata_of, packed_checkpoint, seen_in, version_of
from holdfast.adapters.langgraph.ordering import PUSHED, has_run
from holdfast.adapters.langgraph.track import Overtaken, Track, View
from holdfast.adapters.langgraph.values import to_plain
from holdfast.adapters.langgraph.written import VALUE, Write, channels_of, merged
from holdfast.codec import msgpack
from holdfast.delta.hints import Apart, Extended, Kept
from holdfast.delta.parts import Series
from holdfast.errors import Conflict, Damaged, InvalidArgument
from holdfast.text import quoted


class Carried(msgspec.Struct, frozen=True):
    """The writes and the creation time (in µs) of a checkpoint that is imported from another saver."""

    writes: list[Write]
    created_at: int | None


class Put(msgspec.Struct, frozen=True):
    """A copy of a checkpoint to store."""

    id: str
    parent: str | None
    values: dict[str, Encoded]
    cells: list[Any]
    checkpoint: dict[str, Any]
    metadata: CheckpointMetadata
    refill: frozenset[str]
    seen: dict[str, Any]
    carried: Carried | None = None


class Writes(msgspec.Struct, frozen=True):
    """A copy of a task's writes to store."""

    id: str
    writes: list[Write]
    cells: list[Any]


def take_put(
    core: Core,
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Put:
    """Copy a checkpoint. Unsupported if it contains a value that could not be loaded again."""
    track = core.track(thread_id_of(config), namespace_of(config)).name
    given = checkpoint["id"]
    if type(given) is not str or not given:
        raise InvalidArgument("a checkpoint's id must be a non-empty string")
    cells: list[Any] = []
    versions = checkpoint["channel_versions"]
    values = {
        channel: encoded(
            serde,
            core.memory,
            (track, channel),
            value,
            cells,
            by_version=channel in versions and channel not in new_versions,
        )
        for channel, value in checkpoint["channel_values"].items()
    }
    refill = [channel for channel in versions if channel not in new_versions and channel not in values]
    return Put(
        id=given,
        parent=checkpoint_id_of(config),
        values=values,
        cells=cells,
        checkpoint=packed_checkpoint(checkpoint),
        metadata=get_checkpoint_metadata(config, metadata),
        refill=frozenset(refill),
        seen={node: dict(seen) for node, seen in checkpoint["versions_seen"].items()},
    )


def take_writes(
    serde: SerializerProtocol, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> Writes:
    """Copy the writes of a task. Unsupported as for `take_put`."""
    given = checkpoint_id_of(config)
    if given is None:
        raise InvalidArgument("the config has no checkpoint_id; writes belong to a checkpoint")
    cells: list[Any] = []
    taken = [
        [
            task_id,
            task_path,
            WRITES_IDX_MAP.get(channel, at),
            channel,
            folded(to_plain(serde, value, f"writes.{channel}"), cells),
        ]
        for at, (channel, value) in enumerate(writes)
    ]
    return Writes(given, taken, cells)


def put(core: Core, track: Track, given: Put, config: RunnableConfig) -> None:
    """Store a checkpoint. Conflict if another run has continued from the checkpoint that this run is at."""
    if given.parent is not None and given.metadata.get("source") == "loop":
        core.arrivals.wait(track.name, lambda: _is_led_to(track, given))
    with track.line:
        held = track.racing(lambda view: _put(track, _at_tip(core, track, view, given, config), given))
        core.runs.stored(track.name, given.id)
        if held.note.tip == given.id:
            core.runs.note(config, track.name, given.id, is_stored=True)
        else:
            core.runs.forget(config, track.name)
        for channel, value in given.values.items():
            value.remember(core.memory, track.name, channel, held)


def carry(track: Track, given: Put) -> None:
    """Store a checkpoint of another saver, with its writes. The checkpoint with the largest id is the latest."""
    with track.line:
        track.racing(lambda view: _put(track, view, given))


def _is_led_to(track: Track, given: Put) -> bool:
    """Whether the writes of all nodes that ran between the parent and this checkpoint are stored."""
    with track.line:
        view = track.view()
        held = _held(track, view, given.parent)
        if held is None or metadata_of(held.row).get("step") != given.metadata.get("step", 0) - 1:
            return True
        stored = track.written(held).paths
        pushed = sum(path.startswith(PUSHED) for path in stored)
        return pushed >= _sent(held) and has_run(given.seen, seen_in(held.plain(CHECKPOINT))) <= stored


def _sent(held: Held) -> int:
    """The number of tasks that a checkpoint sends, if known. They all run before the next checkpoint."""
    part = held.part(TASKS)
    if isinstance(part, Series):
        return part.length
    tasks = held.plain(TASKS)
    return len(tasks) if type(tasks) is list else 0


def _put(track: Track, view: View, given: Put) -> Held:
    carried = given.carried
    before = _row_before(track, view, given)
    parent = _held(track, view, given.parent)
    head = None if view.row is None else track.hold(view, view.row)
    # A checkpoint that is stored again keeps its writes. The base is the most similar row.
    under = before or parent or head
    cells = list(given.cells)
    writes = [] if before is None else _moved(before, WRITES, cells)
    early = [] if head is None or EARLY not in head.parts else _moved(head, EARLY, cells)
    writes = merged(writes, [write for owner, *write in early if owner == given.id])
    if carried is not None:
        writes = merged(writes, carried.writes)
    state = {
        **_values(track, given, under, parent, cells),
        CHECKPOINT: given.checkpoint,
        WRITES: writes,
    }
    if early := [entry for entry in early if entry[0] != given.id]:
        state[EARLY] = early
    if before is not None and HISTORY in before.parts:
        state[HISTORY] = Kept(before.parts[HISTORY])
    if cells:
        state[CELLS] = Apart(cells, None if under is None else under.longest())
    follows = carried is None and given.parent == view.tip
    tip = given.id if view.tip is None or given.id > view.tip or follows else view.tip
    known = None if view.note is None else view.note.highest
    highest = given.id if known is None or given.id > known else known
    details = details_of(track, given.metadata, channels_of(writes), given.id, given.parent, tip, highest)
    if carried is not None and carried.created_at is not None:
        details = replace(details, meta=replace(details.meta, created_at=carried.created_at))
    return track.place(view, state, details, under)


def _at_tip(core: Core, track: Track, view: View, given: Put, config: RunnableConfig) -> View:
    """Return the view. Overtaken if another run has continued from the same parent; a deliberate fork is allowed."""
    if core.runs.is_overtaken(config, track.name, given.parent, view.tip):
        raise Overtaken(
            f"thread {quoted(track.name)}: another run has continued from the same checkpoint; nothing was stored. "
            "Invoke the graph again to start from the latest checkpoint."
        )
    return view


def _row_before(track: Track, view: View, given: Put) -> Held | None:
    """The existing row of a checkpoint that is stored again."""
    note = view.note
    if note is None or (note.highest is not None and given.id > note.highest and view.is_newest):
        return None
    return _held(track, view, given.id)


def _held(track: Track, view: View, id: str | None) -> Held | None:
    row = None if id is None else track.row_of(view, id)
    return None if row is None else track.hold(view, row)


def _values(track: Track, given: Put, under: Held | None, parent: Held | None, cells: list[Any]) -> dict[str, Any]:
    """The entries of a put's values, which refer to stored parts if possible. Hoisted bodies are added to `cells`."""
    known = len(cells)
    entries = _entries(track, given, under, parent, cells)
    if not is_nameable(entries):
        del cells[known:]
        entries = _entries(track, given, None, parent, cells)
    return laid_out(entries)


def _entries(track: Track, given: Put, base: Held | None, parent: Held | None, cells: list[Any]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for channel, value in given.values.items():
        entries |= value.entries(channel, track.store, base)
    for channel in sorted(given.refill):
        entries |= _refilled(given, channel, base, parent, cells)
    return entries


def _refilled(given: Put, channel: str, base: Held | None, parent: Held | None, cells: list[Any]) -> dict[str, Any]:
    """The entries of an unchanged channel that was not given: those of the parent, if the version is the same."""
    if parent is None or not parent.has(channel):
        return {}
    if version_of(given.checkpoint, channel) != version_of(parent.plain(CHECKPOINT), channel):
        return {}
    key, ids = channel_key(channel), ids_key(channel)
    if base is parent and key in parent.parts and (CELLS not in parent.parts or ids in parent.parts):
        return {name: Kept(parent.parts[name]) for name in (key, ids) if name in parent.parts}
    return {key: folded(parent.value(channel, parent.plain_list(CELLS)), cells)}


def put_writes(core: Core, track: Track, given: Writes) -> None:
    """Store writes of a checkpoint, which may not be stored yet."""
    with track.line:
        track.racing(lambda view: _put_writes(track, view, given))
    core.arrivals.tell(track.name)


def _put_writes(track: Track, view: View, given: Writes) -> None:
    row = track.row_of(view, given.id)
    if row is None and not view.is_newest:
        row = track.row_of(track.look(), given.id)
    if row is None:
        _put_early(track, view, given)
        return
    held = track.hold(view, row)
    written = track.written(held)
    new = written.new_of(given.writes)
    if new == []:
        _require_still(track, view)
        return
    state: dict[str, Any] = {key: Kept(part) for key, part in held.parts.items()}
    part = held.parts.get(WRITES)
    if new is not None and row is view.row and isinstance(part, Series):
        state |= _added(held, part, new, given.cells)
        channels = written.channels | channels_of(new)
    else:
        new = None
        changed = _rewritten(track, view, held, given)
        if changed is None:
            _require_still(track, view)
            return
        state.pop(EARLY, None)
        state |= changed
        channels = channels_of(changed[WRITES])
    note = held.note
    highest = note.highest if view.note is None else view.note.highest
    details = details_of(track, metadata_of(row), channels, note.id, note.parent, view.tip, highest)
    head = view.row
    placed = track.place(view, state, details, held)
    if new is not None:
        written.add(new)
        track.has_written(placed, written)
    if head is not None and head is not row:
        # Late writes of an earlier checkpoint must not change the head.
        track.point(head)


def _require_still(track: Track, view: View) -> None:
    """Raise Conflict if the track was changed meanwhile: its writes may be different now."""
    if track.moved_from(view) is not None:
        raise Conflict(f"thread {quoted(track.name)} was changed by another writer")


def _added(held: Held, part: Series, new: list[Write], hoisted: list[Any]) -> dict[str, Any]:
    """Append writes to those of a row, without reading these."""
    known = held.parts.get(CELLS)
    cells: list[Any] = []
    start = known.length if isinstance(known, Series) else 0
    if known is not None and not isinstance(known, Series):
        raise Damaged(f"checkpoint {held.row.seq} does not have the form of a LangGraph checkpoint")
    added = [[*write[:VALUE], moved(write[VALUE], hoisted, cells, start)] for write in new]
    state: dict[str, Any] = {WRITES: Extended(part, part.length, added)}
    if cells:
        state[CELLS] = Apart(cells, held.longest()) if known is None else Extended(known, start, cells)
    return state


def _rewritten(track: Track, view: View, held: Held, given: Writes) -> dict[str, Any] | None:
    """All writes of a row merged with new ones; None if nothing changes."""
    cells = held.plain_list(CELLS)
    old = held.plain_list(WRITES)
    new = merged(old, [[*write[:VALUE], moved(write[VALUE], given.cells, cells)] for write in given.writes])
    if msgpack.encode(new) == msgpack.encode(merged(old, [])):
        return None
    state: dict[str, Any] = {WRITES: new}
    if EARLY in held.parts and held.row is view.row:
        state[EARLY] = Kept(held.parts[EARLY])
    elif held.row is not view.row and view.row is not None:
        # Only the newest row has the early writes.
        state |= _early_of(track.hold(view, view.row), cells)
    if cells:
        state[CELLS] = Apart(cells, held.longest())
    return state


def _put_early(track: Track, view: View, given: Writes) -> None:
    """Store writes whose checkpoint does not exist yet, together with the latest checkpoint."""
    held = None if view.row is None else track.hold(view, view.row)
    cells = [] if held is None else held.plain_list(CELLS)
    early = [] if held is None else held.plain_list(EARLY)
    moved_in = [[*write[:VALUE], moved(write[VALUE], given.cells, cells)] for write in given.writes]
    mine = merged([write for owner, *write in early if owner == given.id], moved_in)
    early = [entry for entry in early if entry[0] != given.id] + [[given.id, *write] for write in mine]
    state: dict[str, Any] = {CHECKPOINT: None, WRITES: [], EARLY: early}
    if held is not None:
        state |= {key: Kept(part) for key, part in held.parts.items() if key not in (EARLY, CELLS)}
    if cells:
        state[CELLS] = Apart(cells, None if held is None else held.longest())
    note = view.note
    details = details_of(
        track,
        {} if held is None else metadata_of(held.row),
        set() if held is None else track.written(held).channels,
        None if note is None else note.id,
        None if note is None else note.parent,
        view.tip,
        None if note is None else note.highest,
    )
    track.place(view, state, details, held)


def _early_of(head: Held, cells: list[Any]) -> dict[str, Any]:
    early = _moved(head, EARLY, cells)
    return {EARLY: early} if early else {}


def _moved(held: Held, key: str, cells: list[Any]) -> list[Any]:
    """The writes of a row. Their hoisted bodies are appended to `cells`."""
    found: list[Any] = moved(held.plain_list(key), held.plain_list(CELLS), cells) if key in held.parts else []
    return found
