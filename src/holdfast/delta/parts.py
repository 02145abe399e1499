"""What a handle remembers of a stored state: a tree of parts, holding each stored byte once.

A part is compared with the value now at its place to find what changed, and named by its parent's skeleton through
`embed` (bytes), `spans` and `values` (what those bytes refer to, in order). Parts never change once a save is
acknowledged, so a tree for the next save shares all that stayed the same.
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
INLINE_MAX = 96  # a value up to this size is written into its parent's skeleton; a reference costs about 20
UNIT_MAX = 2_048  # a dict or list up to this size is stored as one cell; above, its members are looked at one by one
SPLIT_MIN = 4_096  # a list item above this size is split if it holds something worth splitting …
SPLIT_ALWAYS = 65_536  # … and in any case above this size
LARGE_MIN = 16_384  # a string above this size is a shared value, stored once per namespace

MAP_MAX = 64  # a dict with more entries is stored like a list of entries
MAP_AGAIN = 32  # one that was stored so stays so down to this, or it would be rewritten each time it crosses the line
CHUNK_ITEMS = 32  # list items compared at once
SMALL_ITEM = 32  # a list of items that are smaller on average (an embedding, say) is one unit …
SMALL_ITEMS_MAX = 65_536  # … up to this size
STRUCTURE_DEPTH = 40  # below this depth nothing is split up any more: recursion has to end somewhere


class Kind(IntEnum):
    """What the cells of a series make up."""

    LIST = 0
    TUPLE = 1
    DICT = 2


class Ext(IntEnum):
    """Codes by which a skeleton refers to what is stored elsewhere; each consumes its refs in order."""

    UNIT = 64  # one span of one plain cell
    MAP = 65  # one span of one node cell: a dict whose members are parts
    SERIES = 66  # spans of item cells, or of table cells; payload: SeriesShape
    TEXT = 67  # one shared value: a str
    BINARY = 68  # one shared value: bytes
    PACKED = 69  # one shared value: any other value, encoded


_UNIT_EMBED = msgpack.extension(Ext.UNIT, b"\0")
_MAP_EMBED = msgpack.extension(Ext.MAP, b"\0")


_LEVELS_MAX = 16  # of tables: each has at most an eighth of the spans of the one below it


class SeriesShape(msgspec.Struct, frozen=True, array_like=True):
    """The payload of Ext.SERIES: `level` tables lie between the `spans` spans and the `length` items."""

    kind: int
    level: Annotated[int, msgspec.Meta(ge=0, le=_LEVELS_MAX)]
    spans: int
    length: int


def digest_of(data: bytes) -> bytes:
    """Key of a cell in a handle's index. Half a sha256: collisions cannot be made, so equal keys mean equal bytes."""
    return hashlib.sha256(data).digest()[:16]


_refs_encoder = msgspec.msgpack.Encoder()
_SURROGATES = re.compile("[\ud800-\udfff]")


def node_digest(body: bytes, refs: Refs) -> bytes:
    """Key of a node cell: its references count as much as its bytes.

    Prefixed, or a message that spells out the bytes of a table would be taken for one.
    """
    return digest_of(b"node\0" + _refs_encoder.encode(refs) + body)


