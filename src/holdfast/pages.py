"""Read a listing page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
K = TypeVar("K")

PAGE: Final = 200  # rows read at once


def pages(fetch: Callable[[K], Sequence[T]], start: K, key: Callable[[T], K]) -> Iterator[T]:
    """Every item of a listing. `fetch` returns the page that follows a key; an empty page is the end.

    Nothing is held open between two pages.
    """
    at = start
    while page := fetch(at):
        yield from page
        at = key(page[-1])
