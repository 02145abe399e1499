"""Schemas of graphs: stored channels are changed to the version of the program when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from langgraph.checkpoint.base import Checkpoint

from holdfast.errors import HoldfastError, Incompatible, InvalidArgument
from holdfast.text import quoted

GRAPH: Final = "graph"
"""The key in a config's metadata that names the graph."""
VERSION: Final = "graph_version"

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the channels of a version, by their names, and returns those of the next version."""


class Schema:
    """The changes of each graph, by the version that they start from.

    A checkpoint without a version has version 1. The version of the program is the one after the last change.
    """

    def __init__(self, migrate: Mapping[int, Change] | Mapping[str, Mapping[int, Change]] | None) -> None:
        given: Mapping[Any, Any] = migrate or {}
        is_one = all(type(key) is int for key in given)
        graphs: Mapping[Any, Any] = {"": given} if is_one and given else given
        self._changes: Final = {name: _checked(name, changes) for name, changes in graphs.items()}
        self.is_used: Final = bool(self._changes)

    def _of(self, metadata: Mapping[str, Any]) -> dict[int, Change]:
        return self._changes.get(metadata.get(GRAPH) or "", {}) or self._changes.get("", {})

    def stamp(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The version to store with a checkpoint that has this metadata."""
        changes = self._of(metadata)
        return {VERSION: max(changes) + 1} if changes else {}

    def is_current(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a stored checkpoint has the version of the program."""
        return self.stamp(metadata).get(VERSION) in (None, metadata.get(VERSION))

    def migrated(self, checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> Checkpoint:
        """Change a loaded checkpoint to the version of the program. Incompatible if it is of a later version."""
        changes, at = self._of(metadata), metadata.get(VERSION, 1)
        if type(at) is not int or at > max(changes) + 1:
            raise Incompatible(
                f"a checkpoint has version {at} of graph {quoted(str(metadata.get(GRAPH, '')))}, and this program has "
                f"version {max(changes) + 1}; nothing was changed. Use the later program."
            )
        values = checkpoint["channel_values"]
        for version in range(at, max(changes) + 1):
            values = _changed(changes[version], values, version)
        # LangGraph drops a channel that has no version.
        versions = dict(checkpoint["channel_versions"])
        newest = max(versions.values(), key=str, default=None)
        new = {} if newest is None else {channel: newest for channel in values if channel not in versions}
        return {**checkpoint, "channel_values": values, "channel_versions": versions | new}


def _checked(name: Any, changes: Any) -> dict[int, Change]:
    if type(name) is not str or not isinstance(changes, Mapping) or not changes:
        raise InvalidArgument("migrate= takes {version: function}, or {graph: {version: function}}")
    versions = sorted(changes)
    if versions != list(range(versions[0], versions[-1] + 1)) or not all(map(callable, changes.values())):
        raise InvalidArgument("migrate=: the versions must be whole numbers without a gap, each with a function")
    if versions[0] != 1:
        raise InvalidArgument("migrate=: the first version is 1")
    return dict(changes)


def _changed(change: Change, values: dict[str, Any], version: int) -> dict[str, Any]:
    try:
        found: Any = change(dict(values))
    except Exception as error:
        raise HoldfastError(f"the change of version {version} of a graph failed: {error!r}") from error
    if type(found) is not dict:
        raise InvalidArgument(f"the change of version {version} of a graph returned no dict; nothing was changed")
    return found
