"""Workers hear of queued runs at once where they can; where they cannot, they find them by looking."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Run
from holdfast.errors import Closed
from holdfast.stores.abilities import Announcing
from holdfast.stores.postgres import PostgresStore, address, notify
from holdfast.testing.contract.build import (
    commit,
    effect,
    journaled,
    posted,
    put_run,
    run_row,
    saved,
    settled,
    suspended,
)
from tests.stores.postgres.conftest import Open
from tests.stores.postgres.proxy import Relay
from tests.waiting import DEADLINE, until

NEVER = 3600.0  # between two looks of a worker


def listening_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "holdfast-listener"]


def listeners(server: psycopg.Connection[Any], store: PostgresStore) -> list[int]:
    """The server's processes that listen for this store."""
    assert store._channel is not None
    found = server.execute(
        "SELECT pid FROM pg_stat_activity WHERE query = %s", (f'LISTEN "{store._channel}"',)
    ).fetchall()
    return [pid for (pid,) in found]


@pytest.fixture
def hearing(store: PostgresStore, server: psycopg.Connection[Any]) -> Iterator[threading.Semaphore]:
    """Counts what a listener of the store hears; it listens by now."""
    heard = threading.Semaphore(0)
    end = store.listen(heard.release)
    assert heard.acquire(timeout=DEADLINE)
    yield heard
    end()


def submitted(store: PostgresStore, name: str = "t", **options: Any) -> int:
    """A thread whose run is queued; its number."""
    row = run_row(0, **{"status": "queued", **options})
    return store.commit(replace(commit(name), run=row)).thread


@contextmanager
def at_work(
    store: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    looks: float = NEVER,
    concurrency: int = 1,
    handler: Callable[[Run], object] = lambda run: None,
) -> Generator[Callable[[Any], None]]:
    """A worker that looks so often, and listens by now. What is given waits until a state was run and all is idle."""
    monkeypatch.setattr("holdfast.runs.work_queue._IDLE_SECONDS", looks)
    seen: list[Any] = []

    def handled(run: Run) -> None:
        seen.append(run.state)
        handler(run)

    worker = Holdfast(store).worker({"h": handled}, concurrency=concurrency)
    counting = threading.Lock()
    wait = worker._stop.wait
    waits = idle = 0

    def counted(seconds: float) -> None:
        nonlocal waits, idle
        with counting:
            waits, idle = waits + 1, idle + 1
        wait(seconds)
        with counting:
            idle -= 1

    monkeypatch.setattr(worker._stop, "wait", counted)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        # Every loop has looked, and one again, because somebody began to listen or because it is time.
        until(lambda: waits > concurrency and idle == concurrency)
        yield lambda state: until(lambda: state in seen and idle == concurrency)
    finally:
        worker.stop()
        running.join(DEADLINE)
        assert not running.is_alive()


# -- what is announced ------------------------------------------------------------------------------------------------


def test_a_run_that_is_queued_is_announced(store: PostgresStore, hearing: threading.Semaphore) -> None:
    submitted(store)
    assert hearing.acquire(timeout=DEADLINE)


def test_a_run_that_is_answered_settled_or_given_back_is_announced(
    store: PostgresStore, hearing: threading.Semaphore
) -> None:
    line = saved(store, "t", "x")
    running = run_row(line.number, fence=1)
    store.claim(None, running)
    asking = replace(running, status="waiting", question=1)
    suspended(store, asking, effect(status="asked"), 0)
    queued = replace(asking, status="queued", fence=2, question=0)
    settled(store, line.number, 1, "asked", effect(status="done"), asking, queued)
    assert hearing.acquire(timeout=DEADLINE)
    again = replace(queued, status="running", fence=3)
    store.claim(queued, again)
    put_run(store, replace(again, status="queued"))
    assert hearing.acquire(timeout=DEADLINE)
    store.claim(replace(again, status="queued"), replace(again, status="waiting", fence=4))
    store.claim(replace(again, status="waiting", fence=4), replace(again, status="queued", fence=5))
    assert hearing.acquire(timeout=DEADLINE)
    store.claim(replace(again, status="queued", fence=5), replace(again, fence=6))
    store.commit(replace(commit("t", line.at), fence=6, run=replace(again, status="queued", fence=6)))
    assert hearing.acquire(timeout=DEADLINE)


def test_nothing_else_is_announced(store: PostgresStore, hearing: threading.Semaphore) -> None:
    line = saved(store, "t", "x")
    row = run_row(line.number, fence=1, clock="c", lease_until=1)
    store.claim(None, row)
    journaled(store, line.number, 1, [effect()])
    posted(store, line.number, effect(key="told"))
    store.renew(line.number, 1, 5)
    store.commit(
        replace(commit("t", line.at), fence=1, entries=(effect(key="third", number=3),), last_entry=2, run=row)
    )
    suspended(store, replace(row, status="waiting", wake_at=5), None, 3)
    submitted(store, "later", clock="c", wake_at=1 << 40)
    submitted(store, "now")
    assert hearing.acquire(timeout=DEADLINE)
    assert not hearing.acquire(blocking=False)


