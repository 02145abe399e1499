"""Seal and open each kind of record: cells, checkpoints, threads, runs, journal entries and blobs.

The place for which a record is sealed names the kind of the record and holds its fields that stay in plain text. So
these fields are authenticated with the content.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from holdfast.crypto.keyring import Keyring
from holdfast.crypto.seal import Seal, is_sealed, key_id
from holdfast.errors import Damaged, InvalidArgument, NotEncrypted
from holdfast.stores.contract import NO_REFS, Append, Blob, CheckpointRow, Hasher, Refs, Summary
from holdfast.stores.contract_runs import Entry, Progress, RunRow
from holdfast.text import escaped, to_utf8, unescaped
from holdfast.types import UNREADABLE

S = TypeVar("S", bound=msgspec.Struct)
R = TypeVar("R", bound=RunRow | Entry)


class ThreadKey(NamedTuple):
    """The thread that a record belongs to: the id of its data key, and its name."""

    key: bytes
    name: str


# -- places and contents ---------------------------------------------------------------------------------------------

_MIN: Final = -(1 << 63)
_MAX: Final = (1 << 64) - 1
_UNESCAPED: Final = b"\0"
_ESCAPED: Final = b"\1"

_encode = msgspec.msgpack.Encoder().encode


def encode(value: object) -> bytes:
    """Encode a value. `Damaged` for an integer that no store accepts, which means that the record was forged."""
    try:
        return _encode(value)
    except OverflowError as error:
        raise Damaged("a record holds an integer that does not fit 64 bits") from error


def place(kind: bytes, *fields: object) -> bytes:
    return b"%b\0%b" % (kind, encode([_encodable(field) for field in fields]))


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return to_utf8(value)
    if isinstance(value, int) and not _MIN <= value <= _MAX:
        return b"%d" % value  # the store will reject it
    if isinstance(value, msgspec.Struct):
        return [_encodable(each) for each in astuple(value)]
    return value


def seal_content(content: msgspec.Struct, seal: Seal, place: bytes) -> bytes:
    try:
        packed = _UNESCAPED + encode(content)
    except UnicodeEncodeError:
        # Lone surrogates, for example from a file name in an error message. They are rare; other records skip this.
        packed = _ESCAPED + encode(escaped(content))
    return seal.seal(packed, place)


def open_content(sealed: bytes, seal: Seal, place: bytes, decode: Callable[[bytes], S]) -> S:
    packed = seal.open(sealed, place)
    try:
        content = decode(packed[1:])
        return unescaped(content) if packed[:1] == _ESCAPED else content
    except UNREADABLE as error:
        raise Damaged("an encrypted record cannot be read") from error


# The prefix of sealed data in a text field. No unencrypted text in a store starts with it.
_TEXT: Final = "\x01sealed:"


def to_text(sealed: bytes) -> str:
    return _TEXT + base64.b64encode(sealed).decode()


def from_text(text: str | None) -> bytes:
    if text is None or not text.startswith(_TEXT):
        raise NotEncrypted("the store holds text that is not encrypted, but a cipher was given; it was not returned")
    try:
        return base64.b64decode(text[len(_TEXT) :], validate=True)
    except ValueError as error:
        raise Damaged("an encrypted text cannot be read") from error


# -- cells -----------------------------------------------------------------------------------------------------------


def cell_place(log: int, position: int, refs: Refs) -> bytes:
    return b"cell\0" + encode((log, position, refs))


def seal_cells(append: Append, seal: Seal) -> Append:
    # The store rejects refs whose number differs from that of the cells.
    refs = append.refs if len(append.refs) == len(append.cells) else (NO_REFS,) * len(append.cells)
    sealed = [
        seal.seal(cell, cell_place(append.log, append.start + index, its))
        for index, (cell, its) in enumerate(zip(append.cells, refs, strict=True))
    ]
    return replace(append, cells=tuple(sealed))


# -- checkpoints -----------------------------------------------------------------------------------------------------

Origins = tuple[tuple[int, bytes], ...]


class _Meta(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of a checkpoint, its label, and the name of its thread. A token replaces the label for lookups."""

    label: str | None
    meta: bytes
    thread: str


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """A skeleton, and the data keys of the other threads whose cells it uses."""

    skeleton: bytes
    origins: Origins


class OpenedCheckpoint(NamedTuple):
    """A checkpoint, the name of its thread, and the keys of other threads, as far as they were read."""

    row: CheckpointRow
    thread: str | None
    origins: Origins


_decode_meta = msgspec.msgpack.Decoder(_Meta).decode
_decode_body = msgspec.msgpack.Decoder(_Body).decode


