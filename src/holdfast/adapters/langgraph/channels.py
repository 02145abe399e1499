"""Convert the values of channels to parts of a state and back, with caches for messages.

The list of messages grows with each step, and LangGraph passes the same message objects again. Messages that were
loaded or stored before, and are unchanged (`snapshots`), are not encoded again. A message that was decoded once is
copied the next time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import takewhile
from operator import is_
from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from holdfast.adapters.langgraph.layout import Held, channel_key, ids_key
from holdfast.adapters.langgraph.messages import BODIES, IDS, MESSAGES, apart, are_messages, folded, some, unfolded
from holdfast.adapters.langgraph.snapshots import Snapshot, Snapshots, collecting_later, taken
from holdfast.adapters.langgraph.trees import EXT
from holdfast.adapters.langgraph.values import from_plain, splits, to_plain
from holdfast.codec import msgpack
from holdfast.delta.hints import Extended
from holdfast.delta.load import value_of
from holdfast.delta.parts import Chunk, Kind, Series
from holdfast.errors import Damaged
from holdfast.stores.contract import Store

_REMEMBERED_MAX: Final = 64 << 20  # bytes, of all channels together
_MESSAGE_OVERHEAD: Final = 2_000  # bytes of a message's objects, in addition to its text
_TEMPLATES_MAX: Final = 50_000  # messages

Messages: TypeAlias = tuple[list[Any], Snapshots]
_Place: TypeAlias = tuple[int, int, int]  # thread, log, position of a cell, which never change


class Remembered:
    """The messages of a channel as they were loaded or stored, and the series with their bodies."""

    __slots__ = ("bodies", "objects", "snapshots")

    def __init__(self, bodies: Series, objects: list[Any], snapshots: Snapshots) -> None:
        self.bodies = bodies
        self.objects = objects
        self.snapshots = snapshots

    @property
    def footprint(self) -> int:
        """The approximate size in memory, in bytes."""
        return self.bodies.size + _MESSAGE_OVERHEAD * len(self.objects)

    def unchanged(self, messages: list[Any], *, by_version: bool) -> int:
        """The number of messages at the start of the list that are the same and unchanged.

        `by_version`: the channel's version did not change, so comparing the objects' identity is enough.
        """
        same = sum(1 for _ in takewhile(bool, map(is_, messages, self.objects)))
        return same if by_version else self.snapshots.unchanged(messages[:same])


class Grown:
    """A list of messages that starts with stored ones."""

    __slots__ = ("bodies", "ids", "keep", "known")

    def __init__(self, known: Remembered, keep: int, bodies: list[Any], ids: list[str | None]) -> None:
        self.known = known
        self.keep = keep
        self.bodies = bodies
        self.ids = ids


class Encoded:
    """A copy of a channel's value: later changes of the value do not affect what is stored."""

    __slots__ = ("_messages", "_plain")

    def __init__(self, plain: Any, messages: Messages | None = None) -> None:
        self._plain: Any | Grown = plain
        self._messages = messages

    def entries(self, channel: str, store: Store, base: Held | None) -> dict[str, Any]:
        """The entries to store, by key. `base` is the row whose parts may be referred to, or None."""
        grown = self._plain
        if not isinstance(grown, Grown):
            if self._messages is None:
                return {channel_key(channel): grown}
            return {channel_key(channel): grown, ids_key(channel): some(self._messages[1].ids)}
        ids: Any = some(grown.ids)
        if base is None or base.part(channel) is not grown.known.bodies:
            known = value_of(store, grown.known.bodies)[: grown.keep]
            return {channel_key(channel): known + grown.bodies, ids_key(channel): ids}
        part = base.ids(channel)
        if ids is not None and isinstance(part, Series) and part.length >= grown.keep:
            ids = Extended(part, grown.keep, ids[grown.keep :])
        return {channel_key(channel): Extended(grown.known.bodies, grown.keep, grown.bodies), ids_key(channel): ids}

    def remember(self, memory: Memory, track: str, channel: str, held: Held) -> None:
        """Update the cache after the value was stored in this row."""
        bodies = held.part(channel)
        if self._messages is not None and isinstance(bodies, Series) and held.ids(channel) is not None:
            memory.keep((track, channel), Remembered(bodies, *self._messages))
        else:
            # The cached messages are no longer those that are stored.
            memory.forget((track, channel))


