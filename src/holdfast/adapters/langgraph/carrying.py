"""Import checkpoints of another saver into a track, and compare them with stored ones.

They are handled as plain data; no object is loaded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.adapters.langgraph import writing
from holdfast.adapters.langgraph.channels import Encoded
from holdfast.adapters.langgraph.core import Core
from holdfast.adapters.langgraph.layout import CELLS, CHECKPOINT, EARLY, WRITES, Held, channel_key, ids_key
from holdfast.adapters.langgraph.messages import apart, folded, is_message, some, unfolded
from holdfast.adapters.langgraph.notes import metadata_of, packed_plain, redacted_metadata
from holdfast.adapters.langgraph.redacting import redacted
from holdfast.adapters.langgraph.track import Track
from holdfast.adapters.langgraph.writing import Carried, Put, Writes
from holdfast.adapters.langgraph.written import VALUE, Write
from holdfast.codec import msgpack
from holdfast.redaction import Redaction
from holdfast.stores.contract import Store


class Foreign(msgspec.Struct, frozen=True):
    """A checkpoint of another saver. `carry` modifies it; read it again to compare it."""

    id: str
    parent: str | None
    checkpoint: dict[str, Any]
    """Its members, except the id and the values."""
    values: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[Write]
    created_at: int | None
    """In µs."""


class _Value(Encoded):
    """The value of a channel, as plain data. There are no objects to cache."""

    __slots__ = ("_ids",)

    def __init__(self, plain: Any, cells: list[Any]) -> None:
        self._ids: list[str | None] | None = None
        if type(plain) is list and plain and all(map(is_message, plain)):
            bodies, self._ids = apart(plain)
            super().__init__(bodies)
        else:
            super().__init__(folded(plain, None if type(plain) is list else cells))

    def entries(self, channel: str, store: Store, base: Held | None) -> dict[str, Any]:
        ids = {} if self._ids is None else {ids_key(channel): some(self._ids)}
        return {channel_key(channel): self._plain, **ids}


def carry(track: Track, foreign: Foreign) -> None:
    """Store a new checkpoint with its writes, in one commit."""
    cells: list[Any] = []
    given = Put(
        id=foreign.id,
        parent=foreign.parent,
        values={channel: _Value(plain, cells) for channel, plain in foreign.values.items()},
        cells=cells,
        checkpoint=packed_plain(foreign.checkpoint),
        metadata=foreign.metadata,  # type: ignore[arg-type]  # as the database has it
        refill=frozenset(),
        seen={},
        carried=Carried(_folded(foreign.writes, cells), foreign.created_at),
    )
    writing.carry(track, given)


def carry_writes(core: Core, track: Track, id: str, writes: list[Write]) -> None:
    """Store writes of a checkpoint that is stored without them, or not stored yet."""
    cells: list[Any] = []
    writing.put_writes(core, track, Writes(id, _folded(writes, cells), cells))


def _folded(writes: list[Write], cells: list[Any]) -> list[Write]:
    return [[*write[:VALUE], folded(write[VALUE], cells)] for write in writes]


def differences(held: Held, foreign: Foreign, redaction: Redaction) -> list[str]:
    """The names of the stored parts of a checkpoint that differ from the source, except its writes."""
    cells = held.plain_list(CELLS)
    found = []
    if held.note.parent != foreign.parent:
        found.append("its parent")
    if not _same(held.plain(CHECKPOINT), packed_plain(foreign.checkpoint)):
        found.append("its versions")
    if not _same(dict(metadata_of(held.row)), redacted_metadata(redaction, foreign.metadata)):
        found.append("its metadata")
    channels = set(held.channels)
    for channel in sorted(channels | foreign.values.keys()):
        both = channel in foreign.values and channel in channels
        if not both or not _same(held.value(channel, cells), redacted(redaction, foreign.values[channel])):
            found.append(f"channel {channel}")
    return found


def stored_writes(held: Held) -> list[Write]:
    """The writes of a stored checkpoint, in the form of the source."""
    cells = held.plain_list(CELLS)
    return [[*write[:VALUE], unfolded(write[VALUE], cells)] for write in held.plain_list(WRITES)]


def early_writes(held: Held) -> dict[str, list[Write]]:
    """The early writes in a row, by the id of their checkpoint."""
    cells = held.plain_list(CELLS)
    found: dict[str, list[Write]] = {}
    for owner, *write in held.plain_list(EARLY):
        found.setdefault(owner, []).append([*write[:VALUE], unfolded(write[VALUE], cells)])
    return found


def unlike(stored: list[Write], given: list[Write], redaction: Redaction) -> list[Write]:
    """Those of the given writes that are not stored, or differ."""
    known = {(write[0], write[2]): write for write in stored}
    return [
        write
        for write in given
        if not _same(known.get((write[0], write[2])), [*write[:VALUE], redacted(redaction, write[VALUE])])
    ]


def _same(one: Any, other: Any) -> bool:
    """Whether two trees are equal, including types and the order of keys."""
    return msgpack.encode(one) == msgpack.encode(other)
