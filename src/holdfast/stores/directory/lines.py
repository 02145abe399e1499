"""The format of log lines and groups, which shows whether they are complete and undamaged.

A line is a JSON object whose first member is `crc`: the CRC-32, in 8 hex digits, of all bytes of the line after that
member's comma. A write appends a group of lines at once. The last line of a group is its `end`; it records how many
lines of which kind the group has. Lines without a following end were never acknowledged.
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
_SECTOR: Final = 512  # the smallest unit that a disk writes
_END_TAG: Final = b'"t":"end",'
# A cell without references, up to the cell itself. Most lines of a log are such cells.
_CELL: Final = re.compile(rb'\{"crc":"[0-9a-f]{8}","t":"cell","seq":(\d+),"log":(\d+),"at":(\d+),"cell":')

_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line in its file, without its line break. `body` is None if the line is damaged."""

    offset: int
    length: int
    body: memoryview | None
    is_end: bool


class Damage(NamedTuple):
    """A range of bytes in a file that are not what was written."""

    path: str
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.path}: {self.length} bytes at offset {self.offset} are damaged"


def seal(record: msgspec.Struct) -> bytes:
    """A record as a line, including the line break."""
    return reseal(_encode(record))


def reseal(body: bytes) -> bytes:
    """A line from a record that is already JSON."""
    rest = body[1:]
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def is_whole(line: bytes | memoryview) -> bool:
    """Whether a line (without its line break) matches its checksum."""
    return line[:_PREFIX] == b'{"crc":"%08x",' % crc32(memoryview(line)[_PREFIX:])


def cell_head(line: bytes | memoryview) -> tuple[bytes, ...] | None:
    """seq, log and position of a cell without references, as digits; None for any other line."""
    found = _CELL.match(line)
    return None if found is None else found.groups()


def cell_text(line: memoryview) -> memoryview | None:
    """The cell in a line of a cell without references; None for any other line."""
    found = _CELL.match(line)
    return None if found is None else line[found.end() : -1]


def split(data: bytes, offset: int) -> tuple[list[Line], bytes]:
    """The complete lines of bytes at `offset`, and the bytes after the last line break."""
    lines: list[Line] = []
    view = memoryview(data)
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        # The same check as `is_whole`, inlined because logs of long threads are long.
        if data.startswith(b'{"crc":"%08x",' % crc32(view[start + _PREFIX : end]), start):
            is_end = data.startswith(_END_TAG, start + _PREFIX)
            lines.append(Line(offset + start, end - start, view[start:end], is_end))
        else:
            lines.append(Line(offset + start, end - start, None, False))
        start = end + 1
    return lines, data[start:]


def has_holes(data: bytes, offset: int, start: int, end: int) -> bool:
    """Whether the bytes at `offset` contain zeros, all of them where sectors did not reach the disk.

    Lines never contain a zero byte. Zeros left by a power cut start at `start`, where the write started, or at a
    sector, and end at a sector or at the file's `end`. A zero byte anywhere else means that a byte has changed.
    """
    holes = [(offset + found.start(), offset + found.end()) for found in _ZEROS.finditer(data)]
    return bool(holes) and all(
        (first == start or first % _SECTOR == 0) and (behind == end or behind % _SECTOR == 0) for first, behind in holes
    )


def is_only_end(line: bytes) -> bool:
    """Whether a damaged line was a single end line, and not two lines joined by a changed line break."""
    return line.find(_END_TAG) == _PREFIX and line.count(b'{"crc":"') <= 1


# -- the composition of a group: a letter per kind, with a count if several follow each other -----------------------

_COUNTS: Final = re.compile(r"([a-z])([0-9]{0,18})")


def composition(kinds: Iterable[str]) -> str:
    """The letters of a group's lines in short form: `c2k` means two cells and a checkpoint."""
    counted = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    return "".join(kind if count == 1 else f"{kind}{count}" for kind, count in counted)


def counts(composed: str) -> list[tuple[str, int]]:
    return [(kind, int(count or 1)) for kind, count in _COUNTS.findall(composed)]


@lru_cache(maxsize=256)
def size(composed: str) -> int:
    """The number of lines in a group, without its end line."""
    return sum(count for _, count in counts(composed))
