"""The order of a checkpoint's writes, and the rules for merging them.

Writes are stored in the order of arrival, so that a new one is appended, however many tasks a step has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from langgraph.checkpoint.base import writes_sort_key

Write: TypeAlias = list[Any]
"""task id, task path, index, channel, plain value"""

_TASK, _PATH, _INDEX, _CHANNEL, _ = range(5)
VALUE: Final = 4
"""The index of the value in a write; the fields before it identify the write."""


class Written:
    """The writes of a row, without their values."""

    __slots__ = ("_places", "channels", "paths")

    def __init__(self, writes: Iterable[Write]) -> None:
        self._places: set[tuple[str, int]] = set()
        self.paths: set[str] = set()
        self.channels: set[str] = set()
        self.add(writes)

    def add(self, writes: Iterable[Write]) -> None:
        """Add writes."""
        for write in writes:
            self._places.add(_place(write))
            self.paths.add(write[_PATH])
            self.channels.add(write[_CHANNEL])

    def new_of(self, writes: list[Write]) -> list[Write] | None:
        """Those of the given writes that are new, in order. None if one of them replaces an existing write."""
        new = []
        for write in merged([], writes):
            if _place(write) not in self._places:
                new.append(write)
            elif is_special(write):
                return None
        return new


def merged(old: list[Write], new: list[Write]) -> list[Write]:
    """Merge writes, in the order in which they are applied.

    If two have the same task and index, the first is kept; of special ones (errors, interrupts, resumes) the last.
    """
    found = {_place(write): write for write in old}
    for write in new:
        place = _place(write)
        if is_special(write) or place not in found:
            found[place] = write
    return in_order(found.values())


def in_order(writes: Iterable[Write]) -> list[Write]:
    """Sort writes in the order in which they are applied."""
    return sorted(writes, key=_order)


def channels_of(writes: Iterable[Write]) -> set[str]:
    return {write[_CHANNEL] for write in writes}


def is_special(write: Write) -> bool:
    return bool(write[_INDEX] < 0)


def _place(write: Write) -> tuple[str, int]:
    return write[_TASK], write[_INDEX]


def _order(write: Write) -> tuple[str, str, int]:
    return writes_sort_key(write[_PATH], write[_TASK], write[_INDEX])
