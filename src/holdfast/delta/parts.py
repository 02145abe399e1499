"""Parts: a stored state as a tree that a handle keeps in memory, holding each stored byte once.

A part is compared with the current value at its place to find what changed. The skeleton of its parent names it by
`embed` (bytes), `spans` and `blob_digests` (what those bytes refer to, in order). Parts never change once a save is
acknowledged, so the tree of the next save shares every part that stayed the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from holdfast.codec import msgpack
from holdfast.stores.contract import Refs, Span

# Sizes in encoded bytes.
INLINE_MAX = 96  # a value up to this size is written into the skeleton of its parent; a reference costs about 20
UNIT_MAX = 2_048  # a dict or list up to this size is one cell; the members of a larger one are parts
SPLIT_MIN = 4_096  # a list item above this size is split if it holds a long list, a large dict or a large string …
SPLIT_ALWAYS = 65_536  # … and in any case above this size
LARGE_MIN = 16_384  # a string of this size or more is a blob, stored once per namespace

MAP_MAX = 64  # a dict with more entries is stored like a list of entries …
MAP_AGAIN = 32  # … and stays one down to this size: it would be rewritten each time it crosses a single limit
CHUNK_ITEMS = 32  # list items compared at once
SMALL_ITEM = 32  # a list whose items are smaller on average is stored in pieces of several items …
SMALL_AGAIN = 64  # … and stays so up to this size: it would be rewritten each time it crosses a single limit
ITEMS_PIECE = 256  # a piece of short items has at least this size, except the last one, which may grow …
TEXT_PIECE = 1_024  # … and so has a piece of a text
STRUCTURE_DEPTH = 40  # values nested deeper are not split: it bounds the recursion


class LogKind(IntEnum):
    """The low four bits of a log's number. The rest is the seq of the save that opened the log.

    Each branch opens logs of its own, so a save after a rewind or a fork need not know what the abandoned branch
    appended. Long lists have logs of their own while there are any left: two lists that grow in turns in the same log
    would get a span per save.
    """

    NODE = 0  # node and table cells: bodies that refer to other cells
    UNIT = 1
    ITEMS = 2  # … to LAST: plain items of series
    LAST = 15


def log_number(opened_by: int, kind: int) -> int:
    return opened_by << 4 | kind


def log_kind(log: int) -> int:
    return log & 15


def log_opened_by(log: int) -> int:
    return log >> 4


class Kind(IntEnum):
    """The type of a series, and what one of its cells holds."""

    LIST = 0  # an item
    TUPLE = 1  # an item
    DICT = 2  # a key and a value
    SHORT_LIST = 3  # several items, as a list
    SHORT_TUPLE = 4  # several items, as a list
    TEXT = 5  # a piece of a str
    BINARY = 6  # a piece of bytes


class Ext(IntEnum):
    """Codes in a skeleton for what is stored elsewhere. Each takes the next spans or blob digests of the refs."""

    UNIT = 64  # one span of one plain cell
    MAP = 65  # one span of one node cell: a dict whose members are parts
    SERIES = 66  # spans of item cells or pieces, or of table cells; payload: SeriesShape
    TEXT = 67  # one blob: a str
    BINARY = 68  # one blob: bytes
    PACKED = 69  # one blob: any other value, encoded


_UNIT_EMBED = msgpack.extension(Ext.UNIT, b"\0")
_MAP_EMBED = msgpack.extension(Ext.MAP, b"\0")

_LEVELS_MAX = 16  # levels of tables: each has at most an eighth of the spans of the level below


class SeriesShape(msgspec.Struct, frozen=True, array_like=True):
    """The payload of Ext.SERIES: `level` levels of tables lie between the `spans` spans and the `length` cells."""

    kind: int
    level: Annotated[int, msgspec.Meta(ge=0, le=_LEVELS_MAX)]
    spans: int
    length: int


Key: TypeAlias = int | bytes  # of a cell in an index: an int for plain cells, bytes for node cells


def key_of(cell: bytes) -> int:
    """The key of a plain cell. Others may have the same key, so the bytes of the cell that is found are compared.

    Every save computes keys, and a digest without collisions takes several times as long. Python's hash has a secret of
    the process, so that no text from outside can be made to collide, as with a checksum. It is never stored.
    """
    return hash(cell)


_encode = msgspec.msgpack.Encoder().encode
_SURROGATES = re.compile("[\ud800-\udfff]")
_STR = frozenset((str,))


def node_digest(body: bytes, refs: Refs) -> bytes:
    """The key of a node cell: half a SHA-256. No collision can be made, so equal keys mean equal cells.

    Its references count as much as its bytes.
    """
    return hashlib.sha256(_encode(refs) + body).digest()[:16]


def cell_of(span: Span, at: int) -> Span:
    """One cell of a span."""
    return Span(span.thread, span.log, span.start + at, 1, span.first, span.last)


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Spans in the same order, with neighbours that continue each other joined."""
    joined: list[Span] = []
    is_longer = False  # whether more spans continue the last one of `joined`
    thread = log = begin = first = last = 0
    end = -1
    for span in spans:
        start = span.start
        # One span is made for all neighbours, not one for each: every save joins the spans of long lists.
        if start == end and span.log == log and span.thread == thread:
            first = min(first, span.first)
            last = max(last, span.last)
            end += span.count
            is_longer = True
            continue
        if is_longer:
            joined[-1] = Span(thread, log, begin, end - begin, first, last)
            is_longer = False
        joined.append(span)
        thread, log, begin, first, last = span.thread, span.log, start, span.first, span.last
        end = start + span.count
    if is_longer:
        joined[-1] = Span(thread, log, begin, end - begin, first, last)
    return joined


