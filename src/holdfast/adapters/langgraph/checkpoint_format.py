"""A LangGraph checkpoint as it is stored: its thread, the keys of its state, its versions, the note in its metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec.structs import replace

from holdfast.adapters.langgraph.serde import Values
from holdfast.codec import msgpack
from holdfast.delta.parts import is_map
from holdfast.errors import Damaged, InvalidArgument
from holdfast.redaction import Redaction
from holdfast.stores.contract import CheckpointRow
from holdfast.threads import metadata as metas

_BETWEEN = "#"


def thread_name(thread_id: str, namespace: str) -> str:
    """The name of the Holdfast thread for a namespace; for the root namespace it is the thread id itself."""
    name = thread_id.replace("%", "%25").replace(_BETWEEN, "%23")
    return f"{name}{_BETWEEN}{namespace}" if namespace else name


def namespaces_prefix(thread_id: str) -> str:
    """The common prefix of the names of all namespaces except the root."""
    return thread_name(thread_id, "") + _BETWEEN


def journal_name(thread_id: str) -> str:
    """The name of the thread with the journal of a LangGraph thread's tools.

    No thread of a graph has such a name: in their names a `%` is followed by digits.
    """
    return thread_name(thread_id, "") + "%tools"


def of_name(name: str) -> tuple[str, str]:
    """The thread id and the namespace of a Holdfast thread."""
    name, _, namespace = name.partition(_BETWEEN)
    return name.replace("%23", _BETWEEN).replace("%25", "%"), namespace


def thread_id_of(config: RunnableConfig) -> str:
    """The thread id of a config, as a string. LangGraph allows other types."""
    return checked_thread_id(config.get("configurable", {}).get("thread_id"))


def checked_thread_id(given: object) -> str:
    thread_id = given if isinstance(given, str) else "" if given is None else str(given)
    if not thread_id:
        raise InvalidArgument('the config has no thread_id; pass {"configurable": {"thread_id": "…"}}')
    return thread_id


def namespace_of(config: RunnableConfig) -> str:
    return config.get("configurable", {}).get("checkpoint_ns") or ""


def checkpoint_id_of(config: RunnableConfig) -> str | None:
    return config.get("configurable", {}).get("checkpoint_id") or None


def config_of(thread_id: Any, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id},
    }


CHECKPOINT: Final = "$checkpoint"
"""The key of the checkpoint without its values: versions and times."""
HISTORY: Final = "$history"
"""The key of the history of DeltaChannels, in the place of ancestors that were deleted."""
VALUES: Final = "$values"
"""The key of all values together, if they are too many for keys of their own."""
NOTE: Final = "$langgraph"
AGENT: Final = "langgraph"
"""The agent in the metadata of every checkpoint of a graph."""
START: Final = "__start__"
BRANCH: Final = "branch:to:"
"""The start of the names of the channels that lead to the nodes of a StateGraph."""
TASKS: Final = "__pregel_tasks"
DELTA_COUNTERS: Final = "counters_since_delta_snapshot"
"""The key of LangGraph's metadata that names the DeltaChannels without a stored value."""
_ESCAPE: Final = "$"
_NAMEABLE: Final = 60  # channels; together with the checkpoint they still fit a map of separate parts

# Metadata is always stored with this serde, so that it can be listed and compared.
_metadata_values: Final = Values(JsonPlusSerializer(allowed_msgpack_modules=None), is_default=True)
_ATOMS: Final = frozenset((str, int, bool, float, type(None)))
_LANGGRAPHS: Final = frozenset(("source", "step", "parents", "run_id", DELTA_COUNTERS))
_VERSION: Final = re.compile(r"\A([0-9]{32})\.(.*)\Z", re.DOTALL)
_PLAIN_KEYS: Final = ("v", "ts", "updated_channels")
_KNOWN_KEYS: Final = frozenset((*_PLAIN_KEYS, "id", "channel_values", "channel_versions", "versions_seen"))
_OTHERS: Final[dict[str, Any]] = {"pending_sends": []}  # always empty since version 4 of checkpoints, but still present


