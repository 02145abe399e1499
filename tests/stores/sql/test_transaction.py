"""Reading rows page by page."""

from __future__ import annotations

import pytest

from holdfast.errors import Damaged
from holdfast.stores.sql.transaction import Row, in_order


def test_rows_are_read_page_by_page() -> None:
    stored: list[Row] = [(2, "a"), (3, "b"), (7, "c")]
    assert list(in_order(lambda first: [row for row in stored if row[0] >= first][:2], 1)) == stored


def test_reading_ends_if_a_damaged_index_leads_back_to_earlier_rows() -> None:
    pages: list[list[Row]] = [[(1, "a"), (2, "b")], [(2, "b"), (3, "c")]]
    rows = in_order(lambda first: pages[first > 1], 1)
    assert [next(rows), next(rows)] == pages[0]
    with pytest.raises(Damaged, match="keys 2 and 2 in the wrong order"):
        next(rows)
