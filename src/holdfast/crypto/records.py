"""Records ⇄ what of them an encrypted store is given.

What a store works with stays in clear: numbers, times, statuses, references. All else is sealed, each for its place: a
cell for its log and position, a checkpoint's fields for its id, a journal entry for its step and time.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.crypto.sealing import Seal, key_id
from holdfast.errors import Damaged, NotEncrypted
from holdfast.records import UNREADABLE, Usage
from holdfast.stores.contract import CheckpointRow, Run
from holdfast.stores.running import EffectRow, Progress, RunRow

S = TypeVar("S", bound=msgspec.Struct)

_CELL: Final = struct.Struct("<5sqq")
_ENTRY: Final = struct.Struct("<6sqqq")

# What begins a text that is sealed: no text that a store is given in clear starts so.
_TEXT: Final = "\x01sealed:"

_encode = msgspec.msgpack.Encoder().encode


def cell_place(log: int, position: int) -> bytes:
    return _CELL.pack(b"cell\0", log, position)


def value_place(index: int, count: int) -> bytes:
    return b"value\0%d/%d" % (index, count)


def seal_run_of_cells(run: Run, seal: Seal) -> Run:
    at = run.start
    return replace(
        run, cells=tuple([seal.seal(cell, cell_place(run.log, at + index)) for index, cell in enumerate(run.cells)])
    )


# -- checkpoints: the label goes along with the metadata, and a token stands for it where it is looked for -----------


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint says of itself."""

    label: str | None
    meta: bytes


_decode_said = msgspec.msgpack.Decoder(_Said).decode


def seal_checkpoint(row: CheckpointRow, token: str | None, seal: Seal) -> CheckpointRow:
    said = _encode(_Said(row.label, row.meta))
    return replace(
        row,
        label=token,
        meta=seal.seal(said, b"meta\0" + row.id),
        skeleton=seal.seal(row.skeleton, b"skeleton\0" + row.id),
    )


def open_checkpoint(row: CheckpointRow, seal: Seal) -> CheckpointRow:
    """The row as it was saved, as far as it was read: pages come without skeletons, or without metadata."""
    label, meta, skeleton = row.label, row.meta, row.skeleton
    if meta:
        try:
            said = _decode_said(seal.open(meta, b"meta\0" + row.id))
        except UNREADABLE as error:
            raise Damaged(f"checkpoint {row.seq}: its metadata cannot be read") from error
        label, meta = said.label, said.meta
    if skeleton:
        skeleton = seal.open(skeleton, b"skeleton\0" + row.id)
    return replace(row, label=label, meta=meta, skeleton=skeleton)


def key_of_checkpoint(row: CheckpointRow) -> bytes | None:
    """By which data key a row is sealed; None if nothing of it that is sealed was read."""
    sealed = row.skeleton or row.meta
    return key_id(sealed) if sealed else None


# -- the journal -----------------------------------------------------------------------------------------------------


class _EntrySaid(msgspec.Struct, frozen=True, array_like=True):
    key: str
    name: str
    arguments: bytes
    call: bytes | None
    result: bytes | None
    error: str | None
    by: str | None
    mark: str | None
    usage: Usage | None


_decode_entry = msgspec.msgpack.Decoder(_EntrySaid).decode


def seal_entry(row: EffectRow, token: str | None, seal: Seal) -> EffectRow:
    said = _EntrySaid(row.key, row.name, row.arguments, row.call, row.result, row.error, row.by, row.mark, row.usage)
    return replace(
        row,
        key="",
        name="",
        arguments=b"",
        call=None,
        result=None,
        error=None,
        by=None,
        mark=token,
        usage=None,
        sealed=seal.seal(_packed(said), _entry_place(row)),
    )


def open_entry(row: EffectRow, seal: Seal) -> EffectRow:
    said = _unpacked(seal.open(row.sealed, _entry_place(row)), _decode_entry)
    return replace(row, **msgspec.structs.asdict(said), sealed=b"")


def _entry_place(row: EffectRow) -> bytes:
    return _ENTRY.pack(b"entry\0", row.branch, row.step, row.begun_at) + row.kind.encode()


# -- runs ------------------------------------------------------------------------------------------------------------


class _RunSaid(msgspec.Struct, frozen=True, array_like=True):
    reason: str | None
    turn: str | None
    trace: str | None
    parent: str | None
    handler: str | None
    version: str | None
    agent: str | None
    start: bytes
    result: bytes | None


_decode_run = msgspec.msgpack.Decoder(_RunSaid).decode


def seal_run(row: RunRow, seal: Seal) -> RunRow:
    """Equal runs are sealed to equal records, which claims compare."""
    said = _RunSaid(
        row.reason,
        row.turn,
        row.trace,
        row.parent,
        row.handler,
        row.version,
        row.agent,
        row.start,
        row.result,
    )
    return replace(
        row,
        reason=None,
        turn=None,
        trace=None,
        parent=None,
        handler=None,
        version=None,
        agent=None,
        start=b"",
        result=None,
        progress=None if row.progress is None else seal_progress(row.progress, seal),
        sealed=seal.seal(_packed(said), _run_place(row)),
    )


def open_run(row: RunRow, seal: Seal) -> RunRow:
    said = _unpacked(seal.open(row.sealed, _run_place(row)), _decode_run)
    progress = row.progress
    if progress is not None and progress.note is not None:
        progress = replace(progress, note=open_text(progress.note, seal, b"note\0"))
    return replace(row, **msgspec.structs.asdict(said), progress=progress, sealed=b"")


def seal_progress(progress: Progress, seal: Seal) -> Progress:
    if progress.note is None:
        return progress
    return replace(progress, note=seal_text(progress.note, seal, b"note\0"))


def _run_place(row: RunRow) -> bytes:
    """Without what a store changes by itself: the number of the thread, the lease, the question."""
    return b"run\0%d" % row.created_at


# -- texts in fields that hold nothing else --------------------------------------------------------------------------


def seal_text(text: str, seal: Seal, place: bytes) -> str:
    return _TEXT + base64.b64encode(seal.seal(text.encode("utf-8", "surrogatepass"), place)).decode()


def open_text(text: str, seal: Seal, place: bytes) -> str:
    if not text.startswith(_TEXT):
        raise NotEncrypted("the store holds a text that is not encrypted, which is refused with a cipher")
    try:
        sealed = base64.b64decode(text[len(_TEXT) :], validate=True)
    except ValueError as error:
        raise Damaged("an encrypted text cannot be read") from error
    if key_id(sealed) != seal.id:
        raise Damaged("an encrypted text was put in another one's place")
    return seal.open(sealed, place).decode("utf-8", "surrogatepass")


# -- structs ---------------------------------------------------------------------------------------------------------

_PLAIN: Final = b"\0"
_ESCAPED: Final = b"\1"


def _packed(said: msgspec.Struct) -> bytes:
    try:
        return _PLAIN + _encode(said)
    except UnicodeEncodeError:
        # Lone surrogates, as in the message of an error that names a file: rare, so only they pay for it.
        return _ESCAPED + _encode(_each_text(said, _escape))


def _unpacked(packed: bytes, decode: Callable[[bytes], S]) -> S:
    try:
        said = decode(packed[1:])
        return _each_text(said, _unescape) if packed[:1] == _ESCAPED else said
    except UNREADABLE as error:
        raise Damaged("an encrypted record cannot be read") from error


def _each_text(said: S, change: Callable[[str], str]) -> S:
    texts = {name: change(value) for name in said.__struct_fields__ if isinstance(value := getattr(said, name), str)}
    return replace(said, **texts)


def _escape(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _unescape(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogatepass")