def cell_of(span: Span, at: int) -> Span:
    """One cell of a span."""
    return Span(span.thread, span.log, span.start + at, 1, span.first, span.last)


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Spans with neighbours that continue each other made one."""
    joined: list[Span] = []
    last: Span | None = None
    for span in spans:
        if (
            last is not None
            and last.log == span.log
            and last.start + last.count == span.start
            and last.thread == span.thread
        ):
            last = joined[-1] = Span(
                last.thread,
                last.log,
                last.start,
                last.count + span.count,
                min(last.first, span.first),
                max(last.last, span.last),
            )
        else:
            joined.append(span)
            last = span
    return joined


Buffer: TypeAlias = bytes | memoryview


class Unit:
    """A value compared and stored whole."""

    __slots__ = ("__weakref__", "embed", "plain", "spans")

    values: tuple[bytes, ...] = ()

    def __init__(self, plain: bytes, span: Span | None) -> None:
        self.plain = plain
        self.embed = plain if span is None else _UNIT_EMBED
        self.spans: tuple[Span, ...] = () if span is None else (span,)

    @property
    def size(self) -> int:
        return len(self.plain)

    @property
    def items(self) -> int:
        return 1

    def locate(self, digest: bytes) -> Span | None:
        return self.spans[0] if self.spans else None


class Large:
    """A shared value: known by digest; `value` is the object last seen, None until it was seen.

    Holding the object makes the common case free: str and bytes cannot change, so the same object is the same value.
    """

    __slots__ = ("__weakref__", "embed", "ext", "size", "value", "values")

    spans: tuple[Span, ...] = ()

    def __init__(self, ext: Ext, digest: bytes, size: int, value: str | bytes | None) -> None:
        self.ext = ext
        self.size = size
        self.value = value
        self.values = (digest,)
        self.embed = msgpack.extension(ext, msgspec.msgpack.encode(size))

    @property
    def digest(self) -> bytes:
        return self.values[0]

    @property
    def items(self) -> int:
        return 1


class Map:
    """A dict with string keys whose members are parts. `span` is its node cell; the root has none."""

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
    values: tuple[bytes, ...] = ()

    def __init__(self, keys: list[str], parts: list[Part], encoded_keys: list[bytes] | None = None) -> None:
        self.keys = keys
        self.parts = parts
        self._encoded_keys = [msgpack.encode(key) for key in keys] if encoded_keys is None else encoded_keys
        pieces = [msgpack.map_header(len(keys))]
        size = len(pieces[0])
        for key, part in zip(self._encoded_keys, parts, strict=True):
            pieces += (key, part.embed)
            size += len(key) + part.size
        self.body = b"".join(pieces)
        self.refs = refs_of(parts)
        self.size = size
        self.items = items_of(parts)
        self.embed = _MAP_EMBED
        self.span: Span | None = None
        self.spans: tuple[Span, ...] = ()

    def with_parts(self, parts: list[Part]) -> Map:
        """The same keys with other members; a Map that stays is often saved with one member changed."""
        return Map(self.keys, parts, self._encoded_keys)

    def place(self, span: Span) -> None:
        self.span = span
        self.spans = (span,)

    def locate(self, digest: bytes) -> Span | None:
        return self.span


class Chunk:
    """Up to `CHUNK_ITEMS` neighbouring plain items of a series: compared by one encoding, then one by one.

    Made of bytes as they lie elsewhere (new cells, a segment just read), which are joined when first compared: until
    then a large state is not held twice.
    """

    __slots__ = ("__weakref__", "_buffers", "_digests", "_plain", "count", "lengths", "runs", "size")

    def __init__(
        self,
        buffers: Sequence[Buffer],
        lengths: Sequence[int],
        runs: Sequence[Span],
        digests: tuple[bytes, ...] | None = None,
    ) -> None:
        self._buffers: Sequence[Buffer] | None = buffers
        self._plain = b""
        self.lengths = lengths
        self.size = sum(lengths)
        self.count = len(lengths)
        self.runs = tuple(runs)
        self._digests = digests

    def extended(self, items: list[bytes], runs: Sequence[Span], digests: Sequence[bytes]) -> Chunk:
        """This chunk and more items after it; `runs` and `digests` are those of the items."""
        lengths = [*self.lengths, *map(len, items)]
        return Chunk((self.plain, *items), lengths, join_spans((*self.runs, *runs)), (*self.digests, *digests))

    @property
    def items(self) -> int:
        return self.count

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The items' bytes, one after the other, however they are cut."""
        return self._buffers or (self._plain,)

    @property
    def plain(self) -> bytes:
        """The items' bytes in one piece."""
        buffers = self._buffers
        if buffers is not None:
            # In this order: another thread that reads the same part sees the buffers or the bytes.
            self._plain = b"".join(buffers)
            self._buffers = None
        return self._plain

    @property
    def digests(self) -> tuple[bytes, ...]:
        """One per item; computed when first needed: loading a state should not pay for it."""
        if self._digests is None:
            plain = self.plain
            bounds = [0, *accumulate(self.lengths)]
            self._digests = tuple([digest_of(plain[start:end]) for start, end in pairwise(bounds)])
        return self._digests

    def item_spans(self) -> list[Span]:
        return [cell_of(run, i) for run in self.runs for i in range(run.count)]

    def locate(self, digest: bytes) -> Span | None:
        return self.item_spans()[self.digests.index(digest)]