class Memory:
    """A cache of the messages loaded and stored last, for each channel; least recently used first out. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: OrderedDict[tuple[str, str], tuple[Remembered, ...]] = OrderedDict()
        self._size = 0

    def keep(self, key: tuple[str, str], remembered: Remembered) -> None:
        with self._lock:
            old = self._pop(key)
            # Keep two: another caller may read a thread during a run.
            self._channels[key] = (remembered, *[each for each in old if each.bodies is not remembered.bodies][:1])
            self._size += sum(each.footprint for each in self._channels[key])
            while self._size > _REMEMBERED_MAX and len(self._channels) > 1:
                self._pop(next(iter(self._channels)))

    def forget(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._pop(key)

    def _pop(self, key: tuple[str, str]) -> tuple[Remembered, ...]:
        old = self._channels.pop(key, ())
        self._size -= sum(each.footprint for each in old)
        return old

    def of(self, key: tuple[str, str]) -> tuple[Remembered, ...]:
        with self._lock:
            if key in self._channels:
                self._channels.move_to_end(key)
            return self._channels.get(key, ())

    def renew(self) -> None:
        """Replace the lock after fork(): the thread that held it does not exist in the child."""
        self._lock = threading.Lock()


class Templates:
    """A cache of messages decoded by one serde, by the position of their cells, whose content never changes."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, int, int, int], list[Snapshot | None]] = {}
        self._cells: dict[_Place, Snapshot] = {}

    def of(self, serde: SerializerProtocol, thread: int, chunk: Chunk) -> list[Snapshot | None]:
        """The snapshots of the messages of a chunk; None for a message without one."""
        run = chunk.spans[0]
        key = (run.thread or thread, run.log, run.start, chunk.count) if len(chunk.spans) == 1 else None
        if key is not None and (known := self._chunks.get(key)) is not None:
            return known
        places = [(r.thread or thread, r.log, r.start + i) for r in chunk.spans for i in range(r.count)]
        found: list[Snapshot | None] = [self._cells.get(place) for place in places]
        missing = [at for at, snapshot in enumerate(found) if snapshot is None]
        if missing:
            bodies = msgpack.decode_items(chunk.buffers, chunk.count)
            for at, message in zip(missing, from_plain(serde, [bodies[at] for at in missing]), strict=True):
                found[at] = snapshot = taken(message) if isinstance(message, BaseMessage) else None
                if snapshot is not None:
                    self._cells[places[at]] = snapshot
        if len(self._cells) > _TEMPLATES_MAX:
            self._cells.clear()
            self._chunks.clear()
        if key is not None:
            self._chunks[key] = found
        return found


def encoded(
    serde: SerializerProtocol,
    memory: Memory,
    key: tuple[str, str],
    value: Any,
    cells: list[Any],
    *,
    by_version: bool,
) -> Encoded:
    """Encode the value of a channel. Bodies of messages outside a list of messages are appended to `cells`."""
    if type(value) is not list or not value or not splits(serde) or not are_messages(value):
        plain = to_plain(serde, value, key[1])
        # A list may grow and is compared item by item. The tasks to send are different each time.
        return Encoded(folded(plain, None if type(plain) is list and key[1] != TASKS else cells))
    known, keep = _best(memory.of(key), value, by_version=by_version)
    nodes = to_plain(serde, value[keep:], key[1]) if keep < len(value) else []
    bodies, ids = apart(nodes)
    snapshots: list[Snapshot | None] = [taken(message) for message in value[keep:]]
    if known is None:
        return Encoded(bodies, (list(value), Snapshots(snapshots, ids)))
    whole = known.snapshots.extended(keep, snapshots, ids)
    return Encoded(Grown(known, keep, bodies, whole.ids), (list(value), whole))


def _best(remembered: tuple[Remembered, ...], value: list[Any], *, by_version: bool) -> tuple[Remembered | None, int]:
    """The cached list with the longest common start, and the length of that."""
    best: tuple[Remembered | None, int] = (None, 0)
    for known in remembered:
        keep = known.unchanged(value, by_version=by_version)
        if keep > best[1]:
            best = known, keep
        if keep == len(known.objects):
            break
    return best


def decoded(
    serde: SerializerProtocol,
    store: Store,
    held: Held,
    channel: str,
    cells: list[Any],
    templates: Templates,
    *,
    remember: bool,
) -> tuple[Any, Remembered | None]:
    """Decode the value of a channel to new objects. Returns the value, and what to cache."""
    bodies, given = held.part(channel), held.ids(channel)
    if given is None or not isinstance(bodies, Series) or bodies.kind is not Kind.LIST or not splits(serde):
        return from_plain(serde, held.value(channel, cells), channel), None
    ids: Any = value_of(store, given)
    if ids is None:
        ids = [None] * bodies.length
    if type(ids) is not list or len(ids) != bodies.length:
        raise Damaged("a list of messages and the list of their ids have different lengths")
    messages: list[Any] = []
    snapshots: list[Snapshot | None] = []
    with collecting_later(bodies.length):
        for chunk in bodies.chunks:
            start = len(messages)
            found = templates.of(serde, held.number, chunk) if isinstance(chunk, Chunk) else [None]
            if None not in found:
                here = zip(found, ids[start : start + chunk.count], strict=True)
                messages += [each.copy(id) for each, id in here if each is not None]
                snapshots += found
                continue
            if isinstance(chunk, Chunk):
                plain = msgpack.decode_items(chunk.buffers, chunk.count)
            else:
                plain = [value_of(store, member) for member in chunk.parts]
            whole = {EXT: MESSAGES, BODIES: plain, IDS: some(ids[start : start + len(plain)])}
            messages += from_plain(serde, unfolded(whole, cells), channel)
            snapshots += [taken(each) if isinstance(each, BaseMessage) else None for each in messages[start:]]
    return messages, Remembered(bodies, list(messages), Snapshots(snapshots, ids)) if remember else None