Buffer: TypeAlias = bytes | memoryview
Tables: TypeAlias = dict[bytes, list[Span]]  # the table cells of a series by digest


class Unit:
    """A value compared and stored as a whole: in a cell, or in the skeleton of its parent if it has no span."""

    __slots__ = ("__weakref__", "embed", "plain", "size", "spans")

    blob_digests: tuple[bytes, ...] = ()
    items = 1

    def __init__(self, plain: bytes, span: Span | None) -> None:
        self.plain = plain
        self.size = len(plain)
        self.embed = plain if span is None else _UNIT_EMBED
        self.spans: tuple[Span, ...] = () if span is None else (span,)

    def locate(self, key: Key, cell: bytes) -> Span | None:
        return self.spans[0] if self.spans and self.plain == cell else None


class Large:
    """A blob, named by its digest. `value` is the object last seen at its place, or None.

    str and bytes cannot change, so the same object is the same value: then nothing is encoded or hashed.
    """

    __slots__ = ("__weakref__", "blob_digests", "embed", "ext", "size", "value")

    spans: tuple[Span, ...] = ()
    items = 1

    def __init__(self, ext: Ext, digest: bytes, size: int, value: str | bytes | None) -> None:
        self.ext = ext
        self.size = size
        self.value = value
        self.blob_digests = (digest,)
        self.embed = msgpack.extension(ext, _encode(size))

    @property
    def digest(self) -> bytes:
        return self.blob_digests[0]


