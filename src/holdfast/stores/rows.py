"""Encode threads and checkpoints as database rows, with checksums that detect damage."""

from __future__ import annotations

import hashlib
import struct
from typing import Final
from zlib import crc32

import msgspec
from msgspec.structs import replace

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores import segment
from holdfast.stores.contract import NO_REFS, CheckpointRow, Position, Refs, Summary, ThreadRow
from holdfast.text import quoted
from holdfast.types import UNREADABLE

SEQ_BITS: Final = 32
MAX_SEQ: Final = (1 << SEQ_BITS) - 1
MAX_THREAD: Final = (1 << 31) - 1

_KEY: Final = struct.Struct("<q")
_BOUND: Final = struct.Struct("<qqiI")
_CHECKSUM: Final = struct.Struct("<I")

_encode = msgspec.msgpack.Encoder().encode
_decode_refs = msgspec.msgpack.Decoder(Refs).decode

# Smaller skeletons are not compressed: a save writes one page either way.
_COMPRESS_SKELETON: Final = 1024


def key(thread: int, seq: int) -> int:
    """The row key of a checkpoint, segment or move."""
    return thread << SEQ_BITS | seq


def context(row_key: int) -> bytes:
    """The bytes that bind a segment's checksum to its row."""
    return _KEY.pack(row_key)


def to_bytes(text: str) -> bytes:
    """Any str as bytes that sort like its code points. Lone surrogates are allowed."""
    return text.encode("utf-8", "surrogatepass")


def to_text(stored: bytes) -> str:
    """The inverse of `to_bytes`. `Damaged` if the bytes are not valid."""
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Damaged("a stored text is not UTF-8") from error


def name_hash(namespace: bytes, name: bytes) -> int:
    """A 64-bit hash to find a thread without the index on names. Signed, like the integers of databases."""
    digest = hashlib.sha256(b"%d:%b%d:%b" % (len(namespace), namespace, len(name), name)).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class StoredThread(msgspec.Struct, array_like=True, gc=False):
    """A row of the table `thread`, in the order of its columns, without the checksum."""

    thread_no: int
    namespace: bytes
    name: bytes | None
    name_hash: int | None
    created_at: int
    head: int
    move: int
    last: int
    count: int
    head_id: bytes
    step: int
    status: bytes
    agent: bytes | None
    size: int
    updated_at: int

    def checksum(self) -> int:
        return crc32(_encode(self))

    def show(self, summary: Summary) -> None:
        """Copy the fields that listings show."""
        self.step = summary.step
        self.status = to_bytes(summary.status)
        self.agent = None if summary.agent is None else to_bytes(summary.agent)
        self.size = summary.size
        self.updated_at = summary.updated_at

    def position(self) -> Position:
        return Position(self.thread_no, self.head, self.move, self.last)

    @property
    def shown(self) -> str:
        """The thread in a message: its name, or its number if it has none."""
        if self.name is None:
            return f"the thread with number {self.thread_no}"
        return f"thread {quoted(to_text(self.name))}"

    def record(self) -> ThreadRow:
        if self.name is None:
            raise Damaged(f"the thread with number {self.thread_no} was dropped but is still listed")
        return ThreadRow(
            name=to_text(self.name),
            position=self.position(),
            head_id=self.head_id,
            count=self.count,
            summary=Summary(
                step=self.step,
                status=to_text(self.status),
                agent=None if self.agent is None else to_text(self.agent),
                size=self.size,
                updated_at=self.updated_at,
            ),
        )

    def disagreeing(self, newest: int | None) -> Damaged:
        """The error for a thread whose newest checkpoint, by row key, is not the `last` of this row.

        The error carries the content of this row, without the head if checkpoints were stored after it.
        """
        damage = Damaged(
            f"the record of {self.shown} does not match its checkpoints; run hf.verify() to see what is affected"
        )
        position = self.position()
        if newest is not None and newest > key(self.thread_no, self.last):
            position = replace(position, head=0)
        damage.known = replace(self.record(), position=position)
        return damage


def stored_thread(row: tuple[object, ...]) -> StoredThread:
    """A selected row, verified. `Damaged` if the row is not what was written."""
    try:
        thread = msgspec.convert(row[:-1], StoredThread)
    except msgspec.ValidationError as error:
        raise Damaged("the record of a thread has a field of the wrong type") from error
    if thread.checksum() != row[-1]:
        raise Damaged(f"the record of the thread with number {thread.thread_no} does not match its checksum")
    if not 0 <= thread.head <= thread.last <= MAX_SEQ or not 0 <= thread.count <= thread.last:
        raise Damaged(f"the record of the thread with number {thread.thread_no} contradicts itself")
    return thread


