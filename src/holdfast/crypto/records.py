"""Seal and open each kind of record: cells, checkpoints, threads, runs, journal entries and blobs.

The place for which a record is sealed names the kind of the record and holds its fields that stay in plain text. So
these fields are authenticated with the content.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.crypto.keyring import Keyring
from holdfast.crypto.seal import Seal, is_sealed, key_id
from holdfast.errors import Damaged, InvalidArgument, NotEncrypted
from holdfast.stores.contract import NO_REFS, Append, Blob, CheckpointRow, Hasher, Refs, Summary
from holdfast.stores.contract_runs import Entry, Progress, RunRow
from holdfast.stores.rows import packed, unpacked
from holdfast.types import UNREADABLE

R = TypeVar("R", bound=msgspec.Struct)

_encode = msgspec.msgpack.Encoder().encode


class ThreadKey(NamedTuple):
    """The thread that a record belongs to: the id of its data key, and its name."""

    key: bytes
    name: str


def place(kind: bytes, *fields: object) -> bytes:
    """The place of a record. `InvalidArgument` if a number does not fit 64 bits."""
    return b"%b\0%b" % (kind, packed(fields))


# -- records with fields -----------------------------------------------------------------------------------------------

# The prefix of sealed data in a text field. No unencrypted text in a store starts with it.
_TEXT: Final = "\x01sealed:"


class SealedFields(Generic[R]):
    """Seals some fields of a record into one of them, and authenticates others."""

    def __init__(
        self,
        kind: bytes,
        row: type[R],
        into: str,
        *,
        sealed: Mapping[str, object],
        bound: Sequence[str],
        more: Sequence[Any] = (),
    ) -> None:
        """`sealed` are the sealed fields, with what the stored record holds instead; `into` gets their content.

        `bound` are the authenticated fields: none, or two or more. `more` are the types of values that are sealed, too.
        """
        fields = {field.name: field for field in msgspec.structs.fields(row)}
        self._kind = kind
        self._into = into
        self._is_text = fields[into].type is not bytes
        self._instead = dict(sealed)
        self._bound: Callable[[R], tuple[object, ...]] = attrgetter(*bound) if bound else lambda _: ()
        self._defaults = [fields[name].default for name in bound]
        types = (*more, *[fields[name].type for name in sealed])
        self._decode = msgspec.msgpack.Decoder(tuple.__class_getitem__(types)).decode
        self._more = len(more)

    def seal(self, row: R, seal: Seal, *more: object, about: object = None, **instead: object) -> R:
        """`about` is authenticated, too. `instead` are further fields of the stored record, such as a token."""
        content = (*more, *[getattr(row, name) for name in self._instead])
        stored = replace(row, **{**self._instead, **instead})
        sealed = seal.seal(packed(content), self.place(stored, about))
        return replace(stored, **{self._into: to_text(sealed) if self._is_text else sealed})

    def open(self, row: R, seal: Seal, *, about: object = None) -> tuple[Any, ...]:
        """The record as it was before it was sealed, followed by `more`."""
        sealed = getattr(row, self._into)
        try:
            content = seal.open(from_text(sealed) if self._is_text else sealed, self.place(row, about))
            values = unpacked(content, self._decode)
        except (InvalidArgument, *UNREADABLE) as error:
            raise Damaged("an encrypted record cannot be read") from error
        fields = dict(zip(self._instead, values[self._more :], strict=True))
        return replace(row, **{self._into: b"", **fields}), *values[: self._more]

    def place(self, row: R, about: object = None) -> bytes:
        """Default values at the end are left out, so that a field added there does not invalidate older records."""
        values = self._bound(row)
        end = len(values)
        while end and values[end - 1] == self._defaults[end - 1]:
            end -= 1
        return b"%b\0%b" % (self._kind, packed((about, *values[:end])))


def to_text(sealed: bytes) -> str:
    return _TEXT + base64.b64encode(sealed).decode()


def from_text(text: str | None) -> bytes:
    if text is None or not text.startswith(_TEXT):
        raise NotEncrypted("the store holds text that is not encrypted, but a cipher was given; it was not returned")
    try:
        return base64.b64decode(text[len(_TEXT) :], validate=True)
    except ValueError as error:
        raise Damaged("an encrypted text cannot be read") from error


def _all_but(row: type[msgspec.Struct], *others: str) -> list[str]:
    return [name for name in row.__struct_fields__ if name not in others]


# The data keys of the other threads whose cells a checkpoint uses, by the number of the thread.
Origins = tuple[tuple[int, bytes], ...]

# The metadata is sealed with the name of the thread, the skeleton with the origins. A token replaces the label.
META: Final = SealedFields(
    b"meta",
    CheckpointRow,
    "meta",
    sealed={"label": None, "meta": b""},
    bound=("id", "seq", "parent", "step", "move", "digest", "label"),
    more=(str,),
)
SKELETON: Final = SealedFields(
    b"skeleton", CheckpointRow, "skeleton", sealed={"skeleton": b""}, bound=("id", "refs"), more=(Origins,)
)
# The agent is sealed with the id of the thread's data key. The thread's name is authenticated (`about`).
SUMMARY: Final = SealedFields(b"thread", Summary, "agent", sealed={"agent": None}, bound=(), more=(bytes,))
ENTRY: Final = SealedFields(
    b"entry",
    Entry,
    "sealed",
    sealed={"key": "", "name": "", "arguments": b""}
    | dict.fromkeys(
        ("call", "result", "error", "by", "topic", "usage", "spent", "type", "identity", "released", "place", "inside")
    ),
    bound=_all_but(Entry, "sealed"),
)
# A run is sealed with its thread and with the end of its lease, which the store may extend later.
RUN: Final = SealedFields(
    b"run",
    RunRow,
    "sealed",
    sealed=dict.fromkeys(("reason", "turn", "trace", "parent", "handler", "version", "agent", "result"))
    | {"start": b""},
    bound=_all_but(RunRow, "sealed", "thread", "lease_until", "progress"),
    more=(bytes, str, int),
)
# Sealed separately from the run, because renewals store it. The id of the thread's data key is authenticated.
PROGRESS: Final = SealedFields(b"note", Progress, "note", sealed={"note": None}, bound=("done", "total", "at"))


class OpenedCheckpoint(NamedTuple):
    """A checkpoint, the name of its thread ("" if it was not read), and the keys of other threads."""

    row: CheckpointRow
    thread: str
    origins: Origins


def seal_checkpoint(
    row: CheckpointRow, token: str | None, owner: ThreadKey, origins: Origins, seal: Seal
) -> CheckpointRow:
    return SKELETON.seal(META.seal(row, seal, owner.name, label=token), seal, origins)


def open_checkpoint(row: CheckpointRow, seal: Seal) -> OpenedCheckpoint:
    """The row as it was saved, as far as it was read: pages come without skeletons or without metadata."""
    thread = ""
    origins: Origins = ()
    if row.skeleton:
        row, origins = SKELETON.open(row, seal)
    if row.meta:
        row, thread = META.open(row, seal)
    return OpenedCheckpoint(row, thread, origins)


def key_of_checkpoint(row: CheckpointRow) -> bytes | None:
    """The id of the data key that sealed a row; None if no sealed field was read."""
    sealed = row.skeleton or row.meta
    return key_id(sealed) if sealed else None


def seal_summary(summary: Summary, owner: ThreadKey, seal: Seal) -> Summary:
    return SUMMARY.seal(summary, seal, owner.key, about=owner.name)


def open_summary(summary: Summary, name: str, seal: Seal) -> tuple[Summary, ThreadKey]:
    opened, key = SUMMARY.open(summary, seal, about=name)
    return opened, ThreadKey(key, name)


def seal_run(row: RunRow, owner: ThreadKey, seal: Seal, handler: str | None) -> RunRow:
    """`handler` is a token of the handler for which workers claim the run, to find it by."""
    progress = None if row.progress is None else seal_progress(row.progress, owner, seal)
    return RUN.seal(row, seal, *owner, row.lease_until, progress=progress, handler=handler)


def open_run(row: RunRow, seal: Seal) -> tuple[RunRow, ThreadKey]:
    opened, key, name, lease_until = RUN.open(row, seal)
    # The lease is extended only while the run is held, and never shortened.
    if row.lease_until < lease_until or (row.status != "running" and row.lease_until != lease_until):
        raise Damaged(f"the lease of the thread with number {row.thread} ends earlier than when it was sealed")
    if row.progress is not None:
        opened = replace(opened, progress=PROGRESS.open(row.progress, seal, about=key)[0])
    return opened, ThreadKey(key, name)


def seal_progress(progress: Progress, owner: ThreadKey, seal: Seal) -> Progress:
    # Stores return floats, whatever was given.
    total = None if progress.total is None else float(progress.total)
    return PROGRESS.seal(replace(progress, done=float(progress.done), total=total), seal, about=owner.key)


# -- cells -----------------------------------------------------------------------------------------------------------


def cell_place(log: int, position: int, refs: Refs) -> bytes:
    try:
        return b"cell\0" + _encode((log, position, refs))
    except OverflowError as error:
        raise Damaged("a cell has a number that does not fit 64 bits") from error


def seal_cells(append: Append, seal: Seal) -> Append:
    # The store rejects refs whose number differs from that of the cells.
    refs = append.refs if len(append.refs) == len(append.cells) else (NO_REFS,) * len(append.cells)
    sealed = [
        seal.seal(cell, cell_place(append.log, append.start + index, its))
        for index, (cell, its) in enumerate(zip(append.cells, refs, strict=True))
    ]
    return replace(append, cells=tuple(sealed))


# -- blobs -----------------------------------------------------------------------------------------------------------

# A sealed piece, after its length, must fit into the 8 MiB that stores accept.
_PIECE: Final = (8 << 20) - 64
_LENGTH_BYTES: Final = 4


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
    if blob.pieces and is_sealed(blob.pieces[0][_LENGTH_BYTES:]) and _address(blob.pieces) == blob.digest:
        open_blob(blob.pieces, seal)
        return blob
    pieces = _sealed_pieces(b"".join(blob.pieces), seal)
    if _address(pieces) != blob.digest:
        raise InvalidArgument(
            f"blob {blob.digest.hex()} has the address of another key or compressor; nothing was stored, "
            "because the blob could not be found again"
        )
    return Blob(blob.digest, pieces)


def open_blob(pieces: Iterable[bytes], seal: Seal) -> list[bytes]:
    """The pieces that were sealed, from any pieces of what is stored."""
    stored = b"".join(pieces)
    sealed: list[bytes] = []
    at = 0
    while at < len(stored):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(stored[at:start])
        sealed.append(stored[start:at])
    return [seal.open(piece, place(b"blob", index, len(sealed))) for index, piece in enumerate(sealed)]


def _sealed_pieces(data: bytes, seal: Seal) -> tuple[bytes, ...]:
    pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
    sealed = [seal.seal(piece, place(b"blob", index, len(pieces))) for index, piece in enumerate(pieces)]
    return tuple([len(piece).to_bytes(_LENGTH_BYTES) + piece for piece in sealed])


def _address(pieces: Iterable[bytes]) -> bytes:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
