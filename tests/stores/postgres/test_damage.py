"""Damaged rows: rows that were changed or removed by SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from holdfast.errors import Damaged
from holdfast.stores import segments
from holdfast.stores.contract import Live
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import commit, effect, inside, journaled, running, saved
from holdfast.threads.scan import checkpoint_at
from tests.stores.postgres.conftest import Open

Server = psycopg.Connection[Any]


def test_damage_in_another_namespace_is_not_reported_in_this_one(open_store: Open, server: Server, schema: str) -> None:
    theirs = saved(open_store(namespace="theirs"), "t", "a")
    server.execute(sql.SQL("UPDATE {} SET step = 77").format(sql.Identifier(schema, "thread")))
    store = open_store(namespace="mine")
    assert store.numbered(after=theirs.number - 1, limit=1) == []
    assert checkpoint_at(store, theirs.number, 1) is None


def test_a_thread_with_a_damaged_namespace_is_not_taken_for_one_of_another(
    store: PostgresStore, server: Server, schema: str
) -> None:
    line = saved(store, "t", "a")
    server.execute(sql.SQL("UPDATE {} SET namespace = 'theirs'").format(sql.Identifier(schema, "thread")))
    [found] = store.numbered(after=line.number - 1, limit=1)
    assert isinstance(found.name, Damaged)
    with pytest.raises(Damaged):
        checkpoint_at(store, line.number, 1)


@pytest.mark.parametrize("verb", ["journal", "commit"])
def test_a_missing_journal_entry_is_not_replaced(store: PostgresStore, server: Server, schema: str, verb: str) -> None:
    line, row = running(store)
    journaled(store, line.number, 1, [effect("started", key=key) for key in "abc"])
    table = sql.Identifier(schema, "entry")
    server.execute(sql.SQL("DELETE FROM {} WHERE row_key & 4294967295 = 2").format(table))
    entries = (effect(key="a", number=1), effect(key="b", number=2), effect("started", key="d", number=4))
    made = inside(commit("a", line.at), fence=1, run=replace(row, turn="t"), entries=entries, last_entry=3)
    calls: dict[str, Callable[[], object]] = {
        "journal": lambda: store.journal(line.number, 1, entries, last=3),
        "commit": lambda: store.commit(made),
    }
    with pytest.raises(Damaged, match="entry 2"):
        calls[verb]()
    assert store.last_entry(line.number) == 3
    assert [entry.status for entry in store.entries(line.number, after=0, limit=1)] == ["started"]
    assert store.run(line.number) == row
    assert line.stored().position == line.at


def test_cells_that_changed_threads_are_noticed(store: PostgresStore, server: Server, schema: str) -> None:
    one, other = saved(store, "a", "a1", "a2"), saved(store, "b", "b1", "b2")
    keys = [segments.key(line.number, 1) for line in (one, other)]
    swap = sql.SQL(
        "UPDATE {table} AS a SET cells = b.cells FROM {table} AS b"
        " WHERE a.row_key = ANY(%s) AND b.row_key = ANY(%s) AND a.row_key <> b.row_key"
    )
    server.execute(swap.format(table=sql.Identifier(schema, "checkpoint")), (keys, keys))
    for line in (one, other):
        with pytest.raises(Damaged):
            store.cells([line.span(0, 1)])
        assert store.cells([line.span(1, 1)])


def test_a_merged_segment_is_bound_to_its_first_commit(store: PostgresStore, server: Server, schema: str) -> None:
    line = saved(store, "t", "a", "b", "c", "d")
    store.sweep(line.number, Live((line.span(2),), 4, frozenset()))
    server.execute(sql.SQL("UPDATE {} SET first_seq = 1").format(sql.Identifier(schema, "segment")))
    with pytest.raises(Damaged):
        store.cells([line.span(2)])
