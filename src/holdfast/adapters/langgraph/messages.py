"""Lists of messages: each message is stored once, encoded once, and decoded once; the texts that are redacted.

A conversation grows with each step, and LangGraph passes all of its messages again. A message that is stored and did
not change is not encoded again. A message that was decoded once is copied the next time.
"""

from __future__ import annotations

import marshal
import pickle
import threading
from itertools import repeat
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import EXT_NUMPY_ARRAY

from holdfast.adapters.langgraph.serde import DICT, EXT, PAYLOAD, TYPED, Packer, Values, may_be_marked
from holdfast.codec import msgpack
from holdfast.delta.load import value_of
from holdfast.delta.parts import Chunk, Series
from holdfast.errors import Unsupported
from holdfast.redaction import Redaction
from holdfast.stores.contract import Store

_PYDANTIC: Final = 5
_OURS: Final = "langchain_core.messages."
_CELLS_MAX: Final = 100_000  # messages that are cached

_HEAD: Final = msgpack.encode({EXT: _PYDANTIC, PAYLOAD: None})[:-1]
"""The first bytes of a stored message."""
_OURS_BYTES: Final = _OURS.encode()

Place: TypeAlias = tuple[int, int, int]
"""The place of a stored message: thread, log and position, whose content never changes."""
Print: TypeAlias = Any
"""The content of a message: two messages with equal prints are stored alike."""


def print_of(message: BaseMessage) -> Print:
    """The print of a message. That of a message with anything other than plain data equals no other."""
    if message.model_extra:
        return object()
    fields: Any = {**message.__dict__}
    content = fields.pop("content", None)
    if type(content) is not str:
        fields["content"], content = content, None
    try:
        # A string does not change, and equals itself at once. Version 2 is exact: no references, types and order.
        return type(message), content, marshal.dumps(fields, 2)
    except ValueError:
        return object()


def are_messages(values: list[Any]) -> bool:
    """Whether all values are LangChain's own messages. Messages of other classes are ordinary objects."""
    return all(issubclass(kind, BaseMessage) and kind.__module__.startswith(_OURS) for kind in set(map(type, values)))


def is_message(node: Any) -> bool:
    """Whether plain data represents one of LangChain's own messages."""
    if type(node) is not dict or node.get(EXT) != _PYDANTIC:
        return False
    payload = node.get(PAYLOAD)
    return (
        type(payload) is list
        and len(payload) > 2
        and type(payload[0]) is str
        and payload[0].startswith(_OURS)
        and type(payload[2]) is dict
    )


class Conversation:
    """A list of messages to store: how many at its start are stored in `part`, and the others as plain data."""

    __slots__ = ("keep", "part", "plain", "prints")

    def __init__(self, part: Series | None, keep: int, plain: list[Any], prints: list[Print]) -> None:
        self.part = part
        self.keep = keep
        self.plain = plain
        self.prints = prints


