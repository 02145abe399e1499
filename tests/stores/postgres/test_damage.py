"""Damaged rows: rows that were changed or removed by SQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.errors import Damaged
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import saved
from tests.stores.postgres.conftest import Open

Server = psycopg.Connection[Any]


def test_damage_in_another_namespace_is_not_reported_in_this_one(
    open_store: Open, server: Server, schema: str
) -> None:
    theirs = saved(open_store(namespace="theirs"), "t", "a")
    server.execute(sql.SQL("UPDATE {} SET step = 77").format(sql.Identifier(schema, "thread")))
    store = open_store(namespace="mine")
    assert store.numbered(after=theirs.number - 1, limit=1) == []
    assert store.checkpoint(theirs.number, 1) is None


def test_a_thread_with_a_damaged_namespace_is_not_taken_for_one_of_another(
    store: PostgresStore, server: Server, schema: str
) -> None:
    line = saved(store, "t", "a")
    server.execute(sql.SQL("UPDATE {} SET namespace = 'theirs'").format(sql.Identifier(schema, "thread")))
    [found] = store.numbered(after=line.number - 1, limit=1)
    assert isinstance(found.name, Damaged)
    with pytest.raises(Damaged):
        store.checkpoint(line.number, 1)
