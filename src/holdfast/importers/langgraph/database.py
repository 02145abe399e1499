"""The common interface of LangGraph's databases, and the conversion of their values without loading any class."""

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
_LATEST: Final = 1 << 52  # µs; later times are invalid

# JSON values contain no classes, so nothing has to be allowed.
_serde: Final = JsonPlusSerializer(allowed_msgpack_modules=None)


class Database(Protocol):
    """The database of one of LangGraph's savers, read in one snapshot."""

    def size(self) -> int:
        """The number of checkpoints."""
        ...

    def tracks(self) -> Generator[tuple[object, object]]:
        """The namespaces of all threads: thread id and namespace."""
        ...

    def ids(self, thread_id: str, namespace: str) -> dict[str, str | None]:
        """The checkpoints of a namespace, each with its parent."""
        ...

    def owners(self, thread_id: str, namespace: str) -> set[str]:
        """The ids of the checkpoints that have writes, including ids without a checkpoint."""
        ...

    def checkpoint(self, thread_id: str, namespace: str, id: str) -> Foreign:
        """One checkpoint, without its writes. Unusable if it cannot be read."""
        ...

    def writes(self, thread_id: str, namespace: str, id: str) -> tuple[list[Write], list[tuple[str, str]]]:
        """The writes of a checkpoint; and for each unreadable one its name and the reason."""
        ...

    def close(self) -> None: ...


def writes_of(rows: Iterable[Any]) -> tuple[list[Write], list[tuple[str, str]]]:
    """Convert rows of writes, see `Database.writes`. A row has task id, path, index, channel, type and bytes."""
    found: list[Write] = []
    bad: list[tuple[str, str]] = []
    for task_id, path, index, channel, typ, data in rows:
        try:
            if type(index) is not int or not all(type(text) is str for text in (task_id, path, channel)):
                raise Unusable("its task id, path, index or channel is invalid")
            found.append([task_id, path, index, channel, plain_of(typ, data)])
        except Unusable as error:
            bad.append((f"{task_id} {index}", str(error)))
    return found, bad


def plain_of(typ: object, data: object) -> Any:
    """Convert serialized bytes to plain data. Msgpack is parsed; other types are kept as bytes with their type."""
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
    # Bytes that would not be reproduced exactly are kept as bytes.
    if tree is None or type(tree) is bytes or not _gives(tree, data):
        return whole(typ, data)
    return tree


def _gives(tree: Any, data: bytes) -> bool:
    try:
        return Writer().pack(tree, MAX_DEPTH) == data
    except (TypeError, ValueError, RecursionError, Damaged):
        return False


def tree_of(data: bytes) -> Any:
    """Parse msgpack into a tree of plain data. Unusable if the bytes are not msgpack."""
    try:
        return read(data)[0]
    except RecursionError:
        raise Unusable("it is nested too deeply") from None
    except ValueError:
        raise Unusable("its bytes are not msgpack") from None


def json_of(data: object, what: str) -> Any:
    """Parse JSON. Unusable if the data is not JSON."""
    try:
        if isinstance(data, bytes | memoryview):
            data = bytes(data).decode("utf-8")
        if not isinstance(data, str):
            raise Unusable(f"{what} is missing")
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Unusable(f"{what} is not JSON") from None


def json_dict(data: object, what: str) -> dict[str, Any]:
    return as_object(json_of(data, what), what)


def as_object(found: object, what: str) -> dict[str, Any]:
    """Check that a value is a JSON object. Unusable if it is not."""
    if type(found) is not dict:
        raise Unusable(f"{what} is not an object")
    return found


def json_tree(value: Any, path: str) -> Any:
    """Convert a JSON value to plain data."""
    return to_plain(_serde, value, path)


def typed_json(value: Any) -> Any:
    """Keep a JSON value of a checkpoint as JSON text with its type."""
    return {EXT: TYPED, PAYLOAD: ["json", json.dumps(value).encode()]}


def members(tree: Any, what: str) -> dict[str, Any]:
    """The members of a dict in a tree. Unusable if it is not a dict with string keys."""
    if type(tree) is dict and tree.get(EXT) == _DICT:
        tree = dict(tree[PAYLOAD])
    elif type(tree) is not dict or EXT in tree:
        raise Unusable(f"{what} is not a dict")
    if not all(type(key) is str for key in tree):
        raise Unusable(f"{what} has a key that is not a string")
    found: dict[str, Any] = tree
    return found


def foreign(
    id: str, parent: object, checkpoint: Mapping[str, Any], values: dict[str, Any], metadata: dict[str, Any]
) -> Foreign:
    """Make a checkpoint of plain data. Unusable if it does not have the structure that LangGraph writes."""
    if not id:
        raise Unusable("its id is empty")
    if checkpoint.get("id", id) != id:
        raise Unusable("its content belongs to another checkpoint")
    rest = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
    rest["channel_versions"] = _versions(rest.get("channel_versions"))
    seen = members(rest.get("versions_seen"), "versions_seen")
    rest["versions_seen"] = {node: _versions(of_node) for node, of_node in seen.items()}
    if not isinstance(rest.get("updated_channels"), list | None):
        raise Unusable("updated_channels is not a list")
    metadata_with(cast(CheckpointMetadata, metadata), id, None, None, None)  # raises if it cannot be stored
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
        raise Unusable("a version is neither a string nor a number")
    return found


def _moment(ts: object) -> int | None:
    """Convert a time to µs since 1970; None if it is invalid."""
    try:
        given = datetime.fromisoformat(ts) if isinstance(ts, str) else None
    except ValueError:
        return None
    if given is None:
        return None
    passed = (given if given.tzinfo else given.replace(tzinfo=UTC)) - _EPOCH
    moment = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return moment if 0 <= moment < _LATEST else None
