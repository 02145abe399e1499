"""Segments: cells packed into one checksummed blob.

Layout, little-endian: version (1 byte), encoding (1 byte), length of the header (4 bytes), the header uncompressed, the
body, checksum (4 bytes). The header is msgpack `[ranges, size, refs]`: which cells the segment holds, the size of the
body before compression, and what the cells refer to, so that a sweep decodes no body. The body is the cells' lengths (4
bytes each) followed by the cells, compressed when that helps.

The checksum covers the stored bytes and a context that identifies the segment's row. It detects flipped bits before
anything is decompressed, and segments that were moved to another row.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable
from typing import Annotated, Final
from zlib import crc32

import msgspec
import zstandard

from holdfast.errors import Damaged, NewerFormat, TooLarge
from holdfast.stores.contract import Append, Refs
from holdfast.types import UNREADABLE

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


class _Codecs(threading.local):
    """zstd contexts, one set per thread: they are expensive to make and not thread-safe."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        found = self.compressors.get(level)
        if found is None:
            found = zstandard.ZstdCompressor(level=level, write_content_size=False)
            self.compressors[level] = found
        return found


_codecs = _Codecs()


def deflate(plain: bytes, *, level: int = FAST) -> bytes | None:
    """The bytes compressed, or None if that saves nothing or `inflate` would reject it as a decompression bomb."""
    if len(plain) < _WORTH_COMPRESSING:
        return None
    stored = _codecs.compressor(level).compress(plain)
    if len(stored) >= len(plain) or _is_bomb(len(plain), len(stored)):
        return None
    return stored


def inflate(stored: bytes | memoryview, size: int) -> bytes:
    """The inverse of `deflate`. `Damaged` unless the result has exactly `size` bytes; checked before allocating."""
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


def draft(runs: Iterable[Append], *, level: int = FAST) -> bytes:
    """A segment without its checksum. This is the expensive part, and it needs no context yet."""
    ranges: list[tuple[int, int, int]] = []
    refs: list[tuple[Refs, ...]] = []
    cells: list[bytes] = []
    for run in runs:
        ranges.append((run.log, run.start, len(run.cells)))
        refs.append(run.refs)
        cells += run.cells
    try:
        lengths = struct.pack(f"<{len(cells)}I", *map(len, cells))
    except struct.error as error:
        raise TooLarge("a cell is larger than a segment can hold; nothing was stored") from error
    size = len(lengths) + sum(map(len, cells))
    if size > _MAX_BODY:
        raise TooLarge(f"the new cells of a commit take {size} bytes, the maximum is {_MAX_BODY}; nothing was stored")
    header = _encode(Header(tuple(ranges), size, tuple(refs) if any(refs) else ()))
    if size > _STREAMED:
        stored = _deflate_stream([lengths, *cells], size, level)
    else:
        stored = deflate(b"".join((lengths, *cells)), level=level)
    if stored is None:
        return b"".join((_PREFIX.pack(VERSION, RAW, len(header)), header, lengths, *cells))
    return b"".join((_PREFIX.pack(VERSION, ZSTD, len(header)), header, stored))


def _deflate_stream(pieces: list[bytes], size: int, level: int) -> bytes | None:
    """`deflate` for pieces that are not joined first, to avoid another copy of a large state in memory."""
    stream = _codecs.compressor(level).compressobj()
    stored = b"".join([*map(stream.compress, pieces), stream.flush()])
    return None if len(stored) >= size or _is_bomb(size, len(stored)) else stored


def seal(drafted: bytes, context: bytes) -> bytes:
    """Complete a draft with the checksum that binds it to its context."""
    return drafted + _CHECKSUM.pack(crc32(context, crc32(drafted)))


def pack(runs: Iterable[Append], context: bytes, *, level: int = FAST) -> bytes:
    """Appends as a complete segment."""
    return seal(draft(runs, level=level), context)


# A segment with its header read but not verified: header, encoding, offset of the body, the whole blob. A plain tuple,
# because a load opens one for every save that is not merged yet.
Opened = tuple[Header, int, int, bytes]


def open_(blob: bytes | None, context: bytes) -> Opened:
    """Read the header without verifying. `Damaged` if it is invalid, `NewerFormat` if its version is newer."""
    # A damaged database may return other types than its schema declares.
    if not isinstance(blob, bytes) or len(blob) < _SHORTEST:
        raise Damaged("a segment is cut short")
    version, encoding, length = _prefix_of(blob)
    if version > VERSION:
        _verify(blob, context)  # every version ends with the checksum: a damaged segment is not a newer one
        raise NewerFormat(f"a segment has format {version}, this Holdfast reads up to {VERSION}. Upgrade Holdfast.")
    body = _PREFIX.size + length
    if version < 1 or encoding > ZSTD or body > len(blob) - _CHECKSUM.size:
        raise Damaged("a segment's header is invalid")
    try:
        return _decode(blob[_PREFIX.size : body]), encoding, body, blob
    except UNREADABLE as error:
        raise Damaged("a segment's header cannot be read") from error


def verify(opened: Opened, context: bytes) -> None:
    """`Damaged` if the stored bytes are not those that were sealed for this context."""
    _verify(opened[3], context)


def unpack(blob: bytes | None, context: bytes) -> list[Append]:
    """The appends of a segment, verified. `Damaged` if anything differs from what was packed."""
    return runs(open_(blob, context), context)


def body(opened: Opened, context: bytes) -> tuple[bytes, tuple[int, ...], int]:
    """The verified body of a segment: its bytes, the lengths of its cells, the offset of the first cell."""
    header, encoding, start, blob = opened
    _verify(blob, context)
    if encoding == ZSTD:
        plain = inflate(memoryview(blob)[start:_END], header.size)
    else:
        plain = blob[start:_END]
        if len(plain) != header.size:
            raise Damaged("a segment's body does not have its declared size")
    ranges = header.ranges
    count = ranges[0][2] if len(ranges) == 1 else sum([entry[2] for entry in ranges])
    at = count * _LENGTH
    if at > len(plain):
        raise Damaged("a segment is too short for its cells")
    lengths = _lengths_of(count, plain)
    if at + sum(lengths) != len(plain):
        raise Damaged("the cells of a segment do not fill it")
    if header.refs and (
        len(header.refs) != len(ranges)
        or any(entry and len(entry) != held for entry, (_, _, held) in zip(header.refs, ranges, strict=True))
    ):
        raise Damaged("a segment's references do not match its cells")
    return plain, lengths, at


def runs(opened: Opened, context: bytes) -> list[Append]:
    """The verified appends of a segment whose header was read."""
    plain, lengths, at = body(opened, context)
    header = opened[0]
    found: list[Append] = []
    taken = 0
    for (log, start, count), refs in zip(header.ranges, header.refs or ((),) * len(header.ranges), strict=True):
        cells: list[bytes] = []
        for length in lengths[taken : taken + count]:
            cells.append(plain[at : at + length])
            at += length
        taken += count
        found.append(Append(log, start, tuple(cells), refs))
    return found


def _lengths_of(count: int, plain: bytes) -> tuple[int, ...]:
    if count == _PAIR:
        return _pair_of(plain)
    return struct.unpack_from(f"<{count}I", plain)


def _verify(blob: bytes, context: bytes) -> None:
    if crc32(context, crc32(blob[:_END])).to_bytes(_CHECKSUM.size, "little") != blob[_END:]:
        raise Damaged("a segment does not match its checksum")


def _is_bomb(size: int, stored: int) -> bool:
    return size > _FREE_BODY and size > stored * _MAX_RATIO
