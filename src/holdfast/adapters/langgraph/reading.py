"""Checkpoints as LangGraph gets them: one, many, and what came before one."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.channels import decoded
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.layout import CELLS, CHECKPOINT, HISTORY, WRITES, Held
from holdfast.adapters.langgraph.messages import unfolded
from holdfast.adapters.langgraph.naming import checkpoint_id_of, config_of, namespace_of, thread_id_in, thread_id_of
from holdfast.adapters.langgraph.notes import Note, metadata_of, unpacked_checkpoint
from holdfast.adapters.langgraph.recent import Recent
from holdfast.adapters.langgraph.track import Track, View
from holdfast.adapters.langgraph.values import from_plain
from holdfast.errors import Damaged

Found: TypeAlias = tuple[str, Track, Note]


def get_tuple(core: Core, serde: SerializerProtocol, config: RunnableConfig) -> CheckpointTuple | None:
    """The checkpoint that a config names, or the latest."""
    track = core.track(thread_id_of(config), namespace_of(config))
    asked = checkpoint_id_of(config)
    with track.line:
        view = track.look()
        wanted = view.tip if asked is None else asked
        core.handed.note(track.name, wanted, "latest" if asked is None else "asked")
        row = None if wanted is None else track.row_of(view, wanted)
        held = None if row is None else track.hold(view, row)
    if held is None:
        return None
    return _tuple(core, serde, track, held, thread_id_in(config), remember=True)


def list_tuples(
    core: Core,
    serde: SerializerProtocol,
    config: RunnableConfig | None,
    wanted: dict[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> Iterator[CheckpointTuple]:
    """Checkpoints, the newest first. Nothing is held, open or locked, between two of them."""
    left = limit
    recent: dict[str, Recent] = {}
    for id, track, note in _found(core, config, before):
        if left is not None and left <= 0:
            return
        if wanted and not _matches(note, wanted):
            continue
        store = recent.setdefault(track.name, Recent(track.store))
        found = _listed(core, serde, track, id, store)
        if found is not None:
            yield found
            if left is not None:
                left -= 1


def _found(core: Core, config: RunnableConfig | None, before: RunnableConfig | None) -> Iterator[Found]:
    asked = None if config is None else checkpoint_id_of(config)
    bound = None if before is None else checkpoint_id_of(before)
    lists: list[list[Found]] = []
    for track in _tracks(core, config):
        with track.line:
            index = dict(track.index(track.look()))
        ids = index if asked is None else [asked] if asked in index else []
        chosen = sorted((id for id in ids if bound is None or id < bound), reverse=True)
        lists.append([(id, track, index[id][-1]) for id in chosen])
    return heapq.merge(*lists, key=lambda found: found[0], reverse=True)


def _tracks(core: Core, config: RunnableConfig | None) -> Iterator[Track]:
    configurable: dict[str, Any] = {} if config is None else config.get("configurable", {})
    if configurable.get("thread_id") is None:
        namespace = configurable.get("checkpoint_ns")
        yield from (track for track in core.all_tracks() if namespace is None or track.namespace == namespace)
        return
    thread_id = thread_id_of({"configurable": configurable})
    namespace = configurable.get("checkpoint_ns")
    if namespace is None:
        yield from core.tracks_of(thread_id)
    else:
        yield core.track(thread_id, namespace)


def _matches(note: Note, wanted: dict[str, Any]) -> bool:
    metadata: dict[str, Any] = {**metadata_of(note.row)}
    return all(key in metadata and metadata[key] == value for key, value in wanted.items())


def _listed(core: Core, serde: SerializerProtocol, track: Track, id: str, store: Recent) -> CheckpointTuple | None:
    with track.line:
        view = track.view()
        row = track.row_of(view, id)
        held = None if row is None else track.hold(view, row, store)
    return None if held is None else _tuple(core, serde, track, held, track.thread_id, remember=False)


def _tuple(
    core: Core, serde: SerializerProtocol, track: Track, held: Held, thread_id: Any, *, remember: bool
) -> CheckpointTuple:
    note = held.note
    if note.id is None:
        raise Damaged(f"checkpoint {held.row.seq}: it is not as LangGraph's are stored")
    cells = held.plain_list(CELLS)
    values = _values(core, serde, track, held, cells, remember=remember)
    return CheckpointTuple(
        config=config_of(thread_id, track.namespace, note.id),
        checkpoint=unpacked_checkpoint(held.plain(CHECKPOINT), note.id, values),
        metadata=metadata_of(held.row),
        parent_config=None if note.parent is None else config_of(thread_id, track.namespace, note.parent),
        pending_writes=[
            (task_id, channel, from_plain(serde, unfolded(value, cells), f"writes.{channel}"))
            for task_id, _, _, channel, value in held.plain_list(WRITES)
        ],
    )


def _values(
    core: Core, serde: SerializerProtocol, track: Track, held: Held, cells: list[Any], *, remember: bool
) -> dict[str, Any]:
    templates = core.templates(serde)
    values: dict[str, Any] = {}
    for channel in held.channels:
        values[channel], known = decoded(serde, track.store, held, channel, cells, templates, remember=remember)
        if known is not None:
            core.memory.keep((track.name, channel), known)
    return values


def delta_history(
    core: Core, serde: SerializerProtocol, config: RunnableConfig, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """What each channel was given before a checkpoint, back to where its value is stored."""
    track = core.track(thread_id_of(config), namespace_of(config))
    with track.line:
        view = track.look()
        plain = plain_history(track, view, checkpoint_id_of(config) or view.tip, channels)
    found: dict[str, DeltaChannelHistory] = {}
    for channel, history in plain.items():
        writes: list[PendingWrite] = [
            (task_id, channel, from_plain(serde, value, f"writes.{channel}")) for task_id, value in history["writes"]
        ]
        found[channel] = {"writes": writes}
        if "seed" in history:
            found[channel]["seed"] = from_plain(serde, history["seed"], channel)
    return found


def plain_history(track: Track, view: View, id: str | None, channels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same as plain data: `writes` as (task id, value), and `seed` where a stored value was found."""
    found: dict[str, dict[str, Any]] = {channel: {"writes": []} for channel in channels}
    left = set(channels)
    row = None if id is None else track.row_of(view, id)
    held = None if row is None else track.hold(view, row)
    seen: set[str] = set()
    is_target = True
    store = Recent(track.store)
    while held is not None and left:
        cells = held.plain_list(CELLS)
        if not is_target:
            _gather(held, cells, found, left)
        is_target = False
        _take_over(held, cells, found, left)
        parent = held.note.parent
        if parent is None or parent in seen:
            break
        seen.add(parent)
        row = track.row_of(view, parent)
        held = None if row is None else track.hold(view, row, store)
    for history in found.values():
        history["writes"].reverse()
    return found


def _gather(held: Held, cells: list[Any], found: dict[str, dict[str, Any]], left: set[str]) -> None:
    """What one ancestor has of the channels: its writes, newest first, and its values, at which a channel ends."""
    for task_id, _, _, channel, value in reversed(held.plain_list(WRITES)):
        if channel in left:
            found[channel]["writes"].append((task_id, unfolded(value, cells)))
    for channel in list(left):
        if held.has(channel):
            found[channel]["seed"] = held.value(channel, cells)
            left.discard(channel)


def _take_over(held: Held, cells: list[Any], found: dict[str, dict[str, Any]], left: set[str]) -> None:
    """What was kept of ancestors that are gone."""
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
