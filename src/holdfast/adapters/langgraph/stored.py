"""A checkpoint to store, a stored one with the parts of its state, and the callers that read or stored one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions

from holdfast.adapters.langgraph.checkpoint_format import (
    CHECKPOINT,
    VALUES,
    Note,
    channel_of,
    is_nameable,
    key_of,
    unpacked,
)
from holdfast.adapters.langgraph.messages import MessageList
from holdfast.codec import msgpack
from holdfast.delta.base import Base
from holdfast.delta.hints import Extended, Kept
from holdfast.delta.load import value_of
from holdfast.delta.parts import Chunk, Kind, Large, Map, Part, Pieces, Series, Unit
from holdfast.errors import Conflict, Damaged
from holdfast.stores.contract import Position, Store, ThreadRow
from holdfast.threads import metadata as metas

_READERS_MAX: Final = 64  # callers that are remembered for each thread
_NOWHERE: Final = object()
id_of: Final = id  # an argument has the name `id`


Left: TypeAlias = list[Any]
"""Messages that were left out of a list: the path to it in the plain data, their key, their number and a checksum."""


class Unchanged:
    """A value that is the same as in the parent: the version of its channel is the same."""


UNCHANGED: Final = Unchanged()


class Put(msgspec.Struct, frozen=True):
    """A copy of a checkpoint to store: later changes of its values do not affect it."""

    id: str
    parent: str | None
    values: dict[str, Any]
    versions: ChannelVersions
    packed: dict[str, Any]
    metadata: dict[str, Any]
    absent: list[str]
    next: list[str]
    is_last: bool  # whether no node runs after it; False if that is not known


class Stored:
    """A checkpoint in the store, and the parts of its state."""

    __slots__ = ("_others", "_store", "_versions", "base", "lists", "note", "number", "parts", "row")

    def __init__(
        self, store: Store, number: int, note: Note, base: Base, versions: ChannelVersions | None = None
    ) -> None:
        """`versions` are those of the channels, if they are known."""
        self._store = store
        self.number = number
        self.note = note
        self.row = note.row
        self.base = base
        root = base.root
        if not isinstance(root, Map):
            raise self._misfit()
        self.parts: dict[str, Part] = dict(zip(root.keys, root.parts, strict=True))
        self.lists: dict[str, Series] = {}
        for key, part in self.parts.items():
            if isinstance(part, Series) and part.kind is Kind.LIST:
                self.lists[key] = part
        self._others: dict[str, Any] | None = None
        self._versions = versions

    @property
    def versions(self) -> ChannelVersions:
        """The versions of the channels."""
        if self._versions is None:
            plain = self.plain(CHECKPOINT)
            self._versions = {} if plain is None else unpacked(plain, "", {})["channel_versions"]
        return self._versions

    @property
    def created_at(self) -> int:
        """The time at which it was stored, in µs since 1970."""
        return metas.decode(self.row).created_at

    def plain(self, key: str) -> Any:
        """The value of a key, as plain data."""
        part = self.parts.get(key)
        return None if part is None else value_of(self._store, part)

    def value(self, channel: str) -> Any:
        """The value of a channel, as plain data."""
        key = key_of(channel)
        return self.plain(key) if key in self.parts else self.others.get(key)

    def has(self, channel: str) -> bool:
        return key_of(channel) in self.parts or key_of(channel) in self.others

    @property
    def channels(self) -> list[str]:
        """The channels with values, in the order in which they were stored."""
        keys = (*self.parts, *self.others)
        return [found for key in keys if (found := key if key[:1] != "$" else channel_of(key)) is not None]

    @property
    def others(self) -> dict[str, Any]:
        """The values that have no keys of their own."""
        if self._others is None:
            found = self.plain(VALUES) if VALUES in self.parts else {}
            if type(found) is not dict:
                raise self._misfit()
            self._others = found
        return self._others

    def checksum(self, key: str, count: int) -> int:
        """A checksum of the first messages of a list: another checkpoint may be stored under the same id meanwhile."""
        found = 0
        for chunk in self.lists[key].chunks:
            if count <= 0:
                break
            if isinstance(chunk, Chunk):
                data = chunk.plain if count >= chunk.count else memoryview(chunk.plain)[: sum(chunk.lengths[:count])]
                found = crc32(data, found)
            else:
                for data in _contents(chunk.parts):
                    found = crc32(data, found)
            count -= chunk.count
        return found

    def completed(self, plain: Any, left: Iterable[Left]) -> Any:
        """A value that was written to this checkpoint, with the messages that were left out of it.

        Damaged if the checkpoint does not have them.
        """
        for path, key, count, checksum in left:
            part = self.lists.get(key)
            if part is None or count > part.length or self.checksum(key, count) != checksum:
                raise Damaged(f"checkpoint {self.row.seq} does not have the messages that were sent to a task")
            node = plain
            for step in path:
                node = node[step]
            node[:0] = value_of(self._store, part)[:count]
        return plain

    def _misfit(self) -> Damaged:
        return Damaged(f"checkpoint {self.row.seq} does not have the form of a LangGraph checkpoint")


def _contents(parts: Iterable[Part]) -> Iterator[bytes]:
    """Bytes that differ if the content of the parts differs. They do not depend on where the parts are stored."""
    for part in parts:
        match part:
            case Unit():
                yield part.plain
            case Large():
                yield part.digest
            case Map():
                yield msgpack.encode(part.keys)
                yield from _contents(part.parts)
            case Series():
                for chunk in part.chunks:
                    yield from (chunk.plain,) if isinstance(chunk, Chunk) else _contents(chunk.parts)
            case Pieces():
                yield from part.bodies


class GraphHead(msgspec.Struct, frozen=True):
    """The position of a thread, the number of its checkpoints, and the latest one."""

    position: Position
    count: int
    note: Note


def state_of(store: Store, put: Put, parent: Stored | None, under: Stored | None) -> dict[str, Any]:
    """The state of a new row. Its values refer to the parts of `under`, whose row it follows, if possible."""
    if is_nameable(put.values):
        members = {key: _hint(store, key, value, parent, under) for key, value in put.values.items()}
        return {CHECKPOINT: put.packed, **members}
    plain = {key: _hint(store, key, value, parent, None) for key, value in put.values.items()}
    return {CHECKPOINT: put.packed, VALUES: plain}


def _hint(store: Store, key: str, value: Any, parent: Stored | None, under: Stored | None) -> Any:
    if value is UNCHANGED:
        channel = channel_of(key) or ""
        if parent is None or not parent.has(channel):
            raise Conflict("the checkpoint before this one was deleted meanwhile; nothing was stored")
        return Kept(parent.parts[key]) if parent is under and key in parent.parts else parent.value(channel)
    if not isinstance(value, MessageList):
        return value
    if value.part is None:
        return value.plain
    if under is not None and under.parts.get(key) is value.part:
        return Extended(value.part, value.keep, value.plain)
    return value_of(store, value.part)[: value.keep] + value.plain


def has_grown(known: GraphHead, thread: ThreadRow) -> bool:
    """Whether rows were only added to a thread, so that the caches are still right."""
    now, before = thread.position, known.position
    return now.thread == before.thread and thread.count - known.count == now.last - before.last


def same_versions(before: Stored | None, versions: ChannelVersions, new: ChannelVersions) -> set[str]:
    """The channels whose values are those of the parent, according to their versions."""
    if before is None or len(new) == len(versions):
        return set()
    old = before.versions
    return {
        channel
        for channel, version in versions.items()
        if channel not in new and channel in old and old[channel] == version and before.has(channel)
    }


class Overtaken(Exception):
    """A checkpoint does not follow the latest one. `GraphThread.racing` turns it into Conflict, without a retry."""


class LatestReaders:
    """The checkpoint that each caller read as the latest, or stored. No other caller may have continued from it.

    LangGraph passes one metadata object through a whole invocation or update, so its identity identifies the caller. A
    caller that passes no metadata may store two checkpoints with the same parent.
    """

    def __init__(self) -> None:
        self._at: OrderedDict[int, tuple[Any, str | None, bool]] = OrderedDict()
        self._own: OrderedDict[str, None] = OrderedDict()

    def note(self, config: RunnableConfig, id: str | None, *, is_stored: bool = False) -> None:
        caller = config.get("metadata")
        self._at.pop(id_of(caller), None)
        self._at[id_of(caller)] = (
            caller,
            id,
            is_stored,
        )  # the object is kept alive, because another one could get its id
        if len(self._at) > _READERS_MAX:
            self._at.popitem(last=False)

    def stored(self, config: RunnableConfig, id: str) -> None:
        self.note(config, id, is_stored=True)
        self._own[id] = None
        if len(self._own) > _READERS_MAX:
            self._own.popitem(last=False)

    def forget(self, config: RunnableConfig) -> None:
        """Forget a caller that stored a checkpoint which is not the latest; it may continue anywhere."""
        self._at.pop(id_of(config.get("metadata")), None)

    def is_overtaken(self, config: RunnableConfig, parent: str | None, latest: str | None) -> bool:
        """Whether a caller continues from `parent` as the latest checkpoint, and it is no longer the latest."""
        caller = config.get("metadata")
        _, at, is_stored = self._at.get(id_of(caller), (None, _NOWHERE, False))
        if parent == latest or at != parent:
            return False
        return caller is not None or not is_stored or latest not in self._own
