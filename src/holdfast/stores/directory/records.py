"""The records of a log, one JSON line each, and their conversion from and to the records of the contract.

Bytes of the layers above (cells, skeletons, metadata, results) are converted to text by a `Form`. Digests and ids are
hex. Fields with their default value are omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.errors import Damaged, NewerFormat
from holdfast.stores import contract as c
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.stores.directory import lines
from holdfast.stores.directory.form import Form
from holdfast.text import escaped, unescaped
from holdfast.types import UNREADABLE

FORMAT: Final = 1

S = TypeVar("S", bound=msgspec.Struct)
Parent = tuple[int, int]


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", gc=False):
    pass


class References(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Refs`, with digests in hex."""

    spans: tuple[c.Span, ...] = ()
    values: tuple[str, ...] = ()


class Stand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The position of a thread after a group, and its summary for listings. `id` is that of the head."""

    head: int
    id: str
    move: int
    last: int
    count: int
    summary: c.Summary


class End(_Record, frozen=True, kw_only=True, tag="end"):
    """The last line of a group: the kinds of its lines, and the thread's position if the group changed it (`at`).

    `group` counts the groups of a log and continues when the log is rewritten. `entry` is the number of the newest
    journal entry. They reveal missing and duplicated groups.
    """

    of: str
    number: int
    group: int = 0
    entry: int = 0
    at: Stand | None = None


class ThreadLine(_Record, frozen=True, kw_only=True, tag="thread"):
    """The first line of a log. `made` distinguishes this file from others that had its place."""

    format: int
    number: int
    name: str
    is_escaped: bool = False
    made: int
    origins: tuple[int, ...] = ()
    gone: bool = False  # the thread was dropped and stays for the cells that forks use


class CellHead(_Record, frozen=True, kw_only=True, tag="cell"):
    """A cell line without the cell."""

    seq: int
    log: int
    at: int


class CellLine(CellHead, frozen=True, kw_only=True, tag="cell"):
    refs: References | None = None
    cell: msgspec.Raw


class CheckpointHead(_Record, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint line without the fields that only readers of the checkpoint need."""

    seq: int
    id: str
    digest: str
    step: int
    move: int
    parent: Parent | None = None
    label: str | None = None
    origins: tuple[int, ...] = ()


class CheckpointLine(CheckpointHead, frozen=True, kw_only=True, tag="checkpoint"):
    refs: References = References()
    meta: msgspec.Raw
    skeleton: msgspec.Raw


class TombstoneLine(_Record, frozen=True, kw_only=True, tag="tombstone"):
    """A deleted checkpoint, in a log that was rewritten since."""

    seq: int
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


class DropLine(_Record, frozen=True, kw_only=True, tag="drop"):
    pass


class EffectHead(_Record, frozen=True, kw_only=True, tag="effect"):
    number: int
    status: str
    mark: str | None = None
    is_escaped: bool = False


class EffectLine(EffectHead, frozen=True, kw_only=True, tag="effect"):
    """A journal entry. `entry` has its fields except number, status, topic, call and result, which are separate."""

    entry: dict[str, Any]
    call: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RunLine(_Record, frozen=True, kw_only=True, tag="run"):
    run: dict[str, Any]
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    is_escaped: bool = False


class SpaceLine(_Record, frozen=True, kw_only=True, tag="namespace"):
    """The first line of a namespace's log. `made` distinguishes this file from others that had its place."""

    format: int
    name: str
    is_escaped: bool = False
    made: int = 0


class NumberLine(_Record, frozen=True, kw_only=True, tag="number"):
    """A number was assigned to a thread."""

    number: int


class ForkLine(_Record, frozen=True, kw_only=True, tag="fork"):
    """A thread is about to use cells of others. The forks of a thread are looked up here first.

    Number 0 means that there may be forks that this log does not name, because some threads were unreadable when it was
    written.
    """

    number: int
    origins: tuple[int, ...]


class EpochLine(_Record, frozen=True, kw_only=True, tag="epoch"):
    epoch: int


class StampLine(_Record, frozen=True, kw_only=True, tag="stamp"):
    """Blobs that a commit contained or referred to in an epoch."""

    epoch: int
    values: tuple[str, ...]


# The part of a line that a replay reads; the parser skips the rest.
Replayed = (
    End
    | ThreadLine
    | CellHead
    | CheckpointHead
    | TombstoneLine
    | RewindLine
    | DeleteLine
    | SweepLine
    | DropLine
    | EffectHead
    | RunLine
    | SpaceLine
    | NumberLine
    | ForkLine
    | EpochLine
    | StampLine
)

LETTERS: Final[dict[type[msgspec.Struct], str]] = {
    ThreadLine: "t",
    CellHead: "c",
    CellLine: "c",
    CheckpointHead: "k",
    CheckpointLine: "k",
    TombstoneLine: "s",
    RewindLine: "b",
    DeleteLine: "d",
    SweepLine: "w",
    DropLine: "x",
    EffectHead: "e",
    EffectLine: "e",
    RunLine: "r",
    SpaceLine: "n",
    NumberLine: "a",
    ForkLine: "f",
    EpochLine: "m",
    StampLine: "v",
}
"""The letter for a kind of line in the composition of a group."""

_decode_replayed = msgspec.json.Decoder(Replayed).decode
_decode_end = msgspec.json.Decoder(End).decode
_decode_cell = msgspec.json.Decoder(CellLine).decode
_decode_checkpoint = msgspec.json.Decoder(CheckpointLine).decode
_decode_effect = msgspec.json.Decoder(EffectLine).decode


