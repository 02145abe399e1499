"""The export format: the threads of any store as JSON lines. See docs/export.md.

A line is an object. Its first member, `crc`, is the CRC-32 of the bytes after its comma, as in a directory store.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from holdfast.codec import msgpack
from holdfast.codec.jsontext import from_text, to_text
from holdfast.errors import Damaged
from holdfast.ids import from_text as id_from_text
from holdfast.ids import to_text as id_to_text
from holdfast.stores.contract import Append, CheckpointRow, Refs, Span
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.types import UNREADABLE

FORMAT: Final = 1
_PREFIX: Final = len('{"crc":"00000000",')
_WRONG: Final = (*UNREADABLE, ValueError, TypeError)

S = TypeVar("S", bound=msgspec.Struct)
Parent = tuple[int, int]


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", gc=False):
    pass


class Opening(_Line, frozen=True, kw_only=True, tag="holdfast-export"):
    """The first line. `keyed` digests can be checked only with the keys of the store that made them."""

    format: int
    id: str
    made: int
    namespace: msgspec.Raw
    keyed: bool = False


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Refs`, with digests in hex."""

    spans: tuple[Span, ...] = ()
    blobs: tuple[str, ...] = msgspec.field(default=(), name="values")


class BlobLine(_Line, frozen=True, kw_only=True, tag="value"):
    """A piece of a blob, as text or in base64."""

    digest: str
    piece: int = 0
    of: int = 1
    text: str | None = None
    data: str = ""


class ThreadLine(_Line, frozen=True, kw_only=True, tag="thread"):
    """The start of a thread. One that is `gone` was dropped, and is there for cells that others use."""

    number: int
    name: msgspec.Raw
    last: int
    head: int = 0
    move: int = 0
    gone: bool = False
    summary: msgspec.Raw = msgspec.Raw(b"null")


class CellLine(_Line, frozen=True, kw_only=True, tag="cell"):
    seq: int
    log: int
    at: int
    refs: Named | None = None
    cell: msgspec.Raw