class _Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The small fields of a checkpoint, packed. Seqs start at 1, so a parent seq of 0 means no parent.

    `plain` is the size of the skeleton before compression, 0 if it is stored raw.
    """

    id: bytes
    digest: bytes
    parent_thread: int
    parent_seq: int
    move: int
    refs_checksum: int
    skeleton_checksum: int
    plain: int
    deleted: bool


_decode_head = msgspec.msgpack.Decoder(_Head).decode


class StoredCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint's columns, encoded before its row key is known (a new thread gets its number late)."""

    step: int
    label: bytes | None
    head: bytes
    meta: bytes
    refs: bytes
    skeleton: bytes

    def sealed(self, row_key: int) -> bytes:
        """The `head` column for this row, with the checksum."""
        return self.head + _CHECKSUM.pack(_checksum(row_key, self.step, self.label, self.head, self.meta))


def encode(row: CheckpointRow) -> StoredCheckpoint:
    """A checkpoint's columns. `InvalidArgument` if a number does not fit its column."""
    refs = b"" if row.refs == NO_REFS else _encode(row.refs)
    skeleton = row.skeleton
    plain = 0
    if len(skeleton) >= _COMPRESS_SKELETON:
        packed = segment.deflate(skeleton)
        if packed is not None:
            plain, skeleton = len(skeleton), packed
    parent_thread, parent_seq = row.parent or (0, 0)
    if not -(1 << 63) <= row.step < 1 << 63:
        raise InvalidArgument("a step must fit a 64-bit integer; nothing was stored")
    head = _Head(
        row.id,
        row.digest,
        parent_thread,
        parent_seq,
        row.move,
        crc32(refs),
        crc32(skeleton),
        plain,
        row.deleted,
    )
    label = None if row.label is None else to_bytes(row.label)
    return StoredCheckpoint(row.step, label, _encode(head), row.meta, refs, skeleton)


def decode(
    row_key: int,
    step: int,
    label: bytes | None,
    head: bytes,
    meta: bytes,
    refs: bytes | None = None,
    skeleton: bytes | None = None,
    *,
    keep_meta: bool = True,
) -> CheckpointRow:
    """The checkpoint of a selected row. The selected columns are verified; `Damaged` names the seq."""
    seq = row_key & MAX_SEQ
    what = f"checkpoint {seq} of the thread with number {row_key >> SEQ_BITS}"
    try:
        packed = head[: -_CHECKSUM.size]
        if _CHECKSUM.pack(_checksum(row_key, step, label, packed, meta)) != head[-_CHECKSUM.size :]:
            raise Damaged(f"{what} does not match its checksum")
        fields = _decode_head(packed)
        if (refs is not None and crc32(refs) != fields.refs_checksum) or (
            skeleton is not None and crc32(skeleton) != fields.skeleton_checksum
        ):
            raise Damaged(f"{what} does not match its checksum")
        found = _decode_refs(refs) if refs else NO_REFS
    except (TypeError, struct.error, *UNREADABLE) as error:
        # Column types match the schema unless the type codes in the row itself are damaged.
        raise Damaged(f"{what} cannot be read") from error
    if skeleton is None:
        skeleton = b""
    elif fields.plain:
        skeleton = segment.inflate(skeleton, fields.plain)
    return CheckpointRow(
        seq=seq,
        id=fields.id,
        parent=(fields.parent_thread, fields.parent_seq) if fields.parent_seq else None,
        step=step,
        move=fields.move,
        digest=fields.digest,
        label=None if label is None else to_text(label),
        meta=meta if keep_meta else b"",
        refs=found,
        skeleton=skeleton,
        deleted=fields.deleted,
    )


def tombstone(row: CheckpointRow) -> StoredCheckpoint:
    """The columns that remain of a deleted checkpoint."""
    return encode(
        CheckpointRow(
            seq=row.seq, id=row.id, parent=row.parent, step=row.step, move=row.move, digest=row.digest, deleted=True
        )
    )


def _checksum(row_key: int, step: int, label: bytes | None, head: bytes, meta: bytes) -> int:
    bound = _BOUND.pack(row_key, step, -1 if label is None else len(label), len(meta))
    return crc32(meta, crc32(head, crc32(bound + label if label else bound)))
