"""Hints: values in a state that say which parts of the base did not change.

A save compares a state byte by byte. That is safe, and costs as much as the state is large. A caller that can prove on
its own that objects did not change passes these instead. They may be the state itself, its members, or directly inside
one another. Anywhere else they are refused like any unknown object.
"""

from __future__ import annotations

from typing import Any

from holdfast.delta.parts import Part, Series


class Kept:
    """A value that did not change: the base has `part` at this place."""

    __slots__ = ("part",)

    def __init__(self, part: Part) -> None:
        self.part = part


class Extended:
    """A list: the first `keep` items of the series that the base has at this place, followed by `items`."""

    __slots__ = ("items", "keep", "part")

    def __init__(self, part: Series, keep: int, items: list[Any]) -> None:
        self.part = part
        self.keep = keep
        self.items = items


class Apart:
    """A dict or list whose members are cells or parts of their own, even if it is small.

    A later save can then find the members at another place. With `beside`, new items of a list are appended to the log
    of that part: items that move to that series later are already there in one span.
    """

    __slots__ = ("beside", "value")

    def __init__(self, value: dict[str, Any] | list[Any], beside: Part | None = None) -> None:
        self.value = value
        self.beside = beside
