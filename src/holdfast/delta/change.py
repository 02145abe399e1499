"""Find what changed: compare the current value with the part that was stored at its place.

Every byte of the value is encoded again and compared with the bytes last stored, so a change at any depth is found, of
a value or only of its type. That is fast because chunks of items are encoded in C; Python looks at single items only in
chunks that differ. `==` would miss `1` → `True`; object identity would miss a change in place.
"""

from __future__ import annotations

from itertools import accumulate
from operator import is_
from typing import Any

from holdfast.codec import msgpack
from holdfast.delta.draft import Draft, fold
from holdfast.delta.hints import Apart, Extended, Kept
from holdfast.delta.parts import (
    CHUNK_ITEMS,
    INLINE_MAX,
    LARGE_MIN,
    MAP_AGAIN,
    MAP_MAX,
    SMALL_AGAIN,
    SMALL_ITEM,
    SPLIT_ALWAYS,
    SPLIT_MIN,
    STRUCTURE_DEPTH,
    UNIT_MAX,
    Chunk,
    Ext,
    Kind,
    Large,
    Map,
    Part,
    Pieces,
    Series,
    Split,
    Unit,
    is_map,
    join_spans,
    key_of,
    refs_of,
)
from holdfast.delta.pieces import items_in_pieces, shares_much, string_in_pieces
from holdfast.errors import Unsupported
from holdfast.stores.contract import Span

_STRUCTURED = (Map, Series)
_HINTS = frozenset((Kept, Extended, Apart))
_NUMBERS = (int, float, bool)
_KINDS: dict[type, Kind] = {list: Kind.LIST, tuple: Kind.TUPLE, dict: Kind.DICT}
_STR = frozenset((str,))


def changed(state: Any, base: Part | None, draft: Draft) -> Part:
    """The part for a whole state. What is new is added to the draft.

    Raises Unsupported, with its path, for a value that cannot be stored.
    """
    try:
        if type(state) is dict:
            state = state.copy()  # as in `_structured`
            # The members of a dict go into the skeleton itself.
            if stays_map(state, base):
                return _map(state, base, draft, 0)
        return _part(state, base, draft, 0)
    except Unsupported:
        # No path is kept on the way down. Only a state that is refused pays for finding it.
        msgpack.check(_without_hints(state))
        raise


def _part(value: Any, base: Part | None, draft: Draft, depth: int) -> Part:
    """The part for a value: `base` itself if nothing in it changed."""
    kind = type(value)
    if kind in _HINTS:
        return _hinted(value, base, draft, depth)
    container = (kind is dict or kind is list or kind is tuple) and len(value) > 0
    if container:
        # If it was large before, divide it without encoding it first. Otherwise every level would be encoded again for
        # each level above it.
        if isinstance(base, _STRUCTURED) and base.size > 2 * UNIT_MAX and depth < STRUCTURE_DEPTH:
            return _structured(value, base, draft, depth)
    elif (kind is str or kind is bytes) and len(value) >= UNIT_MAX:
        return _string(value, base, draft)
    plain = msgpack.encode(value)
    if isinstance(base, Unit) and base.plain == plain:
        return base
    if container and len(plain) > UNIT_MAX and depth < STRUCTURE_DEPTH:
        if _is_fine_grained(value, len(plain), base):
            return items_in_pieces(value, base, draft, depth)
        return _structured(value, base, draft, depth)
    return _unit(value, plain, base, draft, depth)


def _is_fine_grained(value: Any, size: int, base: Part | None) -> bool:
    """Whether the items of a list are so small that cells of their own would cost more than the items."""
    limit = SMALL_AGAIN if isinstance(base, Pieces) else SMALL_ITEM
    return type(value) is not dict and size < len(value) * limit


# -- hints of the caller ----------------------------------------------------------------------------------------------


def _hinted(value: Kept | Extended | Apart, base: Part | None, draft: Draft, depth: int) -> Part:
    if isinstance(value, Kept):
        return value.part
    if isinstance(value, Apart):
        return _series(value.items, base, draft, depth)
    return _series(value.items, value.part, draft, depth, keep=value.keep)


