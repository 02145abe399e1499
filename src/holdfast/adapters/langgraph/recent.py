"""A cache of cells for one listing: consecutive checkpoints refer to mostly the same cells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from holdfast.delta.load import CellReader
from holdfast.stores.contract import Block, Cells, Span


class Recent:
    """Reads each cell once: a span within one that was read before is cut out of it.

    The content of a cell never changes, so the cache is always valid. It is kept for one listing.
    """

    def __init__(self, store: CellReader) -> None:
        self._store = store
        self._read: dict[tuple[int, int], _Stretch] = {}

    def cells(self, spans: Sequence[Span]) -> list[Cells]:
        found = [self._known(span) for span in spans]
        missing = [span for span, cells in zip(spans, found, strict=True) if cells is None]
        if missing:
            read = dict(zip(missing, self._store.cells(missing), strict=True))
            for span, cells in read.items():
                known = self._read.get((span.thread, span.log))
                if known is None or known.count < span.count:
                    self._read[span.thread, span.log] = _Stretch(span.start, cells)
            found = [read[span] if cells is None else cells for span, cells in zip(spans, found, strict=True)]
        return [cells for cells in found if cells is not None]

    def _known(self, span: Span) -> Cells | None:
        known = self._read.get((span.thread, span.log))
        if known is None or span.start < known.start or span.start + span.count > known.start + known.count:
            return None
        return known.cut(span.start - known.start, span.count)


class _Stretch:
    """Consecutive cells, joined into one piece; the store has a segment for each commit."""

    def __init__(self, start: int, cells: Cells) -> None:
        self.start = start
        self._refs = cells.refs
        self._lengths = [length for block in cells.blocks for length in block.lengths]
        self._bounds = [0, *accumulate(self._lengths)]
        self._data = b"".join(
            memoryview(block.data)[block.start : block.start + sum(block.lengths)] for block in cells.blocks
        )

    @property
    def count(self) -> int:
        return len(self._lengths)

    def cut(self, first: int, count: int) -> Cells:
        block = Block(self._data, self._bounds[first], self._lengths[first : first + count])
        return Cells((block,), self._refs[first : first + count])
