"""Read checkpoints for LangGraph: one, a listing, and the history of DeltaChannels."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.ancestry import plain_history
from holdfast.adapters.langgraph.channels import decoded
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.layout import CELLS, CHECKPOINT, WRITES, Held
from holdfast.adapters.langgraph.messages import unfolded
from holdfast.adapters.langgraph.naming import checkpoint_id_of, config_of, namespace_of, thread_id_in, thread_id_of
from holdfast.adapters.langgraph.notes import Note, metadata_of, unpacked_checkpoint
from holdfast.adapters.langgraph.recent import Recent
from holdfast.adapters.langgraph.track import Track, View
from holdfast.adapters.langgraph.values import from_plain
from holdfast.adapters.langgraph.written import in_order
from holdfast.errors import Conflict, Damaged
from holdfast.stores.contract import CheckpointRow
from holdfast.text import quoted
from holdfast.threads.context import MAX_RETRIES

Found: TypeAlias = tuple[str, Track, Note]


def get_tuple(core: Core, serde: SerializerProtocol, config: RunnableConfig) -> CheckpointTuple | None:
    """The checkpoint that a config names, or the latest."""
    track = core.track(thread_id_of(config), namespace_of(config))
    asked = checkpoint_id_of(config)
    for _ in range(MAX_RETRIES):
        with track.line:
            view = track.look()
            wanted = view.tip if asked is None else asked
            if asked is None:
                core.runs.note(config, track.name, wanted, is_stored=False)
            row = None if wanted is None else track.row_of(view, wanted)
        if row is None:
            return None
        try:
            with track.line:
                held = track.hold(view, row)
            return _tuple(core, serde, track, held, thread_id_in(config), remember=True)
        except Damaged:
            if not _is_gone(track, view, row):
                raise
    raise Conflict(
        f"thread {quoted(track.name)} was changed during each of {MAX_RETRIES} attempts to read it. Try again."
    )


def _is_gone(track: Track, view: View, row: CheckpointRow) -> bool:
    """Whether a row was deleted while it was read, so that its missing cells are not damage."""
    with track.line:
        track.forget()
        now = track.look()
        same = now.position is not None and view.position is not None and now.position.thread == view.position.thread
        return not same or track.placer.row(view.position.thread if view.position else 0, row.seq) is None


def list_tuples(
    core: Core,
    serde: SerializerProtocol,
    config: RunnableConfig | None,
    wanted: dict[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> Iterator[CheckpointTuple]:
    """List checkpoints, newest first. No lock or cursor is held between two of them."""
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
    for _ in range(MAX_RETRIES):
        damage: Damaged | None = None
        try:
            with track.line:
                row = track.row_of(view, id)
                held = None if row is None else track.hold(view, row, store)
            if held is not None:
                return _tuple(core, serde, track, held, track.thread_id, remember=False)
        except Damaged as error:
            damage = error
        with track.line:
            now = track.moved_from(view)
        if now is None and damage is not None:
            raise damage
        if now is None:
            return None
        view = now
    raise Conflict(
        f"thread {quoted(track.name)} was changed during each of {MAX_RETRIES} attempts to read it. Try again."
    )


def _tuple(
    core: Core, serde: SerializerProtocol, track: Track, held: Held, thread_id: Any, *, remember: bool
) -> CheckpointTuple:
    note = held.note
    if note.id is None:
        raise Damaged(f"checkpoint {held.row.seq} does not have the form of a LangGraph checkpoint")
    cells = held.plain_list(CELLS)
    values = _values(core, serde, track, held, cells, remember=remember)
    return CheckpointTuple(
        config=config_of(thread_id, track.namespace, note.id),
        checkpoint=unpacked_checkpoint(held.plain(CHECKPOINT), note.id, values),
        metadata=metadata_of(held.row),
        parent_config=None if note.parent is None else config_of(thread_id, track.namespace, note.parent),
        pending_writes=[
            (task_id, channel, from_plain(serde, unfolded(value, cells), f"writes.{channel}"))
            for task_id, _, _, channel, value in in_order(held.plain_list(WRITES))
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
    """The writes to each channel before a checkpoint, back to where its value is stored."""
    track = core.track(thread_id_of(config), namespace_of(config))
    asked = checkpoint_id_of(config)
    with track.line:
        track.look()
        plain = track.racing(lambda view: plain_history(track, view, asked or view.tip, channels))
    found: dict[str, DeltaChannelHistory] = {}
    for channel, history in plain.items():
        writes: list[PendingWrite] = [
            (task_id, channel, from_plain(serde, value, f"writes.{channel}")) for task_id, value in history["writes"]
        ]
        found[channel] = {"writes": writes}
        if "seed" in history:
            found[channel]["seed"] = from_plain(serde, history["seed"], channel)
    return found