def test_another_namespace_hears_nothing(open_store: Open, hearing: threading.Semaphore, store: PostgresStore) -> None:
    submitted(open_store(namespace="other"))
    submitted(store)
    assert hearing.acquire(timeout=DEADLINE)
    assert not hearing.acquire(blocking=False)


def test_an_announcement_tells_nothing(open_store: Open, server: psycopg.Connection[Any]) -> None:
    store = open_store(namespace="secret tenant")
    assert store._channel is not None
    assert "secret" not in store._channel
    server.execute(f'LISTEN "{store._channel}"'.encode())
    submitted(store, "secret thread")
    [told] = server.notifies(timeout=DEADLINE, stop_after=1)
    assert told.payload == ""


def test_who_is_told_not_to_notify_does_not(
    open_store: Open, url: str, hearing: threading.Semaphore, store: PostgresStore
) -> None:
    quiet = open_store(f"{url}&notify=no")
    submitted(quiet, "a")
    submitted(store, "b")
    assert hearing.acquire(timeout=DEADLINE)
    assert not hearing.acquire(blocking=False)
    called: list[int] = []
    quiet.listen(lambda: called.append(1))()
    assert called == []


# -- a worker ---------------------------------------------------------------------------------------------------------


def test_an_idle_worker_starts_at_once(
    open_store: Open, store: PostgresStore, server: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, Announcing)
    hf = Holdfast(open_store())
    with at_work(store, monkeypatch) as ran:
        for n in range(3):
            hf.submit("h", f"t{n}", start=n)
            ran(n)
    until(lambda: not listeners(server, store))


def test_each_of_its_loops_takes_up_one(
    open_store: Open, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=DEADLINE)
    hf = Holdfast(open_store())
    with at_work(store, monkeypatch, concurrency=3, handler=lambda run: together.wait()) as ran:
        for n in range(3):
            hf.submit("h", f"t{n}", start=n)
        for n in range(3):
            ran(n)
    assert not together.broken


def test_it_is_stopped_at_once(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_work(store, monkeypatch, concurrency=3):
        pass


def test_what_is_queued_while_the_connection_is_lost_is_found_when_it_is_back(
    open_store: Open, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = Holdfast(open_store())
    monkeypatch.setattr(notify, "_FIRST_PAUSE", 0.01)
    with at_work(open_store(relay.url), monkeypatch) as ran:
        hf.submit("h", "before", start="before")
        ran("before")
        relay.refuses = True
        relay.cut()
        hf.submit("h", "during", start="during")
        relay.refuses = False
        ran("during")
        hf.submit("h", "after", start="after")
        ran("after")


def test_who_cannot_listen_any_more_finds_work_by_looking(
    open_store: Open, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = Holdfast(open_store())
    store = open_store()
    monkeypatch.setattr(store, "_place", address.parse(relay.url))
    monkeypatch.setattr(notify, "_FIRST_PAUSE", NEVER)
    with at_work(store, monkeypatch, looks=0.05) as ran:
        hf.submit("h", "before", start="before")
        ran("before")
        relay.cut()
        hf.submit("h", "after", start="after")
        ran("after")


def test_where_there_is_no_listen_work_is_found_by_looking(
    open_store: Open, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(url, unknown=(b"LISTEN", b"pg_notify"))
    hf = Holdfast(open_store(relay.url))
    with at_work(open_store(relay.url), monkeypatch, looks=0.05) as ran:
        for n in range(2):
            hf.submit("h", f"t{n}", start=n)
            ran(n)
        until(lambda: not listening_threads())
    assert relay.disguised == {b"LISTEN": 1, b"pg_notify": 1}  # each was tried once, and never again
    relay.close()


def test_nobody_listens_through_a_pooler(open_store: Open, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pooler = Relay(url, servers=3, unknown=(b"LISTEN",))
    with at_work(open_store(pooler.url), monkeypatch, looks=0.05) as ran:
        until(lambda: not listening_threads())
        Holdfast(open_store(url)).submit("h", "t", start="t")
        ran("t")
    assert pooler.disguised == {}
    pooler.close()


# -- the end ----------------------------------------------------------------------------------------------------------


def test_closing_the_store_ends_its_listeners(store: PostgresStore, hearing: threading.Semaphore) -> None:
    assert listening_threads()
    store.close()
    assert not listening_threads()
    with pytest.raises(Closed):
        store.listen(hearing.release)


def test_a_forked_child_leaves_the_listening_to_its_parent(
    store: PostgresStore, hearing: threading.Semaphore, server: psycopg.Connection[Any]
) -> None:
    before = listeners(server, store)
    child = os.fork()
    if not child:
        try:
            store.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    submitted(store)
    assert hearing.acquire(timeout=DEADLINE)
    assert listeners(server, store) == before != []
