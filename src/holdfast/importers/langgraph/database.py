"""What LangGraph's databases have in common, and how what they hold becomes plain data without being loaded."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, cast

from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph.carrying import Foreign
from holdfast.adapters.langgraph.notes import metadata_with
from holdfast.adapters.langgraph.trees import EXT, PAYLOAD, TYPED, Writer, read, whole
from holdfast.adapters.langgraph.values import to_plain
from holdfast.adapters.langgraph.written import Write
from holdfast.codec.storable import MAX_DEPTH
from holdfast.errors import Damaged
from holdfast.importers.frame import Unusable

_DICT: Final = "dict"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 1 << 52  # µs; a time behind that is none

# What is written in JSON is of no class.
_serde: Final = JsonPlusSerializer(allowed_msgpack_modules=None)


class Database(Protocol):
    """A database of one of LangGraph's savers, open for reading, as it was at one moment."""

    def size(self) -> int:
        """How many checkpoints there are."""
        ...

    def tracks(self) -> Generator[tuple[object, object]]:
        """The namespaces of all threads: thread id and namespace."""
        ...

    def ids(self, thread_id: str, namespace: str) -> dict[str, str | None]:
        """The checkpoints of a namespace, each with its parent."""
        ...

    def owners(self, thread_id: str, namespace: str) -> set[str]:
        """The checkpoints of a namespace that have writes, also if there is no such checkpoint."""
        ...

    def checkpoint(self, thread_id: str, namespace: str, id: str) -> Foreign:
        """One checkpoint, without its writes. Unusable if it cannot be read."""
        ...

    def writes(self, thread_id: str, namespace: str, id: str) -> tuple[list[Write], list[tuple[str, str]]]:
        """The writes of a checkpoint, and those that cannot be read: which, and why."""
        ...

    def close(self) -> None: ...


def writes_of(rows: Iterable[Any]) -> tuple[list[Write], list[tuple[str, str]]]:
    """See `Database.writes`. A row has task id, path, index, channel, type and bytes."""
    found: list[Write] = []
    bad: list[tuple[str, str]] = []
    for task_id, path, index, channel, typ, data in rows:
        try:
            if type(index) is not int or not all(type(text) is str for text in (task_id, path, channel)):
                raise Unusable("its place is not as LangGraph writes it")
            found.append([task_id, path, index, channel, plain_of(typ, data)])
        except Unusable as error:
            bad.append((f"{task_id} {index}", str(error)))
    return found, bad


def plain_of(typ: object, data: object) -> Any:
    """What a serde gave, as plain data. Msgpack is taken apart, anything else stays as it is, with its type."""
    if type(typ) is not str:
        raise Unusable("it has no type")
    if data is None and typ == "null":
        data = b""
    if not isinstance(data, bytes | memoryview):
        raise Unusable("its bytes are missing")
    data = bytes(data)
    if typ != "msgpack":
        return whole(typ, data)
    tree = tree_of(data)
    # Where the same bytes would not come back, they are kept as they are.
    if tree is None or type(tree) is bytes or not _gives(tree, data):
        return whole(typ, data)
    return tree


def _gives(tree: Any, data: bytes) -> bool:
    try:
        return Writer().pack(tree, MAX_DEPTH) == data
    except (TypeError, ValueError, RecursionError, Damaged):
        return False


def tree_of(data: bytes) -> Any:
    """The tree that msgpack bytes encode. Unusable if they are none."""
    try:
        return read(data)[0]
    except RecursionError:
        raise Unusable("it is nested too deeply") from None
    except ValueError:
        raise Unusable("its bytes are no msgpack") from None


def json_of(data: object, what: str) -> Any:
    """What JSON says. Unusable if it is none."""
    try:
        if isinstance(data, bytes | memoryview):
            data = bytes(data).decode("utf-8")
        if not isinstance(data, str):
            raise Unusable(f"{what} is missing")
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Unusable(f"{what} is no JSON") from None


def json_dict(data: object, what: str) -> dict[str, Any]:
    return as_object(json_of(data, what), what)


def as_object(found: object, what: str) -> dict[str, Any]:
    """An object of JSON. Unusable if it is something else."""
    if type(found) is not dict:
        raise Unusable(f"{what} is not an object")
    return found


def json_tree(value: Any, path: str) -> Any:
    """What JSON says, as plain data."""
    return to_plain(_serde, value, path)


def typed_json(value: Any) -> Any:
    """A value of a checkpoint that is one piece of JSON, as that piece."""
    return {EXT: TYPED, PAYLOAD: ["json", json.dumps(value).encode()]}


def members(tree: Any, what: str) -> dict[str, Any]:
    """The members of a dict, in a tree."""
    if type(tree) is dict and tree.get(EXT) == _DICT:
        tree = dict(tree[PAYLOAD])
    elif type(tree) is not dict or EXT in tree:
        raise Unusable(f"{what} is not a dict")
    if not all(type(key) is str for key in tree):
        raise Unusable(f"{what} has a key that is no text")
    found: dict[str, Any] = tree
    return found


def foreign(
    id: str, parent: object, checkpoint: Mapping[str, Any], values: dict[str, Any], metadata: dict[str, Any]
) -> Foreign:
    """A checkpoint whose members are plain data. Unusable if it is not as LangGraph writes them."""
    if not id:
        raise Unusable("its id is empty")
    if checkpoint.get("id", id) != id:
        raise Unusable("its content is of another checkpoint")
    rest = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
    rest["channel_versions"] = _versions(rest.get("channel_versions"))
    seen = members(rest.get("versions_seen"), "versions_seen")
    rest["versions_seen"] = {node: _versions(of_node) for node, of_node in seen.items()}
    if not isinstance(rest.get("updated_channels"), list | None):
        raise Unusable("updated_channels is not a list")
    metadata_with(cast(CheckpointMetadata, metadata), id, None, None, None)  # refuses what cannot be kept
    return Foreign(
        id=id,
        parent=parent if isinstance(parent, str) and parent else None,
        checkpoint=rest,
        values=values,
        metadata=metadata,
        writes=[],
        created_at=_moment(rest.get("ts")),
    )


def _versions(tree: Any) -> dict[str, Any]:
    found = members(tree, "a table of versions")
    if not all(type(version) in (str, int, float) for version in found.values()):
        raise Unusable("a version is neither a text nor a number")
    return found


def _moment(ts: object) -> int | None:
    """A time in µs, None if it is none."""
    try:
        given = datetime.fromisoformat(ts) if isinstance(ts, str) else None
    except ValueError:
        return None
    if given is None:
        return None
    passed = (given if given.tzinfo else given.replace(tzinfo=UTC)) - _EPOCH
    moment = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return moment if 0 <= moment < _LATEST else None
