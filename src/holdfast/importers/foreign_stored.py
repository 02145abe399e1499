"""Convert records of other systems to checkpoints, and recognise stored ones.

The metadata of an imported checkpoint has a key `$imported` with the format, the original id and parent, and the fields
that Holdfast has no place for.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.importers.foreign_record import Record
from holdfast.importers.frame import Unusable
from holdfast.redaction import Redaction
from holdfast.stores.contract import CheckpointRow
from holdfast.threads import metadata as metas
from holdfast.threads.save import Details, checked_details

KEY: Final = "$imported"

_TWICE: Final = "the source contains it twice; it was imported once"
_NO_TIME: Final = "it has no valid time; the time of the import is used"
_TWO: Final = "the source contains another checkpoint with this id; both were imported"


class Prepared(msgspec.Struct, frozen=True):
    """A record in stored form. `key` is unique within its thread."""

    record: Record
    key: str
    state: Any
    details: Details


class Preparing:
    """Converts the records of one thread, in order: redacts and checks them, and removes duplicates."""

    def __init__(self, kind: str, redaction: Redaction, *, is_unique: bool = False) -> None:
        """`is_unique`: no two records have the same key."""
        self._kind = kind
        self._redaction = redaction
        self._is_unique = is_unique
        self._seen: dict[str, list[bytes]] = {}

    def prepare(self, record: Record) -> tuple[Prepared | None, tuple[str, ...]]:
        """Return a record in stored form, or None for an exact duplicate of an earlier one; and its remarks.

        Unusable or InvalidArgument if the record cannot be stored.
        """
        state = self._redaction.value(record.state)
        key = record.id if record.key is None else record.key
        details = self._details(record, key)
        remarks = record.remarks if record.created_at is not None else (*record.remarks, _NO_TIME)
        if self._is_unique:
            return Prepared(record, key, state, details), remarks
        content = msgpack.encode([state, record.step, record.label, details.meta.status, details.meta.metadata])
        digest = hashlib.sha256(content).digest()
        twins = self._seen.setdefault(key, [])
        if digest in twins:
            return None, (_TWICE,)
        twins.append(digest)
        if len(twins) == 1:
            return Prepared(record, key, state, details), remarks
        key = f"{key} ({len(twins)})"
        return Prepared(record, key, state, self._details(record, key)), (*remarks, _TWO)

    def _details(self, record: Record, key: str) -> Details:
        if KEY in record.metadata:
            raise Unusable(f"its metadata has the key {KEY}, which is reserved for imports")
        details = checked_details(
            self._redaction,
            step=record.step,
            label=record.label,
            tags=record.tags,
            metadata=record.metadata,
            status=record.status,
            reason=record.reason,
            trigger=record.trigger,
            agent=record.agent,
            usage=record.usage,
            resume_hint=record.resume_hint,
        )
        said: dict[str, Any] = {"from": self._kind, "id": record.id}
        if key != record.id:
            said["key"] = key
        if record.parent is not None:
            said["parent"] = record.parent
        if record.rest:
            said["rest"] = self._redaction.value(record.rest)
        encoded = details.meta.metadata
        metadata = metas.checked_metadata({**(msgpack.decode(encoded) if encoded else {}), KEY: said})
        created_at = details.meta.created_at if record.created_at is None else metas.microseconds(record.created_at)
        return replace(details, meta=replace(details.meta, metadata=metadata, created_at=created_at))


def key_of(row: CheckpointRow, kind: str) -> str | None:
    """The key of the record that a row was imported from; None if it was not imported from this format."""
    encoded = metas.decode(row).metadata
    said = msgpack.decode(encoded).get(KEY) if encoded else None
    if type(said) is not dict or said.get("from") != kind:
        return None
    key = said.get("key", said.get("id"))
    return key if type(key) is str else None
