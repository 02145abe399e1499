"""Convert the records of the store contract to lines and back (`formats.lines`).

Bytes of the layers above (cells, skeletons, metadata, results) are packed values, written as text by `codec.jsontext`.
Digests and ids are hex. Fields with their default value are omitted.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.codec.jsontext import from_text, to_text
from holdfast.formats import lines as ln
from holdfast.stores import contract as c
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import escaped, unescaped
from holdfast.types import UNREADABLE

S = TypeVar("S", bound=msgspec.Struct)

HELD: Final = "a process was running it at the time of the export; resume it if that run has ended"
"""Why an imported run is halted: its first process may still run it, and then both would act."""

_checkpoint: Final = msgspec.json.Decoder(ln.CheckpointLine).decode
_tombstone: Final = msgspec.json.Decoder(ln.CheckpointLine | ln.TombstoneLine).decode
_entry: Final = msgspec.json.Decoder(ln.EntryLine).decode
_blob: Final = msgspec.json.Decoder(ln.BlobLine).decode
_run: Final = msgspec.json.Decoder(RunRow).decode
_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode


def new_number() -> int:
    """A number for a thread: the time in ms and 11 random bits. So logs can be copied between stores.

    It is less than 2**53 for another century: every reader of JSON keeps such a number exactly.
    """
    return time.time_ns() // 1_000_000 << 11 | secrets.randbits(11)


# -- names, references, blobs -----------------------------------------------------------------------------------------


def show_name(name: str, field: str = "name") -> dict[str, Any]:
    """The fields for a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return {field: escaped(name), "is_escaped": True}
    return {field: name}


def read_name(name: str, is_escaped: bool) -> str:
    try:
        return unescaped(name) if is_escaped else name
    except UnicodeError as error:
        raise ln.not_ours() from error


def show_refs(refs: c.Refs) -> ln.References:
    return ln.References(refs.spans, tuple([digest.hex() for digest in refs.blobs]))


def read_refs(shown: ln.References | None) -> c.Refs:
    return c.NO_REFS if shown is None else c.Refs(shown.spans, tuple([ln.unhex(digest) for digest in shown.blobs]))


def blob_lines(digest: bytes, pieces: Sequence[bytes]) -> Iterator[ln.BlobLine]:
    for number, piece in enumerate(pieces):
        content: dict[str, str]
        try:
            content = {"text": piece.decode()}
        except UnicodeDecodeError:
            content = {"data": b64encode(piece).decode()}
        yield ln.BlobLine(digest=digest.hex(), piece=number, of=len(pieces), **content)


def read_piece(body: bytes | memoryview) -> bytes:
    line = ln.checked(_blob, body)
    try:
        return b64decode(line.data, validate=True) if line.text is None else line.text.encode()
    except ValueError as error:
        raise ln.not_ours() from error


# -- cells and checkpoints --------------------------------------------------------------------------------------------


def show_cells(seq: int, append: c.Append) -> Iterator[ln.CellLine]:
    for i, cell in enumerate(append.cells):
        refs = show_refs(append.refs[i]) if append.refs else None
        yield ln.CellLine(seq=seq, log=append.log, at=append.start + i, cell=msgspec.Raw(to_text(cell)), refs=refs)


def read_cell(text: bytes | memoryview) -> bytes:
    return from_text(bytes(text))


def show_checkpoint(row: c.CheckpointRow, origins: tuple[int, ...] = ()) -> ln.CheckpointLine:
    return ln.CheckpointLine(
        seq=row.seq,
        id=row.id.hex(),
        digest=row.digest.hex(),
        step=row.step,
        move=row.move,
        parent=row.parent,
        label=row.label,
        origins=origins,
        refs=show_refs(row.refs),
        meta=msgspec.Raw(to_text(row.meta)),
        skeleton=msgspec.Raw(to_text(row.skeleton)),
    )


def read_checkpoint(body: bytes | memoryview, only: Literal["meta", "refs"] | None = None) -> c.CheckpointRow:
    """A checkpoint. With `only`, the skeleton and either the references or the metadata are left out."""
    line = ln.checked(_checkpoint, body)
    return c.CheckpointRow(
        seq=line.seq,
        id=ln.unhex(line.id),
        parent=line.parent,
        step=line.step,
        move=line.move,
        digest=ln.unhex(line.digest),
        label=line.label,
        meta=b"" if only == "refs" else from_text(bytes(line.meta)),
        refs=c.NO_REFS if only == "meta" else read_refs(line.refs),
        skeleton=b"" if only else from_text(bytes(line.skeleton)),
    )


