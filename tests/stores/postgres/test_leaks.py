"""What the server says of a row that it refuses is the user's data: it is in no error, no traceback and no log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.errors import StoreError
from holdfast.stores.contract import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import Line, commit, effect, journaled, running, saved, summary

Server = psycopg.Connection[Any]
Act = Callable[[Store, Line], object]

ACTS: dict[str, tuple[str, Act]] = {
    "a save": ("checkpoint", lambda _, line: line.save("y")),
    "a new thread": ("thread", lambda store, _: store.commit(commit("TOP-SECRET"))),
    "a rewind": ("move", lambda store, line: store.rewind(line.at, to=1, summary=summary(1))),
    "an entry": ("entry", lambda store, line: journaled(store, line.number, 1, [effect(key="TOP-SECRET")])),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_row_that_is_refused_is_not_quoted(
    store: PostgresStore, server: Server, schema: str, act: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, do = ACTS[act]
    line = running(store)[0] if table == "entry" else saved(store, "a", "x")
    server.execute(sql.SQL("ALTER TABLE {} ADD CHECK (false) NOT VALID").format(sql.Identifier(schema, table)))
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError, match="23514") as refused:
        do(store, line)
    told = "".join(traceback.format_exception(refused.value)) + caplog.text
    assert "Failing row" not in told
    assert "TOP-SECRET" not in told.replace('TOP-SECRET"', "")  # but for the source line of this test
