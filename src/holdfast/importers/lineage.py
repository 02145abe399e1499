"""The messages on the way to each node of a tree, where each node brings some and goes on from its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.importers.frame import Unusable

_ENDS_MAX: Final = 4


class Lineage:
    """A conversation with branches. The messages up to the newest few ends are held; those of others are read again.

    `read` gives the messages that a node brought.
    """

    def __init__(self, read: Callable[[str], list[Any]]) -> None:
        self._read = read
        self._parents: dict[str, str | None] = {}
        self._ends: dict[str, list[Any]] = {}  # the newest last

    def __contains__(self, key: object) -> bool:
        return key in self._parents

    def put(self, key: str, parent: str | None, own: list[Any]) -> None:
        """A new node. `parent` is there already; None: nothing was said before."""
        if key in self._parents:
            raise Unusable("there is one of its id before it")
        messages: list[Any] = []
        if parent is not None:
            messages = self._ends.pop(parent) if parent in self._ends else self.up_to(parent)
        messages.extend(own)
        self._parents[key] = parent
        self._ends[key] = messages
        if len(self._ends) > _ENDS_MAX:
            del self._ends[next(iter(self._ends))]

    def up_to(self, key: str, start: str | None = None) -> list[Any]:
        """The messages up to a node, from the beginning, or from one of its ancestors."""
        if start is None and key in self._ends:
            return [*self._ends[key]]
        return [message for each in self.way(key, start) for message in self._read(each)]

    def way(self, key: str, start: str | None = None) -> list[str]:
        """The nodes up to one, itself included, from the beginning, or from one of its ancestors."""
        found: list[str] = []
        each: str | None = key
        while each is not None:
            found.append(each)
            each = None if each == start else self._parents[each]
        return found[::-1]


def waits_for(calls: int) -> str | None:
    """What to know before a conversation goes on in which tool calls have no result: models refuse it."""
    if not calls:
        return None
    return f"{calls} tool call{'s have' if calls > 1 else ' has'} no result yet"