class Map:
    """A dict with string keys whose members are parts. `span` is its node cell; the root of a state has none."""

    __slots__ = (
        "__weakref__",
        "_encoded_keys",
        "body",
        "embed",
        "items",
        "keys",
        "parts",
        "refs",
        "size",
        "span",
        "spans",
    )

    embed: bytes
    size: int
    items: int
    blob_digests: tuple[bytes, ...] = ()

    def __init__(self, keys: list[str], parts: list[Part], encoded_keys: list[bytes] | None = None) -> None:
        self.keys = keys
        self.parts = parts
        self._encoded_keys = list(map(msgpack.encode, keys)) if encoded_keys is None else encoded_keys
        pieces = [msgpack.map_header(len(keys))]
        size = len(pieces[0])
        items = 0
        spans: list[Span] = []
        blob_digests: list[bytes] = []
        for key, part in zip(self._encoded_keys, parts, strict=True):
            pieces += (key, part.embed)
            size += len(key) + part.size
            items += part.items
            spans += part.spans
            blob_digests += part.blob_digests
        self.body = b"".join(pieces)
        self.refs = Refs(tuple(spans), tuple(blob_digests))
        self.size = size
        self.items = items
        self.embed = _MAP_EMBED
        self.span: Span | None = None
        self.spans: tuple[Span, ...] = ()

    def with_parts(self, parts: list[Part]) -> Map:
        """The same keys with other members. The encoded keys are used again."""
        return Map(self.keys, parts, self._encoded_keys)

    def place(self, span: Span) -> None:
        self.span = span
        self.spans = (span,)

    def locate(self, key: Key, cell: bytes) -> Span | None:
        return self.span