# -- the keys of a state ----------------------------------------------------------------------------------------------


def key_of(channel: str) -> str:
    """The key of a channel's value."""
    return _ESCAPE + channel if channel.startswith(_ESCAPE) else channel


def channel_of(key: str) -> str | None:
    """The channel of a key; None if it is the key of something else."""
    if not key.startswith(_ESCAPE):
        return key
    return key[1:] if key.startswith(_ESCAPE * 2) else None


def is_nameable(values: Mapping[str, Any]) -> bool:
    """Whether each value can have a key of its own."""
    return len(values) <= _NAMEABLE and is_map({_ESCAPE: None, **values})


def next_nodes(values: Mapping[str, Any]) -> list[str]:
    """The nodes of a StateGraph that run next, from the values of a checkpoint as plain data."""
    found: list[str] = []
    for key in values:
        if key.startswith(BRANCH):
            found.append(key.removeprefix(BRANCH))  # noqa: PERF401 - a comprehension is another frame per put
    sends = values.get(TASKS)
    for sent in sends if type(sends) is list else ():
        match sent:
            case {"payload": [_, "Send", [str(node), *_], *_]}:
                found.append(node)
            case _:
                pass
    return [*dict.fromkeys(found)] or ([START] if START in values else [])


def is_state_graph(channels: Iterable[str]) -> bool:
    """Whether `next_nodes` is known: the graph has the channels of a StateGraph or of an entrypoint."""
    for channel in channels:  # noqa: SIM110 - `any` takes a frame per channel
        if channel == START or channel.startswith(BRANCH):
            return True
    return False


# -- the note and the metadata ----------------------------------------------------------------------------------------


class Note(msgspec.Struct, frozen=True):
    """The id and the parent of the LangGraph checkpoint in a row. `id` is None in the first row of an empty thread.

    `next` are the nodes that run next. `absent` are the channels of the program that have a version and no value: the
    values of DeltaChannels are in the writes. `metadata` is LangGraph's metadata as plain data. `before` is the
    checkpoint before one without a parent: it is deleted or in another thread.
    """

    seq: int
    id: str | None
    parent: str | None
    next: tuple[str, ...]
    absent: tuple[str, ...]
    metadata: dict[str, Any]
    row: CheckpointRow
    before: str | None = None


_NO_ROW: Final = CheckpointRow(seq=0, id=b"", parent=None, step=0, move=0, digest=b"")


def new_note(
    id: str | None = None, parent: str | None = None, following: Iterable[str] = (), absent: Iterable[str] = ()
) -> Note:
    """The note of a row that is not stored yet."""
    return Note(0, id, parent, tuple(following), tuple(absent), {}, _NO_ROW)


def without_parent(note: Note) -> Note:
    """The note of a checkpoint whose parent is no longer needed."""
    return replace(note, parent=None, before=note.parent or note.before)


def note_of(row: CheckpointRow) -> Note | None:
    """The note of a row; None if the row was not written by LangGraph."""
    encoded = metas.decode(row).metadata
    found = msgpack.decode(encoded) if encoded else {}
    if type(found) is not dict:
        raise Damaged(f"checkpoint {row.seq}: its metadata cannot be read")
    match found.pop(NOTE, None):
        case None:
            return None
        case [(None | str() | UUID()) as id, (None | str() | UUID()) as parent, list() as following, *absent]:
            id, parent = None if id is None else str(id), None if parent is None else str(parent)
            return Note(row.seq, id, parent, tuple(following), tuple(map(str, absent)), found, row)
        case [(None | str() | UUID()) as id, [(str() | UUID()) as before], list() as following, *absent]:
            id = None if id is None else str(id)
            return Note(row.seq, id, None, tuple(following), tuple(map(str, absent)), found, row, str(before))
        case _:
            raise Damaged(f"checkpoint {row.seq}: its {NOTE} metadata cannot be read")


