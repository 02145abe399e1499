"""Listings are read page by page, to the end."""

from __future__ import annotations

import pytest

from holdfast.threads.scan import pages


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_every_item_comes_once_and_in_order(count: int) -> None:
    items = list(range(1, count + 1))
    asked: list[int | None] = []

    def fetch(after: int | None) -> list[int]:
        asked.append(after)
        return [item for item in items if item > (after or 0)][:3]

    assert list(pages(fetch, lambda item: item)) == items
    assert asked[0] is None
    assert len(asked) == -(-count // 3) + 1


def test_a_page_is_read_only_when_it_is_needed() -> None:
    asked: list[int | None] = []

    def fetch(after: int | None) -> list[int]:
        asked.append(after)
        return [(after or 0) + 1]

    found = pages(fetch, lambda item: item)
    assert [next(found), next(found)] == [1, 2]
    assert asked == [None, 1]