def _without_hints(value: Any) -> Any:
    """A state with each hint replaced by its value, to find what cannot be stored. None replaces kept values."""
    return (
        {key: _without_hint(member) for key, member in value.items()} if type(value) is dict else _without_hint(value)
    )


def _without_hint(value: Any) -> Any:
    if isinstance(value, Apart):
        return value.items
    if isinstance(value, Extended):
        return [None] * value.keep + value.items
    return None if isinstance(value, Kept) else value


# -- values stored as a whole -----------------------------------------------------------------------------------------


def _unit(value: Any, plain: bytes, base: Part | None, draft: Draft, depth: int) -> Part:
    msgpack.check(value, depth)
    if len(plain) <= INLINE_MAX:
        return Unit(plain, None)
    if len(plain) >= LARGE_MIN:
        return _blob(Ext.PACKED, plain, None, base, draft)
    return draft.unit(plain)


def _string(value: str | bytes, base: Part | None, draft: Draft) -> Part:
    if len(value) >= LARGE_MIN:
        return string_in_pieces(value, base, draft) or _large(value, base, draft)
    plain = msgpack.encode(value)
    if isinstance(base, Unit) and base.plain == plain:
        return base
    return string_in_pieces(value, base, draft) or _unit(value, plain, base, draft, 0)


def _large(value: str | bytes, base: Part | None, draft: Draft) -> Part:
    known = base if isinstance(base, Large) and base.value is value else draft.large(id(value))
    if known is not None and known.value is value:
        return known
    if isinstance(value, bytes):
        return _blob(Ext.BINARY, value, value, base, draft)
    try:
        return _blob(Ext.TEXT, value.encode(), value, base, draft)
    except UnicodeEncodeError:  # lone surrogates: the codec has an extension for them
        return _blob(Ext.PACKED, msgpack.encode(value), value, base, draft)


def _blob(ext: Ext, data: bytes, value: str | bytes | None, base: Part | None, draft: Draft) -> Part:
    digest = draft.address(data)
    known = base if isinstance(base, Large) and base.digest == digest else draft.large(digest)
    if known is not None and known.ext is ext:
        known.value = value
        return known
    draft.add_blob(digest, data)
    return Large(ext, digest, len(data), value)


# -- dicts and series -------------------------------------------------------------------------------------------------


def _structured(value: Any, base: Part | None, draft: Draft, depth: int) -> Part:
    if type(value) is dict:
        # A container that is divided is copied first: another thread may change it before all its parts are made.
        value = value.copy()
        if stays_map(value, base):
            found = _map(value, base, draft, depth)
            if found.span is None:
                draft.place(found)
            return found
    return _series(value, base, draft, depth)


def stays_map(value: dict[Any, Any], base: Part | None) -> bool:
    """Whether a dict is divided into its values, if `base` was at its place: then they may be hints."""
    if isinstance(base, Map) and base.keys == list(value):
        # The types are checked, because a str subclass compares equal to the stored str and cannot be stored.
        return 0 < len(value) <= MAP_MAX and _STR.issuperset(map(type, value))
    return is_map(value) and not (isinstance(base, Series) and len(value) > MAP_AGAIN)


def _map(value: dict[str, Any], base: Part | None, draft: Draft, depth: int) -> Map:
    keys = list(value)
    if not isinstance(base, Map) or base.keys != keys:
        known = dict(zip(base.keys, base.parts, strict=True)) if isinstance(base, Map) else {}
        return Map(keys, [_part(member, known.get(key), draft, depth + 1) for key, member in value.items()])
    parts = base.parts
    found = [_part(member, old, draft, depth + 1) for member, old in zip(value.values(), parts, strict=True)]
    return base if all(map(is_, found, parts)) else base.with_parts(found)


