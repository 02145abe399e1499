"""Load what is left of a damaged state. A `MissingValue` replaces each value that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.codec.storable import key_step
from holdfast.delta.load import (
    MISFITS,
    Reference,
    holds_refs,
    joined_string,
    large_value,
    piece_of,
    read_references,
    read_skeleton,
    rebased,
)
from holdfast.delta.parts import Ext, Kind, SeriesShape, join_spans
from holdfast.delta.pieces import HEADERS, STRINGS
from holdfast.errors import Damaged
from holdfast.stores.contract import NO_REFS, CheckpointRow, Refs, Span, Store
from holdfast.types import MissingValue

_MARKS_MAX: Final = 1 << 20  # bounds what a reader allocates for a few forged bytes
_SLACK: Final = 1 << 20  # bytes that a state may exceed its limit by
_READ: Final = 1_024  # a read counts for so many bytes, because a state of small values takes many

_shapes = msgspec.msgpack.Decoder(SeriesShape)
_sizes = msgspec.msgpack.Decoder(int)


class _Cell(msgspec.Struct, frozen=True, gc=False):
    """One cell, or the reason why it cannot be read."""

    body: bytes
    refs: Refs
    owner: int
    has_refs: bool
    why: str | None = None


class _Gap(msgspec.Struct, frozen=True, gc=False):
    """An unknown number of cells: the table that names them is lost."""

    why: str


class _Forged(Exception):
    """The records hold more than was ever saved."""


def salvaged(store: Store, thread: int, row: CheckpointRow) -> tuple[Any, tuple[MissingValue, ...]]:
    """The readable part of a state with a `MissingValue` in the place of each lost value, and a list of these.

    A list keeps its length. An entry of a large dict whose key is lost has no place, so it is only listed. Raises
    Damaged if the skeleton cannot be read.
    """
    salvage = _Salvage(store, thread, read_skeleton(row).size)
    try:
        state = salvage.root(read_skeleton(row).body, row.refs)
    except (_Forged, *MISFITS) as cause:
        raise Damaged(f"checkpoint {row.seq}: its cells do not fit together") from cause
    return state, tuple(salvage.lost)


class _Salvage:
    """One walk through a state.

    As in loading, its limit is the size that the checkpoint gives for its state, as far as the cells can hold it.
    """

    def __init__(self, store: Store, thread: int, size: int) -> None:
        self._store = store
        self._thread = thread
        self._size = size
        self._spent = 0
        self._stored = 0  # bytes of all that was read, each span and blob once
        self._seen: set[Span | bytes] = set()
        self._lost_cells = 0
        self.lost: list[MissingValue] = []

    def root(self, body: bytes, refs: Refs) -> Any:
        return self._members(read_references(body, refs, 0), "$")

    def _members(self, content: Any, path: str) -> Any:
        if isinstance(content, dict):
            return {key: self._value(member, path + key_step(key)) for key, member in content.items()}
        return self._value(content, path)

    def _value(self, content: Any, path: str) -> Any:
        if not isinstance(content, Reference):
            return content
        try:
            match content.ext:
                case Ext.UNIT:
                    return msgpack.decode(self._only(content).body)
                case Ext.MAP:
                    cell = self._only(content)
                    return self._members(read_references(cell.body, cell.refs, cell.owner), path)
                case Ext.SERIES:
                    return self._series(_shapes.decode(content.payload), content.spans, path)
                case _:
                    size = _sizes.decode(content.payload)
                    value = large_value(self._store, content.ext, content.value, size)
                    if content.value not in self._seen:
                        self._seen.add(content.value)
                        self._stored += size
                    self._spend(size)
                    return value
        except (Damaged, *MISFITS) as damage:
            return self._mark(path, damage)

    def _only(self, content: Reference) -> _Cell:
        (span,) = content.spans
        (cell,) = self._read([rebased(span, self._thread)])
        if cell.why is not None:
            raise Damaged(cell.why)
        return cell

    # -- lists, tuples and large dicts ------------------------------------------------------------------------------

    def _series(self, shape: SeriesShape, spans: Sequence[Span], path: str) -> Any:
        kind = Kind(shape.kind)
        found = self._placed(list(self._cells(list(spans), shape.level)), shape.length)
        if kind in HEADERS:
            return self._joined(kind, found)
        if kind is Kind.DICT:
            return self._entries(found, path)
        items: list[Any] = []
        for at, cell in enumerate(found):
            items += self._members_of(cell, 1, f"{path}[{at}]") or (self._mark(f"{path}[{at}]", cell.why),)
        return items if kind is Kind.LIST else tuple(items)

    def _joined(self, kind: Kind, found: list[_Cell]) -> Any:
        """A value from its pieces. It is lost if one of them is: the number of items in it is not known."""
        for cell in found:
            if cell.why is not None:
                raise Damaged(cell.why)
        pieces = [piece_of(cell.body, kind) for cell in found]
        bodies = [body for body, _ in pieces]
        if kind in STRINGS:
            return joined_string(kind, bodies)
        items = msgpack.decode_items(bodies, sum(width for _, width in pieces))
        return items if kind is Kind.SHORT_LIST else tuple(items)

    def _entries(self, found: list[_Cell], path: str) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for cell in found:
            pair = self._members_of(cell, 2, path)
            try:
                if pair is None or isinstance(pair[0], MissingValue):
                    self._mark(path, f"an entry: {cell.why}")
                else:
                    entries[pair[0]] = pair[1]
            except TypeError as damage:  # not hashable, so not a key
                self._mark(path, damage)
        return entries

    def _members_of(self, cell: _Cell, stride: int, path: str) -> list[Any] | None:
        """The values in a cell of a series; None if they cannot be read."""
        if cell.why is not None:
            return None
        try:
            if not cell.has_refs:
                return msgpack.decode_items(cell.body, stride)
            members = read_references(msgpack.array_header(stride) + cell.body, cell.refs, cell.owner)
            if stride == 1:
                return [self._value(members[0], path)]
            key = self._value(members[0], path)
            return [key, self._value(members[1], path if isinstance(key, MissingValue) else path + key_step(key))]
        except (Damaged, *MISFITS):
            return None

    def _cells(self, spans: list[Span], level: int) -> Iterator[_Cell | _Gap]:
        """The cells of a series in order, read through its tables."""
        cells = self._read([rebased(span, self._thread) for span in join_spans(spans)])
        if not level:
            if any(cell.why is None and not cell.body for cell in cells):  # it would not count towards the size
                raise Damaged("a list has a table in the place of its items")
            yield from cells
            return
        for table in cells:
            if table.why is not None:
                yield _Gap(table.why)
            else:
                yield from self._cells([rebased(inner, table.owner) for inner in table.refs.spans], level - 1)

    def _placed(self, found: Sequence[_Cell | _Gap], length: int) -> list[_Cell]:
        """As many cells as were saved. Between the first and the last gap the place of a cell is not known."""
        gaps = [at for at, cell in enumerate(found) if isinstance(cell, _Gap)]
        if not gaps:
            gaps = [len(found)]
        before = [cell for cell in found[: gaps[0]] if isinstance(cell, _Cell)]
        after = [cell for cell in found[gaps[-1] + 1 :] if isinstance(cell, _Cell)]
        missing = length - len(before) - len(after)
        if missing > _MARKS_MAX:
            raise _Forged
        self._spend(max(missing, 0))
        if missing < len(found) - len(before) - len(after) or (missing and gaps[0] == len(found)):
            raise Damaged(f"a list of {length} items has other cells than were saved")
        gap = found[gaps[0]] if missing else None
        lost = _Cell(b"", NO_REFS, 0, False, gap.why if gap else None)
        return [*before, *([lost] * missing), *after]

    # -- cells ------------------------------------------------------------------------------------------------------

    def _read(self, spans: Sequence[Span]) -> list[_Cell]:
        """The cells of some spans. What cannot be read as a whole is halved until each readable cell is found."""
        if self._spent + sum(span.count for span in spans) > self._most():
            raise _Forged
        self._spend(_READ)
        try:
            read = self._store.cells(spans)
        except Damaged as damage:
            if len(spans) > 1:
                half = len(spans) // 2
                return self._read(spans[:half]) + self._read(spans[half:])
            (span,) = spans
            if span.count <= 1:
                self._spend(1)
                self._lost_cells += 1
                if self._lost_cells > _MARKS_MAX:  # there would be a mark for each
                    raise _Forged from damage
                return [_Cell(b"", NO_REFS, 0, False, str(damage))]
            half = span.count // 2
            first = Span(span.thread, span.log, span.start, half, span.first, span.last)
            second = Span(span.thread, span.log, span.start + half, span.count - half, span.first, span.last)
            return self._read([first]) + self._read([second])
        found: list[_Cell] = []
        for span, cells in zip(spans, read, strict=True):
            bodies = cells.cells
            size = sum(map(len, bodies))
            if span not in self._seen:
                self._seen.add(span)
                self._stored += size
            self._spend(size)
            refs = cells.refs or [NO_REFS] * len(bodies)
            found += [_Cell(body, own, span.thread, holds_refs(span)) for body, own in zip(bodies, refs, strict=True)]
        return found

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > self._most():
            raise _Forged

    def _most(self) -> int:
        return _READ // 64 * min(self._size, max(_SLACK, 1_000 * self._stored)) + _SLACK

    def _mark(self, path: str, why: object) -> MissingValue:
        if len(self.lost) >= _MARKS_MAX:
            raise _Forged
        mark = MissingValue(path, str(why))
        self.lost.append(mark)
        return mark
