"""Read a listing page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
K = TypeVar("K")

PAGE: Final = 200  # rows read at once


def pages(fetch: Callable[[K | None], Sequence[T]], key: Callable[[T], K]) -> Iterator[T]:
    """Every item of a listing. `fetch` returns the page after an item, given its key; None for the first page.

    An empty page is the end. Nothing is held open between two pages.
    """
    last: K | None = None
    while page := fetch(last):
        yield from page
        last = key(page[-1])
