"""Pieces: store a list of short items or a growing string so that a save writes only what is new.

The encoded bytes of the value are compared with the pieces of the base. A piece that is found again is kept, and what
lies between kept pieces is cut into new ones. New pieces at the end go to the log of the part, where they continue its
last span. The last piece may still grow: until it has its full size it is written to the log of units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from holdfast.codec import msgpack
from holdfast.delta.draft import Draft, fold
from holdfast.delta.parts import (
    ITEMS_PIECE,
    TEXT_PIECE,
    Kind,
    Large,
    LogKind,
    Part,
    Pieces,
    Unit,
    join_spans,
    key_of,
)
from holdfast.stores.contract import Span

HEADERS: dict[Kind, Callable[[int], bytes]] = {
    Kind.SHORT_LIST: msgpack.array_header,
    Kind.SHORT_TUPLE: msgpack.array_header,
    Kind.TEXT: msgpack.text_header,
    Kind.BINARY: msgpack.binary_header,
}
"""What writes the header of a cell, by kind. Kinds that are not here have no pieces."""
STRINGS = frozenset((Kind.TEXT, Kind.BINARY))

_WINDOW = 16_384  # a piece that is not in its place is looked for in this many bytes
_SHARED = 3  # a string is cut into pieces if about one part in this many did not change
_SAMPLES = 9
_SAMPLE = 256


def items_in_pieces(value: list[Any] | tuple[Any, ...], base: Part | None, draft: Draft, depth: int) -> Pieces:
    """The part for a list or tuple of short items."""
    kind = Kind.SHORT_LIST if type(value) is list else Kind.SHORT_TUPLE
    known = base if isinstance(base, Pieces) and base.kind is kind else _nothing(kind)
    items = list(value)
    content = _Items(items, msgpack.encode_items(items), depth + 1)
    return _changed(content, _kept(content, known), known, draft)


def string_in_pieces(value: str | bytes, base: Part | None, draft: Draft) -> Pieces | None:
    """The part for a string that shares much with the one in the base; None if it does not."""
    kind = Kind.TEXT if isinstance(value, str) else Kind.BINARY
    known = base if isinstance(base, Pieces) and base.kind is kind else None
    if known is not None and known.value is value:
        return known
    unread = base if isinstance(base, Large) and base.value is None else None
    if known is None and unread is None and not _is_similar(value, base):
        return None
    try:
        content = _String(value.encode() if isinstance(value, str) else value)
    except UnicodeEncodeError:  # lone surrogates: the codec has an extension for them
        return None
    if unread is not None and not _starts_with(content.data, unread, draft):
        return None
    kept: list[_Stretch] = []
    if known is not None:
        kept = _kept(content, known)
        if sum(stretch.stop - stretch.start for stretch in kept) * _SHARED < content.length:
            return None
    part = _changed(content, kept, known or _nothing(kind), draft)
    part.value = value
    return part


def _nothing(kind: Kind) -> Pieces:
    return Pieces(kind, [], [], None, [], (0, (), {}))


def _is_similar(value: str | bytes, base: Part | None) -> bool:
    """Whether the string in the base is another one that shares much with this one."""
    old: Any = None
    if isinstance(base, Large):
        old = base.value
    elif isinstance(base, Unit):
        old = msgpack.decode(base.plain)
    return type(old) is type(value) and old != value and shares_much(old, value)


def shares_much(old: Any, new: Any) -> bool:
    """Whether the new string, which is not much longer, has a third of the samples taken from the old one."""
    step = len(old) // _SAMPLES + 1
    samples = [old[at : at + min(step, _SAMPLE)] for at in range(0, len(old), step)]
    return len(new) < _SHARED * len(old) and _SHARED * sum(sample in new for sample in samples) >= len(samples)


def _starts_with(data: bytes, blob: Large, draft: Draft) -> bool:
    """Whether much of the string is a blob that was not read, and more follows."""
    size = blob.size
    return len(data) < _SHARED * size and size < len(data) and draft.address(data[:size]) == blob.digest


# -- what a value consists of -----------------------------------------------------------------------------------------


class _Items:
    """Items of a list. An index is that of an item."""

    target = ITEMS_PIECE

    def __init__(self, items: list[Any], data: bytes, depth: int) -> None:
        self._items = items
        self._depth = depth
        self.data = data
        self.length = len(items)

    def after(self, index: int, start: int, stop: int) -> int | None:
        """The index of the item that starts at byte `stop`, if the one at `index` starts at `start`; None if none does.

        None also if another thread has changed an item in between.
        """
        while start < stop and index < self.length:
            plain = msgpack.encode(self._items[index])
            if not self.data.startswith(plain, start):
                return None
            start += len(plain)
            index += 1
        return index if start == stop else None

    def cut(self, start: int, end: int) -> Iterator[tuple[bytes, int]]:
        """New pieces of the items from `start` to `end`, with the number of items in each."""
        plains: list[bytes] = []
        size = 0
        for item in self._items[start:end]:
            msgpack.check(item, self._depth)
            plain = msgpack.encode(item)
            if plains and size + len(plain) > 4 * self.target:  # a long item does not share a piece
                yield b"".join(plains), len(plains)
                plains, size = [], 0
            plains.append(plain)
            size += len(plain)
            if size >= self.target:
                yield b"".join(plains), len(plains)
                plains, size = [], 0
        if plains:
            yield b"".join(plains), len(plains)


class _String:
    """The UTF-8 of a text, or bytes. An index is that of a byte."""

    target = TEXT_PIECE

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)

    def after(self, index: int, start: int, stop: int) -> int:
        return index + stop - start

    def cut(self, start: int, end: int) -> Iterator[tuple[bytes, int]]:
        data = self.data
        while start < end:
            stop = min(start + self.target, end)
            while stop < end and data[stop] & 0xC0 == 0x80 and stop < start + self.target + 3:  # not inside a character
                stop += 1
            yield data[start:stop], stop - start
            start = stop


_Content = _Items | _String


# -- what is kept -----------------------------------------------------------------------------------------------------


class _Stretch(msgspec.Struct, gc=False):
    """Pieces `first` to `end` of the base: the bytes `start` to `stop` of the value, which start at `index`."""

    start: int
    stop: int
    index: int
    first: int
    end: int


def _kept(content: _Content, base: Pieces) -> list[_Stretch]:
    """The pieces of the base that the value still has, in order.

    They are expected one after the other. Where one is not in its place, the next ones are looked for nearby, as often
    as there are pieces. If none is found, the rest is compared from the end.
    """
    data, bodies, widths = content.data, base.bodies, base.widths
    count = len(bodies)
    stretches: list[_Stretch] = []
    at = index = place = 0
    tries = 2 * count
    while True:
        start, first = at, place
        while place < count and data.startswith(bodies[place], at):
            at += len(bodies[place])
            place += 1
        if place > first:
            stretches.append(_Stretch(start, at, index, first, place))
            index += sum(widths[first:place])
        found = None
        for candidate in range(place, min(count, place + tries) if at < len(data) else place):
            tries -= 1
            position = data.find(bodies[candidate], at, at + _WINDOW)
            if position >= 0 and (found := content.after(index, at, position)) is not None:
                at, index, place = position, found, candidate
                break
        if found is None:
            break
    stop, end = len(data), count
    while end > place and stop - len(bodies[end - 1]) >= at and data.endswith(bodies[end - 1], at, stop):
        end -= 1
        stop -= len(bodies[end])
    if end < count and (found := content.after(index, at, stop)) is not None:
        stretches.append(_Stretch(stop, len(data), found, end, count))
    return stretches


def _absorb_small_ones(stretches: list[_Stretch], content: _Content, base: Pieces) -> None:
    """Take small pieces next to a change out of the stretches: they become part of the new pieces."""
    bodies, small = base.bodies, content.target // 2
    at = 0
    for stretch, following in zip_longest(stretches, stretches[1:]):
        if stretch.start > at and len(bodies[stretch.first]) < small:
            stretch.start += len(bodies[stretch.first])
            stretch.index += base.widths[stretch.first]
            stretch.first += 1
        at = stretch.stop
        # The last piece of the base is not full if it is smaller than others may be.
        limit = content.target if stretch.end == len(bodies) else small
        after = len(content.data) if following is None else following.start
        if at < after and stretch.first < stretch.end and len(bodies[stretch.end - 1]) < limit:
            stretch.end -= 1
            stretch.stop -= len(bodies[stretch.end])


def _spans_of(stretches: list[_Stretch], spans: Sequence[Span]) -> Iterator[list[Span]]:
    """The spans of each stretch, from the spans of the base."""
    number = position = 0  # the span, and the cell at which it starts
    for stretch in stretches:
        found: list[Span] = []
        first = stretch.first
        while first < stretch.end:
            span = spans[number]
            if position + span.count <= first:
                position += span.count
                number += 1
                continue
            skip = first - position
            taken = min(stretch.end - first, span.count - skip)
            found.append(Span(span.thread, span.log, span.start + skip, taken, span.first, span.last))
            first += taken
        yield found


# -- the new part -----------------------------------------------------------------------------------------------------


def _changed(content: _Content, stretches: list[_Stretch], base: Pieces, draft: Draft) -> Pieces:
    """The part: kept pieces, and new ones between them. New pieces are added to the draft."""
    if stretches and stretches[0] == _Stretch(0, len(content.data), 0, 0, len(base.bodies)):
        return base
    _absorb_small_ones(stretches, content, base)
    new = _New(content, base, draft)
    index = 0
    for stretch, spans in zip(stretches, _spans_of(stretches, base.cells), strict=True):
        new.cut(index, stretch.index, last=False)
        widths = base.widths[stretch.first : stretch.end]
        new.bodies += base.bodies[stretch.first : stretch.end]
        new.widths += widths
        new.cells += spans
        index = stretch.index + sum(widths)
    new.cut(index, content.length, last=True)
    cells = join_spans(new.cells)
    return Pieces(base.kind, new.bodies, new.widths, new.log_kind, cells, fold(cells, base.tables, draft))


class _New:
    """The pieces of a new part, in order."""

    def __init__(self, content: _Content, base: Pieces, draft: Draft) -> None:
        self.bodies: list[bytes] = []
        self.widths: list[int] = []
        self.cells: list[Span] = []
        # A new branch opens logs of its own, so the log numbers of the base do not apply to it.
        self.log_kind = base.log_kind if draft.linear else None
        self._content = content
        self._header = HEADERS[base.kind]
        self._draft = draft

    def cut(self, start: int, end: int, *, last: bool) -> None:
        """Add new pieces from index `start` to `end`, which is the end of the value if they are the `last`."""
        target = self._content.target
        pieces = list(self._content.cut(start, end)) if start < end else []
        if not last and len(pieces) > 1 and 2 * len(pieces[-1][0]) < target:
            (body, width), (rest, more) = pieces[-2:]
            pieces[-2:] = [(body + rest, width + more)]
        for body, width in pieces:
            log: int = LogKind.UNIT
            if last and len(body) >= target:
                log = self.log_kind = self._draft.items_log(self.log_kind)
            cell = self._header(width) + body
            self.bodies.append(body)
            self.widths.append(width)
            self.cells.append(self._draft.append(log, cell, key_of(cell)))
