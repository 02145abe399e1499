"""What a caller knows of a state, so that it is not found out again: values that stand for parts of the base.

A state is compared byte by byte: sound whatever happened to it, and as costly as it is large. Who holds the
objects of a state, and has a sound check of its own that they did not change, says so with these. They stand at the
top of a state or directly inside one another; anywhere else they are refused like any foreign object.
"""

from __future__ import annotations

from typing import Any

from holdfast.delta.parts import Part, Series


class Kept:
    """A value that did not change: the base has `part` for it, at this place."""

    __slots__ = ("part",)

    def __init__(self, part: Part) -> None:
        self.part = part


class Extended:
    """A list that begins with the first `keep` items of the series that the base has at this place; `items` follow."""

    __slots__ = ("items", "keep", "part")

    def __init__(self, part: Series, keep: int, items: list[Any]) -> None:
        self.part = part
        self.keep = keep
        self.items = items


class Apart:
    """A dict or list whose members are cells or parts of their own, however small it is.

    So they can be found again where they turn up later. New items of a list go to the end of the log that `beside`
    appends to, if that is given: items that move to that series later lie there in one span.
    """

    __slots__ = ("beside", "value")

    def __init__(self, value: dict[str, Any] | list[Any], beside: Part | None = None) -> None:
        self.value = value
        self.beside = beside
