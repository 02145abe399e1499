"""Several at once, in one process and in many: what one writer at a time gives SQLite, rows and versions give here."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from holdfast.errors import Busy, Conflict, LeaseLost, NotFound
from holdfast.stores import rows
from holdfast.stores.contract import Refs
from holdfast.stores.contract_runs import Owner
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.contract.build import (
    Line,
    commit,
    effect,
    held,
    inside,
    journaled,
    posted,
    put_run,
    run,
    run_row,
    running,
    saved,
    swept_blobs,
    texts_of,
    value,
)
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.postgres.conftest import Open
from tests.stores.postgres.proxy import Relay
from tests.stores.postgres.server import database
from tests.stores.sqlite.conftest import finished, forked
from tests.waiting import DEADLINE

Server = psycopg.Connection[Any]


def test_a_fleet_claims_each_run_once(open_store: Open) -> None:
    stores = [open_store(connections=2) for _ in range(6)]
    lines = [saved(stores[0], f"t{n:02}", "x") for n in range(12)]
    for line in lines:
        stores[0].claim(None, run_row(line.number, status="queued"))
    won: list[int] = []

    def work(index: int) -> None:
        store = stores[index]
        while found := store.runs(statuses=["queued"], after=(0, 0), limit=20):
            for _, row in found:
                owner = Owner("host", "boot", 1, index, 1)
                try:
                    store.claim(row, replace(row, status="running", fence=row.fence + 1, owner=owner))
                except Conflict:
                    continue
                won.append(row.thread)

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(work, range(len(stores)), timeout=DEADLINE))
    assert sorted(won) == sorted(line.number for line in lines)


def test_what_one_process_knows_does_not_hide_what_another_did(open_store: Open) -> None:
    first, second = open_store(), open_store()
    line, row = running(first)
    journaled(first, line.number, 1, [effect("started")])
    second.claim(row, replace(row, fence=2))
    with pytest.raises(LeaseLost):
        journaled(first, line.number, 1, [effect()])
    with pytest.raises(LeaseLost):
        first.commit(inside(commit("a", line.at), fence=1))
    with pytest.raises(LeaseLost):
        first.commit(
            inside(commit("a", line.at), fence=1, run=replace(row, turn="x"), entries=(effect(number=2),), last_entry=1)
        )
    with pytest.raises(LeaseLost):
        first.commit(inside(commit("a", line.at), fence=1, entries=(effect(number=2),), last_entry=1))
    assert [entry.status for entry in second.entries(line.number, after=0, limit=9)] == ["started"]
    second.commit(inside(commit("a", line.at), fence=2))


def test_a_run_that_ended_elsewhere_lets_nobody_commit_by_its_fence(open_store: Open) -> None:
    first, second = open_store(), open_store()
    line, row = running(first)
    at = first.commit(inside(commit("a", line.at), fence=1))
    put_run(second, replace(row, status="completed", owner=None, lease_until=0))
    with pytest.raises(LeaseLost):
        first.commit(inside(commit("a", at), fence=1))


@contextmanager
def holding(server: Server, schema: str, table: str, number: int) -> Iterator[None]:
    """Somebody holds the row of a thread or a run."""
    with server.transaction():
        name = sql.Identifier(schema, table)
        server.execute(sql.SQL("SELECT 1 FROM {} WHERE thread_no = %s FOR UPDATE").format(name), (number,))
        yield


def test_nobody_waits_for_a_row_that_only_another_needs(store: PostgresStore, server: Server, schema: str) -> None:
    stuck, free = saved(store, "stuck", "x"), saved(store, "free", "x")
    with ThreadPoolExecutor(2) as pool:
        with holding(server, schema, "thread", stuck.number):
            waiting = pool.submit(stuck.save, "y")
            saving = pool.submit(lambda: [free.save(f"{n}") for n in range(20)])
            assert len(saving.result(DEADLINE)) == 20
            assert not waiting.done()
        assert waiting.result(DEADLINE).last == 2


def test_a_row_that_is_held_for_too_long_is_busy(open_store: Open, url: str, server: Server, schema: str) -> None:
    """The server gives up the lock before the client gives up the server."""
    store = open_store(f"{url}&answer_timeout=4")
    line = saved(store, "a", "x")
    with holding(server, schema, "thread", line.number), pytest.raises(Busy):
        line.save("y")
    line.save("y")


def test_saves_that_come_together_share_a_transaction(store: PostgresStore, server: Server, schema: str) -> None:
    lines = [saved(store, f"t{n}", "x") for n in range(16)]
    start = threading.Barrier(len(lines), timeout=DEADLINE)

    def write(line: Line) -> None:
        start.wait()
        for n in range(20):
            line.save(f"{n}")

    with ThreadPoolExecutor(len(lines)) as pool:
        list(pool.map(write, lines, timeout=DEADLINE))
    # The transaction that wrote a row is in the row.
    name = sql.Identifier(schema, "checkpoint")
    found = server.execute(sql.SQL("SELECT count(DISTINCT xmin::text), count(*) FROM {}").format(name)).fetchone()
    assert found is not None
    transactions, rows = found
    assert rows == 16 * 21
    assert transactions < rows / 2


@contextmanager
def halfway(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor, save: Callable[[], Any]
) -> Iterator[Future[Any]]:
    """A commit that has its locks and has yet to write."""
    reached, go_on = threading.Event(), threading.Event()
    columns = rows.EncodedCommit.columns

    def slow(prepared: rows.EncodedCommit, thread: int) -> tuple[Any, ...]:
        reached.set()
        assert go_on.wait(DEADLINE)
        return columns(prepared, thread)

    monkeypatch.setattr(rows.EncodedCommit, "columns", slow)
    try:
        saving = pool.submit(save)
        assert reached.wait(DEADLINE)
        monkeypatch.setattr(rows.EncodedCommit, "columns", columns)
        yield saving
    finally:
        go_on.set()


def wait_for_a_lock(waiting: Future[Any], statement: str) -> None:
    """Until a statement waits for a lock; fails if what it is part of ends without."""
    deadline = time.monotonic() + DEADLINE
    with psycopg.connect(database(), autocommit=True) as connection:
        while True:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
                (f"%{statement}%",),
            ).fetchone()
            if found is not None and found[0]:
                return
            assert not waiting.done()
            assert time.monotonic() < deadline


@pytest.mark.parametrize("is_first", [False, True])
def test_a_new_epoch_waits_for_commits_that_saw_the_old_one(
    open_store: Open, schema: str, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """Else a value that such a commit found, whose references the marking did not see yet, would be swept."""
    first, second = open_store(), open_store()
    prompt = value(b'"a long system prompt"')
    line = saved(first, "a", "x")
    line.save("y", blobs=[] if is_first else [prompt])
    with ThreadPoolExecutor(2) as pool:
        with halfway(monkeypatch, pool, lambda: line.save("z", blobs=[prompt])) as saving:
            marking = pool.submit(second.sweep_blobs)
            wait_for_a_lock(marking, f'INSERT INTO "{schema}".epoch')
        saving.result(DEADLINE)
        epoch = marking.result(DEADLINE).epoch
    line.save("again", blobs=[prompt])
    assert swept_blobs(second, epoch=epoch) == 0


def test_an_origin_is_not_dropped_under_its_fork(
    open_store: Open, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_store(), open_store()
    origin = saved(first, "origin", "x y")
    fork = commit("fork", appends=[run("z")], bases=[(origin.number, 1)], origins=[origin.number])
    with ThreadPoolExecutor(2) as pool:
        with halfway(monkeypatch, pool, lambda: first.commit(fork)) as forking:
            dropping = pool.submit(second.drop, origin.number)
            wait_for_a_lock(dropping, f'FROM "{schema}".thread')
        forking.result(DEADLINE)
        dropping.result(DEADLINE)
    assert thread_named(first, "origin") is None
    assert texts_of(first, origin.span()) == [["x", "y"]]
    assert list(first.check()) == []


def test_a_commit_locks_the_threads_that_it_uses_in_the_order_of_their_numbers(
    store: PostgresStore, server: Server, schema: str
) -> None:
    """Else two commits that use each other's cells would wait for each other."""
    low, high = sorted((saved(store, name, "x") for name in "ab"), key=lambda line: line.number)
    thread = sql.Identifier(schema, "thread")
    with ThreadPoolExecutor(1) as pool:
        with holding(server, schema, "thread", low.number):
            refs = Refs(spans=(low.span(), high.span()))
            saving = pool.submit(high.save, "y", bases=[(low.number, 1)], origins=[low.number], refs=refs)
            wait_for_a_lock(saving, f'"{schema}".thread')
            # Raises an error if the commit already locked its own thread, which has the higher number.
            query = sql.SQL("SELECT 1 FROM {} WHERE thread_no = %s FOR UPDATE NOWAIT").format(thread)
            server.execute(query, (high.number,))
        assert saving.result(DEADLINE).last == 2
    assert store.forks(low.number) == [high.number]


