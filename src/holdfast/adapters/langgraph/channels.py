"""Values of channels ⇄ parts of a state: what is new is encoded, what was handed out before is copied.

The list of messages is what grows. LangGraph hands the same message objects back at each step, so those that were
handed out or stored before, and are what they were (`snapshots`), are named and not looked at again; and a message that
was decoded once is copied from then on.
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
_MESSAGE_OVERHEAD: Final = 2_000  # of the objects of a message, beside its text
_TEMPLATES_MAX: Final = 50_000  # messages

Messages: TypeAlias = tuple[list[Any], Snapshots]
_Place: TypeAlias = tuple[int, int, int]  # thread, log, position: where a cell is, and always will be


class Remembered:
    """The messages of a channel as they were handed out or stored, and the series that holds their bodies."""

    __slots__ = ("bodies", "objects", "snapshots")

    def __init__(self, bodies: Series, objects: list[Any], snapshots: Snapshots) -> None:
        self.bodies = bodies
        self.objects = objects
        self.snapshots = snapshots

    @property
    def footprint(self) -> int:
        """About how much memory it takes."""
        return self.bodies.size + _MESSAGE_OVERHEAD * len(self.objects)

    def unchanged(self, messages: list[Any], *, by_version: bool) -> int:
        """How many messages at the front are those, and are what they were.

        `by_version`: LangGraph says that the channel did not change, so that the same objects are enough.
        """
        same = sum(1 for _ in takewhile(bool, map(is_, messages, self.objects)))
        return same if by_version else self.snapshots.unchanged(messages[:same])


class Grown:
    """A list of messages that begins with what is stored already."""

    __slots__ = ("bodies", "ids", "keep", "known")

    def __init__(self, known: Remembered, keep: int, bodies: list[Any], ids: list[str | None]) -> None:
        self.known = known
        self.keep = keep
        self.bodies = bodies
        self.ids = ids


class Encoded:
    """The value of a channel, taken at one moment: nothing that happens to it later changes what is stored."""

    __slots__ = ("_messages", "_plain")

    def __init__(self, plain: Any, messages: Messages | None = None) -> None:
        self._plain: Any | Grown = plain
        self._messages = messages

    def entries(self, channel: str, store: Store, base: Held | None) -> dict[str, Any]:
        """What to store of it, by key; `base` is what is built on, None if nothing of it may be named."""
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
        """Once it is stored, in this row."""
        bodies = held.part(channel)
        if self._messages is not None and isinstance(bodies, Series) and held.ids(channel) is not None:
            memory.keep((track, channel), Remembered(bodies, *self._messages))
        else:
            # What was remembered is not what is stored now: the same objects must not be taken for it.
            memory.forget((track, channel))


class Memory:
    """What was handed out and stored last, of each channel; the least recently used goes. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: OrderedDict[tuple[str, str], tuple[Remembered, ...]] = OrderedDict()
        self._size = 0

    def keep(self, key: tuple[str, str], remembered: Remembered) -> None:
        with self._lock:
            old = self._pop(key)
            # Two: somebody may look at a thread while it is being run.
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
        """After fork(), in the child: whoever held the lock is not here to release it."""
        self._lock = threading.Lock()


class Templates:
    """Messages that one serde decoded, by the place of their cells: what is stored there never changes."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, int, int, int], list[Snapshot | None]] = {}
        self._cells: dict[_Place, Snapshot] = {}

    def of(self, serde: SerializerProtocol, thread: int, chunk: Chunk) -> list[Snapshot | None]:
        """A snapshot of each message of a chunk; None for those that have none."""
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
    """The value of a channel as it is now. Bodies of messages that are not in a list of their own go to `cells`."""
    if type(value) is not list or not value or not splits(serde) or not are_messages(value):
        plain = to_plain(serde, value, key[1])
        # A list may grow, and be compared item by item; what is sent to tasks is another each time.
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
    """What is remembered that the value begins with, and how much of it."""
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
    """The value of a channel, new to the last message, and what to remember of it."""
    bodies, given = held.part(channel), held.ids(channel)
    if given is None or not isinstance(bodies, Series) or bodies.kind is not Kind.LIST or not splits(serde):
        return from_plain(serde, held.value(channel, cells), channel), None
    ids: Any = value_of(store, given)
    if ids is None:
        ids = [None] * bodies.length
    if type(ids) is not list or len(ids) != bodies.length:
        raise Damaged("a list of messages and that of their ids do not fit together")
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
