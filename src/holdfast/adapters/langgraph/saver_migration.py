"""Move threads from any LangGraph saver to another one, over the public interface of savers, and compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph.checkpoint_format import config_of

_PARTS: Final = ("checkpoint", "metadata", "parent", "writes")
_serde: Final = JsonPlusSerializer(allowed_msgpack_modules=None)


class Migration(msgspec.Struct, frozen=True):
    """The result of `migrate`. `present` checkpoints were in the target before; `differing` are not equal in both."""

    threads: int
    checkpoints: int
    writes: int
    present: int
    differing: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything in the source is in the target, and equal."""
        return not self.differing


Place = tuple[Any, str]
"""A thread id and a namespace."""


def places_of(source: BaseCheckpointSaver[Any]) -> dict[Place, list[str]]:
    """The ids of all checkpoints of a saver, oldest first, by thread and namespace."""
    found: dict[Place, list[str]] = {}
    for each in source.list(None):
        said: Mapping[str, Any] = each.config.get("configurable", {})
        found.setdefault((said["thread_id"], said.get("checkpoint_ns", "")), []).append(said["checkpoint_id"])
    return {place: sorted(ids) for place, ids in sorted(found.items(), key=lambda one: (str(one[0][0]), one[0][1]))}


def migrate(
    source: BaseCheckpointSaver[Any],
    target: BaseCheckpointSaver[Any],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Migration:
    """Copy all checkpoints and pending writes of a saver to another one, and compare both.

    Checkpoints that the target already has are only compared, so it can be repeated. The source is only read. The order
    of pending writes is kept; the paths of their tasks are not known to the interface. `progress` is called with the
    number of checkpoints done and the number of all.
    """
    places = places_of(source)
    total, done, present, writes = sum(map(len, places.values())), 0, 0, 0
    differing: list[str] = []
    for place, ids in places.items():
        for id in ids:
            theirs = source.get_tuple(config_of(*place, id))
            if theirs is None:  # deleted meanwhile
                continue
            if target.get_tuple(config_of(*place, id)) is None:
                writes += copy(theirs, target, place)
            else:
                present += 1
                writes += add_writes(theirs, target, place)
            differing += [f"{place[0]} {id}: {part}" for part in differences(theirs, target, place)]
            done += 1
            if progress is not None:
                progress(done, total)
    return Migration(len({thread for thread, _ in places}), done - present, writes, present, tuple(differing))


def copy(found: CheckpointTuple, target: BaseCheckpointSaver[Any], place: Place) -> int:
    """Store a checkpoint and its pending writes. Returns the number of writes."""
    parent = None if found.parent_config is None else found.parent_config.get("configurable", {}).get("checkpoint_id")
    versions = found.checkpoint["channel_versions"]
    under: Any = config_of(*place, parent) if parent else {"configurable": dict(zip(_WHERE, place, strict=True))}
    target.put(under, found.checkpoint, found.metadata, versions)
    return _put_writes(found, target, place)


def _put_writes(found: CheckpointTuple, target: BaseCheckpointSaver[Any], place: Place) -> int:
    config = config_of(*place, found.checkpoint["id"])
    for number, (task, writes) in enumerate(_by_task(found)):
        # Writes are applied in the order of the paths of their tasks.
        target.put_writes(config, writes, task, f"{number:08}")
    return len(found.pending_writes or ())


def add_writes(found: CheckpointTuple, target: BaseCheckpointSaver[Any], place: Place) -> int:
    """Add the writes that a checkpoint has got since it was copied. Returns how many these are.

    A checkpoint from which the target has continued is left as it is.
    """
    ours = target.get_tuple(config_of(*place, found.checkpoint["id"]))
    before = [] if ours is None else list(ours.pending_writes or ())
    theirs = list(found.pending_writes or ())
    new = [each for each in theirs if not any(_is_equal(each, one) for one in before)]
    known = {(task, channel) for task, channel, _ in theirs}
    if ours is None or not new or any((task, channel) not in known for task, channel, _ in before):
        return 0
    _put_writes(found, target, place)
    return len(new)


_WHERE: Final = ("thread_id", "checkpoint_ns")


def _by_task(found: CheckpointTuple) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    for task, writes in groupby(found.pending_writes or (), key=lambda write: write[0]):
        yield task, [(channel, value) for _, channel, value in writes]


def differences(theirs: CheckpointTuple, target: BaseCheckpointSaver[Any], place: Place) -> list[str]:
    """The parts of a checkpoint that are not equal in the target; "missing" if it is not there."""
    ours = target.get_tuple(config_of(*place, theirs.checkpoint["id"]))
    if ours is None:
        return ["missing"]
    return [name for name, a, b in zip(_PARTS, _parts(theirs), _parts(ours), strict=True) if not _is_equal(a, b)]


def _parts(found: CheckpointTuple) -> tuple[Any, Any, Any, Any]:
    parent = None if found.parent_config is None else found.parent_config.get("configurable", {}).get("checkpoint_id")
    checkpoint = {key: value for key, value in found.checkpoint.items() if value or key != "pending_sends"}
    return checkpoint, dict(found.metadata), parent, list(found.pending_writes or ())


def _is_equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (TypeError, ValueError):  # arrays, for example
        return _serde.dumps_typed(a) == _serde.dumps_typed(b)
