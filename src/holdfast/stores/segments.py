"""Segments: cells packed into one checksummed record; which segments hold the cells of a span; which ones to merge.

Layout, little-endian: version (1 byte), encoding (1 byte), length of the header (4 bytes), the header uncompressed, the
body, checksum (4 bytes). The header is msgpack `[ranges, size, refs]`: which cells the segment holds, the size of the
body before compression, and what the cells refer to, so that a sweep decodes no body. The body is the cells' lengths (4
bytes each) followed by the cells, compressed when that helps.

The checksum covers the stored bytes and a context: the segment's thread and its first and last commit. It detects
flipped bits before anything is decompressed, and segments that were moved to another row.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Annotated, Final, NamedTuple
from zlib import crc32

import msgspec
import zstandard

from holdfast.errors import Damaged, InvalidArgument, NewerFormat, TooLarge
from holdfast.intervals import Intervals
from holdfast.stores.contract import NO_REFS, Append, Block, Cells, Live, Refs, Span
from holdfast.types import UNREADABLE

SEQ_BITS: Final = 32
MAX_SEQ: Final = (1 << SEQ_BITS) - 1
MAX_THREAD: Final = (1 << 31) - 1


def key(thread: int, seq: int) -> int:
    """The row key of a checkpoint, segment, move or journal entry."""
    return thread << SEQ_BITS | seq


def context_of(row_key: int, first: int | None = None) -> bytes:
    """The bytes that bind a segment's checksum to its row: its thread, its last commit and its first one."""
    try:
        return _ROW.pack(row_key, row_key & MAX_SEQ if first is None else first)
    except struct.error as error:
        raise Damaged("a segment's first commit is not valid") from error


_ROW: Final = struct.Struct("<qI")

# -- the format -----------------------------------------------------------------------------------------------------

VERSION: Final = 1
RAW: Final = 0
ZSTD: Final = 1

# Used on every save. Level 3 takes a third longer and makes a few kB only 1 % smaller.
FAST: Final = 1

# Below this, zstd's own frame outweighs what it saves.
_WORTH_COMPRESSING: Final = 128
# A body is at most 1 GiB, and above 16 MiB at most 1024 times its stored size. This limits what a few damaged or
# hostile bytes can make a reader allocate. `draft` stores bodies raw that would exceed it.
_MAX_BODY: Final = 1 << 30
_FREE_BODY: Final = 1 << 24
_MAX_RATIO: Final = 1024

# Larger bodies are compressed piece by piece.
_STREAMED: Final = 1 << 20

_PREFIX: Final = struct.Struct("<BBI")
_CHECKSUM: Final = struct.Struct("<I")
_LENGTH: Final = 4
_END: Final = -_CHECKSUM.size
_SHORTEST: Final = _PREFIX.size + _CHECKSUM.size
_WHOLE: Final = 0x2144DF1C  # the CRC-32 of any bytes that are followed by their own CRC-32

# Most saves append two cells, a request and an answer. A load opens thousands of them, so this case is precompiled.
_PAIR: Final = 2

_prefix_of = _PREFIX.unpack_from
_pair_of = struct.Struct("<2I").unpack_from


