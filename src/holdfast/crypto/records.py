"""Records ⇄ what of them an encrypted store is given.

What a store works with stays in clear: numbers, times, statuses, references. All else is sealed, and what is in clear
is authenticated with it: a record opens only beside the fields that it was sealed with, and in its place. Only what a
store changes by itself is not (`running.py`).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.crypto.packing import encode, hidden, packed, shown, text_of, unpacked, utf8
from holdfast.crypto.sealing import Seal, key_id
from holdfast.errors import Damaged
from holdfast.records import UNREADABLE
from holdfast.stores.contract import NO_REFS, CheckpointRow, Refs, Run, Summary

_CELL: Final = struct.Struct("<5sqq")


class Owner(NamedTuple):
    """The thread that a record is of: its data key, and its name."""

    key: bytes
    name: str


def cell_place(log: int, position: int, refs: Refs = NO_REFS) -> bytes:
    place = _CELL.pack(b"cell\0", log, position)
    return place + encode(refs) if refs.spans or refs.values else place


def value_place(index: int, count: int) -> bytes:
    return b"value\0%d/%d" % (index, count)


def seal_run_of_cells(run: Run, seal: Seal) -> Run:
    at = run.start
    # Of another number than the cells, they are refused by the store.
    refs = run.refs if len(run.refs) == len(run.cells) else (NO_REFS,) * len(run.cells)
    sealed = [
        seal.seal(cell, cell_place(run.log, at + index, its))
        for index, (cell, its) in enumerate(zip(run.cells, refs, strict=True))
    ]
    return replace(run, cells=tuple(sealed))


# -- checkpoints: the label goes along with the metadata, and a token stands for it where it is looked for -----------


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint says of itself, and the name of its thread."""

    label: str | None
    meta: bytes
    thread: bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """A skeleton, and the data keys of the other threads whose cells it names."""

    skeleton: bytes
    origins: tuple[tuple[int, bytes], ...]


class OpenedCheckpoint(NamedTuple):
    """A checkpoint, the name of its thread and the keys of others, as far as that was read."""

    row: CheckpointRow
    thread: str | None
    origins: tuple[tuple[int, bytes], ...]


_decode_said = msgspec.msgpack.Decoder(_Said).decode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


def seal_checkpoint(
    row: CheckpointRow, token: str | None, owner: Owner, origins: tuple[tuple[int, bytes], ...], seal: Seal
) -> CheckpointRow:
    said = encode(_Said(row.label, row.meta, utf8(owner.name)))
    made = replace(row, label=token)
    return replace(
        made,
        meta=seal.seal(said, _checkpoint_place(made)),
        skeleton=seal.seal(encode(_Body(row.skeleton, origins)), _skeleton_place(row)),
    )


def open_checkpoint(row: CheckpointRow, seal: Seal) -> OpenedCheckpoint:
    """The row as it was saved, as far as it was read: pages come without skeletons, or without metadata."""
    label, meta, skeleton = row.label, row.meta, row.skeleton
    thread: str | None = None
    origins: tuple[tuple[int, bytes], ...] = ()
    try:
        if meta:
            said = _decode_said(seal.open(meta, _checkpoint_place(row)))
            label, meta, thread = said.label, said.meta, text_of(said.thread)
        if skeleton:
            body = _decode_body(seal.open(skeleton, _skeleton_place(row)))
            skeleton, origins = body.skeleton, body.origins
    except UNREADABLE as error:
        raise Damaged(f"checkpoint {row.seq}: what it was sealed with cannot be read") from error
    return OpenedCheckpoint(replace(row, label=label, meta=meta, skeleton=skeleton), thread, origins)


def key_of_checkpoint(row: CheckpointRow) -> bytes | None:
    """By which data key a row is sealed; None if nothing of it that is sealed was read."""
    sealed = row.skeleton or row.meta
    return key_id(sealed) if sealed else None


def _checkpoint_place(row: CheckpointRow) -> bytes:
    fields = (row.id, row.seq, row.parent, row.step, row.move, row.digest, row.label)
    return b"meta\0" + encode(fields)


def _skeleton_place(row: CheckpointRow) -> bytes:
    return b"skeleton\0" + row.id + encode(row.refs)


# -- threads: what a listing shows -----------------------------------------------------------------------------------


class _ThreadSaid(msgspec.Struct, frozen=True, array_like=True):
    agent: str | None
    key: bytes


_decode_thread = msgspec.msgpack.Decoder(_ThreadSaid).decode


def seal_summary(summary: Summary, owner: Owner, seal: Seal) -> Summary:
    """With the agent goes which data key the thread of that name has."""
    said = packed(_ThreadSaid(summary.agent, owner.key))
    return replace(summary, agent=shown(seal.seal(said, _thread_place(owner.name))))


def open_summary(summary: Summary, name: str, seal: Seal) -> tuple[Summary, Owner]:
    said = unpacked(hidden(summary.agent or "", seal, _thread_place(name)), _decode_thread)
    return replace(summary, agent=said.agent), Owner(said.key, name)


def _thread_place(name: str) -> bytes:
    return b"thread\0" + utf8(name)
