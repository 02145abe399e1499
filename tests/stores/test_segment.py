"""Segments: what was packed comes back equal, or the damage is noticed."""

from __future__ import annotations

import struct
from zlib import crc32

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Damaged, NewerFormat, TooLarge
from holdfast.stores import segments
from holdfast.stores.contract import Append, Refs, Span
from tests.covers import covers
from tests.selection import tries

HERE = b"where it belongs"

naturals = st.integers(0, 2**40)
spans = st.builds(Span, naturals, naturals, naturals, naturals, naturals, naturals)
refs = st.builds(
    Refs, spans=st.lists(spans, max_size=3).map(tuple), blobs=st.lists(st.binary(max_size=32), max_size=2).map(tuple)
)


@st.composite
def runs(draw: st.DrawFn) -> Append:
    cells = draw(st.lists(st.binary(max_size=300), min_size=1, max_size=6))
    pointing = draw(st.booleans())
    return Append(
        log=draw(naturals),
        start=draw(naturals),
        cells=tuple(cells),
        refs=tuple(draw(refs) for _ in cells) if pointing else (),
    )


@given(st.lists(runs(), min_size=1, max_size=4))
def test_what_was_packed_comes_back(packed: list[Append]) -> None:
    assert segments.unpack(segments.pack(packed, HERE), HERE) == packed


@given(st.lists(runs(), min_size=1, max_size=3), st.data())
def test_any_flipped_bit_is_noticed(packed: list[Append], data: st.DataObject) -> None:
    blob = bytearray(segments.pack(packed, HERE))
    bit = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Damaged):
        segments.unpack(bytes(blob), HERE)


@given(st.lists(runs(), min_size=1, max_size=3), st.data())
def test_any_cut_is_noticed(packed: list[Append], data: st.DataObject) -> None:
    blob = segments.pack(packed, HERE)
    with pytest.raises(Damaged):
        segments.unpack(blob[: data.draw(st.integers(0, len(blob) - 1))], HERE)


@given(st.binary(max_size=200))
@settings(max_examples=tries(300, 100))
def test_rubbish_with_a_matching_checksum_is_damage_or_newer_and_nothing_else(rubbish: bytes) -> None:
    with pytest.raises((Damaged, NewerFormat)):
        segments.unpack(segments.seal(rubbish, HERE), HERE)


def test_a_segment_in_the_place_of_another_is_noticed() -> None:
    blob = segments.pack([Append(1, 0, (b"cell",))], HERE)
    with pytest.raises(Damaged):
        segments.unpack(blob, b"another place")


@covers("H2", "cortex/CheckpointConfig.compress")
def test_text_is_compressed_and_noise_is_not() -> None:
    text = segments.pack([Append(1, 0, (b"the same words " * 100,))], HERE)
    assert len(text) < 150
    noise = bytes(crc32(bytes([n % 256, n // 256])) % 256 for n in range(1000))
    assert len(segments.pack([Append(1, 0, (noise,))], HERE)) < 1000 + 40


def test_small_segments_cost_few_bytes() -> None:
    assert len(segments.pack([Append(1, 1000, (b"x" * 40,))], HERE)) - 40 < 30


def test_the_header_is_in_clear() -> None:
    pointing = Refs(blobs=(b"a digest",))
    blob = segments.pack([Append(3, 7, (b"a" * 1000, b"b"), (pointing, Refs()))], HERE)
    header = segments.open_(blob, HERE)[0]
    assert header.ranges == ((3, 7, 2),)
    assert header.refs == ((pointing, Refs()),)


def test_a_newer_version_is_refused_by_name() -> None:
    later = bytearray(segments.draft([Append(1, 0, (b"cell",))]))
    later[0] = segments.VERSION + 1
    with pytest.raises(NewerFormat, match="Upgrade"):
        segments.unpack(segments.seal(bytes(later), HERE), HERE)


def made(size: int, body: bytes, *, encoding: int = segments.ZSTD, count: int = 1) -> bytes:
    """A segment as a writer without scruples would make it, checksum included."""
    header = msgspec.msgpack.encode([[[1, 0, count]], size])
    return segments.seal(struct.pack("<BBI", segments.VERSION, encoding, len(header)) + header + body, HERE)


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(100 << 20))

    class NoDecompressor:
        def decompress(self, *_: object, **__: object) -> bytes:
            raise AssertionError("it was unpacked")

    monkeypatch.setattr(segments._codecs, "decompressor", NoDecompressor())
    for declared in (100 << 20, 10, 2 << 30):
        with pytest.raises(Damaged):
            segments.unpack(made(declared, bomb), HERE)


def test_a_frame_that_holds_more_than_declared_is_damage() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000))
    for declared in (9_999, 10_001):
        with pytest.raises(Damaged):
            segments.unpack(made(declared, frame), HERE)


@pytest.mark.parametrize("count", [0, 2, 2**31])
def test_cells_that_do_not_fill_the_body_are_damage(count: int) -> None:
    body = struct.pack("<I", 3) + b"abc"
    assert segments.unpack(made(len(body), body, encoding=segments.RAW), HERE) == [Append(1, 0, (b"abc",))]
    with pytest.raises(Damaged):
        segments.unpack(made(len(body), body, encoding=segments.RAW, count=count), HERE)


def test_what_compresses_too_well_is_stored_raw_and_comes_back() -> None:
    zeros = Append(1, 0, (bytes(40 << 20),))
    blob = segments.pack([zeros], HERE)
    assert len(blob) > 40 << 20
    assert segments.unpack(blob, HERE) == [zeros]


def test_more_than_a_segment_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MAX_BODY", 1000)
    with pytest.raises(TooLarge):
        segments.draft([Append(1, 0, (bytes(1000),))])
