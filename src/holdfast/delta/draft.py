"""A draft: the new cells and blobs of one save, with the addresses under which they will be stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from holdfast.delta.base import Base, Index
from holdfast.delta.parts import (
    CellHolder,
    Key,
    Large,
    LogKind,
    Map,
    Part,
    Split,
    Tables,
    Unit,
    join_spans,
    key_of,
    log_number,
    node_digest,
)
from holdfast.stores.contract import NO_REFS, Append, Blob, Hashing, Refs, Span

PIECE_MAX = 8 * 1024 * 1024  # bytes of a piece of a blob


# Numbers that a save adds to must stay in range: a forged skeleton is refused when it is read.
_Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
_Ends = Annotated[tuple[_Natural, ...], msgspec.Meta(min_length=int(LogKind.ITEMS), max_length=LogKind.LAST + 1)]


class Skeleton(msgspec.Struct, frozen=True, array_like=True):
    """The part of a checkpoint that is needed, with its references, to read the state and to append to its logs.

    `opened_by` is the seq of the save that opened the logs. `wrote` lists (log, start, count) of the cells that this
    save added. The digest of the checkpoint covers them.
    """

    opened_by: _Natural
    ends: _Ends
    wrote: tuple[tuple[_Natural, _Natural, _Natural], ...]
    size: _Natural
    body: bytes


class _NewCells(NamedTuple):
    """Cells that a draft appends to one log."""

    log: int
    start: int
    cells: list[bytes]
    refs: list[Refs]


def _nothing(_: Key) -> None:
    return None


class Draft:
    """Collects what one save adds. It changes nothing that the base holds until `base()` is called."""

    def __init__(self, seq: int, base: Base | None, *, linear: bool, hashing: Hashing, shares: bool = True) -> None:
        """`linear`: no other save came after the base, so its logs may be appended to.

        If not `shares`, every cell is stored where it is used: cells of the base are not found, nor those of the draft.
        """
        self.seq = seq
        self._shares = shares
        self.address = hashing.address
        self.linear = linear
        if base is not None and linear:
            self.opened_by = base.opened_by
            self._ends = list(base.ends)
        else:
            self.opened_by = seq
            self._ends = [0] * LogKind.ITEMS
        self._base = base
        self.holder: Callable[[Key], CellHolder | None] = _nothing if base is None or not shares else base.find
        """Finds the part of the base that holds a cell with this key."""
        self._cells: dict[int, _NewCells] = {}
        self.new: dict[Key, tuple[bytes, Span]] = {}
        """The new cells and their spans, by key."""
        self.holders: list[tuple[CellHolder, Sequence[Key]]] = []
        """New parts and the keys of their cells, for the index of the next base."""
        self.blobs: dict[bytes, Blob] = {}

    def find(self, key: Key, cell: bytes) -> Span | None:
        """The span of a cell with this key and these bytes, stored or new."""
        new = self.new.get(key)
        if new is not None and new[0] == cell:
            return new[1]
        holder = self.holder(key)
        return None if holder is None else holder.locate(key, cell)

    def large(self, key: bytes | int) -> Large | None:
        """A blob that the base holds, by its digest or by the id of its object."""
        return None if self._base is None else self._base.large(key)

    def append(self, kind: int, cell: bytes, key: Key, refs: Refs | None = None) -> Span:
        """Add a new cell to the end of a log."""
        position = self._ends[kind]
        self._ends[kind] = position + 1
        new = self._cells.get(kind)
        if new is None:
            new = self._cells[kind] = _NewCells(log_number(self.opened_by, kind), position, [], [])
        new.cells.append(cell)
        if kind == LogKind.NODE:
            new.refs.append(NO_REFS if refs is None else refs)
        span = Span(0, new.log, position, 1, self.seq, self.seq)
        if self._shares:
            self.new[key] = cell, span
        return span

    def unit(self, plain: bytes) -> Unit:
        key = key_of(plain)
        unit = Unit(plain, self.find(key, plain) or self.append(LogKind.UNIT, plain, key))
        self.holders.append((unit, (key,)))
        return unit

    def node(self, body: bytes, refs: Refs) -> tuple[Span, bytes]:
        """The span of a node cell, and its key."""
        digest = node_digest(body, refs)
        return self.find(digest, body) or self.append(LogKind.NODE, body, digest, refs), digest

    def place(self, part: Map) -> None:
        span, digest = self.node(part.body, part.refs)
        part.place(span)
        self.holders.append((part, (digest,)))

    def split(self, parts: tuple[Part, ...], body: bytes, refs: Refs) -> Split:
        span, digest = self.node(body, refs)
        item = Split(parts, span)
        self.holders.append((item, (digest,)))
        return item

    def add_blob(self, digest: bytes, data: bytes) -> None:
        """Add a blob."""
        if digest not in self.blobs:
            view = memoryview(data)
            pieces = tuple(bytes(view[at : at + PIECE_MAX]) for at in range(0, len(data), PIECE_MAX))
            self.blobs[digest] = Blob(digest, pieces)

    def items_log(self, wanted: int | None) -> int:
        """The item log of a series: the one it has, or a new one while there are any left."""
        if wanted is not None and wanted < len(self._ends):
            return wanted
        if len(self._ends) <= LogKind.LAST:
            self._ends.append(0)
        return len(self._ends) - 1

    def finish(self, root: Part) -> tuple[Skeleton, tuple[Append, ...]]:
        """The skeleton of the state, and the new cells by log."""
        appends: list[Append] = []
        wrote: list[tuple[int, int, int]] = []
        for _, (log, start, cells, refs) in sorted(self._cells.items()):
            appends.append(Append(log, start, tuple(cells), tuple(refs)))
            wrote.append((log, start, len(cells)))
        body = root.body if isinstance(root, Map) else root.embed
        return Skeleton(self.opened_by, tuple(self._ends), tuple(wrote), root.size, body), tuple(appends)

    def base(self, root: Part) -> Base:
        """The base of the next save. Call it only when the draft is stored: it makes the new cells findable."""
        index = Index() if self._base is None else self._base.index
        base = Base(root, self.seq, self.opened_by, tuple(self._ends), index)
        for holder, keys in self.holders:
            index.add(holder, keys, base.holder_ids)
        return base


# -- tables: cells that name the spans of a long list -----------------------------------------------------------------

TABLE_MAX = 64  # spans that a skeleton names itself; more go into table cells
_BLOCK_MIN = 8
_BLOCK_MAX = 128


def fold(spans: Sequence[Span], known: Tables, draft: Draft) -> tuple[int, list[Span], Tables]:
    """The level of the tables, the spans to name, and the tables in use.

    `known` are the tables of the last save. Equal ones are used again, but each is named only once: a few tables that
    name each other repeatedly could stand for billions of items.
    """
    tables: Tables = {}
    level = 0
    named = join_spans(spans)
    while len(named) > TABLE_MAX:
        blocks: list[Span] = []
        for block in _blocks(named):
            refs = Refs(tuple(block))
            digest = node_digest(b"", refs)
            used = tables.setdefault(digest, [])
            equal = known.get(digest, ())
            if len(used) < len(equal):
                span = equal[len(used)]
            elif used:
                span = draft.append(LogKind.NODE, b"", digest, refs)
            else:
                span, _ = draft.node(b"", refs)
            used.append(span)
            blocks.append(span)
        named = join_spans(blocks)
        level += 1
    return level, named, tables


def _blocks(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Cut a list of spans where the spans themselves decide, so that an insertion moves only the cuts next to it.

    Blocks of a fixed number of spans would all change when one is inserted before them.
    """
    start = 0
    for at, span in enumerate(spans, 1):
        length = at - start
        if length >= _BLOCK_MAX or (length >= _BLOCK_MIN and _is_cut(span)):
            yield spans[start:at]
            start = at
    if start < len(spans):
        yield spans[start:]


def _is_cut(span: Span) -> bool:
    # `count` and `last` of a span grow with appends; its log and start do not.
    return ((span.log * 31 + span.start) * 0x9E3779B1 >> 16) & 31 == 0
