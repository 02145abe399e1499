"""Lines and groups: how a log is written, so that what is whole can be told from what is not.

A line is a JSON object whose first member is `crc`: the CRC-32 of all bytes of the line behind that member's comma, as
8 hex digits. A write appends a group of lines at once; the last line of a group is its `end`, and says how many lines
of which kind the group has. Lines that no end follows were never acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

_PREFIX: Final = len('{"crc":"00000000",')
_END_TAG: Final = b'"t":"end",'
# A cell without references, up to the cell itself: what most of a log is made of.
_CELL: Final = re.compile(rb'\{"crc":"[0-9a-f]{8}","t":"cell","seq":(\d+),"log":(\d+),"at":(\d+),"cell":')

_encode = msgspec.json.Encoder().encode


class Line(NamedTuple):
    """A line as it lies in its file, without its line break; `body` is None if it is damaged."""

    offset: int
    length: int
    body: bytes | None

    @property
    def is_end(self) -> bool:
        return self.body is not None and self.body.startswith(_END_TAG, _PREFIX)


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


def open_line(line: bytes) -> bytes | None:
    """A line (without its line break), or None if it is not what its checksum says."""
    return line if line.startswith(b'{"crc":"%08x",' % crc32(memoryview(line)[_PREFIX:])) else None


def cell_head(line: bytes) -> tuple[int, int, int] | None:
    """seq, log and position of a cell without references; None if the line is anything else."""
    found = _CELL.match(line)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def cell_text(line: bytes) -> bytes | None:
    """The cell of a cell without references; None if the line is anything else."""
    found = _CELL.match(line)
    return None if found is None else line[found.end() : -1]


def split(data: bytes, offset: int) -> tuple[list[Line], bytes]:
    """The complete lines of bytes that lie at `offset`, and what follows the last line break."""
    *whole, rest = data.split(b"\n")
    lines: list[Line] = []
    for line in whole:
        lines.append(Line(offset, len(line), open_line(line)))
        offset += len(line) + 1
    return lines, rest


def is_torn(line: bytes) -> bool:
    """Whether a complete line that is damaged was never written whole: no line of ours holds a zero byte."""
    return b"\0" in line


# -- what a group holds: a letter per kind, with a count where there are several in a row ---------------------------

_COUNTS: Final = re.compile(r"([a-z])(\d*)")


def composition(kinds: Iterable[str]) -> str:
    """The letters of a group's lines in short: `c2k` is two cells and a checkpoint."""
    counted = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    return "".join(kind if count == 1 else f"{kind}{count}" for kind, count in counted)


def counts(composed: str) -> list[tuple[str, int]]:
    return [(kind, int(count or 1)) for kind, count in _COUNTS.findall(composed)]


def size(composed: str) -> int:
    """How many lines a group has, its end not counted."""
    return sum(count for _, count in counts(composed))
