"""Collect the messages of a conversation with branches: each node adds some to those of its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.importers.frame import Unusable

_ENDS_MAX: Final = 4


class Lineage:
    """A conversation with branches. The messages of the newest branch ends are cached; others are read again.

    `read` returns the messages that a node added.
    """

    def __init__(self, read: Callable[[str], list[Any]]) -> None:
        self._read = read
        self._parents: dict[str, str | None] = {}
        self._ends: dict[str, list[Any]] = {}  # the newest last

    def __contains__(self, key: object) -> bool:
        return key in self._parents

    def put(self, key: str, parent: str | None, own: list[Any]) -> None:
        """Add a node. `parent` must exist; None if the node is the first."""
        if key in self._parents:
            raise Unusable("an earlier entry of the conversation has the same id")
        messages: list[Any] = []
        if parent is not None:
            messages = self._ends.pop(parent) if parent in self._ends else self.up_to(parent)
        messages.extend(own)
        self._parents[key] = parent
        self._ends[key] = messages
        if len(self._ends) > _ENDS_MAX:
            del self._ends[next(iter(self._ends))]

    def up_to(self, key: str, start: str | None = None) -> list[Any]:
        """The messages up to a node, from the first node or from one of its ancestors."""
        if start is None and key in self._ends:
            return [*self._ends[key]]
        return [message for each in self.way(key, start) for message in self._read(each)]

    def way(self, key: str, start: str | None = None) -> list[str]:
        """The nodes up to and including one, from the first node or from one of its ancestors."""
        found: list[str] = []
        each: str | None = key
        while each is not None:
            found.append(each)
            each = None if each == start else self._parents[each]
        return found[::-1]


def waits_for(calls: int) -> str | None:
    """The resume hint of a conversation with tool calls that have no result, which models reject."""
    if not calls:
        return None
    return f"{calls} tool call{'s have' if calls > 1 else ' has'} no result yet"