def replayed(body: bytes | memoryview) -> Replayed:
    """The part of a line that a replay needs. `Damaged` if it is not a known record."""
    cell = lines.cell_head(body)
    if cell is not None:
        seq, log, at = cell
        return CellHead(seq=int(seq), log=int(log), at=int(at))
    found: Replayed = _checked(_decode_replayed, body)
    return found


def end_line(body: memoryview) -> End:
    return _checked(_decode_end, body)


def cell_line(body: memoryview) -> CellLine:
    return _checked(_decode_cell, body)


def _checked(decode: Callable[[bytes | memoryview], S], body: bytes | memoryview) -> S:
    try:
        return decode(body)
    except UNREADABLE as error:
        raise _not_ours() from error


def _not_ours() -> Damaged:
    return Damaged("a line of a log has a valid checksum but is not a known record")


def unhex(text: str) -> bytes:
    """The bytes of an id or digest. `Damaged` if the text is not hex."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise _not_ours() from error


def require_known(format_: int) -> None:
    if format_ > FORMAT:
        raise NewerFormat(
            f"the store has a log of format {format_}, this Holdfast reads up to {FORMAT}. Upgrade Holdfast."
        )


def shown_name(name: str) -> dict[str, Any]:
    """The fields for a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return {"name": escaped(name), "is_escaped": True}
    return {"name": name}


def read_name(line: ThreadLine) -> str:
    return _unescaped(line.name) if line.is_escaped else line.name


# -- references ----------------------------------------------------------------------------------------------------


def show_refs(refs: c.Refs) -> References:
    return References(refs.spans, tuple([value.hex() for value in refs.blobs]))


def read_refs(shown: References | None) -> c.Refs:
    return c.NO_REFS if shown is None else c.Refs(shown.spans, tuple([unhex(value) for value in shown.values]))


# -- checkpoints ---------------------------------------------------------------------------------------------------


def show_checkpoint(row: c.CheckpointRow, origins: tuple[int, ...], form: Form) -> CheckpointLine:
    return CheckpointLine(
        seq=row.seq,
        id=row.id.hex(),
        digest=row.digest.hex(),
        step=row.step,
        move=row.move,
        parent=row.parent,
        label=row.label,
        origins=origins,
        refs=show_refs(row.refs),
        meta=msgspec.Raw(form.to_text(row.meta)),
        skeleton=msgspec.Raw(form.to_text(row.skeleton)),
    )


def read_checkpoint(body: bytes, form: Form) -> c.CheckpointRow:
    line = _checked(_decode_checkpoint, body)
    return c.CheckpointRow(
        seq=line.seq,
        id=unhex(line.id),
        parent=line.parent,
        step=line.step,
        move=line.move,
        digest=unhex(line.digest),
        label=line.label,
        meta=form.from_text(bytes(line.meta)),
        refs=read_refs(line.refs),
        skeleton=form.from_text(bytes(line.skeleton)),
    )


# -- runs and their journals: new fields of the records need no change here -----------------------------------------


def show_effect(row: Entry, form: Form) -> EffectLine:
    entry, is_escaped = _sparse(row, {"number", "status", "topic", "call", "result"})
    return EffectLine(
        number=row.number,
        status=row.status,
        mark=None if row.topic is None else escaped(row.topic) if is_escaped else row.topic,
        is_escaped=is_escaped,
        entry=entry,
        call=_show(row.call, form),
        result=_show(row.result, form),
    )


def read_effect(body: bytes, form: Form) -> Entry:
    line = _checked(_decode_effect, body)
    told = {"number": line.number, "status": line.status, "topic": line.mark}
    row = _converted(line.entry | told, Entry, line.is_escaped)
    return replace(row, call=_read(line.call, form), result=_read(line.result, form))


def show_run(row: RunRow, form: Form) -> RunLine:
    run, is_escaped = _sparse(row, {"result"})
    return RunLine(run=run, result=_show(row.result, form), is_escaped=is_escaped)


def read_run(line: RunLine, form: Form) -> RunRow:
    return replace(_converted(line.run, RunRow, line.is_escaped), result=_read(line.result, form))


def mark_of(head: EffectHead) -> str | None:
    return _unescaped(head.mark) if head.is_escaped and head.mark is not None else head.mark


def _show(packed: bytes | None, form: Form) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if packed is None else msgspec.Raw(form.to_text(packed))


def _read(shown: msgspec.Raw | msgspec.UnsetType, form: Form) -> bytes | None:
    return None if isinstance(shown, msgspec.UnsetType) else form.from_text(bytes(shown))


def _sparse(row: msgspec.Struct, apart: set[str]) -> tuple[dict[str, Any], bool]:
    """The fields that differ from their default, except those in `apart`; and whether strings in them are escaped.

    Lone surrogates, for example from a file name in an error message, are not valid UTF-8. They are rare, so only they
    cost extra time.
    """
    fields = {
        field.encode_name: value
        for field in msgspec.structs.fields(row)
        if field.name not in apart and (value := getattr(row, field.name)) != field.default
    }
    try:
        msgspec.json.encode(fields)
        row_mark = getattr(row, "topic", None)
        if isinstance(row_mark, str):
            row_mark.encode()
    except UnicodeEncodeError:
        return escaped(msgspec.to_builtins(fields, builtin_types=(bytes,))), True
    return fields, False


def _converted(fields: dict[str, Any], kind: type[S], is_escaped: bool) -> S:
    try:
        row = msgspec.convert(fields, kind)
        if not is_escaped:
            return row
        return msgspec.convert(unescaped(msgspec.to_builtins(row, builtin_types=(bytes,))), kind)
    except UNREADABLE as error:
        raise _not_ours() from error


def _unescaped(text: str) -> str:
    try:
        return unescaped(text)
    except UnicodeError as error:
        raise _not_ours() from error