class Split:
    """One item of a series that is stored as a node cell, because its own members are parts."""

    __slots__ = ("__weakref__", "items", "parts", "runs", "size")

    size: int
    items: int
    count = 1

    def __init__(self, parts: tuple[Part, ...], span: Span) -> None:
        self.parts = parts
        self.runs = (span,)
        self.size = size_of(parts)
        self.items = items_of(parts)

    def locate(self, digest: bytes) -> Span | None:
        return self.runs[0]


class Series:
    """A list, a tuple, or a large dict as its entries, in chunks.

    `log` is the item log it appends to (None: not chosen yet), `tables` the table cells that name its spans.
    """

    __slots__ = ("__weakref__", "chunks", "embed", "items", "kind", "length", "log", "size", "spans", "tables")

    items: int

    values: tuple[bytes, ...] = ()

    def __init__(
        self,
        kind: Kind,
        chunks: list[Chunk | Split],
        log: int | None,
        level: int,
        spans: Sequence[Span],
        tables: dict[bytes, Span],
    ) -> None:
        self.kind = kind
        self.chunks = chunks
        self.log = log
        self.tables = tables
        self.length = sum(chunk.count for chunk in chunks)
        self.spans = tuple(spans)
        shape = SeriesShape(kind, level, len(self.spans), self.length)
        self.embed = msgpack.extension(Ext.SERIES, msgspec.msgpack.encode(shape))
        self.size = 5 + sum([chunk.size for chunk in chunks])
        self.items = sum([chunk.items for chunk in chunks])

    @property
    def stride(self) -> Literal[1, 2]:
        return 2 if self.kind is Kind.DICT else 1


Part: TypeAlias = Unit | Large | Map | Series
Owner: TypeAlias = Unit | Map | Chunk | Split


def refs_of(parts: Iterable[Part]) -> Refs:
    """What a body made of these parts' `embed` bytes refers to, in order."""
    spans: list[Span] = []
    values: list[bytes] = []
    for part in parts:
        spans.extend(part.spans)
        values.extend(part.values)
    return Refs(tuple(spans), tuple(values))


def size_of(parts: Iterable[Part]) -> int:
    """Encoded bytes of the values these parts stand for."""
    return sum(part.size for part in parts)


def items_of(parts: Iterable[Part]) -> int:
    """How many values are held one by one: each costs memory besides its bytes."""
    return sum(part.items for part in parts)


def is_map(value: dict[Any, Any]) -> bool:
    """Whether a dict may be stored as a Map: few entries, all keys strings that msgpack has a word for."""
    return 0 < len(value) <= MAP_MAX and all(map(_is_plain_key, value))


def _is_plain_key(key: Any) -> bool:
    # Half of a surrogate pair is encoded as an extension, which a decoder does not take for a key.
    return type(key) is str and (key.isascii() or not _SURROGATES.search(key))


def flatten(value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> list[Any]:
    """A series' items in one list: a dict gives key, value, key, value …"""
    if type(value) is dict:
        return [x for entry in value.items() for x in entry]
    return value if type(value) is list else list(value)