def test_two_commits_that_bring_the_same_value_store_it_once(open_store: Open) -> None:
    stores = [open_store() for _ in range(4)]
    start = threading.Barrier(len(stores), timeout=DEADLINE)
    brought = [value(b'"value %d"' % n) for n in range(10)]

    def write(index: int) -> None:
        start.wait()
        for n in range(10):
            one = brought[n:] + brought[:n]
            stores[index].commit(commit(f"t{index}-{n}", blobs=one if index % 2 else one[::-1]))

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(write, range(len(stores)), timeout=DEADLINE))
    assert [stores[0].blob(one.digest) for one in brought] == [list(one.pieces) for one in brought]
    assert list(stores[0].check()) == []


def test_a_base_is_not_deleted_under_what_builds_on_it(open_store: Open) -> None:
    first, second = open_store(), open_store()
    line = saved(first, "a", "x", "y")
    second.delete(line.number, [1])
    with pytest.raises(Conflict):
        first.commit(commit("b", bases=[(line.number, 1)], origins=[line.number]))


def test_a_forked_child_has_connections_of_its_own(store: PostgresStore, open_store: Open) -> None:
    line = saved(store, "a", "x", "y")
    parents = {connection.info.backend_pid for _, connection in store._pool.idle}
    assert parents

    def child() -> None:
        assert line.save("z").last == 3
        assert parents.isdisjoint(connection.info.backend_pid for _, connection in store._pool.idle)
        store.close()

    finished(forked(child))
    assert thread_named(store, "a") is not None
    with pytest.raises(Conflict):
        line.save("z")
    saved(store, "b", "x", "y")
    assert list(store.check()) == []