def seal_checkpoint(
    row: CheckpointRow, token: str | None, owner: ThreadKey, origins: Origins, seal: Seal
) -> CheckpointRow:
    stored = replace(row, label=token)
    return replace(
        stored,
        meta=seal_content(_Meta(row.label, row.meta, owner.name), seal, meta_place(stored)),
        skeleton=seal_content(_Body(row.skeleton, origins), seal, _skeleton_place(row)),
    )


def open_checkpoint(row: CheckpointRow, seal: Seal) -> OpenedCheckpoint:
    """The row as it was saved, as far as it was read: pages come without skeletons or without metadata."""
    opened = row
    thread: str | None = None
    origins: Origins = ()
    if row.meta:
        meta = open_content(row.meta, seal, meta_place(row), _decode_meta)
        opened, thread = replace(opened, label=meta.label, meta=meta.meta), meta.thread
    if row.skeleton:
        body = open_content(row.skeleton, seal, _skeleton_place(row), _decode_body)
        opened, origins = replace(opened, skeleton=body.skeleton), body.origins
    return OpenedCheckpoint(opened, thread, origins)


def key_of_checkpoint(row: CheckpointRow) -> bytes | None:
    """The id of the data key that sealed a row; None if no sealed field was read."""
    sealed = row.skeleton or row.meta
    return key_id(sealed) if sealed else None


def meta_place(row: CheckpointRow) -> bytes:
    return place(b"meta", row.id, row.seq, row.parent, row.step, row.move, row.digest, row.label)


def _skeleton_place(row: CheckpointRow) -> bytes:
    return b"skeleton\0" + encode((row.id, row.refs))


# -- threads: what listings show -------------------------------------------------------------------------------------


class _Thread(msgspec.Struct, frozen=True, array_like=True):
    agent: str | None
    key: bytes


_decode_thread = msgspec.msgpack.Decoder(_Thread).decode


def seal_summary(summary: Summary, owner: ThreadKey, seal: Seal) -> Summary:
    """Seal the agent together with the data key of the thread, bound to the thread's name."""
    sealed = seal_content(_Thread(summary.agent, owner.key), seal, place(b"thread", owner.name))
    return replace(summary, agent=to_text(sealed))


def open_summary(summary: Summary, name: str, seal: Seal) -> tuple[Summary, ThreadKey]:
    thread = open_content(from_text(summary.agent), seal, place(b"thread", name), _decode_thread)
    return replace(summary, agent=thread.agent), ThreadKey(thread.key, name)


# -- runs and journal entries ----------------------------------------------------------------------------------------


class SealedFields(Generic[R]):
    """Seals some fields of a row into its field `sealed`, and authenticates the others."""

    def __init__(
        self, kind: bytes, row: type[R], *, sealed: Mapping[str, object], unbound: Iterable[str], more: dict[str, type]
    ) -> None:
        """`sealed` are the sealed fields, with what the stored row holds instead. `more` is sealed with them.

        `unbound` are the fields that the store may change, so they are not authenticated.
        """
        fields = {field.name: field for field in msgspec.structs.fields(row)}
        self._kind = kind
        self._empty = dict(sealed)
        self._bound = [field for name, field in fields.items() if name not in {*unbound, "sealed"}]
        types = [*more.items(), *[(name, fields[name].type) for name in sealed]]
        self._content = msgspec.defstruct("Content", types, frozen=True, array_like=True)
        self._decode = msgspec.msgpack.Decoder(self._content).decode
        self._more = len(more)

    def seal(self, row: R, seal: Seal, more: tuple[object, ...], **instead: object) -> R:
        """`instead` are further fields of the stored row, for example a token for lookups."""
        content = self._content(*more, *[getattr(row, name) for name in self._empty])
        stored = replace(row, **{**self._empty, **instead})
        return replace(stored, sealed=seal_content(content, seal, self.place(stored)))

    def open(self, row: R, seal: Seal) -> tuple[R, tuple[Any, ...]]:
        """The row as it was before it was sealed, and `more`."""
        values = astuple(open_content(row.sealed, seal, self.place(row), self._decode))
        fields = dict(zip(self._empty, values[self._more :], strict=True))
        return replace(row, **fields, sealed=b""), values[: self._more]

    def place(self, row: R) -> bytes:
        """Fields with their default value are left out, so that a new field does not invalidate older records."""
        fields: list[object] = []
        for field in self._bound:
            value = getattr(row, field.name)
            if value != field.default:
                fields += (field.encode_name, value)
        return place(self._kind, *fields)


