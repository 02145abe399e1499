"""The store in memory: what signals and forks of the process leave of it."""

from __future__ import annotations

import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from holdfast import forksafe
from holdfast.errors import Closed, StoreError
from holdfast.stores.sql.transaction import Transaction
from holdfast.stores.sqlite.memory import MemoryStore
from holdfast.testing.contract.build import commit, names_of
from tests.stores.sqlite.conftest import finished, forked
from tests.waiting import DEADLINE, until


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
        assert names_of(store) == ["a", "b"]


class Counted:
    """A lock that counts the threads that have asked for it."""

    def __init__(self) -> None:
        self.asked = 0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.asked += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_two_threads_may_close_it_at_once() -> None:
    store: Any = MemoryStore(namespace="default")
    lock = store._lock = Counted()
    with ThreadPoolExecutor() as threads:
        with lock:  # a call is in progress
            closing_it = [threads.submit(store.close) for _ in range(2)]
            until(lambda: lock.asked == 3)
        assert [each.result(DEADLINE) for each in closing_it] == [None, None]
    store._lock = lock.lock
    with pytest.raises(Closed):
        store.commit(commit("a"))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("ends", [True, False], ids=["the call ends", "the call does not end"])
def test_a_child_is_forked_beside_a_call(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forksafe, "_PATIENCE", DEADLINE if ends else 0.05)
    started, forking = threading.Event(), threading.Event()

    def call(_: Transaction) -> None:
        started.set()
        forking.wait(0.2 if ends else DEADLINE)

    def work() -> None:
        signal.alarm(int(DEADLINE))
        if ends:
            store.commit(commit("child"))
            assert names_of(store) == ["child", "t"]
        else:
            with pytest.raises(StoreError, match="forked during a call"):
                store.commit(commit("child"))
        store.close()
        with pytest.raises(Closed):
            store.commit(commit("late"))

    with closing(MemoryStore(namespace="default")) as store:
        store.commit(commit("t"))
        thread = threading.Thread(target=store.read, args=(call,))
        thread.start()
        started.wait(DEADLINE)
        finished(forked(work))
        forking.set()
        thread.join()
        store.commit(commit("parent"))
        assert names_of(store) == ["parent", "t"]
