"""Hints: values in a state that say which parts of the base did not change.

A save compares a state byte by byte. That is safe, and costs as much as the state is large. A caller that can prove on
its own that objects did not change passes these instead. They may be the state itself or its members. Anywhere else
they are refused like any unknown object.
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
    """A list whose items are cells or parts of their own, even if it is small.

    A later save can then find the items at another place, or extend the list.
    """

    __slots__ = ("items",)

    def __init__(self, items: list[Any]) -> None:
        self.items = items
