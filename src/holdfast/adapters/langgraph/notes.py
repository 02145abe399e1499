"""The note in a row's metadata about its LangGraph checkpoint, and the packed form of that checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph.values import from_plain, to_plain
from holdfast.codec import msgpack
from holdfast.errors import Damaged, InvalidArgument
from holdfast.redaction import AS_IS, Redaction
from holdfast.stores.contract import CheckpointRow
from holdfast.threads import metadata as metas

KEY: Final = "$langgraph"

# Metadata is always stored with this serde, so that it can be listed and compared.
_serde: Final = JsonPlusSerializer(allowed_msgpack_modules=None)

_LANGGRAPHS: Final = frozenset(("source", "step", "parents", "run_id", "counters_since_delta_snapshot"))
_VERSION: Final = re.compile(r"\A([0-9]{32})\.(.*)\Z", re.DOTALL)
_PLAIN_KEYS: Final = ("v", "ts", "updated_channels")
_OTHERS: Final[dict[str, Any]] = {"pending_sends": []}  # always empty since version 4 of checkpoints, but still present
_KNOWN_KEYS: Final = frozenset((*_PLAIN_KEYS, "id", "channel_values", "channel_versions", "versions_seen"))


class Note(msgspec.Struct, frozen=True):
    """The LangGraph checkpoint of a row, and the latest one of its namespace at that time.

    `id` is None if there is no checkpoint yet: the row has only writes that arrived before their checkpoint.
    `highest` is the largest id so far; `tip` is the checkpoint that a caller without an id gets.
    """

    seq: int
    id: str | None
    parent: str | None
    tip: str | None
    highest: str | None
    row: CheckpointRow


def note_of(row: CheckpointRow) -> Note | None:
    """The note of a row; None if the row was not written by LangGraph."""
    said = _metadata(row).get(KEY)
    if said is None:
        return None
    if type(said) is not list or not 2 <= len(said) <= 4:
        raise Damaged(f"checkpoint {row.seq}: its {KEY} metadata cannot be read")
    given, parent, *others = (str(part) if isinstance(part, UUID) else part for part in said)
    tip = others[0] if others else given
    highest = others[-1] if others else given
    if not all(part is None or type(part) is str for part in (given, parent, tip, highest)):
        raise Damaged(f"checkpoint {row.seq}: its {KEY} metadata cannot be read")
    return Note(row.seq, given, parent, tip, highest, row)


def metadata_of(row: CheckpointRow) -> CheckpointMetadata:
    """LangGraph's metadata of a row."""
    found = {key: from_plain(_serde, value) for key, value in _metadata(row).items() if key != KEY}
    return cast(CheckpointMetadata, found)


def metadata_with(
    metadata: CheckpointMetadata,
    given: str | None,
    parent: str | None,
    tip: str | None,
    highest: str | None,
    redaction: Redaction = AS_IS,
) -> dict[str, Any]:
    """The metadata of a new row."""
    if KEY in metadata:
        raise InvalidArgument(f"metadata has the key {KEY}, which is reserved")
    plain = {key: to_plain(_serde, value, f"metadata.{key}") for key, value in metadata.items()}
    said = [given, parent, tip, highest]
    if tip == highest:  # the usual case
        said = [given, parent] if tip == given else [given, parent, tip]
    return {**redacted_metadata(redaction, plain), KEY: [_short(part) for part in said]}


def redacted_metadata(redaction: Redaction, plain: dict[str, Any]) -> dict[str, Any]:
    """Redact metadata, except LangGraph's own fields. The order stays."""
    theirs = {key: value for key, value in plain.items() if key not in _LANGGRAPHS}
    changed = redaction.value(theirs)
    if changed is theirs:
        return plain
    others = iter(changed.items())
    return dict((key, value) if key in _LANGGRAPHS else next(others) for key, value in plain.items())


def _metadata(row: CheckpointRow) -> dict[str, Any]:
    encoded = metas.decode(row).metadata
    found = msgpack.decode(encoded) if encoded else {}
    if type(found) is not dict:
        raise Damaged(f"checkpoint {row.seq}: its metadata cannot be read")
    return found


def _short(id: str | None) -> UUID | str | None:
    """An id as a UUID of 16 bytes, if that preserves its spelling."""
    if id is None:
        return None
    try:
        short = UUID(id)
    except ValueError:
        return id
    return short if str(short) == id else id


def packed_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Pack a checkpoint without its id and values as plain data. A seen version equal to the current one is None."""
    return packed_plain(
        {key: value if key in _KNOWN_KEYS else to_plain(_serde, value, key) for key, value in checkpoint.items()}
    )


def packed_plain(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The same as `packed_checkpoint`, for a checkpoint that is plain data already."""
    versions = checkpoint["channel_versions"]
    plain: dict[str, Any] = {key: checkpoint.get(key) for key in _PLAIN_KEYS if key in checkpoint}
    updated = plain.get("updated_channels")
    if updated is not None:
        plain["updated_channels"] = list(updated)
    plain["versions"] = {channel: _packed_version(version) for channel, version in versions.items()}
    plain["seen"] = {
        node: {
            channel: None if _is_version(versions.get(channel), version) else _packed_version(version)
            for channel, version in seen.items()
        }
        for node, seen in checkpoint["versions_seen"].items()
    }
    others = {key: value for key, value in checkpoint.items() if key not in _KNOWN_KEYS}
    if others != _OTHERS:
        plain["others"] = others
    return plain


def unpacked_checkpoint(plain: Any, id: str, values: dict[str, Any]) -> Checkpoint:
    """The inverse of `packed_checkpoint`."""
    try:
        versions = {channel: _version(version) for channel, version in plain["versions"].items()}
        seen = {
            node: {
                channel: versions[channel] if version is None else _version(version)
                for channel, version in of_node.items()
            }
            for node, of_node in plain["seen"].items()
        }
        found: dict[str, Any] = {"id": id, **{key: plain[key] for key in _PLAIN_KEYS if key in plain}}
        others = plain.get("others", _OTHERS).items()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged("a LangGraph checkpoint cannot be read") from error
    found |= {"channel_values": values, "channel_versions": versions, "versions_seen": seen}
    found |= {key: from_plain(_serde, value, key) for key, value in others}
    return cast(Checkpoint, found)


def seen_in(plain: Any) -> dict[str, Any]:
    """The versions that each node has seen, in a packed checkpoint."""
    return dict(unpacked_checkpoint(plain, "", {})["versions_seen"])


def version_of(plain: Any, channel: str) -> Any:
    """The version of a channel in a packed checkpoint, or None."""
    try:
        packed_version = plain["versions"].get(channel)
        return None if packed_version is None else _version(packed_version)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged("a LangGraph checkpoint cannot be read") from error


def _packed_version(version: Any) -> Any:
    """A version without its leading zeros."""
    if type(version) is str and (found := _VERSION.match(version)) is not None:
        number = int(found[1])
        if number < 1 << 63:
            return [number, found[2]]
    return version


def _version(plain: Any) -> Any:
    if type(plain) is list:
        number, rest = plain
        return f"{number:032}.{rest}"
    return plain


def _is_version(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a is not None and bool(a == b)
