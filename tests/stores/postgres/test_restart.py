"""A server that goes down and comes up in the middle of everything: nothing is lost, nothing is done twice."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import Line, effect, held, journaled, saved, texts_of, value
from holdfast.threads.scan import last_of, thread_named
from tests.stores.postgres.server import Server
from tests.waiting import DEADLINE


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    # Not in pytest's folder, which only its owner may enter: the server does not run as root.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    made = Server(folder, "fsync=off", *getattr(request, "param", ()))
    made.create()
    made.start()
    yield made
    made.stop(signal.SIGQUIT)
    shutil.rmtree(folder)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_restarts_loses_and_repeats_nothing(own_server: Server, how: signal.Signals) -> None:
    with closing(PostgresStore(own_server.url, namespace="default", patience=30)) as store:
        lines = [saved(store, f"t{n}", "start") for n in range(6)]
        for line in lines[:3]:
            store.claim(None, held(store, line.number))
        done = threading.Event()
        started = [threading.Event() for _ in lines]

        def save(index: int) -> int:
            n = 0
            while not done.is_set():
                lines[index].save(f"{n}")
                n += 1
                started[index].set()
            return n

        def journal(index: int) -> int:
            n = 0
            while not done.is_set():
                [number] = journaled(store, lines[index].number, 1, [effect(key=f"{n}")])
                n += 1
                assert number == n
                started[index].set()
            return n

        with ThreadPoolExecutor(len(lines)) as pool:
            working = [pool.submit(journal if n < 3 else save, n) for n in range(len(lines))]
            try:
                for _ in range(3):
                    for one in started:
                        one.clear()
                        assert one.wait(DEADLINE)
                    own_server.stop(how)
                    own_server.start()
                for one in started:
                    one.clear()
                    assert one.wait(DEADLINE)
            finally:
                done.set()
            counts = [one.result(DEADLINE) for one in working]
        for index, (line, count) in enumerate(zip(lines, counts, strict=True)):
            if index < 3:
                keys = [entry.key for entry in store.entries(line.number, after=0, limit=1 << 20)]
                assert keys == [f"{n}" for n in range(count)]
            else:
                assert texts_of(store, line.span()) == [["start", *(f"{n}" for n in range(count))]]
        assert list(store.check()) == []


# The log is written by nobody but those who wait for it.
LAZY = ("synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB")


@pytest.mark.parametrize("own_server", [LAZY], indirect=True)
def test_what_is_acknowledged_survives_a_crash_also_where_commits_are_not_flushed(own_server: Server) -> None:
    with closing(PostgresStore(own_server.url, namespace="default", patience=30)) as store:
        line = saved(store, "a", "x")
        saved(store, "b", "x").save("y", blobs=[value(b'"a prompt"')])
        for save in (lambda: line.save("quick"), lambda: store.claim(None, held(store, line.number))):
            save()
            own_server.stop(signal.SIGQUIT)
            own_server.start()
            assert last_of(store, line.number) == line.at.last
        assert store.run(line.number) is not None
        assert list(store.check()) == []


@pytest.mark.parametrize("own_server", [LAZY], indirect=True)
def test_who_asks_for_less_durability_leaves_the_setting_of_the_server(own_server: Server) -> None:
    with closing(PostgresStore(own_server.url, namespace="default", patience=30)) as store:
        line = saved(store, "a", "x")
    with closing(PostgresStore(own_server.url, namespace="default", patience=30, durability="normal")) as store:
        line.store = store
        line.save("y")
        own_server.stop(signal.SIGQUIT)
        own_server.start()
        assert last_of(store, line.number) == 1


def test_a_call_waits_for_a_server_that_comes_up(own_server: Server) -> None:
    with closing(PostgresStore(own_server.url, namespace="default", patience=30)) as store:
        line = saved(store, "a", "x")
        own_server.stop()
        with ThreadPoolExecutor(2) as pool:
            saving, reading = pool.submit(line.save, "y"), pool.submit(last_of, store, line.number)
            own_server.start()
            assert saving.result(DEADLINE).last == 2
            assert reading.result(DEADLINE) in (1, 2)


def test_a_server_that_stays_down_is_told_of_in_time(own_server: Server) -> None:
    store = PostgresStore(own_server.url, namespace="default", patience=0.2)
    line = Line(store, "a")
    line.save("x")
    own_server.stop()
    began = time.monotonic()
    with pytest.raises(StoreError):
        thread_named(store, "a")
    # The connection was there when the save was sent; that nobody took it cannot be known.
    with pytest.raises((StoreError, OutcomeUnknown)):
        line.save("y")
    assert time.monotonic() - began < DEADLINE
    store.close()
