"""The writes of a checkpoint: in which order they are applied, which of two counts, and which a row has.

They are stored in the order in which they came, so that one more is added at the end, however many tasks a step has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from langgraph.checkpoint.base import writes_sort_key

Write: TypeAlias = list[Any]
"""task id, task path, index, channel, plain value"""

_TASK, _PATH, _INDEX, _CHANNEL, _ = range(5)
VALUE: Final = 4
"""Where the value of a write is; what stands before it says which write it is."""


class Written:
    """Which writes a row has, without their values."""

    __slots__ = ("_places", "channels", "paths")

    def __init__(self, writes: Iterable[Write]) -> None:
        self._places: set[tuple[str, int]] = set()
        self.paths: set[str] = set()
        self.channels: set[str] = set()
        self.add(writes)

    def add(self, writes: Iterable[Write]) -> None:
        """Writes that the row has besides."""
        for write in writes:
            self._places.add(_place(write))
            self.paths.add(write[_PATH])
            self.channels.add(write[_CHANNEL])

    def new_of(self, writes: list[Write]) -> list[Write] | None:
        """Those of the given writes that are to be added, in order. None if one of them replaces what is there."""
        new = []
        for write in merged([], writes):
            if _place(write) not in self._places:
                new.append(write)
            elif is_special(write):
                return None
        return new


def merged(old: list[Write], new: list[Write]) -> list[Write]:
    """Writes with others added, in the order in which they are applied.

    Of two at the same place the first counts; of special ones (errors, interrupts, resumes) the last.
    """
    found = {_place(write): write for write in old}
    for write in new:
        place = _place(write)
        if is_special(write) or place not in found:
            found[place] = write
    return in_order(found.values())


def in_order(writes: Iterable[Write]) -> list[Write]:
    """Writes in the order in which they are applied."""
    return sorted(writes, key=_order)


def channels_of(writes: Iterable[Write]) -> set[str]:
    return {write[_CHANNEL] for write in writes}


def is_special(write: Write) -> bool:
    return bool(write[_INDEX] < 0)


def _place(write: Write) -> tuple[str, int]:
    return write[_TASK], write[_INDEX]


def _order(write: Write) -> tuple[str, str, int]:
    return writes_sort_key(write[_PATH], write[_TASK], write[_INDEX])
