"""Finding what changed: the value now, against the part that was stored for its place.

Sound first: every byte of the value is encoded anew and compared with the bytes last stored, so a change at any depth,
of value or only of type, is seen. Cheap because encoding runs in C over chunks of items; Python looks at single items
only in chunks that differ. `==` would miss `1` → `True`; object identity would miss mutation in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from holdfast.codec import msgpack
from holdfast.delta.draft import Draft, LogKind, log_branch, log_kind
from holdfast.delta.hints import Apart, Extended, Kept
from holdfast.delta.parts import (
    CHUNK_ITEMS,
    INLINE_MAX,
    LARGE_MIN,
    MAP_AGAIN,
    MAP_MAX,
    SMALL_ITEM,
    SMALL_ITEMS_MAX,
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
    Series,
    Split,
    Unit,
    digest_of,
    flatten,
    is_map,
    join_spans,
    node_digest,
    refs_of,
)
from holdfast.errors import Unsupported
from holdfast.stores.contract import Refs, Span

TABLE_MAX = 64  # spans a skeleton names itself; more go into table cells
_BLOCK_MIN = 8
_BLOCK_MAX = 128


def fold(spans: Sequence[Span], known: dict[bytes, Span], draft: Draft) -> tuple[int, list[Span], dict[bytes, Span]]:
    """Level, spans to name and the tables in use. `known` are the tables of the last save, reused where equal."""
    tables: dict[bytes, Span] = {}
    level = 0
    named = join_spans(spans)
    while len(named) > TABLE_MAX:
        blocks: list[Span] = []
        for block in _blocks(named):
            refs = Refs(tuple(block))
            digest = node_digest(b"", refs)
            span = known.get(digest)
            if span is None:
                span, _ = draft.node(b"", refs)
            tables[digest] = span
            blocks.append(span)
        named = join_spans(blocks)
        level += 1
    return level, named, tables


def _blocks(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Cut where the spans themselves say so: an insertion moves no cut but those beside it.

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


_STRUCTURED = (Map, Series)
_KNOWN = frozenset((Kept, Extended, Apart))
_NUMBERS = (int, float, bool)
_KINDS: dict[type, Kind] = {list: Kind.LIST, tuple: Kind.TUPLE, dict: Kind.DICT}


def changed(state: Any, base: Part | None, draft: Draft) -> Part:
    """The part for a whole state, what is new put into the draft. Raises Unsupported with the path of the culprit."""
    try:
        return _root(state, base, draft)
    except Unsupported:
        # Paths are not kept on the way down: only a state that is refused pays for finding where.
        msgpack.check(_unfolded(state))
        raise


def _root(value: Any, base: Part | None, draft: Draft) -> Part:
    """A dict's members go into the skeleton itself."""
    if type(value) is dict and _stays_map(value, base):
        return _map(value, base, draft, 0)
    return _part(value, base, draft, 0)


def _part(value: Any, base: Part | None, draft: Draft, depth: int) -> Part:
    """The part for a value: `base` itself if nothing in it changed."""
    kind = type(value)
    if kind in _KNOWN:
        return _known(value, base, draft, depth)
    container = (kind is dict or kind is list or kind is tuple) and len(value) > 0
    if container:
        # What was big is big still: without this every level would be encoded once for itself and once per parent.
        if isinstance(base, _STRUCTURED) and base.size > 2 * UNIT_MAX and depth < STRUCTURE_DEPTH:
            return _structured(value, base, draft, depth)
    elif (kind is str or kind is bytes) and len(value) >= LARGE_MIN:
        return _large(value, base, draft)
    plain = msgpack.encode(value)
    if isinstance(base, Unit) and base.plain == plain:
        return base
    if container and len(plain) > UNIT_MAX and depth < STRUCTURE_DEPTH and not _is_fine_grained(value, len(plain)):
        return _structured(value, base, draft, depth)
    return _unit(value, plain, base, draft, depth)


def _known(value: Kept | Extended | Apart, base: Part | None, draft: Draft, depth: int) -> Part:
    """The part for what the caller knows something of."""
    if isinstance(value, Apart):
        inner = value.value
        if isinstance(inner, dict):
            found = _map(inner, base, draft, depth)
            if found.span is None:
                draft.place(found)
            return found
        return _series(inner, base, draft, depth, beside=value.beside)
    if isinstance(value, Kept):
        return value.part
    return _series(value.items, value.part, draft, depth, keep=value.keep)


def _unfolded(value: Any) -> Any:
    """A state with what the caller said of it taken away, to look for what cannot be stored: what was kept, can be."""
    return {key: _plain(member) for key, member in value.items()} if type(value) is dict else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Apart):
        return _unfolded(value.value)
    if isinstance(value, Extended):
        return [None] * value.keep + value.items
    return None if isinstance(value, Kept) else value