def metadata_of(note: Note) -> CheckpointMetadata:
    """LangGraph's metadata of a checkpoint, as new values."""
    found: dict[str, Any] = {}
    for key, value in note.metadata.items():
        found[key] = value if type(value) in _ATOMS else _metadata_values.from_plain(value)
    return cast(CheckpointMetadata, found)


def plain_metadata(metadata: Mapping[str, Any], redaction: Redaction) -> dict[str, Any]:
    """LangGraph's metadata as plain data, redacted except for its own fields. The order stays."""
    if NOTE in metadata:
        raise InvalidArgument(f"metadata has the key {NOTE}, which is reserved")
    plain: dict[str, Any] = {
        key: value if type(value) in _ATOMS else _metadata_values.to_plain(value, f"metadata.{key}")
        for key, value in metadata.items()
    }
    theirs = {key: value for key, value in plain.items() if key not in _LANGGRAPHS}
    changed = redaction.value(theirs) if theirs else theirs
    if changed is theirs:
        return plain
    others = iter(changed.items())
    return dict((key, value) if key in _LANGGRAPHS else next(others) for key, value in plain.items())


def stored_metadata(note: Note) -> dict[str, Any]:
    """The metadata of a new row."""
    parent = [_short(note.before)] if note.parent is None and note.before is not None else _short(note.parent)
    return {**note.metadata, NOTE: [_short(note.id), parent, [*note.next], *note.absent]}


def _short(id: str | None) -> UUID | str | None:
    """An id as a UUID of 16 bytes, if that preserves its spelling."""
    if id is None or len(id) != 36:
        return id
    try:
        short = UUID(id)
    except ValueError:
        return id
    return short if str(short) == id else id


# -- versions ---------------------------------------------------------------------------------------------------------


def packed(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint without its id and values, as plain data. A seen version equal to the current one is None."""
    versions = checkpoint["channel_versions"]
    plain: dict[str, Any] = {}
    for key in _PLAIN_KEYS:
        if key in checkpoint:
            plain[key] = checkpoint.get(key)
    if plain.get("updated_channels") is not None:
        plain["updated_channels"] = list(plain["updated_channels"])
    plain["versions"] = {channel: _packed_version(version) for channel, version in versions.items()}
    plain["seen"] = {
        node: {
            channel: None if _is_same(versions.get(channel), version) else _packed_version(version)
            for channel, version in seen.items()
        }
        for node, seen in checkpoint["versions_seen"].items()
    }
    if not checkpoint.keys() <= _KNOWN_KEYS:
        others = {key: value for key, value in checkpoint.items() if key not in _KNOWN_KEYS}
        if others != _OTHERS:
            plain["others"] = {key: _metadata_values.to_plain(value, key) for key, value in others.items()}
    else:
        plain["others"] = {}
    return plain


def unpacked(plain: Any, id: str, values: dict[str, Any]) -> Checkpoint:
    """The inverse of `packed`."""
    try:
        versions = {channel: _version(version) for channel, version in plain["versions"].items()}
        seen = {
            node: {
                channel: versions[channel] if version is None else _version(version)
                for channel, version in of_node.items()
            }
            for node, of_node in plain["seen"].items()
        }
        found: dict[str, Any] = {"id": id}
        for key in _PLAIN_KEYS:
            if key in plain:
                found[key] = plain[key]
        others = plain.get("others")
        more = None if others is None else list(others.items())
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged("a LangGraph checkpoint cannot be read") from error
    found |= {"channel_values": values, "channel_versions": versions, "versions_seen": seen}
    if more is None:
        found["pending_sends"] = []
    else:
        found |= {key: _metadata_values.from_plain(value, key) for key, value in more}
    return cast(Checkpoint, found)


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


def _is_same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a is not None and bool(a == b)
