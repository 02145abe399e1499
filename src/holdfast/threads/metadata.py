"""A checkpoint's metadata: arguments checked, stored form, digest, and the Checkpoint that callers get."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, TypedDict, get_args

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import Damaged, InvalidArgument, Unsupported
from holdfast.ids import to_text
from holdfast.redaction import AS_IS, Redaction
from holdfast.stores.contract import Append, Cells, CheckpointRow, Hasher, Hashing, Position, ThreadRow
from holdfast.text import to_utf8
from holdfast.types import NOT_LOADED, UNREADABLE, Checkpoint, Status, ThreadInfo, Usage

STATUSES: dict[str, Status] = {status: status for status in get_args(Status)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT = {"created_at": "at", "parent_write_micros": "took"}
_TOO_LARGE = "a checkpoint holds an integer that does not fit 64 bits"


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_SHORT):
    """The metadata of a checkpoint. It is stored as a map: a field added later has its default in older records.

    `parent_digest` is stored if it cannot be looked up later: the parent is in another thread, which may be dropped, or
    its record was damaged. `parent_write_micros` is how many microseconds the parent took to become durable, if the
    same handle wrote both; 0 if it is not known. A checkpoint cannot hold this about itself.
    """

    created_at: int
    size: int
    parent: bytes | None = None
    parent_digest: bytes = b""
    parent_write_micros: int = 0
    status: Status = "running"
    reason: str | None = None
    tags: tuple[str, ...] = ()
    metadata: bytes = b""
    agent: str | None = None
    trigger: str = "manual"
    usage: Usage | None = None
    resume_hint: str | None = None
    schema_version: int | None = None
    codec: str = msgpack.CODEC


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Meta).decode


def decode(row: CheckpointRow) -> Meta:
    """The metadata of a stored checkpoint. Raises Damaged if it cannot be read."""
    try:
        return _decode(row.meta)
    except UNREADABLE as cause:
        raise Damaged(f"checkpoint {row.seq}: its metadata cannot be read") from cause


class _Sizes(msgspec.Struct, gc=False, rename=_SHORT):
    """The fields of `Meta` that statistics need."""

    created_at: int
    size: int


_decode_sizes = msgspec.msgpack.Decoder(list[_Sizes]).decode
_ARRAY: Final = struct.Struct(">BI")  # the start of an array in msgpack, with its length


def sizes_of(metas: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """The creation times and the sizes of checkpoints, all decoded at once. Raises Damaged if one cannot be read."""
    try:
        found = _decode_sizes(b"".join((_ARRAY.pack(0xDD, len(metas)), *metas)))
    except UNREADABLE as cause:
        raise Damaged("the metadata of a checkpoint cannot be read") from cause
    return [each.created_at for each in found], [each.size for each in found]


def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(microseconds: int) -> datetime:
    """A stored time. Raises Damaged if it is out of range."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError as cause:
        raise Damaged("a stored timestamp is out of range") from cause


def checkpoint_of(thread: str, row: CheckpointRow, state: Any = NOT_LOADED) -> Checkpoint:
    """A stored checkpoint as callers get it. Raises Damaged if its metadata cannot be read."""
    return checkpoint_from(thread, row, decode(row), state)


def checkpoint_from(thread: str, row: CheckpointRow, meta: Meta, state: Any = NOT_LOADED) -> Checkpoint:
    """A checkpoint with this metadata as callers get it."""
    return Checkpoint(
        id=to_text(row.id),
        thread=thread,
        seq=row.seq,
        step=row.step,
        parent=None if meta.parent is None else to_text(meta.parent),
        created_at=moment(meta.created_at),
        status=meta.status,
        reason=meta.reason,
        label=row.label,
        tags=meta.tags,
        metadata=msgpack.decode(meta.metadata) if meta.metadata else {},
        agent=meta.agent,
        trigger=meta.trigger,
        usage=meta.usage,
        resume_hint=meta.resume_hint,
        size=meta.size,
        digest=row.digest.hex(),
        schema_version=meta.schema_version,
        state=state,
    )


# -- digests ----------------------------------------------------------------------------------------------------------


