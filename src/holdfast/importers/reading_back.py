"""Compare the stored states of a thread with those of a source, checkpoint by checkpoint.

A checkpoint mostly refers to the cells of the one before it, so cells are cached and each is read once. States are
compared in their stored form, without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

from holdfast.codec import msgpack
from holdfast.delta.change import changed
from holdfast.delta.draft import Draft
from holdfast.delta.load import load_base, state_of
from holdfast.delta.parts import Large, Map, Part, Series, Split
from holdfast.errors import Damaged, Unsupported
from holdfast.stores.contract import Block, Cells, CheckpointRow, Refs, Span, Store


class ReadBack:
    """The states of one thread of a store."""

    def __init__(self, store: Store, thread: int) -> None:
        self._store = store
        self._thread = thread
        self._cells = _ReadCells(store)
        self._values: set[bytes] = set()

    def holds(self, row: CheckpointRow, state: Any) -> bool:
        """Whether the state of a checkpoint equals `state`, including all types. `Damaged` if it cannot be read."""
        base = load_base(self._cells, self._thread, row)
        for part in _larges(base.root):
            self._read_value(part)
        draft = Draft(row.seq + 1, base, linear=False, hashing=self._store.hashing)
        try:
            if changed(state, base.root, draft) is base.root:
                return True
        except Unsupported:
            return False
        # The same state may be laid out differently. Load it again: the comparison may have cached parts of `state`.
        base = load_base(self._cells, self._thread, row)
        return msgpack.encode(state_of(self._store, base)) == msgpack.encode(state)

    def _read_value(self, part: Large) -> None:
        if part.digest not in self._values:
            if self._store.hashing.address(b"".join(self._store.blob(part.digest))) != part.digest:
                raise Damaged("a blob does not match its digest")
            self._values.add(part.digest)


def _larges(part: Part) -> Iterator[Large]:
    match part:
        case Large():
            yield part
        case Map():
            yield from chain.from_iterable(map(_larges, part.parts))
        case Series():
            for chunk in part.chunks:
                if isinstance(chunk, Split):
                    yield from chain.from_iterable(map(_larges, chunk.parts))
        case _:
            pass


class _ReadCells:
    """A cache of cells. The content of a cell never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._logs: dict[tuple[int, int], _Stretch] = {}

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        return [self._one(span) for span in spans]

    def _one(self, span: Span) -> Cells:
        known = self._logs.get((span.thread, span.log))
        if known is None or not known.start <= span.start <= known.end:
            [read] = self._store.cells([span])
            self._logs[span.thread, span.log] = _Stretch(span, read)
            return read
        if span.start + span.count > known.end:
            more = Span(span.thread, span.log, known.end, span.start + span.count - known.end, known.last, span.last)
            [read] = self._store.cells([more])
            known.add(read, span.last)
        return known.cut(span.start, span.count)


class _Stretch:
    """Consecutive cells, in a few pieces, of which each is at least twice as long as the next."""

    def __init__(self, span: Span, read: Cells) -> None:
        self.start = self.end = span.start
        self.last = span.last
        self._pieces: list[tuple[int, bytes, list[int]]] = []
        self._refs: list[Refs] = []
        self.add(read, span.last)

    def add(self, read: Cells, last: int) -> None:
        """Append the next cells, written by commits up to `last`."""
        lengths = [length for block in read.blocks for length in block.lengths]
        data = b"".join(memoryview(each.data)[each.start : each.start + sum(each.lengths)] for each in read.blocks)
        first = self.end
        while self._pieces and len(self._pieces[-1][2]) < 2 * len(lengths):
            first, before, others = self._pieces.pop()
            data, lengths = before + data, others + lengths
        self._pieces.append((first, data, lengths))
        self._refs += read.refs
        self.end = first + len(lengths)
        self.last = max(self.last, last)

    def cut(self, start: int, count: int) -> Cells:
        end = start + count
        blocks: list[Block] = []
        for first, data, lengths in self._pieces:
            low, high = max(start, first), min(end, first + len(lengths))
            if low < high:
                bounds = [0, *accumulate(lengths[: low - first])]
                blocks.append(Block(data, bounds[-1], lengths[low - first : high - first]))
        return Cells(blocks, self._refs[start - self.start : end - self.start] if self._refs else ())
