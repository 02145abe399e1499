"""The layout of a stored state: channels under their names, LangGraph's bookkeeping under names with `$`.

`messages` is the list of messages without their ids, which are under `$ids:messages`. All entries are at the top level,
so that they are read at once and shown by their names.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.adapters.langgraph.messages import BODIES, IDS, MESSAGES, unfolded
from holdfast.adapters.langgraph.notes import Note
from holdfast.adapters.langgraph.trees import EXT
from holdfast.delta.base import Base
from holdfast.delta.load import value_of
from holdfast.delta.parts import Map, Part, Series, is_map
from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Store

CHECKPOINT: Final = "$checkpoint"
WRITES: Final = "$writes"
CELLS: Final = "$cells"
EARLY: Final = "$early"
HISTORY: Final = "$history"
VALUES: Final = "$values"
_IDS_OF: Final = "$ids:"
_MARK: Final = "$"

_NAMEABLE: Final = 56  # entries; together with the bookkeeping they still fit a map of separate parts


def channel_key(channel: str) -> str:
    """The key of a channel's value."""
    return _MARK + channel if channel.startswith(_MARK) else channel


def ids_key(channel: str) -> str:
    """The key of the ids of a channel that is a list of messages."""
    return _IDS_OF + channel


WRITE_LISTS: Final = (WRITES, EARLY)
"""The keys of lists of writes. In each write the value is last."""


def is_bookkeeping(key: str) -> bool:
    """Whether the value of a key is never redacted: LangGraph needs it unchanged, or it was redacted before."""
    return key in (CHECKPOINT, HISTORY) or key.startswith(_IDS_OF)


def laid_out(entries: dict[str, Any]) -> dict[str, Any]:
    """The stored form of all entries. If they are too many or have unusual keys, they go under one key."""
    return entries if is_nameable(entries) else {VALUES: entries}


def is_nameable(entries: dict[str, Any]) -> bool:
    """Whether each entry can be a separate part."""
    return len(entries) <= _NAMEABLE and is_map({_MARK: None, **entries})


class Held:
    """A row and the parts of its state."""

    __slots__ = ("_others", "_store", "base", "note", "number", "parts", "row")

    def __init__(self, store: Store, number: int, row: CheckpointRow, note: Note, base: Base) -> None:
        self._store = store
        self.number = number
        self.row = row
        self.note = note
        self.base = base
        root = base.root
        if not isinstance(root, Map):
            raise Damaged(f"checkpoint {row.seq} does not have the form of a LangGraph checkpoint")
        self.parts: dict[str, Part] = dict(zip(root.keys, root.parts, strict=True))
        self._others: dict[str, Any] | None = None

    def plain(self, key: str, default: Any = None) -> Any:
        """The value of a key of the state, as plain data."""
        part = self.parts.get(key)
        return default if part is None else value_of(self._store, part)

    def plain_list(self, key: str) -> list[Any]:
        found = self.plain(key, [])
        if type(found) is not list:
            raise self._misfit()
        return found

    @property
    def channels(self) -> list[str]:
        """The channels that have a value."""
        keys = [*self.parts, *self._apart]
        return [key.removeprefix(_MARK) for key in keys if not key.startswith(_MARK) or key.startswith(_MARK * 2)]

    def has(self, channel: str) -> bool:
        key = channel_key(channel)
        return key in self.parts or key in self._apart

    def part(self, channel: str) -> Part | None:
        """The part of a channel's value, if it is a separate part."""
        return self.parts.get(channel_key(channel))

    def ids(self, channel: str) -> Part | None:
        """The part of the ids, if the channel is a list of messages."""
        return self.parts.get(ids_key(channel))

    def value(self, channel: str, cells: list[Any]) -> Any:
        """The value of a channel, in the form that the serde wrote."""
        key, ids = channel_key(channel), ids_key(channel)
        if key in self.parts:
            plain = self.plain(key)
            return unfolded(self._messages(plain, self.plain(ids)) if ids in self.parts else plain, cells)
        apart = self._apart
        return unfolded(self._messages(apart[key], apart[ids]) if ids in apart else apart[key], cells)

    def _messages(self, bodies: Any, ids: Any) -> dict[str, Any]:
        return {EXT: MESSAGES, BODIES: bodies, IDS: ids}

    def longest(self) -> Part | None:
        """The longest list of messages: new messages will most likely be added to it."""
        lists = [self.part(channel) for channel in self.channels if ids_key(channel) in self.parts]
        return max((part for part in lists if isinstance(part, Series)), key=lambda part: part.size, default=None)

    @property
    def _apart(self) -> dict[str, Any]:
        """The entries that are stored together under one key."""
        if self._others is None:
            found = self.plain(VALUES, {})
            if type(found) is not dict:
                raise self._misfit()
            self._others = found
        return self._others

    def _misfit(self) -> Damaged:
        return Damaged(f"checkpoint {self.row.seq} does not have the form of a LangGraph checkpoint")