def digest_of(hashing: Hashing, row: CheckpointRow, appends: Iterable[Append], parent: bytes) -> bytes:
    """The digest of a checkpoint. It covers metadata, skeleton, references, new cells and the digest of the parent.

    Raises Damaged if a number does not fit 64 bits.
    """
    try:
        hasher = _signing(hashing, row, parent)
        for append in appends:
            hasher.update(encode((append.log, append.start, list(map(len, append.cells)), append.refs)))
            for cell in append.cells:
                hasher.update(cell)
    except OverflowError as cause:
        raise Damaged(_TOO_LARGE) from cause
    return hasher.digest()


def digest_of_read(
    hashing: Hashing, row: CheckpointRow, wrote: Iterable[tuple[int, int, Cells]], parent: bytes
) -> bytes:
    """As `digest_of`, for cells that were read, as (log, start, cells). Blocks of cells are not split."""
    try:
        hasher = _signing(hashing, row, parent)
        for log, start, read in wrote:
            blocks = read.blocks
            lengths = list(blocks[0].lengths) if len(blocks) == 1 else list(chain(*(block.lengths for block in blocks)))
            hasher.update(encode((log, start, lengths, read.refs)))
            for block in blocks:
                hasher.update(memoryview(block.data)[block.start : block.start + sum(block.lengths)])
    except OverflowError as cause:
        raise Damaged(_TOO_LARGE) from cause
    return hasher.digest()


def _signing(hashing: Hashing, row: CheckpointRow, parent: bytes) -> Hasher:
    hasher = hashing.signature()
    hasher.update(b"holdfast checkpoint 1\0")
    label = b"" if row.label is None else to_utf8(row.label)
    head = (parent, row.id, row.seq, row.step, row.label is None, label)
    hasher.update(encode((*head, row.meta, row.refs, row.skeleton)))
    return hasher


# -- arguments --------------------------------------------------------------------------------------------------------
# Each function returns an argument as it is recorded, or raises InvalidArgument.


def checked_status(status: object) -> Status:
    if not isinstance(status, str) or status not in STATUSES:
        raise InvalidArgument(f"status must be one of {', '.join(sorted(STATUSES))}")
    return STATUSES[status]


def checked_text(name: str, value: object, redaction: Redaction = AS_IS, *, empty: bool = True) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise InvalidArgument(f"{name} must be a str, not {type(value).__name__}")
    if redaction is not AS_IS:
        value = redaction.text(value)
    if not value and not empty:
        raise InvalidArgument(f"{name} must not be empty")
    if not (value.isascii() or _is_unicode(value)):
        raise InvalidArgument(f"{name} holds half of a surrogate pair, which is not valid Unicode")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_tags(tags: object, redaction: Redaction = AS_IS) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidArgument("tags must be a list or tuple of str")
    given = tuple(tags)
    if not given:
        return ()
    if not all(type(tag) is str for tag in given):
        raise InvalidArgument("tags must be a list or tuple of str")
    checked = redaction.texts(given)
    if not all(map(_is_unicode, checked)):
        raise InvalidArgument("a tag holds half of a surrogate pair, which is not valid Unicode")
    return checked


def checked_usage(usage: object) -> Usage | None:
    if usage is None or isinstance(usage, Usage):
        return usage
    if isinstance(usage, dict):
        try:
            return msgspec.convert(usage, Usage)
        except msgspec.ValidationError as cause:
            raise InvalidArgument(f"usage: {cause}") from cause
    raise InvalidArgument("usage must be a holdfast.Usage or a dict of its fields")


def checked_metadata(metadata: object, redaction: Redaction = AS_IS) -> bytes:
    """The metadata, encoded. Raises Unsupported for a value that cannot be stored."""
    if metadata is None or metadata == {}:
        return b""
    if type(metadata) is not dict or not all(type(key) is str for key in metadata):
        raise InvalidArgument("metadata must be a dict with str keys")
    metadata = redaction.copy(metadata)
    try:
        encoded = msgpack.encode(metadata)
        msgpack.check(metadata, is_state=False)
    except Unsupported as refused:
        raise Unsupported(f"metadata{refused.path[1:]}", refused.problem) from None
    return encoded