_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Header(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header of a segment: (log, start, count) ranges in stored order, size of the body, refs by range.

    `refs` is empty if no cell has refs. Otherwise it has one entry per range, which is empty or has one item per cell.
    """

    ranges: tuple[tuple[_Natural, _Natural, _Natural], ...]
    size: _Natural
    refs: tuple[tuple[Refs, ...], ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


class _Compressors(dict[int, zstandard.ZstdCompressor]):
    """Compressors by level, made on first use."""

    def __missing__(self, level: int) -> zstandard.ZstdCompressor:
        made = self[level] = zstandard.ZstdCompressor(level=level, write_content_size=False)
        return made


class _Codecs(threading.local):
    """zstd contexts, one set per thread: they are expensive to make and not thread-safe."""

    def __init__(self) -> None:
        self.compressors = _Compressors()
        self.decompressor = zstandard.ZstdDecompressor()


_codecs = _Codecs()


def compress(plain: bytes, *, level: int = FAST) -> bytes | None:
    """The bytes compressed, or None if that saves nothing or `decompress` would reject it as a decompression bomb."""
    if len(plain) < _WORTH_COMPRESSING:
        return None
    stored = _codecs.compressors[level].compress(plain)
    if len(stored) >= len(plain) or _is_bomb(len(plain), len(stored)):
        return None
    return stored


def decompress(stored: bytes | memoryview, size: int) -> bytes:
    """The inverse of `compress`. `Damaged` unless the result has exactly `size` bytes; checked before allocating."""
    if not 0 < size <= _FREE_BODY and (not 0 < size <= _MAX_BODY or _is_bomb(size, len(stored))):
        raise Damaged("a compressed record declares an impossible size")
    try:
        # zstd would trust and allocate a size named in the frame, whatever limit it is given.
        if zstandard.frame_content_size(stored) not in (-1, size):
            raise Damaged("a compressed record contradicts its declared size")
        plain = _codecs.decompressor.decompress(stored, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Damaged("a compressed record cannot be decompressed") from error
    if len(plain) != size:
        raise Damaged("a compressed record is shorter than its declared size")
    return plain


def draft(appends: Iterable[Append], *, level: int = FAST) -> bytes:
    """A segment without its checksum. This is the expensive part, and it needs no context yet."""
    ranges: list[tuple[int, int, int]] = []
    refs: list[tuple[Refs, ...]] = []
    cells: list[bytes] = []
    for append in appends:
        if append.cells:
            ranges.append((append.log, append.start, len(append.cells)))
            refs.append(append.refs)
            cells += append.cells
    try:
        lengths = struct.pack(f"<{len(cells)}I", *map(len, cells))
    except struct.error as error:
        raise TooLarge("a cell is larger than a segment can hold; nothing was stored") from error
    size = len(lengths) + sum(map(len, cells))
    if size > _MAX_BODY:
        raise TooLarge(f"the new cells of a commit take {size} bytes, the maximum is {_MAX_BODY}; nothing was stored")
    header = _encode(Header(tuple(ranges), size, tuple(refs) if any(refs) else ()))
    if size > _STREAMED:
        stored = _compress_stream([lengths, *cells], size, level)
    else:
        stored = compress(b"".join((lengths, *cells)), level=level)
    if stored is None:
        return b"".join((_PREFIX.pack(VERSION, RAW, len(header)), header, lengths, *cells))
    return b"".join((_PREFIX.pack(VERSION, ZSTD, len(header)), header, stored))


def _compress_stream(pieces: list[bytes], size: int, level: int) -> bytes | None:
    """`compress` for pieces that are not joined first, to avoid another copy of a large state in memory."""
    stream = _codecs.compressors[level].compressobj()
    stored = b"".join([*map(stream.compress, pieces), stream.flush()])
    return None if len(stored) >= size or _is_bomb(size, len(stored)) else stored


def seal(drafted: bytes, context: bytes) -> bytes:
    """Complete a draft with the checksum that binds it to its context."""
    return drafted + _CHECKSUM.pack(crc32(drafted, crc32(context)))


def pack(appends: Iterable[Append], context: bytes, *, level: int = FAST) -> bytes:
    """Appends as a complete segment."""
    return seal(draft(appends, level=level), context)


# These are plain tuples, because a load makes some for every save that is not merged yet.

# A verified segment: its header, the encoding and the offset of its body, its bytes.
Opened = tuple[Header, int, int, bytes]

# The cells of one log in a segment: the log, the index of the first, the cells, their refs.
Part = tuple[int, int, Block, tuple[Refs, ...]]


def open_(blob: bytes | None, context: bytes) -> Opened:
    """A segment, verified. `Damaged` if it is not what was sealed for this context, `NewerFormat` if it is newer."""
    # A damaged database may return other types than its schema declares.
    if not isinstance(blob, bytes) or len(blob) < _SHORTEST:
        raise Damaged("a segment is cut short")
    if crc32(blob, crc32(context)) != _WHOLE:
        raise Damaged("a segment does not match its checksum")
    version, encoding, length = _prefix_of(blob)
    if version > VERSION:
        raise NewerFormat(f"a segment has format {version}, this Holdfast reads up to {VERSION}. Upgrade Holdfast.")
    start = _PREFIX.size + length
    if version < 1 or encoding > ZSTD or start > len(blob) - _CHECKSUM.size:
        raise Damaged("a segment's header is invalid")
    try:
        return _decode(blob[_PREFIX.size : start]), encoding, start, blob
    except UNREADABLE as error:
        raise Damaged("a segment's header cannot be read") from error


def parts(opened: Opened) -> list[Part]:
    """The cells of a segment, by the ranges of its header. `Damaged` if they are not what the header says."""
    header, encoding, start, blob = opened
    ranges, size, refs = header.ranges, header.size, header.refs
    plain = decompress(memoryview(blob)[start:_END], size) if encoding == ZSTD else blob[start:_END]
    count = ranges[0][2] if len(ranges) == 1 else sum([entry[2] for entry in ranges])
    at = count * _LENGTH
    if len(plain) != size or at > size:
        raise Damaged("a segment does not have the size that its header says")
    lengths = _pair_of(plain) if count == _PAIR else struct.unpack_from(f"<{count}I", plain)
    if at + sum(lengths) != size:
        raise Damaged("the cells of a segment do not fill it")
    if len(ranges) == 1 and not refs:  # nearly always; a load does this for every save that is not merged yet
        log, first, _ = ranges[0]
        return [(log, first, Block(plain, at, lengths), ())]
    if refs and len(refs) != len(ranges):
        raise Damaged("a segment's references do not match its cells")
    found: list[Part] = []
    taken = 0
    for index, (log, first, held) in enumerate(ranges):
        own = lengths[taken : taken + held]
        its = refs[index] if refs else ()
        if its and len(its) != held:
            raise Damaged("a segment's references do not match its cells")
        found.append((log, first, Block(plain, at, own), its))
        taken += held
        at += sum(own)
    return found


def unpack(blob: bytes | None, context: bytes) -> list[Append]:
    """The appends of a segment, verified. `Damaged` if anything differs from what was packed."""
    return [
        Append(log, start, tuple(Cells([block], ()).cells), refs)
        for log, start, block, refs in parts(open_(blob, context))
    ]


def _is_bomb(size: int, stored: int) -> bool:
    return size > _FREE_BODY and size > stored * _MAX_RATIO


# -- from spans to cells --------------------------------------------------------------------------------------------

# A part of a segment: the index of its first cell, the first and the last commit of the segment, the cells, their refs.
_Piece = tuple[int, int, int, Block, tuple[Refs, ...]]

ByLog = dict[int, list[_Piece]]

_place = itemgetter(0, 1, 2)


class Wanted:
    """The cells that spans of one thread name, and the pieces of segments that hold them."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._thread = spans[0].thread
        logs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        commits: list[tuple[int, int]] = []
        for span in spans:
            logs[span.log].append((span.start, span.start + span.count))
            commits.append((span.first, span.last + 1))
        self._logs = {log: Intervals(ranges) for log, ranges in logs.items()}
        self._commits = Intervals(commits)
        self._pieces: defaultdict[int, list[_Piece]] = defaultdict(list)
        self._seen: set[int] = set()

    def commits(self) -> list[tuple[int, int]]:
        """The commits to read, as (first, last)."""
        return [(first, end - 1) for first, end in self._commits.ranges()]

    def add(self, found: Iterable[tuple[int, int, bytes | None]]) -> None:
        """Take the wanted cells from stored segments, given as (row key, first commit, bytes)."""
        wanted, seen = self._logs, self._seen
        for row_key, first_seq, blob in found:
            # A segment that spans a gap between two ranges of commits is found in both.
            if first_seq != row_key & MAX_SEQ:
                if row_key in seen:
                    continue
                seen.add(row_key)
            # A damaged segment counts as missing. So does one of another thread, to which a damaged index may lead.
            # `assemble` reports the loss if the cells are needed.
            if row_key >> SEQ_BITS != self._thread:
                continue
            try:
                opened = open_(blob, _ROW.pack(row_key, first_seq))  # without a call of `context_of` for every save
                for log, start, count in opened[0].ranges:
                    if log in wanted and wanted[log].touches(start, start + count):
                        break
                else:
                    continue
                for log, start, block, refs in parts(opened):
                    self._pieces[log].append((start, first_seq, row_key & MAX_SEQ, block, refs))
            except (Damaged, struct.error):
                continue

    def pieces(self) -> ByLog:
        """The pieces by log, ordered by their cells."""
        for held in self._pieces.values():
            held.sort(key=_place)
        return self._pieces


def by_thread(spans: Iterable[Span]) -> dict[int, list[Span]]:
    """The non-empty spans by thread. `InvalidArgument` if a span is impossible."""
    found: defaultdict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if min(span.log, span.start, span.count) < 0 or not 1 <= span.first <= span.last <= MAX_SEQ:
            raise InvalidArgument("a span has a negative field or an invalid range of commits; nothing was read")
        if span.count:
            found[span.thread].append(span)
    return found


def assemble(spans: Sequence[Span], found: dict[int, ByLog]) -> list[Cells]:
    """The cells of each span, from pieces by thread and log. `Damaged` if cells are missing."""
    ends: dict[int, list[int]] = {}
    return [_assemble(span, found.get(span.thread, {}).get(span.log, []), ends) for span in spans]


def _assemble(span: Span, pieces: list[_Piece], ends: dict[int, list[int]]) -> Cells:
    """The cells of a span, from the pieces of its log. `Damaged` if cells are missing.

    `ends` keeps where the cells of a piece end, by the id of its lengths: many spans may lie in one piece.
    """
    blocks: list[Block] = []
    refs: list[Refs] = []
    at, end = span.start, span.start + span.count
    index = bisect_left(pieces, (at + 1,)) - 1  # the last piece that starts at this cell or before it
    while at < end and 0 <= index < len(pieces):
        start, first, last, block, own_refs = pieces[index]
        index += 1
        if start > at:
            break
        own = block.lengths
        after = start + len(own)
        if after <= at or first > span.last or last < span.first:
            continue
        if at > start or end < after:
            offset = block.start
            if at > start:
                known = ends.get(id(own))
                if known is None:
                    known = ends[id(own)] = list(accumulate(own))
                offset += known[at - start - 1]
            part = slice(at - start, end - start)
            block, own_refs = Block(block.data, offset, own[part]), own_refs[part]
        if own_refs:
            refs += [NO_REFS] * (at - span.start - len(refs))
            refs += own_refs
        blocks.append(block)
        at = min(after, end)
    if at < end:
        raise Damaged(
            f"cells {at} to {end - 1} of log {span.log} of the thread with number {span.thread} "
            f"(commits {span.first} to {span.last}) are missing or damaged"
        )
    if refs:
        refs += [NO_REFS] * (span.count - len(refs))
    return Cells(blocks, refs)


# -- which segments are dead, and which to merge --------------------------------------------------------------------

# Size before compression. Segments of this size are left alone, so merged ones are one to two times as large.
TARGET: Final = 512 << 10
# Merged segments are written once and read often. Level 9 takes 20 ms per MB, saves 7 % over level 3 and is read as
# fast.
_LEVEL: Final = 9


class Source(NamedTuple):
    """A stored segment: its row key, its first commit, and whether it is a merged one."""

    row_key: int
    first: int
    merged: bool


class Plan(NamedTuple):
    """The segments without live cells, the groups of segments to merge, and the number of damaged segments."""

    dead: list[Source]
    groups: list[list[Source]]
    damaged: int


class Merged(NamedTuple):
    """The result of merging a group: one segment, or None if no cell is live, and the number of cells dropped."""

    cells: bytes | None
    dropped: int


def live_ranges(thread: int, live: Live) -> dict[int, Intervals]:
    """The live cells by log. `InvalidArgument` if a span names another thread: its cells would be swept."""
    logs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for span in live.spans:
        if span.thread != thread:
            raise InvalidArgument(
                f"a live span names the thread with number {span.thread}, not {thread}; nothing was changed"
            )
        logs[span.log].append((span.start, span.start + span.count))
    return defaultdict(Intervals, {log: Intervals(ranges) for log, ranges in logs.items()})


def plan(sources: Iterable[tuple[Source, bytes | None]], alive: dict[int, Intervals]) -> Plan:
    """Choose the segments to drop, and the groups of segments to merge after that.

    A damaged segment is left in place and ends the current group, because the commit ranges of merged segments must not
    overlap.
    """
    dead: list[Source] = []
    groups: list[list[Source]] = []
    damaged = 0
    group: list[Source] = []
    size = 0
    worth = False

    def close() -> None:
        nonlocal group, size, worth
        if len(group) > 1 or worth:
            groups.append(group)
        group, size, worth = [], 0, False

    for source, blob in sources:
        try:
            header = open_(blob, context_of(source.row_key, source.first))[0]
        except Damaged:
            damaged += 1
            close()
            continue
        if not _live_in(header, alive):
            dead.append(source)
            continue
        has_dead = any(not alive[log].holds(start, start + count) for log, start, count in header.ranges)
        if header.size >= TARGET and not has_dead:
            close()
            continue
        group.append(source)
        size += header.size
        worth = worth or has_dead
        if size >= TARGET:
            close()
    close()
    return Plan(dead, groups, damaged)


def merge(group: Sequence[Source], blobs: Iterable[bytes | None], alive: dict[int, Intervals]) -> Merged:
    """Merge the segments of a group into one, without dead cells. `Damaged` if one of them is damaged."""
    appends: list[Append] = []
    dropped = 0
    for source, blob in zip(group, blobs, strict=True):
        for append in unpack(blob, context_of(source.row_key, source.first)):
            kept = _only_live(append, alive)
            dropped += len(append.cells) - sum(len(part.cells) for part in kept)
            appends += kept
    appends = _join(appends)
    packed = pack(appends, context_of(group[-1].row_key, group[0].first), level=_LEVEL) if appends else None
    return Merged(packed, dropped)


def dead_cells(source: Source, blob: bytes | None, alive: dict[int, Intervals]) -> int | None:
    """The number of cells in a segment without live cells; None if it has live ones or cannot be verified."""
    try:
        header = open_(blob, context_of(source.row_key, source.first))[0]
    except Damaged:
        return None
    return None if _live_in(header, alive) else sum(count for _, _, count in header.ranges)


def _live_in(header: Header, alive: dict[int, Intervals]) -> bool:
    return any(alive[log].touches(start, start + count) for log, start, count in header.ranges)


def _only_live(append: Append, alive: dict[int, Intervals]) -> list[Append]:
    end = append.start + len(append.cells)
    parts: list[Append] = []
    for low, high in alive[append.log].within(append.start, end):
        within = slice(low - append.start, high - append.start)
        parts.append(Append(append.log, low, append.cells[within], append.refs[within]))
    return parts


def _join(appends: list[Append]) -> list[Append]:
    """Join neighbouring appends. `Damaged` if two hold the same cell, which no writer produces."""
    groups: list[list[Append]] = []
    log, end = -1, 0
    for append in sorted(appends, key=lambda append: (append.log, append.start)):
        if append.log == log and append.start < end:
            raise Damaged("two segments hold the same cell")
        if (append.log, append.start) == (log, end) and bool(append.refs) == bool(groups[-1][0].refs):
            groups[-1].append(append)
        else:
            groups.append([append])
        log, end = append.log, append.start + len(append.cells)
    return [
        Append(
            group[0].log,
            group[0].start,
            tuple(chain.from_iterable(append.cells for append in group)),
            tuple(chain.from_iterable(append.refs for append in group)),
        )
        for group in groups
    ]