SEALED_ENTRY: Final = SealedFields(
    b"entry",
    Entry,
    sealed={"key": "", "name": "", "arguments": b""}
    | dict.fromkeys(("call", "result", "error", "by", "topic", "usage", "spent")),
    unbound=(),
    more={},
)
RUNS: Final = SealedFields(
    b"run",
    RunRow,
    sealed=dict.fromkeys(("reason", "turn", "trace", "parent", "handler", "version", "agent", "result"))
    | {"start": b""},
    unbound=["thread", "lease_until", "progress"],
    more={"key": bytes, "name": str, "lease_until": int},
)


def seal_entry(row: Entry, token: str | None, seal: Seal) -> Entry:
    return SEALED_ENTRY.seal(row, seal, (), topic=token)


def open_entry(row: Entry, seal: Seal) -> Entry:
    return SEALED_ENTRY.open(row, seal)[0]


def seal_run(row: RunRow, owner: ThreadKey, seal: Seal) -> RunRow:
    """Seal a run. The store may extend its lease but not shorten it; the thread is identified by its key."""
    progress = None if row.progress is None else seal_progress(row.progress, owner, seal)
    return RUNS.seal(row, seal, (*owner, row.lease_until), progress=progress)


def open_run(row: RunRow, seal: Seal) -> tuple[RunRow, ThreadKey]:
    opened, (key, name, lease_until) = RUNS.open(row, seal)
    # The lease is extended only while the run is held, and never shortened.
    if row.lease_until < lease_until or (row.status != "running" and row.lease_until != lease_until):
        raise Damaged(f"the lease of the thread with number {row.thread} ends earlier than when it was sealed")
    owner = ThreadKey(key, name)
    if row.progress is not None:
        opened = replace(opened, progress=_open_progress(row.progress, owner, seal))
    return opened, owner


class _Note(msgspec.Struct, frozen=True, array_like=True):
    note: str | None


_decode_note = msgspec.msgpack.Decoder(_Note).decode


def seal_progress(progress: Progress, owner: ThreadKey, seal: Seal) -> Progress:
    """Seal the note of a progress report separately, because renewals store it; authenticate its numbers and times."""
    return replace(progress, note=to_text(seal_content(_Note(progress.note), seal, _note_place(progress, owner))))


def _open_progress(progress: Progress, owner: ThreadKey, seal: Seal) -> Progress:
    content = open_content(from_text(progress.note), seal, _note_place(progress, owner), _decode_note)
    return replace(progress, note=content.note)


def _note_place(progress: Progress, owner: ThreadKey) -> bytes:
    total = None if progress.total is None else float(progress.total)
    return place(b"note", owner.key, float(progress.done), total, progress.at)


# -- blobs -----------------------------------------------------------------------------------------------------------

# A sealed piece must fit into the 8 MiB that stores accept.
_PIECE: Final = (8 << 20) - 64


class KeyedHashing:
    """Addresses and digests that reveal nothing without the keys."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def address(self, data: bytes) -> bytes:
        """The digest of the sealed bytes, by which stores verify what they read. A handle seals equal data equally."""
        return _address(_sealed_pieces(data, self._keyring.records))

    def signature(self) -> Hasher:
        return self._keyring.signature()


def seal_blob(blob: Blob, seal: Seal) -> Blob:
    """A blob as it is stored. A blob that is already sealed, from a copy of a store, keeps its bytes and address.

    The address depends on the compressor and the key. `InvalidArgument` if it does not match what would be stored,
    because the blob could not be found then. `Damaged` if it was sealed by another key.
    """
    if blob.pieces and is_sealed(blob.pieces[0]) and _address(blob.pieces) == blob.digest:
        open_blob(blob.pieces, seal)
        return blob
    pieces = _sealed_pieces(b"".join(blob.pieces), seal)
    if _address(pieces) != blob.digest:
        raise InvalidArgument(
            f"blob {blob.digest.hex()} has the address of another key or compressor; nothing was stored, "
            "because the blob could not be found again"
        )
    return Blob(blob.digest, pieces)


def open_blob(pieces: Sequence[bytes], seal: Seal) -> list[bytes]:
    return [seal.open(piece, _piece_place(index, len(pieces))) for index, piece in enumerate(pieces)]


def _sealed_pieces(data: bytes, seal: Seal) -> tuple[bytes, ...]:
    starts = range(0, len(data), _PIECE)
    pieces = [data[start : start + _PIECE] for start in starts]
    return tuple([seal.seal(piece, _piece_place(index, len(pieces))) for index, piece in enumerate(pieces)])


def _piece_place(index: int, count: int) -> bytes:
    return place(b"blob", index, count)


def _address(pieces: Iterable[bytes]) -> bytes:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