def show_tombstone(row: c.CheckpointRow) -> ln.TombstoneLine:
    return ln.TombstoneLine(
        seq=row.seq, id=row.id.hex(), digest=row.digest.hex(), step=row.step, move=row.move, parent=row.parent
    )


def read_tombstone(body: bytes | memoryview) -> c.CheckpointRow:
    """A deleted checkpoint. In a log, its line may still be that of the checkpoint."""
    head = ln.checked(_tombstone, body)
    return c.CheckpointRow(
        seq=head.seq,
        id=ln.unhex(head.id),
        parent=head.parent,
        digest=ln.unhex(head.digest),
        step=head.step,
        move=head.move,
        deleted=True,
    )


# -- runs and their journals: new fields of the records need no change here -----------------------------------------


_APART: Final = frozenset({"number", "status", "topic", "act", "call", "result"})
_RESULT: Final = frozenset({"result"})


def show_entry(row: Entry) -> ln.EntryLine:
    entry, is_escaped = _sparse(row, _APART)
    return ln.EntryLine(
        number=row.number,
        status=row.status,
        topic=None if row.topic is None else escaped(row.topic) if is_escaped else row.topic,
        act=None if row.act is None else row.act.hex(),
        is_escaped=is_escaped,
        entry=entry,
        call=_show(row.call),
        result=_show(row.result),
    )


def read_entry(body: bytes | memoryview) -> Entry:
    line = ln.checked(_entry, body)
    fields = ln.checked(_fields, line.entry) | {"number": line.number, "status": line.status}
    row = _whole(fields, Entry, line.is_escaped)
    act = None if line.act is None else ln.unhex(line.act)
    return replace(row, topic=topic_of(line), act=act, call=_read(line.call), result=_read(line.result))


def show_run(row: RunRow) -> ln.RunLine:
    run, is_escaped = _sparse(row, _RESULT)
    return ln.RunLine(run=run, result=_show(row.result), is_escaped=is_escaped)


def read_run(line: ln.RunLine) -> RunRow:
    run = _whole(ln.checked(_fields, line.run), RunRow, True) if line.is_escaped else ln.checked(_run, line.run)
    return run if line.result is msgspec.UNSET else replace(run, result=_read(line.result))


def topic_of(head: ln.EntryHead) -> str | None:
    return None if head.topic is None else read_name(head.topic, head.is_escaped)


def _show(packed: bytes | None) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if packed is None else msgspec.Raw(to_text(packed))


def _read(shown: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    return None if isinstance(shown, msgspec.UnsetType) else from_text(bytes(shown))


def _sparse(row: msgspec.Struct, apart: frozenset[str]) -> tuple[msgspec.Raw, bool]:
    """The fields that differ from their default, except those in `apart`; and whether strings in them are escaped.

    Lone surrogates, for example from a file name in an error message, are not valid UTF-8. They are rare, so only they
    cost extra time.
    """
    fields = {name: value for name, default in _defaults(type(row), apart) if (value := getattr(row, name)) != default}
    try:
        topic = getattr(row, "topic", None)
        if isinstance(topic, str):
            topic.encode()
        return msgspec.Raw(msgspec.json.encode(fields)), False
    except UnicodeEncodeError:
        shown = escaped(msgspec.to_builtins(fields, builtin_types=(bytes,)))
        return msgspec.Raw(msgspec.json.encode(shown)), True


@cache
def _defaults(kind: type[msgspec.Struct], apart: frozenset[str]) -> list[tuple[str, object]]:
    """The fields of a record with their defaults, except those in `apart`.

    Cached, because msgspec resolves the annotations of all fields each time, which takes about a millisecond.
    """
    return [(field.name, field.default) for field in msgspec.structs.fields(kind) if field.name not in apart]


def _whole(fields: dict[str, Any], kind: type[S], is_escaped: bool) -> S:
    try:
        row = msgspec.convert(fields, kind)
        if not is_escaped:
            return row
        return msgspec.convert(unescaped(msgspec.to_builtins(row, builtin_types=(bytes,))), kind)
    except UNREADABLE as error:
        raise ln.not_ours() from error
