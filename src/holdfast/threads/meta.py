"""A checkpoint's metadata: as the caller gives it, as it is stored, as it is shown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec

from holdfast.codec import packed
from holdfast.errors import Damaged, InvalidArgument, Unsupported
from holdfast.identity import to_text
from holdfast.records import NOT_LOADED, Checkpoint, Status, Usage
from holdfast.stores.contract import CheckpointRow, Run

STATUSES: dict[str, Status] = {status: status for status in get_args(Status)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"created_at": "at"}):
    """What a save says about itself. Stored as a map: a field added later reads as its default from older records.

    `parent_digest` is kept where it cannot be looked up later: the parent is in another thread, which may be dropped,
    or its record was damaged.
    """

    created_at: int
    size: int
    parent: bytes | None = None
    parent_digest: bytes = b""
    status: Status = "running"
    reason: str | None = None
    tags: tuple[str, ...] = ()
    metadata: bytes = b""
    agent: str | None = None
    trigger: str = "manual"
    usage: Usage | None = None
    resume_hint: str | None = None
    schema_version: int | None = None
    codec: str = packed.CODEC


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Meta)


def encode(meta: Meta) -> bytes:
    return _encoder.encode(meta)


def decode(row: CheckpointRow) -> Meta:
    try:
        return _decoder.decode(row.meta)
    except msgspec.DecodeError as cause:
        raise Damaged(f"checkpoint {row.seq}: its metadata cannot be read") from cause


def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def checkpoint_of(thread: str, row: CheckpointRow, state: Any = NOT_LOADED) -> Checkpoint:
    """A stored checkpoint as users see it."""
    meta = decode(row)
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
        metadata=packed.decode(meta.metadata) if meta.metadata else {},
        agent=meta.agent,
        trigger=meta.trigger,
        usage=meta.usage,
        resume_hint=meta.resume_hint,
        size=meta.size,
        digest=row.digest.hex(),
        schema_version=meta.schema_version,
        state=state,
    )


def digest_of(row: CheckpointRow, runs: Iterable[Run], parent: bytes) -> bytes:
    """The digest of a checkpoint: over its metadata, skeleton, references and new cells, chained to its parent's."""
    hasher = hashlib.sha256(b"holdfast checkpoint 1\0")
    label = "" if row.label is None else row.label
    head = (parent, row.id, row.seq, row.step, row.label is None, label.encode("utf-8", "surrogatepass"))
    hasher.update(_encoder.encode((*head, row.meta, row.refs, row.skeleton)))
    for run in runs:
        hasher.update(_encoder.encode((run.log, run.start, list(map(len, run.cells)), run.refs)))
        for cell in run.cells:
            hasher.update(cell)
    return hasher.digest()


def checked_status(status: object) -> Status:
    if not isinstance(status, str) or status not in STATUSES:
        raise InvalidArgument(f"status must be one of {', '.join(sorted(STATUSES))}")
    return STATUSES[status]


def checked_text(name: str, value: object, *, empty: bool = True) -> str | None:
    """An optional text argument."""
    if value is None:
        return None
    if type(value) is not str:
        raise InvalidArgument(f"{name} must be a str, not {type(value).__name__}")
    if not value and not empty:
        raise InvalidArgument(f"{name} must not be empty")
    if not _is_unicode(value):
        raise InvalidArgument(f"{name} holds half of a surrogate pair, which is not text")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_tags(tags: object) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidArgument("tags must be a list or tuple of str")
    checked = tuple(tags)
    if not all(type(tag) is str and _is_unicode(tag) for tag in checked):
        raise InvalidArgument("tags must be a list or tuple of str")
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


def checked_metadata(metadata: object) -> bytes:
    if metadata is None or metadata == {}:
        return b""
    if type(metadata) is not dict or not all(type(key) is str for key in metadata):
        raise InvalidArgument("metadata must be a dict with str keys")
    try:
        encoded = packed.encode(metadata)
        packed.check(metadata)
    except Unsupported as refused:
        raise Unsupported(f"metadata{refused.path[1:]}", refused.problem) from None
    return encoded
