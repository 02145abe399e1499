"""The lines of a directory store's logs and of exports: their types, checksums and groups (docs/reference/format.md).

A line is a JSON object whose first member is `crc`: the CRC-32, in 8 hex digits, of all bytes of the line after that
member's comma. Lines are written in groups. The last line of a group is its `end`. It lists the kinds of the group's
lines and has a checksum of them all. Lines without an `end` were never acknowledged.

`formats.jsonl` converts records of the store contract to these records and back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Annotated, Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from holdfast.errors import Damaged, NewerFormat
from holdfast.stores.contract import Span, Summary
from holdfast.types import UNREADABLE

FORMAT: Final = 1
PREFIX: Final = len('{"crc":"00000000",')
END_TAG: Final = b'"t":"end",'
# A cell without references, up to the cell itself. Most lines are such cells.
_CELL: Final = re.compile(rb'\{"crc":"[0-9a-f]{8}","t":"cell","seq":(\d{1,18}),"log":(\d+),"at":(\d{1,18}),"cell":')
_COUNTS: Final = re.compile(r"([a-z])([0-9]{0,18})")

S = TypeVar("S")
Parent = tuple[int, int]
Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # fits an array


# -- records ----------------------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", gc=False):
    pass


class References(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Refs`, with digests in hex."""

    spans: tuple[Span, ...] = ()
    blobs: tuple[str, ...] = ()


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The position of a thread after a group, and its summary for listings. `id` is that of the head."""

    head: int
    id: str
    move: int
    last: int
    count: int
    summary: Summary


class End(_Record, frozen=True, kw_only=True, tag="end"):
    """The last line of a group: the kinds of its lines, and the thread's position if the group changed it (`at`).

    `sum` is the CRC-32 of the group's other lines. `group` counts the groups of a log and continues when the log is
    rewritten. `entry` is the number of the newest journal entry. They reveal missing and duplicated groups. `exported`
    is in the last line of an export: how many threads and checkpoints it has.
    """

    of: str
    number: int
    sum: int = 0
    group: int = 0
    entry: int = 0
    at: ThreadRecord | None = None
    exported: tuple[int, int] | None = None


class ExportLine(_Record, frozen=True, kw_only=True, tag="export"):
    """The first line of an export. `keyed` digests can be checked only with the keys of the store that made them."""

    format: int
    id: str
    made: int
    namespace: str
    is_escaped: bool = False
    keyed: bool = False


class ThreadHeader(_Record, frozen=True, kw_only=True, tag="thread"):
    """The first line of a thread. `made` distinguishes this log from others that had its place."""

    format: int
    number: int
    name: str
    is_escaped: bool = False
    made: int
    origins: tuple[int, ...] = ()
    gone: bool = False  # the thread was dropped, or not exported: it is there for the cells that forks use
    key: str = ""  # the id of the thread's data key, in hex, in a log of an encrypted store


class BlobHead(_Record, frozen=True, kw_only=True, tag="blob"):
    digest: str
    piece: Whole = 0
    of: int = 1


class BlobLine(BlobHead, frozen=True, kw_only=True, tag="blob"):
    """A piece of a blob in an export, as text or in base64."""

    text: str | None = None
    data: str = ""


class CellHead(_Record, frozen=True, kw_only=True, tag="cell"):
    """A cell line without the cell."""

    seq: Whole
    log: int
    at: Whole


class CellLine(CellHead, frozen=True, kw_only=True, tag="cell"):
    refs: References | None = None
    cell: msgspec.Raw


class CheckpointHead(_Record, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint line without the fields that only readers of the checkpoint need."""

    seq: Whole
    step: Whole
    label: str | None = None
    origins: tuple[int, ...] = ()


class CheckpointLine(CheckpointHead, frozen=True, kw_only=True, tag="checkpoint"):
    id: str
    digest: str
    move: int
    parent: Parent | None = None
    refs: References = References()
    meta: msgspec.Raw
    skeleton: msgspec.Raw


class TombstoneLine(_Record, frozen=True, kw_only=True, tag="tombstone"):
    """A deleted checkpoint, in a log that was rewritten or exported since."""

    seq: Whole
    id: str
    digest: str
    step: int
    move: int
    parent: Parent | None = None


class RewindLine(_Record, frozen=True, kw_only=True, tag="rewind"):
    to: int


class DeleteLine(_Record, frozen=True, kw_only=True, tag="delete"):
    seqs: tuple[int, ...]


class SweepLine(_Record, frozen=True, kw_only=True, tag="sweep"):
    """Cells that are no longer used, as (log, start, count)."""

    cells: tuple[tuple[int, int, int], ...]


class EntryHead(_Record, frozen=True, kw_only=True, tag="entry"):
    number: Whole
    status: str
    topic: str | None = None
    act: str | None = None
    is_escaped: bool = False


class EntryLine(EntryHead, frozen=True, kw_only=True, tag="entry"):
    """A journal entry. `entry` has its fields except those that are separate. `act` is in hex."""

    entry: msgspec.Raw
    call: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RunLine(_Record, frozen=True, kw_only=True, tag="run"):
    run: msgspec.Raw
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    is_escaped: bool = False


class ForkLine(_Record, frozen=True, kw_only=True, tag="fork"):
    """The thread with this number is about to use cells of this one."""

    number: int


