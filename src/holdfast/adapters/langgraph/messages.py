"""Lists of messages: each message is stored once, encoded once, and decoded once; the texts that are redacted.

A conversation grows with each step, and LangGraph passes all of its messages again. A message that is stored and did
not change is not encoded again. A message that was decoded once is copied the next time.
"""

from __future__ import annotations

import marshal
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import EXT_NUMPY_ARRAY
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage] - has no other name

from holdfast.adapters.langgraph.serde import DICT, EXT, PAYLOAD, TYPED, Packer, Values, may_be_marked
from holdfast.codec import msgpack
from holdfast.delta.load import value_of
from holdfast.delta.parts import Chunk, Series, join_spans
from holdfast.errors import Unsupported
from holdfast.redaction import Redaction
from holdfast.stores.contract import Store

_PYDANTIC: Final = 5
_OURS: Final = "langchain_core.messages."
_CACHE_BYTES: Final = 64 << 20  # of messages that are cached, about; their copies may take as much again
_MESSAGE_BYTES: Final = 1_000  # that a message takes in the cache without its texts, about
_GROUP: Final = 32  # messages whose copies are pickled together
_PLAIN: Final = frozenset((str, list, dict, type(None)))  # in a print that is a copy of the fields
_LONG: Final = 64  # characters of a text that copies share
_extra: Final = attrgetter("model_extra")
_NOT_COPIED: Final[list[Any]] = [None] * _GROUP

_HEAD: Final = msgpack.encode({EXT: _PYDANTIC, PAYLOAD: None})[:-1]
"""The first bytes of a stored message."""
_OURS_BYTES: Final = _OURS.encode()

Place: TypeAlias = tuple[int, int, int]
"""The place of a stored message: thread, log and position. Its content never changes."""
Print: TypeAlias = Any
"""The content of a message: two messages of a class with equal prints are stored alike.

If the fields are only strings, None, and empty lists and dicts, it is a copy of them, which is compared quickly.
Otherwise it is the encoding of the fields, in which 1 differs from 1.0.
"""


def print_of(message: BaseMessage) -> Print:
    """The print of a message. That of a message with anything other than plain data equals no other."""
    if message.model_extra:
        return object()
    fields: dict[str, Any] = {**message.__dict__}
    for key, value in fields.items():
        if value is not None and type(value) is not str:
            if type(value) not in (list, dict) or value:  # the type first: an array is neither true nor false
                break
            fields[key] = type(value)()  # that of the message may be filled
    else:
        return fields
    content = fields.pop("content", None)
    if type(content) is not str:
        fields["content"], content = content, None
    try:
        # A string does not change, and equals itself at once. Version 2 is exact: no references, types and order.
        return content, marshal.dumps(fields, 2)
    except ValueError:
        return object()


def is_copyable(messages: list[Any]) -> bool:
    """Whether values are messages with plain data only, so that a pickled copy is like the original."""
    return are_messages(messages) and all(type(print_of(message)) is not object for message in messages)


def are_messages(values: list[Any]) -> bool:
    """Whether all values are LangChain's own messages. Messages of other classes are ordinary objects."""
    for kind in set(map(type, values)):  # noqa: SIM110 - `all` takes a frame per class
        if not (issubclass(kind, BaseMessage) and kind.__module__.startswith(_OURS)):
            return False
    return True


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


class MessageList:
    """A list of messages to store: how many at its start are stored in `part`, and the others as plain data."""

    __slots__ = ("keep", "kinds", "part", "plain", "prints")

    def __init__(self, part: Series | None, keep: int, plain: list[Any], new: list[Any]) -> None:
        self.part = part
        self.keep = keep
        self.plain = plain
        self.kinds = [*map(type, new)]
        self.prints = [*map(print_of, new)]


class StoredValue:
    """A stored value as plain data. If it consists of messages, it is decoded once, and then only a copy is kept."""

    __slots__ = ("_copy", "plain")

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self._copy: bytes | None = None

    def load(self, values: Values, path: str) -> Any:
        """The value as a new object. After the first time, `values` must have LangGraph's own serde."""
        plain = self.plain  # before the copy: another thread may put that in its place
        if self._copy is not None:
            return pickle.loads(self._copy)  # noqa: S301 - this process pickled it
        found = values.from_plain(plain, path)
        inner: Any = found.value if isinstance(found, _DeltaSnapshot) else found
        messages = inner if type(inner) is list else [inner]
        if values.is_plain and is_copyable(messages):
            self._copy, self.plain = pickle.dumps(found, 5), None
        return found


class _PickledMessages(NamedTuple):
    """A pickled list of messages, without its long texts: copies share these, which takes half the time."""

    data: bytes
    texts: list[str]

    def load(self) -> list[Any]:
        found: list[Any] = _Unpickler(BytesIO(self.data), self.texts).load()
        return found


