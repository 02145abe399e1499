"""Lines and groups: how a log is written, so that what is whole can be told from what is not.

A line is a JSON object whose first member is `crc`: the CRC-32 of all bytes of the line behind that member's comma, as
8 hex digits. A write appends a group of lines at once; the last line of a group is its `end`, and says how many lines
of which kind the group has. Lines that no end follows were never acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

_PREFIX: Final = len('{"crc":"00000000",')
_ZEROS: Final = re.compile(rb"\0+")
_SECTOR: Final = 512  # no disk writes less at once
_END_TAG: Final = b'"t":"end",'
# A cell without references, up to the cell itself: what most of a log is made of.
_CELL: Final = re.compile(rb'\{"crc":"[0-9a-f]{8}","t":"cell","seq":(\d+),"log":(\d+),"at":(\d+),"cell":')

_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line as it lies in its file, without its line break; `body` is None if it is damaged."""

    offset: int
    length: int
    body: memoryview | None
    is_end: bool


class Damage(NamedTuple):
    """A stretch of a file that is not what was written."""

    path: str
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.path}: {self.length} bytes from byte {self.offset} on are damaged"


def seal(record: msgspec.Struct) -> bytes:
    """A record as a line, line break included."""
    return reseal(_encode(record))


def reseal(body: bytes) -> bytes:
    """A line of a record that is JSON already."""
    rest = body[1:]
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def is_whole(line: bytes | memoryview) -> bool:
    """Whether a line (without its line break) is what its checksum says."""
    return line[:_PREFIX] == b'{"crc":"%08x",' % crc32(memoryview(line)[_PREFIX:])


def cell_head(line: bytes | memoryview) -> tuple[bytes, ...] | None:
    """seq, log and position of a cell without references, in digits; None if the line is anything else."""
    found = _CELL.match(line)
    return None if found is None else found.groups()


def cell_text(line: memoryview) -> memoryview | None:
    """The cell of a cell without references; None if the line is anything else."""
    found = _CELL.match(line)
    return None if found is None else line[found.end() : -1]


def split(data: bytes, offset: int) -> tuple[list[Line], bytes]:
    """The complete lines of bytes that lie at `offset`, and what follows the last line break."""
    lines: list[Line] = []
    view = memoryview(data)
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        # As `is_whole`, with less ado: the logs of long threads are long.
        if data.startswith(b'{"crc":"%08x",' % crc32(view[start + _PREFIX : end]), start):
            is_end = data.startswith(_END_TAG, start + _PREFIX)
            lines.append(Line(offset + start, end - start, view[start:end], is_end))
        else:
            lines.append(Line(offset + start, end - start, None, False))
        start = end + 1
    return lines, data[start:]


def has_holes(data: bytes, offset: int, start: int, end: int) -> bool:
    """Whether bytes that lie at `offset` hold zeros, and all of them where sectors did not reach the disk.

    No line of ours holds a zero byte. What a power cut leaves begins at `start`, where the write began, or with a
    sector, and ends with a sector or at the file's `end`; a zero anywhere else is a byte that has changed.
    """
    holes = [(offset + found.start(), offset + found.end()) for found in _ZEROS.finditer(data)]
    return bool(holes) and all(
        (first == start or first % _SECTOR == 0) and (behind == end or behind % _SECTOR == 0) for first, behind in holes
    )


def is_only_end(line: bytes) -> bool:
    """Whether a damaged line was an end, and not that and another, joined by a line break that has changed."""
    return line.find(_END_TAG) == _PREFIX and line.count(b'{"crc":"') <= 1


# -- what a group holds: a letter per kind, with a count where there are several in a row ---------------------------

_COUNTS: Final = re.compile(r"([a-z])([0-9]{0,18})")


def composition(kinds: Iterable[str]) -> str:
    """The letters of a group's lines in short: `c2k` is two cells and a checkpoint."""
    counted = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    return "".join(kind if count == 1 else f"{kind}{count}" for kind, count in counted)


def counts(composed: str) -> list[tuple[str, int]]:
    return [(kind, int(count or 1)) for kind, count in _COUNTS.findall(composed)]


@lru_cache(maxsize=256)
def size(composed: str) -> int:
    """How many lines a group has, its end not counted."""
    return sum(count for _, count in counts(composed))