def test_every_transaction_may_go_to_another_connection_of_the_server(open_store: Open, url: str) -> None:
    """As a pooler in transaction mode does it."""
    relay = Relay(url, servers=3)
    store = open_store(relay.url)
    line, row = running(store)
    for n in range(5):
        made = inside(commit("a", line.at), fence=1, run=replace(row, updated_at=n))
        line.position = store.commit(replace(made, entries=(effect(number=3 * n + 1),), last_entry=3 * n))
        journaled(store, line.number, 1, [effect("started"), effect()])
    store.renew(line.number, 1, row.lease_until + 1)
    posted(store, line.number, effect(kind="answer"))
    put_run(store, replace(row, status="idle", owner=None, lease_until=0))
    at = store.rewind(line.at, to=2, summary=line.stored().summary)
    store.delete(line.number, [3])
    store.commit(replace(commit("a", at, blobs=[value(b'"v"')]), last_entry=store.last_entry(line.number)))
    swept_blobs(store)
    assert list(store.check()) == []
    store.drop(line.number)
    with pytest.raises(NotFound):
        store.drop(line.number)
    assert relay.switches > 20
    relay.close()


def test_ten_thousand_runs_that_wait_are_not_in_the_way(store: PostgresStore, server: Server, schema: str) -> None:
    line = saved(store, "queued", "x")
    store.claim(None, run_row(line.number, status="queued"))
    waiting = saved(store, "waiting", "x")
    store.claim(None, run_row(waiting.number, status="waiting", updated_at=0))
    for table in ("run", "thread"):
        copies = {"thread": sql.SQL("namespace, NULL, NULL"), "run": sql.SQL("namespace, status")}[table]
        server.execute(copied(schema, table, copies, waiting.number))
    server.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(schema, "run")))
    # By what is read, not by the time it takes: a machine may be busy.
    server.execute("SET plan_cache_mode = force_generic_plan")
    query = store._scope.sql["runs"].decode().replace("$2", "'queued'").replace("$1", "'default'").replace("$5", "10")
    plan = server.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT TEXT) {query.replace('$3', '0').replace('$4', '0')}".encode()
    ).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "run_by_status" in text
    [[buffers]] = [[int(part.split("=")[1]) for part in text.split("Buffers: ")[1].split() if "hit=" in part][:1]]
    assert buffers < 50
    assert [name for name, _ in store.runs(statuses=["queued"], after=(0, 0), limit=10)] == ["queued"]