class SaveOptions(TypedDict, total=False):
    """The arguments of a save besides the state, as callers give them."""

    step: int | None
    label: str | None
    tags: Iterable[str]
    metadata: dict[str, Any] | None
    status: Status
    reason: str | None
    trigger: str
    agent: str | None
    usage: Usage | dict[str, Any] | None
    resume_hint: str | None


class Details(msgspec.Struct, frozen=True):
    """The arguments of a save, checked and redacted. `meta` has no size and no parent yet."""

    step: int | None
    label: str | None
    meta: Meta


def checked_details(
    redaction: Redaction,
    schema_version: int | None = None,
    *,
    step: int | None = None,
    label: str | None = None,
    tags: Iterable[str] = (),
    metadata: dict[str, Any] | None = None,
    status: Status = "running",
    reason: str | None = None,
    trigger: str = "manual",
    agent: str | None = None,
    usage: Usage | dict[str, Any] | None = None,
    resume_hint: str | None = None,
) -> Details:
    """Check the arguments of a save. Raises InvalidArgument, or Unsupported for metadata that cannot be stored."""
    if step is not None and (type(step) is not int or not 0 <= step < 2**63):
        raise InvalidArgument("step must be a whole number, 0 or more")
    meta = Meta(
        created_at=time.time_ns() // 1000,
        size=0,
        status=checked_status(status),
        reason=None if reason is None else checked_text("reason", reason, redaction),
        tags=checked_tags(tags, redaction),
        metadata=b"" if metadata is None else checked_metadata(metadata, redaction),
        agent=None if agent is None else checked_text("agent", agent),
        trigger=checked_text("trigger", trigger) or "manual",
        usage=None if usage is None else checked_usage(usage),
        resume_hint=None if resume_hint is None else checked_text("resume_hint", resume_hint, redaction),
        schema_version=schema_version,
    )
    return Details(step, None if label is None else checked_text("label", label, redaction, empty=False), meta)


# -- the parent and the head -------------------------------------------------------------------------------------------


class Parent(msgspec.Struct, frozen=True):
    """The checkpoint that a new one follows. `thread` is 0 within the same thread.

    `readable` is False if its record is damaged: then its digest is not known. A save without a schema version takes
    over `schema_version`. `write_micros` is how many microseconds the parent took to become durable, 0 if another
    handle wrote it.
    """

    thread: int
    seq: int
    id: bytes
    digest: bytes
    step: int
    readable: bool = True
    schema_version: int | None = None
    write_micros: int = 0

    @classmethod
    def of(cls, row: CheckpointRow, thread: int = 0) -> Parent:
        return cls(thread, row.seq, row.id, row.digest, row.step)


class SeenHead(msgspec.Struct, frozen=True):
    """The head of a thread, as a thread object last saw it."""

    position: Position
    as_parent: Parent
    row: CheckpointRow | None = None  # if it was just read

    @classmethod
    def of(cls, position: Position, row: CheckpointRow, meta: Meta) -> SeenHead:
        return cls(position, Parent(0, row.seq, row.id, row.digest, row.step, schema_version=meta.schema_version))

    @classmethod
    def written(cls, position: Position, row: CheckpointRow, meta: Meta) -> SeenHead:
        """A head that has just become durable."""
        micros = max(0, time.time_ns() // 1000 - meta.created_at)
        version = meta.schema_version
        return cls(
            position, Parent(0, row.seq, row.id, row.digest, row.step, schema_version=version, write_micros=micros)
        )

    @classmethod
    def unreadable(cls, thread: ThreadRow) -> SeenHead:
        """A head whose record is damaged. The thread's own record has its id and step."""
        parent = Parent(0, thread.position.head, thread.head_id, bytes(32), thread.summary.step, readable=False)
        return cls(thread.position, parent)


def thread_info(row: ThreadRow) -> ThreadInfo:
    """A thread, as it is listed."""
    return ThreadInfo(
        name=row.name,
        head=to_text(row.head_id),
        seq=row.position.head,
        step=row.summary.step,
        status=checked_status(row.summary.status),
        agent=row.summary.agent,
        size=row.summary.size,
        count=row.count,
        updated_at=moment(row.summary.updated_at),
    )