class StampLine(_Record, frozen=True, kw_only=True, tag="stamp"):
    """Blobs that a commit contained or found in an epoch."""

    epoch: int
    blobs: tuple[str, ...]


# The part of a line that a replay reads; the parser skips the rest.
Replayed = (
    End
    | ExportLine
    | ThreadHeader
    | BlobHead
    | CellHead
    | CheckpointHead
    | TombstoneLine
    | RewindLine
    | DeleteLine
    | SweepLine
    | EntryHead
    | RunLine
    | ForkLine
    | StampLine
)

LETTERS: Final[dict[type[msgspec.Struct], str]] = {
    ExportLine: "h",
    ThreadHeader: "t",
    BlobHead: "v",
    BlobLine: "v",
    CellHead: "c",
    CellLine: "c",
    CheckpointHead: "k",
    CheckpointLine: "k",
    TombstoneLine: "s",
    RewindLine: "b",
    DeleteLine: "d",
    SweepLine: "w",
    EntryHead: "e",
    EntryLine: "e",
    RunLine: "r",
    ForkLine: "f",
    StampLine: "p",
}
"""The letter for a kind of line in the composition of a group."""


# -- lines and groups -------------------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode
_decode_replayed = msgspec.json.Decoder(Replayed).decode
_decode_end = msgspec.json.Decoder(End).decode
_decode_cell = msgspec.json.Decoder(CellLine).decode


class Damage(NamedTuple):
    """A range of bytes in a file that are not what was written."""

    path: str
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.path}: {self.length} bytes at offset {self.offset} are damaged"


class Sealed(NamedTuple):
    """A line with its line break, the letter for its kind, and its record."""

    kind: str
    data: bytes
    record: Replayed


def reseal(body: bytes) -> bytes:
    """A line, including the line break, from a record that is already JSON."""
    rest = body[1:]
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def line_of(record: msgspec.Struct) -> bytes:
    """A record as a line, including the line break."""
    return reseal(_encode(record))


def sealed(record: Replayed) -> Sealed:
    return Sealed(LETTERS[type(record)], reseal(_encode(record)), record)


def is_whole(line: bytes | memoryview) -> bool:
    """Whether a line (without its line break) matches its checksum."""
    return line[:PREFIX] == b'{"crc":"%08x",' % crc32(memoryview(line)[PREFIX:])


def group(
    lines: Sequence[Sealed], number: int, at: ThreadRecord | None = None, nth: int = 0, entry: int = 0
) -> tuple[bytes, End]:
    """Lines as one group, ready to append, and its end.

    It is the `nth` of its log; `entry` is the newest journal entry then.
    """
    data = b"".join([line.data for line in lines])
    of = composition([line.kind for line in lines])
    end = End(of=of, number=number, sum=crc32(data), group=nth, entry=entry, at=at)
    return data + reseal(_encode(end)), end


def composition(kinds: Iterable[str]) -> str:
    """The letters of lines, with a count if several follow each other: `c2k` is two cells and a checkpoint."""
    counted = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    return "".join([kind if count == 1 else f"{kind}{count}" for kind, count in counted])


def counts(composed: str) -> list[tuple[str, int]]:
    return [(kind, int(count or 1)) for kind, count in _COUNTS.findall(composed)]


@lru_cache(maxsize=256)
def size(composed: str) -> int:
    """The number of lines in a group, without its end line."""
    return sum(count for _, count in counts(composed))


# -- reading lines ----------------------------------------------------------------------------------------------------


def replayed(body: bytes | memoryview) -> Replayed:
    """The part of a line that a replay needs. `Damaged` if it is not a known record."""
    found = _CELL.match(body)
    if found is not None:
        seq, log, at = found.groups()
        return CellHead(seq=int(seq), log=int(log), at=int(at))
    record: Replayed = checked(_decode_replayed, body)
    return record


def read_end(body: bytes | memoryview) -> End:
    return checked(_decode_end, body)


def record_in(line: bytes, kind: type[S]) -> S | None:
    """The record of a line, including the line break; None if it is not what was written."""
    try:
        return msgspec.json.decode(line, type=kind) if line.endswith(b"\n") and is_whole(line[:-1]) else None
    except UNREADABLE:
        return None


def cell_text(line: bytes | memoryview) -> tuple[bytes | memoryview, References | None]:
    """The cell in a line, as text, and its references."""
    found = _CELL.match(line)
    if found is not None:
        return line[found.end() : -1], None
    read = checked(_decode_cell, line)
    return bytes(read.cell), read.refs


def checked(decode: Callable[[bytes | memoryview], S], body: bytes | memoryview) -> S:
    try:
        return decode(body)
    except UNREADABLE as error:
        raise not_ours() from error


def not_ours() -> Damaged:
    return Damaged("a line has a valid checksum but is not a known record")


def unhex(text: str) -> bytes:
    """The bytes of an id or digest. `Damaged` if the text is not hex."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise not_ours() from error


def require_known(format_: int) -> None:
    if format_ > FORMAT:
        raise NewerFormat(
            f"a file has lines of format {format_}, and this Holdfast reads up to {FORMAT}; nothing was changed. "
            "Upgrade Holdfast."
        )
