"""The records of sweeps in the database."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from holdfast.testing.contract.build import commit, holds, prompt, swept_blobs
from tests.stores.postgres.conftest import Open


def test_a_damaged_record_of_a_sweep_does_not_stop_the_collection_of_blobs(
    open_store: Open, server: psycopg.Connection[Any], schema: str
) -> None:
    store = open_store()
    first = store.commit(commit("a", blobs=[prompt(store)]))
    store.commit(commit("a", first))
    assert swept_blobs(store, [prompt(store).digest]) == 0
    server.execute(sql.SQL("UPDATE {} SET last = 999999").format(sql.Identifier(schema, "sweep")))
    assert any("last sweep" in problem.what for problem in store.check())
    store.delete(first.thread, [first.last])
    assert swept_blobs(store) == 1
    assert not holds(store, prompt(store))
    assert list(store.check()) == []