class MessageCache:
    """The prints and the copies of stored messages, by their places. Shared by all threads of a saver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prints: dict[Place, Print] = {}
        self._copies: dict[Place, bytes] = {}
        self._lists: WeakKeyDictionary[Series, list[Print]] = WeakKeyDictionary()

    def conversation(
        self, values: Values, messages: list[Any], thread: int, part: Series | None, path: str
    ) -> Conversation:
        """Encode the messages that are not at the start of a stored list."""
        prints = [*map(print_of, messages)]
        keep = 0 if part is None else self._kept(thread, part, prints)
        plain = values.to_plain(messages[keep:], path) if keep < len(messages) else []
        return Conversation(part if keep else None, keep, plain, prints)

    def _kept(self, thread: int, part: Series, prints: list[Print]) -> int:
        """The number of messages at the start of a stored list that have these prints."""
        whole = self._lists.get(part)
        if whole is not None and prints[: len(whole)] == whole:
            return len(whole)
        keep = 0
        for place, new in zip(_places(thread, part), prints, strict=False):
            if self._prints.get(place) != new:
                break
            keep += 1
        return keep

    def stored(self, thread: int, part: Series, conversation: Conversation) -> None:
        """Remember the messages of a list that was stored as `part`."""
        self._lists[part] = conversation.prints
        new = _places(thread, part, conversation.keep)
        self._remember(dict(zip(new, conversation.prints[conversation.keep :], strict=False)), {})

    def decode(self, values: Values, store: Store, thread: int, part: Series, path: str) -> list[Any]:
        """Decode a stored list to new messages."""
        places = _places(thread, part)
        copies: list[bytes | None] = [*map(self._copies.get, places)] if values.is_plain else [None] * len(places)
        if part not in self._lists and None not in (known := [*map(self._prints.get, places)]):
            self._lists[part] = known
        complete = [copy for copy in copies if copy is not None]
        if len(complete) == len(copies):
            return [*map(pickle.loads, complete)]
        missing = [at for at, copy in enumerate(copies) if copy is None]
        cells = _cells(store, part)
        packer = Packer()
        data = [_message_bytes(cells[at], packer) for at in missing]
        decoded = values.load(msgpack.array_header(len(data)) + b"".join(data), packer.names, path)
        found: list[Any] = [None if copy is None else pickle.loads(copy) for copy in copies]  # noqa: S301
        new: dict[Place, bytes] = {}
        prints: dict[Place, Print] = {}
        for at, message in zip(missing, decoded, strict=True):
            found[at] = message
            if values.is_plain and are_messages([message]) and type(made := print_of(message)) is tuple:
                new[places[at]] = pickle.dumps(message, 5)
                prints[places[at]] = made
        self._remember(prints, new)
        return found

    def _remember(self, prints: dict[Place, Print], copies: dict[Place, bytes]) -> None:
        with self._lock:
            if len(self._prints) > _CELLS_MAX:
                self._prints, self._copies = {}, {}
            self._prints |= prints
            self._copies |= copies

    def renew(self) -> None:
        """Replace the lock after fork(): the thread that held it does not exist in the child."""
        self._lock = threading.Lock()


def _places(thread: int, part: Series, start: int = 0) -> list[Place]:
    """The places of the messages of a list, from `start` on."""
    places: list[Place] = []
    for chunk in part.chunks:
        if chunk.count <= start:
            start -= chunk.count
            continue
        for span in chunk.spans:
            skipped = min(start, span.count)
            start -= skipped
            owner, log, first, end = span.thread or thread, span.log, span.start + skipped, span.start + span.count
            places += zip(repeat(owner), repeat(log), range(first, end), strict=False)
    return places


def _cells(store: Store, part: Series) -> list[bytes | list[Any]]:
    """The stored bytes of each message of a list; for a large one, its value in a list."""
    cells: list[bytes | list[Any]] = []
    for chunk in part.chunks:
        if isinstance(chunk, Chunk):
            data, at = chunk.plain, 0
            for length in chunk.lengths:
                cells.append(data[at : at + length])
                at += length
        else:
            cells += [[value_of(store, member)] for member in chunk.parts]
    return cells


def _message_bytes(cell: bytes | list[Any], packer: Packer) -> bytes:
    """The bytes from which the serde builds a stored message. They are mostly those that are stored."""
    if type(cell) is bytes:
        if cell.startswith(_HEAD) and cell.find(_OURS_BYTES, 0, 64) > 0:
            body = cell[len(_HEAD) :]
            if not may_be_marked(body):
                return msgpack.extension(_PYDANTIC, body)
        return packer.pack(msgpack.decode(cell))
    return packer.pack(cell[0])


_WHOLE: Final = frozenset((TYPED, EXT_NUMPY_ARRAY))
# Objects that are stored as strings but are not text.
_NO_TEXTS: Final = frozenset(("datetime", "decimal", "ipaddress", "re", "uuid", "zoneinfo"))
_OF_MESSAGES: Final = frozenset(("id", "type"))
_KEPT: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("langgraph.types", "Interrupt"): frozenset(("id",)),
    ("langgraph.types", "Command"): frozenset(("goto", "graph")),
}
_SENT: Final = ("langgraph.types", "Send")


def redacted(redaction: Redaction, plain: Any) -> Any:
    """Redact the strings in plain data. Unsupported as for `Redaction.value`."""
    # Usually nothing changes, and then the exceptions below do not matter.
    return plain if redaction.value(plain) is plain else _value(redaction, plain)


def _value(redaction: Redaction, plain: Any) -> Any:
    kind = type(plain)
    if kind is list:
        return [_value(redaction, item) for item in plain]
    if kind is not dict:
        return redaction.value(plain)
    if EXT in plain:
        return _object(redaction, plain)
    keys = redaction.value(dict.fromkeys(plain))
    return dict(zip(keys, (_value(redaction, member) for member in plain.values()), strict=True))


def _object(redaction: Redaction, node: dict[str, Any]) -> dict[str, Any]:
    mark, payload = node[EXT], node.get(PAYLOAD)
    if mark in _WHOLE:
        return node
    if mark == DICT:
        return {**node, PAYLOAD: _pairs(redaction, payload)}
    if type(payload) is list and len(payload) > 2 and type(payload[0]) is str and type(payload[1]) is str:
        module, name, fields, *more = payload
        kept = _OF_MESSAGES if is_message(node) else _KEPT.get((module, name), frozenset())
        return {**node, PAYLOAD: [module, name, _fields(redaction, (module, name), fields, kept), *more]}
    return {**node, PAYLOAD: _value(redaction, payload)}


def _fields(redaction: Redaction, name: tuple[str, str], fields: Any, kept: frozenset[str]) -> Any:
    if name[0] in _NO_TEXTS:
        return fields
    if type(fields) is dict and EXT not in fields:
        return {key: value if key in kept else _value(redaction, value) for key, value in fields.items()}
    if name == _SENT and type(fields) is list:
        return [*fields[:1], *(_value(redaction, value) for value in fields[1:])]
    return _value(redaction, fields)


def _pairs(redaction: Redaction, pairs: Any) -> Any:
    found = _value(redaction, pairs)
    keys = [pair[0] for pair in found if type(pair) is list and pair and type(pair[0]) is str]
    if len(set(keys)) < len(keys):
        raise Unsupported("$", "two keys of a dict are equal after redaction")
    return found
