"""Load a checkpoint: skeleton and cells → parts → value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from holdfast.codec import msgpack
from holdfast.delta.base import FREE_SIZE, Base
from holdfast.delta.draft import Skeleton
from holdfast.delta.parts import (
    CHUNK_ITEMS,
    Buffer,
    Chunk,
    Ext,
    Kind,
    Large,
    LogKind,
    Map,
    Part,
    Pieces,
    Series,
    SeriesShape,
    Split,
    Tables,
    Unit,
    cell_of,
    is_map,
    join_spans,
    log_kind,
    log_opened_by,
    node_digest,
)
from holdfast.delta.pieces import HEADERS, STRINGS
from holdfast.errors import Damaged, TooLarge
from holdfast.stores.contract import Block, Cells, CheckpointRow, Refs, Span, Store
from holdfast.types import UNREADABLE

_WAVES_MAX = 4 * msgpack.MAX_DEPTH  # a level of nesting takes at most a node cell and some levels of tables
_UNREAD = Cells((), ())
_SPAN = 8  # bytes of a span in a store, at least
RATIO_MAX: Final = 10_000  # a larger state than `FREE_SIZE` is at most so many times as large as its cells

_skeletons = msgspec.msgpack.Decoder(Skeleton)
_shapes = msgspec.msgpack.Decoder(SeriesShape)
_sizes = msgspec.msgpack.Decoder(int)

# Errors that a readable record raises if it is not what was written. Python turns a StopIteration in a generator into a
# RuntimeError; here it means that there are too few references.
MISFITS: Final = (msgspec.DecodeError, StopIteration, RuntimeError, ValueError, KeyError, IndexError)


class CellReader(Protocol):
    """A source of cells: a store, or cells that were read from one before."""

    def cells(self, spans: Sequence[Span]) -> list[Cells]: ...


def read_skeleton(row: CheckpointRow) -> Skeleton:
    """The skeleton that a checkpoint was stored with."""
    try:
        return _skeletons.decode(row.skeleton)
    except UNREADABLE as cause:
        raise Damaged(f"checkpoint {row.seq}: its skeleton cannot be read") from cause


def load_base(store: CellReader, thread: int, row: CheckpointRow, *, limit: int | None = None) -> Base:
    """The parts of a stored state. Blobs are read only when the state itself is wanted.

    TooLarge if the state takes more than `limit` bytes.
    """
    skeleton = read_skeleton(row)
    cells = dict(reachable(store, thread, (row.refs,), nodes_only=False))
    builder = _Builder(thread, skeleton, cells)
    try:
        root = builder.root(row.refs)
    except MISFITS as cause:
        raise Damaged(f"checkpoint {row.seq}: its cells do not fit together") from cause
    if root.size != skeleton.size:
        raise Damaged(f"checkpoint {row.seq}: its cells hold {root.size} bytes, {skeleton.size} were saved")
    if root.size > FREE_SIZE and root.size > largest_from(builder.stored + sum(builder.large.values())):
        raise Damaged(f"checkpoint {row.seq}: {root.size} bytes cannot come from {builder.stored} bytes of cells")
    if limit is not None and root.size > limit:
        raise TooLarge(
            f"the state of checkpoint {row.seq} takes {root.size} bytes and the limit is {limit}; it was not read. "
            "Open the store with a larger max_state_bytes."
        )
    return Base(root, row.seq, skeleton.opened_by, skeleton.ends)


def largest_from(stored: int) -> int:
    """The largest state that this many stored bytes may hold. `repeats` makes a save store enough."""
    return max(FREE_SIZE, RATIO_MAX * stored)


# -- spans and cells --------------------------------------------------------------------------------------------------


def rebased(span: Span, owner: int) -> Span:
    """A span from a record of thread `owner`, as other threads write it."""
    if span.thread or not owner:
        return span
    return Span(owner, span.log, span.start, span.count, span.first, span.last)


def holds_refs(span: Span) -> bool:
    return log_kind(span.log) == LogKind.NODE


def reachable(
    store: CellReader, thread: int, roots: Iterable[Refs], *, nodes_only: bool
) -> Iterator[tuple[Span, Cells]]:
    """All cells that records of a thread refer to, directly or through other cells; each span once, one read per wave.

    With `nodes_only`, cells without references are not read and are returned empty.
    """
    seen: set[Span] = set()
    wave: dict[Span, None] = {}
    for refs in roots:
        for span in refs.spans:
            wave[rebased(span, thread)] = None
    for _ in range(_WAVES_MAX):
        if not wave:
            return
        seen.update(wave)
        wanted = [span for span in wave if holds_refs(span)] if nodes_only else list(wave)
        read = dict(zip(wanted, store.cells(wanted), strict=True))
        following: dict[Span, None] = {}
        for span in wave:
            cells = read.get(span, _UNREAD)
            yield span, cells
            for refs in cells.refs:
                for inner in refs.spans:
                    named = rebased(inner, span.thread)
                    if named not in seen:
                        following[named] = None
        wave = following
    raise Damaged("records refer to each other without end")


# -- parts → value ----------------------------------------------------------------------------------------------------


def state_of(store: Store, base: Base) -> Any:
    """The state as a new value: nothing mutable in it is shared with the base or an earlier result."""
    if base.root.size > FREE_SIZE:
        # Blobs are read first, so that one with a wrong size is found before the large state is built.
        base.read_large(lambda part: _large(store, part))
    return value_of(store, base.root)


def value_of(store: Store, part: Part) -> Any:
    """The value of a part, as a new object."""
    match part:
        case Unit():
            return msgpack.decode(part.plain)
        case Large():
            return _large(store, part)
        case Map():
            return {key: value_of(store, member) for key, member in zip(part.keys, part.parts, strict=True)}
        case Series():
            items: list[Any] = []
            stride = part.stride
            for chunk in part.chunks:
                if isinstance(chunk, Chunk):
                    items += msgpack.decode_items(chunk.buffers, chunk.count * stride)
                else:
                    items += [value_of(store, member) for member in chunk.parts]
            if part.kind is Kind.DICT:
                try:
                    return dict(zip(items[::2], items[1::2], strict=True))
                except TypeError as cause:
                    raise Damaged("a stored dict has a key of a type that cannot be a key") from cause
            return items if part.kind is Kind.LIST else tuple(items)
        case Pieces():
            return _joined(part)


def _joined(part: Pieces) -> Any:
    match part.kind:
        case Kind.TEXT | Kind.BINARY:
            if part.value is None:
                part.value = joined_string(part.kind, part.bodies)
            return part.value
        case _:
            items = msgpack.decode_items(part.bodies, sum(part.widths))
            return items if part.kind is Kind.SHORT_LIST else tuple(items)


def joined_string(kind: Kind, bodies: Iterable[bytes]) -> str | bytes:
    """A string from its pieces."""
    data = b"".join(bodies)
    try:
        return data.decode() if kind is Kind.TEXT else data
    except UnicodeDecodeError as cause:
        raise Damaged("the pieces of a text are not the text that was saved") from cause


def _large(store: Store, part: Large) -> Any:
    if part.value is not None:
        return part.value
    value = large_value(store, part.ext, part.digest, part.size)
    if part.ext is not Ext.PACKED:
        part.value = value
    return value


def large_value(store: Store, ext: Ext, digest: bytes, size: int) -> Any:
    """A blob, read from the store."""
    data = b"".join(store.blob(digest))
    if len(data) != size:
        raise Damaged(f"a blob has {len(data)} bytes, {size} were saved")
    if ext is Ext.PACKED:
        return msgpack.decode(data)
    try:
        return data if ext is Ext.BINARY else data.decode()
    except UnicodeDecodeError as cause:
        raise Damaged("a blob is not the text that was saved") from cause


# -- cells → parts ----------------------------------------------------------------------------------------------------


class Reference(msgspec.Struct, frozen=True):
    """A place in a decoded body whose value is stored elsewhere."""

    ext: Ext
    payload: bytes
    spans: tuple[Span, ...]
    value: bytes


def read_references(body: bytes, refs: Refs, owner: int) -> Any:
    """A decoded body with a Reference for each value stored elsewhere. Each takes its share of `refs` in order."""
    is_again = False
    while True:
        spans = iter(refs.spans)
        values = iter(refs.blobs)

        def resolve(
            code: int, payload: bytes, spans: Iterator[Span] = spans, values: Iterator[bytes] = values
        ) -> Reference:
            ext = Ext(code)
            match ext:
                case Ext.UNIT | Ext.MAP:
                    return Reference(ext, payload, (rebased(next(spans), owner),), b"")
                case Ext.SERIES:
                    count = _shapes.decode(payload).spans
                    return Reference(ext, payload, tuple([rebased(next(spans), owner) for _ in range(count)]), b"")
                case Ext.TEXT | Ext.BINARY | Ext.PACKED:
                    return Reference(ext, payload, (), next(values))

        try:
            content = msgpack.decode_parts(body, resolve)
        except (Damaged, *MISFITS):
            if is_again:
                raise
            is_again = True  # try again: an interrupt may have caused the error (see `decode_parts`)
            continue
        if is_again:
            raise KeyboardInterrupt
        return content


class _Builder:
    """Builds parts from cells that were read.

    A crafted body may refer to itself, or many times to the same cell. So each cell with references is built once, and
    the size that the checkpoint gives for its state is trusted only as far as the cells that were read can hold it.
    `stored` is the approximate size of these cells if the state is large. `large` has the declared sizes of its blobs.
    """

    def __init__(self, thread: int, skeleton: Skeleton, cells: dict[Span, Cells]) -> None:
        self._thread = thread
        self._skeleton = skeleton
        self._cells = cells
        self._maps: dict[Span, Map | None] = {}
        self._splits: dict[Span, Split | None] = {}
        self.stored = 0
        self.large: dict[bytes, int] = {}
        self._left = skeleton.size
        if skeleton.size > FREE_SIZE:
            self.stored = _size_of(skeleton, cells)
            self._left = min(skeleton.size, largest_from(self.stored))

    def root(self, refs: Refs) -> Part:
        content = read_references(self._skeleton.body, refs, 0)
        if isinstance(content, dict) and is_map(content):
            return Map(list(content), [self._part(member) for member in content.values()])
        return self._part(content)

    def _part(self, content: Any) -> Part:
        if not isinstance(content, Reference):
            return self._counted(Unit(msgpack.encode(content), None))
        match content.ext:
            case Ext.UNIT:
                (span,) = content.spans
                return self._counted(Unit(_first(self._read(span)), span))
            case Ext.MAP:
                (span,) = content.spans
                return self._map(span)
            case Ext.SERIES:
                return self._series(_shapes.decode(content.payload), content.spans)
            case _:
                size = self.large[content.value] = _sizes.decode(content.payload)
                return Large(content.ext, content.value, size, None)

    def _map(self, span: Span) -> Map:
        if span in self._maps:
            return _built(self._maps[span])
        self._maps[span] = None
        read = self._read(span)
        self._spend(1)
        members = read_references(_first(read), read.refs[0], span.thread)
        if not isinstance(members, dict):
            raise Damaged("a cell that should hold a dict does not")
        part = Map(list(members), [self._part(member) for member in members.values()])
        part.place(span)
        self._maps[span] = part
        return part

    def _split(self, body: bytes, refs: Refs, span: Span, stride: int) -> Split:
        if span in self._splits:
            return _built(self._splits[span])
        self._splits[span] = None
        members = read_references(msgpack.array_header(stride) + body, refs, span.thread)
        part = self._splits[span] = Split(tuple([self._part(member) for member in members]), span)
        return part

    def _series(self, shape: SeriesShape, spans: Sequence[Span]) -> Series | Pieces:
        named = spans
        tables: Tables = {}
        seen_cells: set[tuple[int, int, int]] = set()
        for _ in range(shape.level):
            below: list[Span] = []
            for span in spans:
                for i, refs in enumerate(self._read(span).refs):
                    # Compared as this thread would write them: in a table of an origin, equal numbers mean other cells.
                    seen = Refs(tuple([rebased(inner, span.thread) for inner in refs.spans]))
                    cell = cell_of(span, i)
                    tables.setdefault(node_digest(b"", seen), []).append(cell)
                    below.extend(seen.spans)
                    place = span.thread, span.log, cell.start
                    if place in seen_cells:
                        raise Damaged("the tables of a list name the same table twice")
                    seen_cells.add(place)
            spans = join_spans(below)
        kind = Kind(shape.kind)
        if kind in HEADERS:
            return self._pieces(kind, shape, spans, (shape.level, named, tables))
        stride = 2 if kind is Kind.DICT else 1
        part = Series(kind, self._chunks(spans, stride), self._log_kind(spans[-1:]), shape.level, named, tables)
        if part.length != shape.length:
            raise Damaged(f"a list of {shape.length} items has {part.length} cells")
        return part

    def _pieces(
        self,
        kind: Kind,
        shape: SeriesShape,
        spans: Sequence[Span],
        table: tuple[int, Sequence[Span], Tables],
    ) -> Pieces:
        bodies: list[bytes] = []
        widths: list[int] = []
        for span in spans:
            for cell in self._read(span).cells:
                body, width = piece_of(cell, kind)
                self._spend(len(body))
                bodies.append(body)
                widths.append(width)
        if len(bodies) != shape.length:
            raise Damaged(f"a value in {shape.length} pieces has {len(bodies)} cells")
        return Pieces(kind, bodies, widths, self._log_kind(spans), list(spans), table)

    def _chunks(self, spans: Sequence[Span], stride: int) -> list[Chunk | Split]:
        """The items of a series. Those of short spans share chunks: a list edited at many places has many of them."""
        pending = _PendingChunk()
        chunks = pending.chunks
        for span in spans:
            read = self._read(span)
            if holds_refs(span):
                pending.finish()
                self._spend(span.count)
                for i, (body, refs) in enumerate(zip(read.cells, read.refs, strict=True)):
                    chunks.append(self._split(body, refs, cell_of(span, i), stride))
            else:
                size = 0
                for block in read.blocks:
                    size += sum(block.lengths)
                self._spend(size)
                pending.add(span, read.blocks)
        pending.finish()
        return chunks

    def _log_kind(self, spans: Sequence[Span]) -> int | None:
        """The kind of the last log of items among `spans` that this branch may append to."""
        for span in reversed(spans):
            kind = log_kind(span.log)
            if kind >= LogKind.ITEMS and not span.thread and log_opened_by(span.log) == self._skeleton.opened_by:
                return kind
        return None

    def _read(self, span: Span) -> Cells:
        return self._cells[rebased(span, self._thread)]

    def _counted(self, part: Unit) -> Part:
        self._spend(part.size)
        return part

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Damaged("the cells of a checkpoint hold more than was saved")


_Built = TypeVar("_Built", Map, Split)


def _built(part: _Built | None) -> _Built:
    if part is None:  # it is being built
        raise Damaged("a cell refers to itself")
    return part


def _size_of(skeleton: Skeleton, cells: dict[Span, Cells]) -> int:
    """About how many bytes a checkpoint and its cells take in a store."""
    size = len(skeleton.body)
    for read in cells.values():
        size += sum(sum(block.lengths) for block in read.blocks)
        size += _SPAN * sum(len(refs.spans) + len(refs.blobs) for refs in read.refs)
    return size


def piece_of(cell: bytes, kind: Kind) -> tuple[bytes, int]:
    """The body of a cell that holds a piece, and the number of its items or bytes."""
    width, start = msgpack.counted(cell, HEADERS[kind])
    body = cell[start:]
    # Each item takes at least a byte.
    if not body or (width != len(body) if kind in STRINGS else not 0 < width <= len(body)):
        raise Damaged("a piece of a value does not have its declared size")
    return body, width


def _first(read: Cells) -> bytes:
    """The first of some cells. Raises IndexError if there are none."""
    block = read.blocks[0]
    return block.data[block.start : block.start + block.lengths[0]]


class _PendingChunk:
    """The chunks of a series, of which the last is still being filled."""

    def __init__(self) -> None:
        self.chunks: list[Chunk | Split] = []
        self._room = CHUNK_ITEMS
        self._data: list[Buffer] = []
        self._lengths: list[int] = []
        self._spans: list[Span] = []

    def add(self, span: Span, blocks: Iterable[Block]) -> None:
        """Add the plain cells of a span."""
        start = position = span.start  # `start`: of the cells that are in the chunk but not in its spans
        for block in blocks:
            # A view keeps the whole segment in memory. If little of it is wanted, a copy is taken.
            at, own = block.start, block.lengths
            data = memoryview(block.data) if 2 * sum(own) > len(block.data) else block.data
            taken = 0
            while taken < len(own):
                lengths = own[taken : taken + self._room]
                end = at + sum(lengths)
                self._data.append(data[at:end])
                self._lengths += lengths
                at = end
                taken += len(lengths)
                position += len(lengths)
                self._room -= len(lengths)
                if not self._room:
                    self._spans.append(Span(span.thread, span.log, start, position - start, span.first, span.last))
                    start = position
                    self.finish()
        if start < position:
            self._spans.append(Span(span.thread, span.log, start, position - start, span.first, span.last))

    def finish(self) -> None:
        """End the chunk, if it holds anything."""
        if self._spans:
            self.chunks.append(Chunk(self._data, self._lengths, join_spans(self._spans)))
            self._room, self._data, self._lengths, self._spans = CHUNK_ITEMS, [], [], []