class CheckpointLine(_Line, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint. A deleted one has neither meta nor skeleton."""

    seq: int
    id: str
    digest: str
    step: int
    move: int
    parent: Parent | None = None
    deleted: bool = False
    label: msgspec.Raw = msgspec.Raw(b"null")
    refs: Named = Named()
    meta: msgspec.Raw = msgspec.Raw(b"null")
    skeleton: msgspec.Raw = msgspec.Raw(b"null")


class EntryLine(_Line, frozen=True, kw_only=True, tag="entry"):
    """An entry of the journal. They are in the order of their numbers."""

    entry: msgspec.Raw


class RunLine(_Line, frozen=True, kw_only=True, tag="run"):
    """The record of the thread's run. `held`: a worker was running it when the line was written."""

    run: msgspec.Raw
    held: bool = False


class DoneLine(_Line, frozen=True, kw_only=True, tag="done"):
    """The end of a thread, with the number of its lines besides the first and this one."""

    number: int
    lines: int


class Closing(_Line, frozen=True, kw_only=True, tag="end"):
    """The last line. A file without it was cut off."""

    threads: int
    checkpoints: int


AnyLine = Opening | BlobLine | ThreadLine | CellLine | CheckpointLine | EntryLine | RunLine | DoneLine | Closing

_encode = msgspec.json.Encoder().encode
_decoder: Final[msgspec.json.Decoder[AnyLine]] = msgspec.json.Decoder(AnyLine)


def written(line: AnyLine) -> bytes:
    """A line, with its checksum and its line end."""
    rest = _encode(line)[1:]
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def read(line: bytes) -> AnyLine:
    """Read a line. Raises Damaged if its checksum is wrong, or if it is not a line of this format."""
    body = line.rstrip(b"\n")
    if body[:_PREFIX] != b'{"crc":"%08x",' % crc32(memoryview(body)[_PREFIX:]):
        raise Damaged("its checksum is wrong")
    try:
        return _decoder.decode(body)
    except _WRONG as error:
        raise Damaged("it is not a line of this format") from error


# -- values of any kind -----------------------------------------------------------------------------------------------


def shown(value: Any) -> msgspec.Raw:
    """A plain value as text. It may hold half of a surrogate pair, which JSON cannot express."""
    return msgspec.Raw(to_text(msgpack.encode(value)))


def meant(text: msgspec.Raw) -> Any:
    return msgpack.decode(from_text(bytes(text)))


def shown_bytes(data: bytes) -> msgspec.Raw:
    """Packed bytes as text."""
    return msgspec.Raw(to_text(data))


def meant_bytes(text: msgspec.Raw) -> bytes:
    return from_text(bytes(text))


def shown_record(record: msgspec.Struct) -> msgspec.Raw:
    """A record as text, without the fields that have their default."""
    fields = {
        field.encode_name: getattr(record, field.name)
        for field in msgspec.structs.fields(record)
        if getattr(record, field.name) != field.default
    }
    return shown(msgspec.to_builtins(fields, builtin_types=(bytes,)))


def meant_record(text: msgspec.Raw, kind: type[S]) -> S:
    """The record of a text. Raises Damaged if it is not of this kind."""
    try:
        return msgspec.convert(meant(text), kind, builtin_types=(bytes,))
    except _WRONG as error:
        raise Damaged(f"it does not hold a {kind.__name__}") from error


# -- records of the store ---------------------------------------------------------------------------------------------


def thread_name(line: ThreadLine) -> str:
    name = meant(line.name)
    if type(name) is not str or not name:
        raise Damaged("it does not name a thread")
    return name


def blob_lines(digest: bytes, pieces: Sequence[bytes]) -> list[BlobLine]:
    lines: list[BlobLine] = []
    for number, piece in enumerate(pieces):
        content: dict[str, str]
        try:
            content = {"text": piece.decode()}
        except UnicodeDecodeError:
            content = {"data": b64encode(piece).decode()}
        lines.append(BlobLine(digest=digest.hex(), piece=number, of=len(pieces), **content))
    return lines


def piece_of(line: BlobLine) -> bytes:
    return b64decode(line.data, validate=True) if line.text is None else line.text.encode()


def cell_lines(seq: int, append: Append) -> list[CellLine]:
    return [
        CellLine(
            seq=seq,
            log=append.log,
            at=append.start + place,
            refs=None if not append.refs else _named(append.refs[place]),
            cell=shown_bytes(cell),
        )
        for place, cell in enumerate(append.cells)
    ]


def checkpoint_line(row: CheckpointRow) -> CheckpointLine:
    line = CheckpointLine(
        seq=row.seq,
        id=id_to_text(row.id),
        digest=row.digest.hex(),
        step=row.step,
        move=row.move,
        parent=row.parent,
        deleted=row.deleted,
    )
    if row.deleted:
        return line
    return msgspec.structs.replace(
        line,
        label=shown(row.label),
        refs=_named(row.refs),
        meta=shown_bytes(row.meta),
        skeleton=shown_bytes(row.skeleton),
    )


def row_of(line: CheckpointLine) -> CheckpointRow:
    id = id_from_text(line.id)
    label = meant(line.label)
    if id is None or (label is not None and type(label) is not str):
        raise Damaged("it does not hold a checkpoint")
    row = CheckpointRow(
        seq=line.seq,
        id=id,
        parent=line.parent,
        step=line.step,
        move=line.move,
        digest=digest_of(line.digest),
        label=label,
        refs=refs_of(line.refs),
        deleted=line.deleted,
    )
    if line.deleted:
        return row
    return msgspec.structs.replace(row, meta=meant_bytes(line.meta), skeleton=meant_bytes(line.skeleton))


def appends_of(lines: Sequence[CellLine]) -> list[Append]:
    """Cells as a commit writes them: neighbours in a log together."""
    appends: list[Append] = []
    group: list[CellLine] = []
    for line in [*sorted(lines, key=lambda each: (each.log, each.at)), None]:
        if group and (line is None or line.log != group[0].log or line.at != group[0].at + len(group)):
            cells = tuple(meant_bytes(each.cell) for each in group)
            refs = tuple(refs_of(each.refs or Named()) for each in group)
            has_refs = any(each.refs is not None for each in group)
            appends.append(Append(group[0].log, group[0].at, cells, refs if has_refs else ()))
            group = []
        if line is not None:
            group.append(line)
    return appends


def refs_of(named: Named) -> Refs:
    return Refs(named.spans, tuple(map(digest_of, named.blobs)))


def digest_of(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise Damaged("it does not hold a digest") from error


def entry_line(row: Entry) -> EntryLine:
    return EntryLine(entry=shown_record(msgspec.structs.replace(row, sealed=b"", number=0)))


def entry_of(line: EntryLine) -> Entry:
    return meant_record(line.entry, Entry)


def run_line(row: RunRow, *, held: bool) -> RunLine:
    return RunLine(run=shown_record(msgspec.structs.replace(row, sealed=b"", thread=0)), held=held)


def run_of(line: RunLine) -> RunRow:
    return meant_record(line.run, RunRow)


def _named(refs: Refs) -> Named:
    return Named(refs.spans, tuple(digest.hex() for digest in refs.blobs))