def _is_fine_grained(value: Any, size: int) -> bool:
    """Whether a list holds so little per item that cells of their own would cost more than the items."""
    return type(value) is not dict and size <= SMALL_ITEMS_MAX and size < len(value) * SMALL_ITEM


def _unit(value: Any, plain: bytes, base: Part | None, draft: Draft, depth: int) -> Part:
    msgpack.check(value, depth)
    if len(plain) <= INLINE_MAX:
        return Unit(plain, None)
    if len(plain) >= LARGE_MIN:
        return _shared(Ext.PACKED, plain, None, base, draft)
    return draft.unit(plain)


def _large(value: str | bytes, base: Part | None, draft: Draft) -> Part:
    known = base if isinstance(base, Large) and base.value is value else draft.large(id(value))
    if known is not None and known.value is value:
        return known
    if isinstance(value, bytes):
        return _shared(Ext.BINARY, value, value, base, draft)
    try:
        return _shared(Ext.TEXT, value.encode(), value, base, draft)
    except UnicodeEncodeError:  # lone surrogates: the codec knows how
        return _shared(Ext.PACKED, msgpack.encode(value), value, base, draft)


def _shared(ext: Ext, data: bytes, value: str | bytes | None, base: Part | None, draft: Draft) -> Part:
    digest = draft.address(data)
    known = base if isinstance(base, Large) and base.digest == digest else draft.large(digest)
    if known is not None and known.ext is ext:
        known.value = value
        return known
    draft.value(digest, data)
    return Large(ext, digest, len(data), value)


def _structured(value: Any, base: Part | None, draft: Draft, depth: int) -> Part:
    if type(value) is dict and _stays_map(value, base):
        found = _map(value, base, draft, depth)
        if found.span is None:
            draft.place(found)
        return found
    return _series(value, base, draft, depth)


def _stays_map(value: dict[Any, Any], base: Part | None) -> bool:
    return is_map(value) and not (isinstance(base, Series) and len(value) > MAP_AGAIN)


def _map(value: dict[str, Any], base: Part | None, draft: Draft, depth: int) -> Map:
    keys = list(value)
    if not isinstance(base, Map) or base.keys != keys:
        known = dict(zip(base.keys, base.parts, strict=True)) if isinstance(base, Map) else {}
        return Map(keys, [_part(member, known.get(key), draft, depth + 1) for key, member in value.items()])
    parts = base.parts
    found = [_part(member, old, draft, depth + 1) for member, old in zip(value.values(), parts, strict=True)]
    return base if all(map(_same, found, parts)) else base.with_parts(found)


def _series(
    value: Any, base: Part | None, draft: Draft, depth: int, *, keep: int = 0, beside: Part | None = None
) -> Series:
    kind = _KINDS[type(value)]
    known = base if isinstance(base, Series) and base.kind is kind else None
    change = _SeriesChange(flatten(value), 2 if kind is Kind.DICT else 1, known, draft, depth, beside)
    chunks, log = change.run(keep)
    if known is not None and len(chunks) == len(known.chunks) and all(map(_same, chunks, known.chunks)):
        return known
    spans = [run for chunk in chunks for run in chunk.runs]
    level, named, tables = fold(spans, known.tables if known is not None else {}, draft)
    return Series(kind, chunks, log, level, named, tables)


def _same(a: object, b: object) -> bool:
    return a is b


