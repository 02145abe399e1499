"""Rows that are read page by page, and the statements of both databases."""

from __future__ import annotations

import re

import pytest

from holdfast.errors import Damaged
from holdfast.stores.postgres import schema as postgres
from holdfast.stores.sql.transaction import Row, in_order, named, shared
from holdfast.stores.sqlite import schema as sqlite


def test_rows_are_read_page_by_page() -> None:
    stored: list[Row] = [(2, "a"), (3, "b"), (7, "c")]
    assert list(in_order(lambda first: [row for row in stored if row[0] >= first][:2], 1)) == stored


def test_reading_ends_if_a_damaged_index_leads_back_to_earlier_rows() -> None:
    pages: list[list[Row]] = [[(1, "a"), (2, "b")], [(2, "b"), (3, "c")]]
    rows = in_order(lambda first: pages[first > 1], 1)
    assert [next(rows), next(rows)] == pages[0]
    with pytest.raises(Damaged, match="keys 2 and 2 in the wrong order"):
        next(rows)


def test_a_statement_is_written_once_or_once_for_each_database() -> None:
    both = set(shared())
    for package, files in (("sqlite", sqlite._FILES), ("postgres", postgres._FILES)):
        assert not both & set(named(f"holdfast.stores.{package}", *files)), package


def test_shared_statements_are_in_the_form_of_each_database() -> None:
    foreign = re.compile(r"\$\d|\bhf\.|::|FOR (UPDATE|SHARE)|[{}]")
    assert [name for name, text in sqlite.statements().items() if foreign.search(text)] == []
    ours = {name: text.decode() for name, text in postgres.statements("hf").items()}
    assert [name for name, text in ours.items() if re.search(r"[{}]|\?\d|INDEXED", text)] == []
    assert sqlite.statements()["runs"].startswith("SELECT run.*, thread.*\nFROM run INDEXED BY run_by_status LEFT JOIN")
    assert ours["lock_act"].endswith('FROM "hf".act WHERE namespace = $1 AND key = $2 FOR UPDATE')
