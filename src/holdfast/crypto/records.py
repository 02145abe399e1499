"""Seal and open the records of checkpoints, cells and blobs."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.crypto.keyring import Ring
from holdfast.crypto.seal import Seal, is_sealed, key_id
from holdfast.errors import Damaged, InvalidArgument, NotEncrypted
from holdfast.stores.contract import NO_REFS, Append, Blob, CheckpointRow, Hasher, Refs, Summary
from holdfast.text import escaped, from_utf8, to_utf8, unescaped
from holdfast.types import UNREADABLE

S = TypeVar("S", bound=msgspec.Struct)

# The prefix of sealed text. No unencrypted text in a store starts with it.
_TEXT: Final = "\x01sealed:"

_MIN: Final = -(1 << 63)
_MAX: Final = (1 << 64) - 1

_encode = msgspec.msgpack.Encoder().encode


def encode(value: object) -> bytes:
    """Encode a value. `Damaged` for an integer that no store accepts, which means that the record was forged."""
    try:
        return _encode(value)
    except OverflowError as error:
        raise Damaged("a record holds an integer that does not fit 64 bits") from error


# -- sealed text fields ---------------------------------------------------------------------------------------------


def shown(sealed: bytes) -> str:
    return _TEXT + base64.b64encode(sealed).decode()


def hidden(text: str, seal: Seal, place: bytes) -> bytes:
    if not text.startswith(_TEXT):
        raise NotEncrypted("the store holds text that is not encrypted, but a cipher was given; it was not returned")
    try:
        sealed = base64.b64decode(text[len(_TEXT) :], validate=True)
    except ValueError as error:
        raise Damaged("an encrypted text cannot be read") from error
    if key_id(sealed) != seal.id:
        raise Damaged("an encrypted text was moved to another place")
    return seal.open(sealed, place)


# -- structs ---------------------------------------------------------------------------------------------------------

_PLAIN: Final = b"\0"
_ESCAPED: Final = b"\1"


def packed(said: msgspec.Struct) -> bytes:
    try:
        return _PLAIN + encode(said)
    except UnicodeEncodeError:
        # Lone surrogates, for example from a file name in an error message. They are rare; other records skip this.
        return _ESCAPED + encode(escaped(said))


def unpacked(packed: bytes, decode: Callable[[bytes], S]) -> S:
    try:
        said = decode(packed[1:])
        return unescaped(said) if packed[:1] == _ESCAPED else said
    except UNREADABLE as error:
        raise Damaged("an encrypted record cannot be read") from error


# -- unencrypted fields ---------------------------------------------------------------------------------------------


def clear_fields(kind: type[msgspec.Struct], *without: str) -> tuple[tuple[str, str, Any], ...]:
    """The attribute, the stored name and the default of each field."""
    fields = msgspec.structs.fields(kind)
    return tuple([(field.name, field.encode_name, field.default) for field in fields if field.name not in without])


def clear(row: msgspec.Struct, fields: tuple[tuple[str, str, Any], ...]) -> bytes:
    """Encode the fields that differ from their default, so that a new field does not invalidate older records."""
    said = [(stored, _spelled(value)) for name, stored, default in fields if (value := getattr(row, name)) != default]
    return encode(said)


def _spelled(value: object) -> object:
    if isinstance(value, str):
        return to_utf8(value)
    if isinstance(value, int) and not _MIN <= value <= _MAX:
        return b"%d" % value  # the store will reject it
    if isinstance(value, msgspec.Struct):
        return [_spelled(each) for each in msgspec.structs.astuple(value)]
    return value


_CELL: Final = struct.Struct("<5sqq")


class ThreadKey(NamedTuple):
    """The thread that a record belongs to: its data key and its name."""

    key: bytes
    name: str


def cell_place(log: int, position: int, refs: Refs = NO_REFS) -> bytes:
    place = _CELL.pack(b"cell\0", log, position)
    return place + encode(refs) if refs.spans or refs.blobs else place


def value_place(index: int, count: int) -> bytes:
    return b"value\0%d/%d" % (index, count)


def seal_run_of_cells(run: Append, seal: Seal) -> Append:
    at = run.start
    # The store rejects refs whose number differs from that of the cells.
    refs = run.refs if len(run.refs) == len(run.cells) else (NO_REFS,) * len(run.cells)
    sealed = [
        seal.seal(cell, cell_place(run.log, at + index, its))
        for index, (cell, its) in enumerate(zip(run.cells, refs, strict=True))
    ]
    return replace(run, cells=tuple(sealed))


# -- checkpoints: the label is sealed with the metadata, and a token replaces it for lookups ------------------------


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of a checkpoint, and the name of its thread."""

    label: str | None
    meta: bytes
    thread: bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """A skeleton, and the data keys of the other threads whose cells it uses."""

    skeleton: bytes
    origins: tuple[tuple[int, bytes], ...]


class OpenedCheckpoint(NamedTuple):
    """A checkpoint, the name of its thread, and the keys of other threads, as far as they were read."""

    row: CheckpointRow
    thread: str | None
    origins: tuple[tuple[int, bytes], ...]