def test_ten_thousand_runs_with_a_lower_priority_are_not_in_the_way(
    store: PostgresStore, server: Server, schema: str
) -> None:
    numbers = [saved(store, name, "x").number for name in ("first", "other")]
    for number, priority in zip(numbers, (9, 0), strict=True):
        store.claim(None, run_row(number, status="queued", handler="h", priority=priority))
    server.execute(copied(schema, "run", sql.SQL("namespace, status"), numbers[1]))
    server.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(schema, "run")))
    server.execute("SET plan_cache_mode = force_generic_plan")
    query = store._scope.sql["queue"].decode().replace("$6", "1").replace("$2", "'h'").replace("$1", "'default'")
    query = query.replace("$3", "-100").replace("$4", "0").replace("$5", "0")
    plan = server.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT TEXT) {query}".encode()).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "run_queue" in text
    [[buffers]] = [[int(part.split("=")[1]) for part in text.split("Buffers: ")[1].split() if "hit=" in part][:1]]
    assert buffers < 50, text


def copied(schema: str, table: str, columns: sql.Composable, number: int) -> sql.Composed:
    """Ten thousand more rows like that of a thread; dropped threads, so that no name is given twice."""
    rest = {
        "thread": "head, move, last, deleted, deleted_checksum, head_id, fence, step, status, agent, size, updated_at, "
        "checksum",
        "run": "fence, n, clock, wake_at, wake_wall, handler, rank, ready, lease_until, lease_checksum, entries, "
        "record, checksum",
    }[table]
    return sql.SQL(
        "INSERT INTO {table} SELECT 1000 + n, {columns}, {rest} FROM {table}, generate_series(1, 10000) AS n "
        "WHERE thread_no = {number}"
    ).format(
        table=sql.Identifier(schema, table),
        columns=columns,
        rest=sql.SQL(rest),
        number=sql.Literal(number),
    )


@covers("smooth/PostgresCheckpointStore.pool")
def test_a_store_is_used_through_one_connection_by_many_threads(url: str, tmp_path: Path) -> None:
    with closing(PostgresStore(url, namespace="default", connections=1)) as store, ThreadPoolExecutor(8) as pool:
        lines = list(pool.map(lambda n: saved(store, f"t{n}", "x", "y"), range(8), timeout=DEADLINE))
        assert [line.at.last for line in lines] == [2] * 8
    assert os.path.exists(tmp_path)


def test_the_clock_is_the_servers(store: PostgresStore, server: Server) -> None:
    found = server.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000").fetchone()
    assert found is not None
    clock = store.clock()
    assert clock.id == "postgres"
    assert 0 <= clock.now - float(found[0]) + 1 < 60_000
    row = held(store, saved(store, "a", "x").number)
    store.claim(None, row)
    with pytest.raises(Exception, match="another process holds"):
        store.drop(row.thread)
