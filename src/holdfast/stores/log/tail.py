"""The tail of a log file: the bytes after its last complete group.

A crash leaves half a group there, or zeros where the file grew before its data was written. Such a tail was never
acknowledged, so it is not part of the log. A complete line with a wrong checksum is different: it was written
completely and has changed since, so it is damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from holdfast.formats.lines import END_TAG, PREFIX, is_whole
from holdfast.stores.log.device import LogChunk

_ZEROS: Final = re.compile(rb"\0+")
_SECTOR: Final = 512  # the smallest unit that a disk writes


def cut(data: bytes, position: int) -> LogChunk:
    """Bytes from a position of a file up to its end, cut where the last complete group ends."""
    end = _after_last_end(data, len(data))
    if end == len(data) and b"\0" not in data:
        return LogChunk(position, data)
    # The last group was never acknowledged, although it has an end line, if sectors before it did not reach the disk.
    start = _after_last_end(data, end - 1) if end else 0
    if start < end and _is_torn(data[start:end], position + start, position + len(data)):
        end = start
    if end == len(data):
        return LogChunk(position, data)
    tail = data[end:]
    return LogChunk(position, data[:end], tail, _damage(tail, position + end))


def _after_last_end(data: bytes, stop: int) -> int:
    """The offset after the last valid end line that ends before `stop`; 0 if there is none."""
    stop = data.rfind(b"\n", 0, stop) + 1
    while stop:
        start = data.rfind(b"\n", 0, stop - 1) + 1
        if data.startswith(END_TAG, start + PREFIX) and is_whole(data[start : stop - 1]):
            return stop
        stop = start
    return 0


def _is_torn(group: bytes, start: int, end: int) -> bool:
    """Whether a group at `start` lacks sectors, and is otherwise undamaged. `end` is the end of the file."""
    bad = [(at, line) for at, line in _lines(group) if not is_whole(line)]
    return bool(bad) and all(_has_holes(line, start + at, start, end) for at, line in bad)


def _damage(tail: bytes, start: int) -> tuple[int, int] | None:
    """The position and length of damage in a tail at `start`; None if the tail is only torn."""
    end = start + len(tail)
    for at, line in _lines(tail):
        if not is_whole(line) and not _has_holes(line, start + at, start, end):
            return start + at, len(line)
    last = tail.rpartition(b"\n")[2]
    is_torn = _has_holes(last, end - len(last), start, end)
    if b"\0" in last and not is_torn:
        return end - len(last), len(last)
    if last and not is_torn and is_whole(last[:-1]):
        return end - 1, 1  # only the line break after a complete line has changed
    return None


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The complete lines, without their line breaks, and their offsets."""
    at = 0
    for line in data.split(b"\n")[:-1]:
        yield at, line
        at += len(line) + 1


def _has_holes(data: bytes, offset: int, start: int, end: int) -> bool:
    """Whether the bytes at `offset` contain zeros, all of them where sectors did not reach the disk.

    Lines never contain a zero byte. Zeros left by a power cut start at `start`, where the write started, or at a
    sector, and end at a sector or at the file's `end`. A zero byte anywhere else means that a byte has changed.
    """
    holes = [(offset + found.start(), offset + found.end()) for found in _ZEROS.finditer(data)]
    return bool(holes) and all(
        (first == start or first % _SECTOR == 0) and (behind == end or behind % _SECTOR == 0) for first, behind in holes
    )