_decode_said = msgspec.msgpack.Decoder(_Said).decode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


def seal_checkpoint(
    row: CheckpointRow, token: str | None, owner: ThreadKey, origins: tuple[tuple[int, bytes], ...], seal: Seal
) -> CheckpointRow:
    said = encode(_Said(row.label, row.meta, to_utf8(owner.name)))
    made = replace(row, label=token)
    return replace(
        made,
        meta=seal.seal(said, _checkpoint_place(made)),
        skeleton=seal.seal(encode(_Body(row.skeleton, origins)), _skeleton_place(row)),
    )


def open_checkpoint(row: CheckpointRow, seal: Seal) -> OpenedCheckpoint:
    """The row as it was saved, as far as it was read: pages come without skeletons or without metadata."""
    label, meta, skeleton = row.label, row.meta, row.skeleton
    thread: str | None = None
    origins: tuple[tuple[int, bytes], ...] = ()
    try:
        if meta:
            said = _decode_said(seal.open(meta, _checkpoint_place(row)))
            label, meta, thread = said.label, said.meta, from_utf8(said.thread)
        if skeleton:
            body = _decode_body(seal.open(skeleton, _skeleton_place(row)))
            skeleton, origins = body.skeleton, body.origins
    except UNREADABLE as error:
        raise Damaged(f"the sealed content of checkpoint {row.seq} cannot be read") from error
    return OpenedCheckpoint(replace(row, label=label, meta=meta, skeleton=skeleton), thread, origins)


def key_of_checkpoint(row: CheckpointRow) -> bytes | None:
    """The id of the data key that sealed a row; None if no sealed field was read."""
    sealed = row.skeleton or row.meta
    return key_id(sealed) if sealed else None


def _checkpoint_place(row: CheckpointRow) -> bytes:
    fields = (row.id, row.seq, row.parent, row.step, row.move, row.digest, row.label)
    return b"meta\0" + encode(fields)


def _skeleton_place(row: CheckpointRow) -> bytes:
    return b"skeleton\0" + row.id + encode(row.refs)


# -- threads: the fields that listings show -------------------------------------------------------------------------


class _ThreadSaid(msgspec.Struct, frozen=True, array_like=True):
    agent: str | None
    key: bytes


_decode_thread = msgspec.msgpack.Decoder(_ThreadSaid).decode


def seal_summary(summary: Summary, owner: ThreadKey, seal: Seal) -> Summary:
    """Seal the agent together with the data key of the thread, bound to the thread's name."""
    said = packed(_ThreadSaid(summary.agent, owner.key))
    return replace(summary, agent=shown(seal.seal(said, _thread_place(owner.name))))


def open_summary(summary: Summary, name: str, seal: Seal) -> tuple[Summary, ThreadKey]:
    said = unpacked(hidden(summary.agent or "", seal, _thread_place(name)), _decode_thread)
    return replace(summary, agent=said.agent), ThreadKey(said.key, name)


def _thread_place(name: str) -> bytes:
    return b"thread\0" + to_utf8(name)


# A sealed piece must fit into the 8 MiB that stores accept.
_PIECE: Final = (8 << 20) - 64


class KeyedHashing:
    """Addresses and digests that reveal nothing without the keys."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def address(self, data: bytes) -> bytes:
        """The digest of the sealed bytes, by which stores verify what they read. A handle seals equal data equally."""
        return _address(sealed_pieces(data, self._ring.records))

    def signature(self) -> Hasher:
        return self._ring.signature()


def seal_value(value: Blob, seal: Seal) -> Blob:
    """A blob as it is stored. A blob that is already sealed, from a copy of a store, keeps its bytes and address.

    The address depends on the algorithm, the compressor and the key. `InvalidArgument` if it does not match what would
    be stored, because the blob could not be found then. `Damaged` if it was sealed by another key.
    """
    if value.pieces and is_sealed(value.pieces[0]) and _address(value.pieces) == value.digest:
        open_value(value.digest, value.pieces, seal)
        return value
    pieces = sealed_pieces(b"".join(value.pieces), seal)
    if _address(pieces) != value.digest:
        raise InvalidArgument(
            f"blob {value.digest.hex()} has the address of another key, algorithm or compressor; nothing was stored, "
            "because the blob could not be found again"
        )
    return Blob(value.digest, pieces)


def open_value(digest: bytes, sealed: Sequence[bytes], seal: Seal) -> list[bytes]:
    opened: list[bytes] = []
    for index, piece in enumerate(sealed):
        if key_id(piece) != seal.id:
            raise Damaged(f"blob {digest.hex()} was replaced by another one")
        opened.append(seal.open(piece, value_place(index, len(sealed))))
    return opened


def sealed_pieces(data: bytes, seal: Seal) -> tuple[bytes, ...]:
    """The data of a blob, split and sealed."""
    view = memoryview(data)
    starts = range(0, len(data), _PIECE)
    return tuple(
        [
            seal.seal(bytes(view[start : start + _PIECE]), value_place(index, len(starts)))
            for index, start in enumerate(starts)
        ]
    )


def _address(pieces: Iterable[bytes]) -> bytes:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
