"""Reading a checkpoint back: skeleton and cells → parts → value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.codec import msgpack
from holdfast.delta.base import Base
from holdfast.delta.draft import LogKind, Skeleton, log_branch, log_kind
from holdfast.delta.parts import (
    CHUNK_ITEMS,
    Buffer,
    Chunk,
    Ext,
    Kind,
    Large,
    Map,
    Part,
    Series,
    SeriesShape,
    Split,
    Unit,
    cell_of,
    is_map,
    join_spans,
    node_digest,
)
from holdfast.errors import Damaged
from holdfast.stores.contract import Cells, CheckpointRow, Refs, Span, Store
from holdfast.types import UNREADABLE

_WAVES_MAX = 4 * msgpack.MAX_DEPTH  # a level of nesting takes at most a node cell and some levels of tables


class CellReader(Protocol):
    """What cells are read from: a store, or what was read from one before."""

    def cells(self, spans: Sequence[Span]) -> list[Cells]: ...


def rebased(span: Span, owner: int) -> Span:
    """A span of a record of thread `owner`, as seen from elsewhere."""
    if span.thread or not owner:
        return span
    return Span(owner, span.log, span.start, span.count, span.first, span.last)


def holds_refs(span: Span) -> bool:
    return log_kind(span.log) == LogKind.NODE


def reachable(
    store: CellReader, thread: int, roots: Iterable[Refs], *, nodes_only: bool
) -> Iterator[tuple[Span, Cells]]:
    """All cells reachable from records of a thread, each span once, in waves of one read each.

    `nodes_only` leaves the cells without references unread and gives them as empty.
    """
    seen: set[Span] = set()
    wave = {rebased(span, thread): None for refs in roots for span in refs.spans}
    for _ in range(_WAVES_MAX):
        if not wave:
            return
        seen.update(wave)
        wanted = [span for span in wave if holds_refs(span) or not nodes_only]
        read = dict(zip(wanted, store.cells(wanted), strict=True))
        following: dict[Span, None] = {}
        for span in wave:
            cells = read.get(span, _UNREAD)
            yield span, cells
            for refs in cells.refs:
                named = (rebased(inner, span.thread) for inner in refs.spans)
                following.update((inner, None) for inner in named if inner not in seen)
        wave = following
    raise Damaged("records refer to each other without end")


_UNREAD = Cells((), ())


_skeletons = msgspec.msgpack.Decoder(Skeleton)
_shapes = msgspec.msgpack.Decoder(SeriesShape)
_sizes = msgspec.msgpack.Decoder(int)

# What a record raises that is whole and yet not what was written. RuntimeError: what a generator makes of
# StopIteration, here from references that are too few.
MISFITS: Final = (msgspec.DecodeError, StopIteration, RuntimeError, ValueError, KeyError, IndexError)


def read_skeleton(row: CheckpointRow) -> Skeleton:
    """The skeleton a checkpoint was stored with."""
    try:
        return _skeletons.decode(row.skeleton)
    except UNREADABLE as cause:
        raise Damaged(f"checkpoint {row.seq}: its skeleton cannot be read") from cause


def load_base(store: CellReader, thread: int, row: CheckpointRow) -> Base:
    """The parts of a stored state. Shared values are not read before somebody asks for the state itself."""
    skeleton = read_skeleton(row)
    cells = dict(reachable(store, thread, (row.refs,), nodes_only=False))
    try:
        root = _Builder(thread, skeleton, cells).root(row.refs)
    except MISFITS as cause:
        raise Damaged(f"checkpoint {row.seq}: its cells do not fit together") from cause
    if root.size != skeleton.size:
        raise Damaged(f"checkpoint {row.seq}: its cells hold {root.size} bytes, {skeleton.size} were saved")
    return Base(root, row.seq, skeleton.branch, skeleton.ends)


def state_of(store: Store, base: Base) -> Any:
    """The state as a value of its own: nothing mutable in it is shared with the base or an earlier result."""
    return value_of(store, base.root)


def value_of(store: Store, part: Part) -> Any:
    """What a part stands for, as a value of its own."""
    match part:
        case Unit():
            return msgpack.decode(part.plain)
        case Large():
            return _large(store, part)
        case Map():
            return {key: value_of(store, member) for key, member in zip(part.keys, part.parts, strict=True)}
        case Series():
            items: list[Any] = []
            for chunk in part.chunks:
                if isinstance(chunk, Chunk):
                    items += msgpack.decode_items(chunk.buffers, chunk.count * part.stride)
                else:
                    items += [value_of(store, member) for member in chunk.parts]
            if part.kind is Kind.DICT:
                try:
                    return dict(zip(items[::2], items[1::2], strict=True))
                except TypeError as cause:
                    raise Damaged("a dict has a key that no dict can have") from cause
            return items if part.kind is Kind.LIST else tuple(items)


def _large(store: Store, part: Large) -> Any:
    if part.value is not None:
        return part.value
    value = large_value(store, part.ext, part.digest, part.size)
    if part.ext is not Ext.PACKED:
        part.value = value
    return value


def large_value(store: Store, ext: Ext, digest: bytes, size: int) -> Any:
    """A shared value as it was saved."""
    data = b"".join(store.value(digest))
    if len(data) != size:
        raise Damaged("a shared value has another size than was saved")
    if ext is Ext.PACKED:
        return msgpack.decode(data)
    try:
        return data if ext is Ext.BINARY else data.decode()
    except UnicodeDecodeError as cause:
        raise Damaged("a shared value is not the text that was saved") from cause


class Reference(msgspec.Struct, frozen=True):
    """What stands in a decoded body for something stored elsewhere."""

    ext: Ext
    payload: bytes
    spans: tuple[Span, ...]
    value: bytes


def read_references(body: bytes, refs: Refs, owner: int) -> Any:
    """A body with a Reference wherever something stored elsewhere stands, which takes its share of `refs` in order."""
    spans = iter(refs.spans)
    values = iter(refs.values)

    def resolve(code: int, payload: bytes) -> Reference:
        ext = Ext(code)
        match ext:
            case Ext.UNIT | Ext.MAP:
                return Reference(ext, payload, (rebased(next(spans), owner),), b"")
            case Ext.SERIES:
                count = _shapes.decode(payload).spans
                return Reference(ext, payload, tuple(rebased(next(spans), owner) for _ in range(count)), b"")
            case Ext.TEXT | Ext.BINARY | Ext.PACKED:
                return Reference(ext, payload, (), next(values))

    return msgpack.decode_parts(body, resolve)


class _Builder:
    """Builds parts from cells already read.

    Bounded against crafted records by the size that the checkpoint says its state has: a body that refers to itself,
    or to one cell many times over, runs out of it.
    """

    def __init__(self, thread: int, skeleton: Skeleton, cells: dict[Span, Cells]) -> None:
        self._thread = thread
        self._skeleton = skeleton
        self._cells = cells
        self._left = skeleton.size

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
                return self._counted(Unit(self._read(span).cells[0], span))
            case Ext.MAP:
                (span,) = content.spans
                read = self._read(span)
                self._spend(1)
                members = read_references(read.cells[0], read.refs[0], span.thread)
                if not isinstance(members, dict):
                    raise Damaged("a cell that should hold a dict does not")
                part = Map(list(members), [self._part(member) for member in members.values()])
                part.place(span)
                return part
            case Ext.SERIES:
                return self._series(_shapes.decode(content.payload), content.spans)
            case _:
                return self._counted(Large(content.ext, content.value, _sizes.decode(content.payload), None))

    def _series(self, shape: SeriesShape, spans: Sequence[Span]) -> Series:
        named = spans
        tables: dict[bytes, Span] = {}
        for _ in range(shape.level):
            below: list[Span] = []
            for span in spans:
                for i, refs in enumerate(self._read(span).refs):
                    # As this thread would write it: the same numbers in an origin's table mean other cells.
                    seen = Refs(tuple(rebased(inner, span.thread) for inner in refs.spans))
                    tables[node_digest(b"", seen)] = cell_of(span, i)
                    below.extend(seen.spans)
                    if len(below) > self._left:  # no item takes less than a byte
                        raise Damaged("the tables of a list name more than was saved")
            spans = join_spans(below)
        kind = Kind(shape.kind)
        stride = 2 if kind is Kind.DICT else 1
        part = Series(kind, list(self._chunks(spans, stride)), self._log(spans), shape.level, named, tables)
        if part.length != shape.length:
            raise Damaged(f"a list of {shape.length} items has only {part.length} cells")
        return part

    def _chunks(self, spans: Sequence[Span], stride: int) -> Iterator[Chunk | Split]:
        # A list edited at many places comes in many short spans: their items share chunks all the same.
        pending = _PendingChunk()
        for span in spans:
            read = self._read(span)
            if holds_refs(span):
                yield from pending.finished()
                for i, (body, refs) in enumerate(zip(read.cells, read.refs, strict=True)):
                    members = read_references(msgpack.array_header(stride) + body, refs, span.thread)
                    yield Split(tuple(self._part(member) for member in members), cell_of(span, i))
                continue
            yield from self._plain_chunks(span, read, pending)
        yield from pending.finished()

    def _plain_chunks(self, span: Span, read: Cells, pending: _PendingChunk) -> Iterator[Chunk]:
        position = span.start
        for block in read.blocks:
            # A view holds the whole segment in memory, so of one that is hardly wanted a copy is taken.
            wanted = sum(block.lengths)
            data = memoryview(block.data) if 2 * wanted > len(block.data) else block.data
            at = block.start
            taken = 0
            while taken < len(block.lengths):
                lengths = block.lengths[taken : taken + pending.room]
                end = at + sum(lengths)
                run = Span(span.thread, span.log, position, len(lengths), span.first, span.last)
                pending.add(data[at:end], lengths, run)
                self._spend(end - at)
                at = end
                taken += len(lengths)
                position += len(lengths)
                if not pending.room:
                    yield from pending.finished()

    def _log(self, spans: Sequence[Span]) -> int | None:
        """The log a series goes on appending to, if its last items are in a log this branch may append to."""
        if not spans or spans[-1].thread or log_branch(spans[-1].log) != self._skeleton.branch:
            return None
        kind = log_kind(spans[-1].log)
        return kind if kind >= LogKind.ITEMS else None

    def _read(self, span: Span) -> Cells:
        return self._cells[rebased(span, self._thread)]

    def _counted(self, part: Unit | Large) -> Part:
        self._spend(part.size)
        return part

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Damaged("the cells of a checkpoint hold more than was saved")


class _PendingChunk:
    """A chunk that is still being filled."""

    def __init__(self) -> None:
        self.room = CHUNK_ITEMS
        self._data: list[Buffer] = []
        self._lengths: list[int] = []
        self._runs: list[Span] = []

    def add(self, data: Buffer, lengths: Sequence[int], run: Span) -> None:
        self._data.append(data)
        self._lengths += lengths
        self._runs.append(run)
        self.room -= len(lengths)

    def finished(self) -> Iterator[Chunk]:
        """The chunk, if it holds anything; then another can be filled."""
        if self._runs:
            yield Chunk(self._data, self._lengths, join_spans(self._runs))
            self.room, self._data, self._lengths, self._runs = CHUNK_ITEMS, [], [], []
