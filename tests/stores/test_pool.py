"""Pools of connections: neither signals nor other threads make a pool lose or miscount a connection."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Busy, HoldfastError
from holdfast.stores import rows
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sql.pool import Pool
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import saved
from tests.interruption import Interrupt
from tests.selection import IN_FULL
from tests.stores.postgres.server import reused_address_at

STORES = f"{Path(rows.__file__).parent}{os.sep}"


def handle_signals() -> None:
    """Python handles a signal that came at the last instruction when the next function starts."""


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("verb", ["head", "rewind", "connect"])
def test_an_interrupt_loses_no_connection(kind: str, verb: str, tmp_path: Path) -> None:
    store: SQLiteStore | PostgresStore
    if kind == "sqlite":
        store = SQLiteStore(tmp_path / "a.db", namespace="default", durability="off")
        pool: Any = store._readers
    else:
        store = PostgresStore(reused_address_at(tmp_path), namespace="default", connections=2, patience=60)
        pool = store._pool
    with closing(store):
        line = saved(store, "t", "x", "y")

        def rewind() -> None:
            head = store.head("t")
            assert head is not None
            store.rewind(head.thread.position, to=1, summary=head.thread.summary)

        call: Callable[[], object] = rewind if verb == "rewind" else lambda: store.head("t")
        call()
        step = 7 if kind == "postgres" and not IN_FULL else 1  # an interrupt often costs a connection to the server
        for at in count(1, step):
            if verb == "connect":
                pool.forget_idle()
            interrupt = Interrupt(at, number=signal.SIGINT, within=STORES, checks=True)
            with suppress(HoldfastError), interrupt.strike():
                call()
                handle_signals()
            if not interrupt.came:
                break
            assert not pool.in_use, f"interrupted at {interrupt.place}"
        assert at > 50, "hardly an interrupt was made"
        assert line.stored().position.last == 2


def test_a_connection_that_is_taken_while_it_is_returned_counts_as_in_use() -> None:
    """If it did not count, the pool would exceed its limit, and a fork would not wait for the connection."""

    class Connection:
        def close(self) -> None:
            pass

    class Idle(deque[tuple[float, Connection]]):
        def append(self, each: tuple[float, Connection]) -> None:
            super().append(each)
            taken.append(pool.take())  # as another thread does at this moment

    taken: list[Connection] = []
    pool = Pool(Connection, lambda _: False, "a pool", idle=1, limit=1)
    connection = pool.take()
    pool.idle = Idle()
    pool.give(connection)
    assert taken == [connection]
    assert pool.in_use == 1
    with pytest.raises(Busy):
        pool.take()
    pool.idle = deque()
    pool.give(connection)
    assert pool.in_use == 0
