"""The store in memory: what signals and forks of the process leave of it."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.testing.contract.build import commit


class Interrupting:
    """A connection. A signal arrives while it runs a statement."""

    def __init__(self, connection: sqlite3.Connection, statement: str) -> None:
        self._connection = connection
        self._statement = statement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str) -> Any:
        found = self._connection.execute(statement)
        if statement == self._statement:
            signal.raise_signal(signal.SIGINT)
        return found


@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT"])
def test_an_interrupt_leaves_no_transaction_open(statement: str) -> None:
    with closing(MemoryStore(namespace="default")) as store:
        connection: Any = store._connection
        store._connection = Interrupting(connection, statement)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            store.commit(commit("a"))
        store._connection = connection
        store.commit(commit("b"))
        assert [row.name for row in store.threads(prefix="", after=None, limit=9)] == ["a", "b"]