def _grouped(messages: list[Any]) -> _PickledMessages:
    buffer = BytesIO()
    pickler = _Pickler(buffer, 5)
    pickler.dump(messages)
    return _PickledMessages(buffer.getvalue(), pickler.texts)


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: BytesIO, protocol: int) -> None:
        super().__init__(buffer, protocol)
        self.texts: list[str] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not str or len(obj) < _LONG:
            return None
        self.texts.append(obj)
        return len(self.texts) - 1


class _Unpickler(pickle.Unpickler):
    """Loads what this process pickled."""

    def __init__(self, buffer: BytesIO, texts: list[str]) -> None:
        super().__init__(buffer)
        self._texts = texts

    def persistent_load(self, pid: int) -> str:
        return self._texts[pid]


class _StoredMessages:
    """Consecutive stored messages, from the first on: their classes, their prints, and copies of them.

    The content of a stored place never changes. Copies of full groups are pickled together, which is faster. A group
    is None if a message in it cannot be copied.
    """

    __slots__ = ("groups", "kinds", "prints", "tail")

    def __init__(self) -> None:
        self.kinds: list[type[Any]] = []
        self.prints: list[Print] = []
        self.groups: list[_PickledMessages | None] = []
        self.tail: list[bytes | None] = []

    def same(self, messages: list[Any], count: int) -> int:
        """How many messages at the start of a list are the same as the first `count` of these."""
        kinds, prints = self.kinds[:count], self.prints[:count]
        fields = [message.__dict__ for message in messages]
        try:
            # The types are checked, because an Enum equals the str that it replaced.
            if (
                kinds == [*map(type, messages)]
                and prints == fields
                and _PLAIN.issuperset(map(type, chain.from_iterable(map(dict.values, fields))))
                and not any(map(_extra, messages))
            ):
                return len(kinds)
        except Exception:  # noqa: BLE001, S110 - a field may be an object that cannot be compared, such as an array
            pass
        same = 0
        for message, kind, stored in zip(messages, kinds, prints, strict=False):
            if type(message) is not kind or stored != print_of(message):
                break
            same += 1
        return same

    def learn(self, start: int, kinds: list[type[Any]], prints: list[Print]) -> int:
        """Remember the classes and the prints of messages from `start` on. Returns the bytes of those not known.

        A message that is redacted has two prints: as it was given, and as it is stored. The last one seen is kept.
        """
        known = len(self.prints)
        if start > min(known, len(self.kinds)):
            return 0  # the messages before it are not known
        self.kinds[start : start + len(kinds)] = kinds
        self.prints[start : start + len(prints)] = prints
        added = 0
        for one in self.prints[known:]:
            added += _MESSAGE_BYTES
            for part in one.values() if type(one) is dict else one if type(one) is tuple else ():
                added += len(part or "")
        return added

    def pickled(self, count: int) -> tuple[list[_PickledMessages | None], list[bytes | None]]:
        """The pickles of the first messages, for `_copies`."""
        groups = self.groups[: -(-count // _GROUP)]
        return groups, self.tail[: max(0, count - len(groups) * _GROUP)]

    def add(self, messages: list[Any], prints: list[Print]) -> None:
        """Add decoded messages after the copies."""
        for start in range(0, len(messages), _GROUP):
            self._add(messages[start : start + _GROUP], prints[start : start + _GROUP])

    def _add(self, messages: list[Any], prints: list[Print]) -> None:
        if not self.tail and len(messages) == _GROUP:
            self.groups.append(_grouped(messages) if object not in map(type, prints) else None)
            return
        for message, one in zip(messages, prints, strict=True):
            self.tail.append(pickle.dumps(message, 5) if type(one) is not object else None)
            if len(self.tail) == _GROUP:
                full, self.tail = self.tail, []  # before the group: an interrupt or a fork() must not find both
                copies = [None if each is None else pickle.loads(each) for each in full]  # noqa: S301 - as below
                self.groups.append(None if None in full else _grouped(copies))


_UNKNOWN: Final = _StoredMessages()


def _copies(groups: list[_PickledMessages | None], tail: list[bytes | None], count: int) -> list[Any]:
    """Copies of `count` messages. None in the place of one that was not decoded before, or cannot be copied."""
    found: list[Any] = []
    for group in groups:
        found += _NOT_COPIED if group is None else group.load()
    found += [None if one is None else pickle.loads(one) for one in tail]  # noqa: S301 - this process pickled it
    del found[count:]
    return found + [None] * (count - len(found))


class MessageCache:
    """The prints and the copies of stored messages. Shared by all threads of a saver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Place, _StoredMessages] = {}
        self._bytes = 0

    def to_store(self, values: Values, messages: list[Any], thread: int, part: Series | None, path: str) -> MessageList:
        """Encode the messages that are not at the start of a stored list."""
        keep = 0 if part is None else self._kept(thread, part, messages)
        new = messages[keep:]
        return MessageList(part if keep else None, keep, values.to_plain(new, path) if new else [], new)

    def _kept(self, thread: int, part: Series, messages: list[Any]) -> int:
        """The number of messages at the start of a stored list that are the same in another one."""
        keep = 0
        for place, count in _spans(thread, part):
            same = self._known.get(place, _UNKNOWN).same(messages[keep : keep + count], count)
            keep += same
            if same < count:
                break
        return keep

    def found(self, thread: int, lists: Mapping[str, Series], messages: list[Any]) -> tuple[str, int]:
        """The key of the stored list that starts with the most of these messages, and how many."""
        kept = {key: self._kept(thread, part, messages) for key, part in lists.items()}
        key = max(kept, key=kept.__getitem__)
        return key, kept[key]

    def stored(self, thread: int, part: Series, messages: MessageList) -> None:
        """Remember the new messages of a list that was stored as `part`."""
        at, keep = 0, messages.keep
        with self._lock:
            for place, count in _spans(thread, part):
                if at + count > keep:
                    first, end = max(at, keep) - keep, at + count - keep
                    known = self._known_at(place)
                    self._bytes += known.learn(max(0, keep - at), messages.kinds[first:end], messages.prints[first:end])
                at += count

    def _known_at(self, place: Place) -> _StoredMessages:
        """The messages at a place, to add to. If the cache is full, it starts again without any."""
        if self._bytes > _CACHE_BYTES:
            self._known, self._bytes = {}, 0
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = _StoredMessages()
        return found

    def decode(self, values: Values, store: Store, thread: int, part: Series, path: str) -> list[Any]:
        """Decode a stored list to new messages. `values` must have LangGraph's own serde."""
        spans = _spans(thread, part)
        with self._lock:
            pickled = [self._known.get(place, _UNKNOWN).pickled(count) for place, count in spans]
        found: list[Any] = []
        for (_, count), (groups, tail) in zip(spans, pickled, strict=True):
            found += _copies(groups, tail, count)
        missing = [at for at, message in enumerate(found) if message is None]
        if missing:
            for at, message in zip(missing, self._decoded(values, store, part, missing, path), strict=True):
                found[at] = message
            self._copy(spans, found, missing[0])
        return found

    def _decoded(self, values: Values, store: Store, part: Series, places: Sequence[int], path: str) -> list[Any]:
        packer = Packer()
        data = [_message_bytes(cell, packer) for cell in _cells(store, part, places)]
        found: list[Any] = values.load(msgpack.array_header(len(data)) + b"".join(data), packer.names, path)
        return found

    def _copy(self, spans: list[tuple[Place, int]], messages: list[Any], first: int) -> None:
        """Remember messages that were decoded, from the first new one on."""
        at = 0
        for place, count in spans:
            if at + count > first:
                own = messages[at : at + count]
                with self._lock:
                    known = self._known_at(place)
                    copied = len(known.groups) * _GROUP + len(known.tail)
                    new = own[copied:]
                    prints = [*map(print_of, new)] if are_messages(new) else [object() for _ in new]
                    self._bytes += known.learn(copied, [*map(type, new)], prints)
                    known.add(new, prints)
            at += count

    def renew(self) -> None:
        """Replace the lock after fork(): the thread that held it does not exist in the child."""
        self._lock = threading.Lock()


def _spans(thread: int, part: Series) -> list[tuple[Place, int]]:
    """The places at which the messages of a list start, and the number of messages from there on."""
    spans = join_spans([span for chunk in part.chunks for span in chunk.spans])
    return [((span.thread or thread, span.log, span.start), span.count) for span in spans]


def _cells(store: Store, part: Series, places: Sequence[int]) -> Iterator[bytes | list[Any]]:
    """The stored bytes of some messages of a list, in order; for a large one, its value in a list."""
    wanted = iter(places)
    place = next(wanted, None)
    first = 0
    for chunk in part.chunks:
        end = first + chunk.count
        while place is not None and place < end:
            if isinstance(chunk, Chunk):
                start = sum(chunk.lengths[: place - first])
                yield chunk.plain[start : start + chunk.lengths[place - first]]
            else:
                yield [value_of(store, chunk.parts[0])]
            place = next(wanted, None)
        first = end


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
SENT: Final = ("langgraph.types", "Send")
"""The class of what is sent to a task."""
_OF_MESSAGES: Final = frozenset(("id", "type"))
_KEPT: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("langgraph.types", "Interrupt"): frozenset(("id",)),
    ("langgraph.types", "Command"): frozenset(("goto", "graph")),
}


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
    if name == SENT and type(fields) is list:
        return [*fields[:1], *(_value(redaction, value) for value in fields[1:])]
    return _value(redaction, fields)


def _pairs(redaction: Redaction, pairs: Any) -> Any:
    found = _value(redaction, pairs)
    keys = [pair[0] for pair in found if type(pair) is list and pair and type(pair[0]) is str]
    if len(set(keys)) < len(keys):
        raise Unsupported("$", "two keys of a dict are equal after redaction")
    return found
