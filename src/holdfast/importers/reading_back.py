"""Compare the stored states of a thread with those of a source, checkpoint by checkpoint.

A checkpoint mostly refers to the cells of the one before it, so cells are cached and each is read once. States are
compared in their stored form, without decoding them. A state that extends one that was compared before is laid out
again from that one: if the same skeleton, references and new cells are stored, the stored state is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final

from holdfast.codec import msgpack
from holdfast.delta.base import Base
from holdfast.delta.change import changed
from holdfast.delta.draft import Draft
from holdfast.delta.hints import Extended
from holdfast.delta.load import load_base, read_skeleton, state_of
from holdfast.delta.parts import Kind, Large, Map, Part, Series, Split
from holdfast.errors import Damaged, Unsupported
from holdfast.stores.contract import Block, Cells, CheckpointRow, Refs, Span, Store

_MESSAGES: Final = "messages"
_BASES_MAX: Final = 4


class ReadBack:
    """The states of one thread of a store."""

    def __init__(self, store: Store, thread: int) -> None:
        self._store = store
        self._thread = thread
        self._cells = _ReadCells(store)
        self._values: set[bytes] = set()
        self._compared: dict[int, Base] = {}  # the newest equal ones, by seq

    def holds(self, row: CheckpointRow, state: Any, above: int | None = None, new_messages: int | None = None) -> bool:
        """Whether the state of a checkpoint equals `state`, including all types. `Damaged` if it cannot be read.

        `above` and `new_messages`: the state is that of checkpoint `above`, with so many messages more.
        """
        known = None if above is None else self._compared.get(above)
        if known is not None and self._extends(row, state, known, new_messages):
            return True
        base = self._equal(row, state)
        if base is not None:
            self._note(base)
        return base is not None

    def _extends(self, row: CheckpointRow, state: Any, known: Base, new_messages: int | None) -> bool:
        """Whether a save of this state after `known` would store the same skeleton, references and cells."""
        hinted = extending(state, known, new_messages)
        if hinted is None:
            return False
        draft = Draft(row.seq, known, linear=known.seq + 1 == row.seq, hashing=self._store.hashing)
        try:
            root = changed(hinted, known.root, draft)
        except Unsupported:
            return False
        skeleton, appends = draft.finish(root)
        if not isinstance(root, Map) or root.refs != row.refs or skeleton != read_skeleton(row):
            return False
        spans = [Span(self._thread, each.log, each.start, len(each.cells), row.seq, row.seq) for each in appends]
        for each, read in zip(appends, self._store.cells(spans), strict=True):
            if tuple(read.cells) != each.cells or tuple(read.refs) != each.refs:
                return False
        for digest in draft.blobs:
            self._require_value(digest)
        self._note(draft.base(root))
        return True

    def _note(self, base: Base) -> None:
        self._compared[base.seq] = base
        if len(self._compared) > _BASES_MAX:
            del self._compared[next(iter(self._compared))]

    def _equal(self, row: CheckpointRow, state: Any) -> Base | None:
        """The stored state, if it is equal."""
        base = load_base(self._cells, self._thread, row)
        for part in _larges(base.root):
            self._require_value(part.digest)
        draft = Draft(row.seq + 1, base, linear=False, hashing=self._store.hashing)
        try:
            if changed(state, base.root, draft) is base.root:
                return base
        except Unsupported:
            return None
        # The same state may be laid out differently. Load it again: the comparison may have cached parts of `state`.
        base = load_base(self._cells, self._thread, row)
        return base if msgpack.encode(state_of(self._store, base)) == msgpack.encode(state) else None

    def _require_value(self, digest: bytes) -> None:
        if digest not in self._values:
            if self._store.hashing.address(b"".join(self._store.blob(digest))) != digest:
                raise Damaged("a blob does not match its digest")
            self._values.add(digest)


def extending(state: Any, base: Base, new_messages: int | None) -> dict[str, Any] | None:
    """A state as the base with so many messages more, which are all that a save encodes; None if it is not that."""
    root = base.root
    if not new_messages or type(state) is not dict or not isinstance(root, Map) or root.keys != list(state):
        return None
    part, messages = dict(zip(root.keys, root.parts, strict=True)).get(_MESSAGES), state.get(_MESSAGES)
    if type(messages) is not list or not isinstance(part, Series) or part.kind is not Kind.LIST:
        return None
    if part.length + new_messages != len(messages):
        return None
    return {**state, _MESSAGES: Extended(part, part.length, messages[part.length :])}


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