def _series(value: Any, base: Part | None, draft: Draft, depth: int, *, keep: int = 0) -> Series:
    kind = _KINDS[type(value)]
    known = base if isinstance(base, Series) and base.kind is kind else None
    # The items in a list of their own; of a dict: key, value, key, value …
    flat = [x for entry in value.items() for x in entry] if kind is Kind.DICT else list(value)
    change = _SeriesChange(flat, 2 if kind is Kind.DICT else 1, known, draft, depth)
    chunks, item_log_kind = change.run(keep)
    if known is not None and len(chunks) == len(known.chunks) and all(map(is_, chunks, known.chunks)):
        return known
    spans: list[Span] = []
    for chunk in chunks:
        spans += chunk.spans
    level, named, tables = fold(spans, known.tables if known is not None else {}, draft)
    return Series(kind, chunks, item_log_kind, level, named, tables)


class _SeriesChange:
    """One pass over the items of a series.

    As long as the chunks of the base are where they are expected, each costs one encoding. Where one is not, items are
    looked up by their bytes until one of them starts or ends a chunk: from there chunks are expected again.
    """

    def __init__(self, flat: list[Any], stride: int, base: Series | None, draft: Draft, depth: int) -> None:
        self._flat = flat
        self._stride = stride
        self._base = base.chunks if base is not None else []
        # A new branch opens logs of its own, so the log numbers of the base do not apply to it.
        self._log_kind = base.log_kind if base is not None and draft.linear else None
        self._draft = draft
        self._depth = depth + 1
        self._chunks: list[Chunk | Split] = []
        # Items taken one by one, which will make the next chunk.
        self._plains: list[bytes] = []
        self._keys: list[int] = []
        self._spans: list[Span] = []
        self._places: dict[int, int] | None = None

    def run(self, keep: int = 0) -> tuple[list[Chunk | Split], int | None]:
        """The chunks of the first `keep` items of the base and of all given items, and the log kind of new items."""
        count = len(self._flat) // self._stride
        expected = self._keep_first(keep) if keep else 0
        at = 0
        while at < count:
            chunk = self._base[expected] if expected < len(self._base) else None
            if isinstance(chunk, Split):
                self._flush()
                self._chunks.append(self._split(at, chunk))
                at += 1
                expected += 1
            elif chunk is not None and self._matches(at, chunk):
                if self._plains:  # not a call per chunk: most chunks of a long list match
                    self._flush()
                self._chunks.append(chunk)
                at += chunk.count
                expected += 1
            else:
                at, expected = self._look_up(at, chunk)
        self._flush()
        return self._chunks, self._log_kind

    def _keep_first(self, keep: int) -> int:
        """Keep the first `keep` items of the base. Return the place of the chunk that is expected next."""
        for place, chunk in enumerate(self._base):
            if keep < chunk.count:
                if isinstance(chunk, Chunk) and keep:
                    ends = list(accumulate(chunk.lengths[:keep]))
                    plains = [chunk.plain[end - size : end] for end, size in zip(ends, chunk.lengths, strict=False)]
                    for taken in zip(plains, chunk.keys, chunk.item_spans(), strict=False):
                        self._take(*taken)
                return place
            self._keep(chunk)
            keep -= chunk.count
        return len(self._base)

    def _matches(self, at: int, chunk: Chunk) -> bool:
        start = at * self._stride
        end = start + chunk.count * self._stride
        if end > len(self._flat):
            return False
        plain = chunk.joined or chunk.plain
        whole = msgpack.encode(self._flat[start:end])
        # The header is compared by its length, not cut off: that would copy everything that did not change.
        header = 1 if end - start < 16 else 3  # a chunk has at most 64 values
        return len(whole) == header + len(plain) and whole.endswith(plain)

    def _keep(self, chunk: Chunk | Split) -> None:
        self._flush()
        self._chunks.append(chunk)

    def _look_up(self, at: int, missed: Chunk | None) -> tuple[int, int]:
        """Take items one by one from `at` until a chunk can be expected again. Return where, and which chunk."""
        count = len(self._flat) // self._stride
        draft = self._draft
        missed_at = at
        while at < count:
            start = at * self._stride
            values = self._flat[start : start + self._stride]
            plain = msgpack.encode_items(values)
            key = key_of(plain)
            holder = draft.holder(key)
            place = holder.place_of(key, plain) if isinstance(holder, Chunk) else None
            if isinstance(holder, Chunk) and place is not None:
                # A small chunk of another series is taken item by item: if it were kept, it would stay small.
                worth_keeping = self._place(holder) < len(self._base) or 2 * holder.count > CHUNK_ITEMS
                if place == 0 and worth_keeping and holder is not missed and self._matches(at, holder):
                    self._keep(holder)
                    return at + holder.count, self._place(holder) + 1
                self._take(plain, key, holder.item_span(place))
                if place == holder.count - 1 and (found := self._place(holder)) < len(self._base):
                    return at + 1, found + 1
            elif len(plain) > SPLIT_MIN and (
                len(plain) > SPLIT_ALWAYS
                or any(map(_worth_splitting, values))
                or _is_edited(plain, missed, at - missed_at)
            ):
                self._flush()
                self._chunks.append(self._split(at, None))
            else:
                new = draft.new.get(key)
                span = new[1] if new is not None and new[0] == plain else None
                if span is None and holder is not None:
                    span = holder.locate(key, plain)
                if span is None:
                    for value in values:
                        msgpack.check(value, self._depth)
                    self._log_kind = draft.items_log(self._log_kind)
                    span = draft.append(self._log_kind, plain, key)
                self._take(plain, key, span)
            at += 1
        return at, len(self._base)

    def _take(self, plain: bytes, key: int, span: Span) -> None:
        if len(self._plains) == CHUNK_ITEMS:
            self._flush()
        self._plains.append(plain)
        self._keys.append(key)
        self._spans.append(span)

    def _flush(self) -> None:
        """Make a chunk of the items taken one by one, together with the chunk before if both are small."""
        if not self._plains:
            return
        before = self._chunks[-1] if self._chunks else None
        if isinstance(before, Chunk) and before.count + len(self._plains) <= CHUNK_ITEMS:
            self._chunks.pop()
            chunk = before.extended(self._plains, self._spans, self._keys)
        else:
            lengths = list(map(len, self._plains))
            chunk = Chunk(self._plains, lengths, join_spans(self._spans), tuple(self._keys))
        self._draft.holders.append((chunk, chunk.keys))
        self._chunks.append(chunk)
        self._plains, self._keys, self._spans = [], [], []

    def _split(self, at: int, base: Split | None) -> Split:
        start = at * self._stride
        values = self._flat[start : start + self._stride]
        known = base.parts if base is not None else (None,) * self._stride
        parts = [_part(value, old, self._draft, self._depth) for value, old in zip(values, known, strict=True)]
        if base is not None and all(map(is_, parts, base.parts)):
            return base
        found = tuple(parts)
        return self._draft.split(found, b"".join(p.embed for p in found), refs_of(found))

    def _place(self, chunk: Chunk) -> int:
        """The place of a chunk in the base, or past its end if the chunk belongs to another series."""
        if self._places is None:
            self._places = {id(known): i for i, known in enumerate(self._base)}
        return self._places.get(id(chunk), len(self._base))


def _is_edited(plain: bytes, missed: Chunk | None, number: int) -> bool:
    """Whether the item of a chunk with this number was changed in part. Such an item is likely to change again."""
    if missed is None or number >= missed.count:
        return False
    start = sum(missed.lengths[:number])
    old = missed.plain[start : start + missed.lengths[number]]
    return shares_much(old, plain)


def _worth_splitting(value: Any) -> bool:
    """Whether a value holds a long list, a large dict or a large string, which may change or repeat on its own."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) >= LARGE_MIN
    if kind is dict:
        return len(value) > MAP_MAX or any(map(_worth_splitting, [*value.values()]))  # as in `_structured`
    if kind is list or kind is tuple:
        first = value[:1]
        if first and type(first[0]) in _NUMBERS:  # an embedding changes as a whole, if at all
            return False
        return len(value) >= CHUNK_ITEMS // 2 or any(map(_worth_splitting, value))
    return False
