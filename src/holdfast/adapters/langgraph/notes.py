"""What a row says of the LangGraph checkpoint it holds: in its metadata, so that it can be listed."""

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

# Metadata is listed and compared, whatever serde the values go through.
_serde: Final = JsonPlusSerializer(allowed_msgpack_modules=None)

_LANGGRAPHS: Final = frozenset(("source", "step", "parents", "run_id", "counters_since_delta_snapshot"))
_VERSION: Final = re.compile(r"\A([0-9]{32})\.(.*)\Z", re.DOTALL)
_PLAIN_KEYS: Final = ("v", "ts", "updated_channels")
_OTHERS: Final[dict[str, Any]] = {
    "pending_sends": []
}  # empty since version 4 of checkpoints, and still given with each
_KNOWN_KEYS: Final = frozenset((*_PLAIN_KEYS, "id", "channel_values", "channel_versions", "versions_seen"))


class Note(msgspec.Struct, frozen=True):
    """Which LangGraph checkpoint a row holds, and what was the latest of its namespace when it was stored.

    `id` is None where there is none yet: the row holds writes that came before their checkpoint.
    `highest` is the largest id there was; `tip` is what a caller gets who asks for none.
    """

    seq: int
    id: str | None
    parent: str | None
    tip: str | None
    highest: str | None
    row: CheckpointRow


def note_of(row: CheckpointRow) -> Note | None:
    """The note of a row; None for one that is not LangGraph's."""
    said = _metadata(row).get(KEY)
    if said is None:
        return None
    if type(said) is not list or not 2 <= len(said) <= 4:
        raise Damaged(f"checkpoint {row.seq}: what it says of LangGraph cannot be read")
    given, parent, *others = (str(part) if isinstance(part, UUID) else part for part in said)
    tip = others[0] if others else given
    highest = others[-1] if others else given
    if not all(part is None or type(part) is str for part in (given, parent, tip, highest)):
        raise Damaged(f"checkpoint {row.seq}: what it says of LangGraph cannot be read")
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
        raise InvalidArgument(f"metadata has a key {KEY}, which is Holdfast's own")
    plain = {key: to_plain(_serde, value, f"metadata.{key}") for key, value in metadata.items()}
    said = [given, parent, tip, highest]
    if tip == highest:  # as nearly always
        said = [given, parent] if tip == given else [given, parent, tip]
    return {**redacted_metadata(redaction, plain), KEY: [_short(part) for part in said]}


def redacted_metadata(redaction: Redaction, plain: dict[str, Any]) -> dict[str, Any]:
    """Metadata with the texts redacted that are not LangGraph's own, in the same order."""
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
    """An id in 16 bytes, if it is one that comes back as it is."""
    if id is None:
        return None
    try:
        short = UUID(id)
    except ValueError:
        return id
    return short if str(short) == id else id


def packed_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """All of a checkpoint but its id and its values, as plain data. A version that a node saw last is None there."""
    return packed_plain(
        {key: value if key in _KNOWN_KEYS else to_plain(_serde, value, key) for key, value in checkpoint.items()}
    )


def packed_plain(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a checkpoint that is plain data already."""
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
    """A checkpoint as LangGraph gave it."""
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
    """What each node had seen, in what `packed_checkpoint` gave."""
    return dict(unpacked_checkpoint(plain, "", {})["versions_seen"])


def version_of(plain: Any, channel: str) -> Any:
    """The version of a channel in what `packed_checkpoint` gave, or None."""
    try:
        packed_version = plain["versions"].get(channel)
        return None if packed_version is None else _version(packed_version)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged("a LangGraph checkpoint cannot be read") from error


def _packed_version(version: Any) -> Any:
    """A version without the 30 zeros at its front."""
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