class Chunk:
    """Up to `CHUNK_ITEMS` neighbouring plain items of a series: compared by one encoding, then one by one.

    It is made of bytes that lie elsewhere (new cells, a segment just read). They are joined when they are first
    compared, so a large state that is only read is not held twice.
    """

    __slots__ = ("__weakref__", "_buffers", "_keys", "count", "items", "joined", "lengths", "size", "spans")

    def __init__(
        self,
        buffers: Sequence[Buffer],
        lengths: Sequence[int],
        spans: Sequence[Span],
        keys: tuple[int, ...] | None = None,
    ) -> None:
        self._buffers: Sequence[Buffer] | None = buffers
        self.joined = b""  # the bytes in one piece, once `plain` was read
        self.lengths = lengths
        self.size = sum(lengths)
        self.count = self.items = len(lengths)
        self.spans = tuple(spans)
        self._keys = keys

    def extended(self, items: list[bytes], spans: Sequence[Span], keys: Sequence[int]) -> Chunk:
        """This chunk followed by more items, with their spans and keys."""
        buffers = (self.joined or self.plain, *items)
        lengths = [*self.lengths, *map(len, items)]
        return Chunk(buffers, lengths, join_spans((*self.spans, *spans)), (*(self._keys or self.keys), *keys))

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The bytes of all items in order, cut anywhere."""
        return self._buffers or (self.joined,)

    @property
    def plain(self) -> bytes:
        """The bytes of all items in one piece. Hot loops read `joined` first, which costs no call."""
        buffers = self._buffers
        if buffers is not None:
            # In this order: another thread that reads the same part finds the buffers or the bytes.
            self.joined = b"".join(buffers)
            self._buffers = None
        return self.joined

    @property
    def keys(self) -> tuple[int, ...]:
        """One key per item. They are computed on first use, so that loading a state does not pay for them."""
        if self._keys is None:
            plain = self.plain
            bounds = [0, *accumulate(self.lengths)]
            self._keys = tuple([key_of(plain[start:end]) for start, end in pairwise(bounds)])
        return self._keys

    def item_spans(self) -> list[Span]:
        return [cell_of(span, i) for span in self.spans for i in range(span.count)]

    def item_span(self, place: int) -> Span:
        """The span of the item at a place of this chunk."""
        for span in self.spans:
            if place < span.count:
                return cell_of(span, place)
            place -= span.count
        raise IndexError

    def place_of(self, key: Key, cell: bytes) -> int | None:
        """The place of an item with these bytes; None if none has them."""
        keys = self.keys
        if key not in keys:
            return None
        place = keys.index(key)
        start = sum(self.lengths[:place])
        return place if self.plain[start : start + len(cell)] == cell else None

    def locate(self, key: Key, cell: bytes) -> Span | None:
        place = self.place_of(key, cell)
        return None if place is None else self.item_span(place)


class Split:
    """One item of a series that is stored as a node cell: its members are parts."""

    __slots__ = ("__weakref__", "items", "parts", "size", "spans")

    size: int
    items: int
    count = 1

    def __init__(self, parts: tuple[Part, ...], span: Span) -> None:
        self.parts = parts
        self.spans = (span,)
        self.size = sum([part.size for part in parts])
        self.items = sum([part.items for part in parts])

    def locate(self, key: Key, cell: bytes) -> Span | None:
        return self.spans[0]


class Series:
    """A list, a tuple, or the entries of a large dict, in chunks.

    `log_kind` is the kind of the item log to append to, None if none is chosen yet. `tables` are the table cells that
    name its spans.
    """

    __slots__ = ("__weakref__", "chunks", "embed", "items", "kind", "length", "log_kind", "size", "spans", "tables")

    size: int
    items: int
    blob_digests: tuple[bytes, ...] = ()

    def __init__(
        self,
        kind: Kind,
        chunks: list[Chunk | Split],
        log_kind: int | None,
        level: int,
        spans: Sequence[Span],
        tables: Tables,
    ) -> None:
        self.kind = kind
        self.chunks = chunks
        self.log_kind = log_kind
        self.tables = tables
        length, size, items = 0, 5, 0
        for chunk in chunks:
            length += chunk.count
            size += chunk.size
            items += chunk.items
        self.length = length
        self.size = size
        self.items = items
        self.spans = tuple(spans)
        shape = SeriesShape(kind, level, len(self.spans), length)
        self.embed = msgpack.extension(Ext.SERIES, _encode(shape))

    @property
    def stride(self) -> Literal[1, 2]:
        """Values per item: a key and a value in a dict."""
        return 2 if self.kind is Kind.DICT else 1


class Pieces:
    """A list or tuple of short items, or a string that grows: its encoded bytes in pieces, each in a cell.

    `bodies` are the cells without their headers, `widths` the number of items or bytes in each, `cells` the spans of
    the cells. `value` is the string last seen at its place, or None. The rest is as in a Series.
    """

    __slots__ = (
        "__weakref__",
        "bodies",
        "cells",
        "embed",
        "items",
        "kind",
        "log_kind",
        "size",
        "spans",
        "tables",
        "value",
        "widths",
    )

    blob_digests: tuple[bytes, ...] = ()

    def __init__(
        self,
        kind: Kind,
        bodies: list[bytes],
        widths: list[int],
        log_kind: int | None,
        cells: list[Span],
        table: tuple[int, Sequence[Span], Tables],
        value: str | bytes | None = None,
    ) -> None:
        self.kind = kind
        self.bodies = bodies
        self.widths = widths
        self.log_kind = log_kind
        self.cells = cells
        level, named, self.tables = table
        self.spans = tuple(named)
        self.size = 5 + sum(map(len, bodies))
        self.items = len(bodies)
        self.value = value
        self.embed = msgpack.extension(Ext.SERIES, _encode(SeriesShape(kind, level, len(self.spans), len(bodies))))


Part: TypeAlias = Unit | Large | Map | Series | Pieces
CellHolder: TypeAlias = Unit | Map | Chunk | Split  # a part that has cells of its own


def refs_of(parts: Iterable[Part]) -> Refs:
    """The references of a body that consists of these parts, in order."""
    spans: list[Span] = []
    blob_digests: list[bytes] = []
    for part in parts:
        spans.extend(part.spans)
        blob_digests.extend(part.blob_digests)
    return Refs(tuple(spans), tuple(blob_digests))


def is_map(value: dict[Any, Any]) -> bool:
    """Whether a dict may be stored as a Map: it has few entries, and its keys are strings that msgpack can encode.

    Half of a surrogate pair is encoded as an extension, which decoders refuse as a key.
    """
    if not 0 < len(value) <= MAP_MAX or not _STR.issuperset(map(type, value)):
        return False
    return all(map(str.isascii, value)) or not any(map(_SURROGATES.search, value))