class _SeriesChange:
    """One pass over the items of a series.

    As long as the chunks of the base lie where they are expected, each costs one encoding. Where one does not, items
    are looked up by their bytes until one turns up that starts a chunk, or ends one, from where chunks match again.
    """

    def __init__(
        self, flat: list[Any], stride: int, base: Series | None, draft: Draft, depth: int, beside: Part | None = None
    ) -> None:
        self._flat = flat
        self._stride = stride
        self._base = base.chunks if base is not None else []
        # A new branch opens logs of its own; the numbers of the old ones would mix them up.
        home = beside if isinstance(beside, Series) else base
        self._log = home.log if home is not None and draft.linear else None
        if self._log is None and home is beside and isinstance(home, Series) and draft.linear:
            self._log = _last_log(home, draft.branch)
        self._draft = draft
        self._depth = depth + 1
        self._chunks: list[Chunk | Split] = []
        self._plains: list[bytes] = []
        self._digests: list[bytes] = []
        self._spans: list[Span] = []
        self._places: dict[int, int] | None = None

    def run(self, keep: int = 0) -> tuple[list[Chunk | Split], int | None]:
        """The chunks of the first `keep` items of the base and of all items given, and the log new ones went to."""
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
                self._keep(chunk)
                at += chunk.count
                expected += 1
            else:
                at, expected = self._look_up(at, chunk)
        self._flush()
        return self._chunks, self._log

    def _keep_first(self, keep: int) -> int:
        """Take over the first `keep` items of the base; which of its chunks is to be expected next."""
        for place, chunk in enumerate(self._base):
            if keep < chunk.count:
                if isinstance(chunk, Chunk) and keep:
                    ends = list(accumulate(chunk.lengths[:keep]))
                    plains = [chunk.plain[end - size : end] for end, size in zip(ends, chunk.lengths, strict=False)]
                    for taken in zip(plains, chunk.digests, chunk.item_spans(), strict=False):
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
        whole = msgpack.encode(self._flat[start:end])
        # Not encode_items: comparing behind the header saves a copy of all that did not change.
        header = len(msgpack.array_header(end - start))
        return len(whole) == header + len(chunk.plain) and whole.endswith(chunk.plain)

    def _keep(self, chunk: Chunk | Split) -> None:
        self._flush()
        self._chunks.append(chunk)

    def _look_up(self, at: int, missed: Chunk | None) -> tuple[int, int]:
        """Take items one by one from `at` until chunks can be expected again; where, and which chunk."""
        count = len(self._flat) // self._stride
        while at < count:
            start = at * self._stride
            values = self._flat[start : start + self._stride]
            plain = msgpack.encode_items(values)
            digest = digest_of(plain)
            owner = self._draft.owner(digest)
            if isinstance(owner, Chunk):
                place = owner.digests.index(digest)
                # A small chunk of another series is taken item by item: kept, it would stay as small for ever.
                worth_keeping = self._place(owner) < len(self._base) or 2 * owner.count > CHUNK_ITEMS
                if place == 0 and worth_keeping and owner is not missed and self._matches(at, owner):
                    self._keep(owner)
                    return at + owner.count, self._place(owner) + 1
                self._take(plain, digest, owner.item_spans()[place])
                if place == owner.count - 1 and (found := self._place(owner)) < len(self._base):
                    return at + 1, found + 1
            elif len(plain) > SPLIT_MIN and (len(plain) > SPLIT_ALWAYS or any(map(_worth_splitting, values))):
                self._flush()
                self._chunks.append(self._split(at, None))
            else:
                span = self._draft.find(digest)
                if span is None:
                    for value in values:
                        msgpack.check(value, self._depth)
                    self._log = self._draft.items_log(self._log)
                    span = self._draft.append(self._log, plain, digest)
                self._take(plain, digest, span)
            at += 1
        return at, len(self._base)

    def _take(self, plain: bytes, digest: bytes, span: Span) -> None:
        if len(self._plains) == CHUNK_ITEMS:
            self._flush()
        self._plains.append(plain)
        self._digests.append(digest)
        self._spans.append(span)

    def _flush(self) -> None:
        """Make the items taken one by one a chunk, together with the chunk before if both are small."""
        if not self._plains:
            return
        before = self._chunks[-1] if self._chunks else None
        if isinstance(before, Chunk) and before.count + len(self._plains) <= CHUNK_ITEMS:
            self._chunks.pop()
            chunk = before.extended(self._plains, self._spans, self._digests)
        else:
            lengths = list(map(len, self._plains))
            chunk = Chunk(self._plains, lengths, join_spans(self._spans), tuple(self._digests))
        self._draft.hold(chunk, chunk.digests)
        self._chunks.append(chunk)
        self._plains, self._digests, self._spans = [], [], []

    def _split(self, at: int, base: Split | None) -> Split:
        start = at * self._stride
        values = self._flat[start : start + self._stride]
        known = base.parts if base is not None else (None,) * self._stride
        parts = [_part(value, old, self._draft, self._depth) for value, old in zip(values, known, strict=True)]
        if base is not None and all(map(_same, parts, base.parts)):
            return base
        found = tuple(parts)
        return self._draft.split(found, b"".join(p.embed for p in found), refs_of(found))

    def _place(self, chunk: Chunk) -> int:
        """Where a chunk lies in the base, or past its end if it belongs to another series."""
        if self._places is None:
            self._places = {id(known): i for i, known in enumerate(self._base)}
        return self._places.get(id(chunk), len(self._base))


def _last_log(series: Series, branch: int) -> int | None:
    """The log of the last items, if this branch may append to it: all of them may have come from beside the series."""
    run = series.chunks[-1].runs[-1] if series.chunks else None
    if run is None or run.thread or log_branch(run.log) != branch:
        return None
    kind = log_kind(run.log)
    return kind if kind >= LogKind.ITEMS else None


def _worth_splitting(value: Any) -> bool:
    """Whether a value holds a long list, a large dict or a large string: what may change, or repeat, by itself."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) >= LARGE_MIN
    if kind is dict:
        return len(value) > MAP_MAX or any(map(_worth_splitting, value.values()))
    if kind is list or kind is tuple:
        if value and type(value[0]) in _NUMBERS:  # an embedding changes as a whole, if at all
            return False
        return len(value) >= CHUNK_ITEMS // 2 or any(map(_worth_splitting, value))
    return False
