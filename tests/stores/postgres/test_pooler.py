"""The contract where it is hardest: every transaction is SERIALIZABLE, many fail, and a pooler is in between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast import Run
from holdfast.stores.contract import Store
from holdfast.stores.postgres import PostgresStore, transaction, writer
from holdfast.testing import StoreContract
from holdfast.testing.contract.concurrency import ConcurrencyContract
from holdfast.testing.contract.leases import LeaseContract
from tests.covers import covers
from tests.selection import IN_FULL
from tests.stores.postgres.pgbouncer import pgbouncer
from tests.stores.postgres.server import address_at, database, schema_of

_SERIALIZABLE = "SET default_transaction_isolation TO serializable"
_EVERY = 4  # so many writes of a row, and one of them fails when its transaction commits
_FAILING = ("thread", "run")
_running = contextlib.ExitStack()


@cache
def pooler() -> str:
    """The address of a pooler for the tests of this process."""
    return _running.enter_context(pgbouncer(database().partition("?")[0], first=_SERIALIZABLE))


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    _running.close()
    pooler.cache_clear()


@pytest.fixture(autouse=True)
def serializable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server that knows no other isolation level."""
    begin = b"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"
    monkeypatch.setattr(writer, "BEGIN_WRITING", begin)
    monkeypatch.setitem(transaction._BEGIN, "write", begin)
    monkeypatch.setitem(transaction._BEGIN, "read", b"BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY")


def pooled(tmp_path: Path) -> str:
    query = address_at(tmp_path).partition("?")[2]
    return f"{pooler()}?{query}"


def make_fail(schema: str) -> None:
    """Let some transactions fail as a serialization failure does: after all statements, with nothing done."""
    names: dict[str, Any] = {
        "count": sql.Identifier(schema, "failures"),
        "text": sql.Literal(f'"{schema}".failures'),
        "fail": sql.Identifier(schema, "fail"),
        "every": sql.Literal(_EVERY),
    }
    with psycopg.connect(database(), autocommit=True) as server:
        if server.execute("SELECT to_regclass(%s)", (f'"{schema}".failures',)).fetchone() != (None,):
            return
        server.execute(sql.SQL("CREATE SEQUENCE {count}").format(**names))
        server.execute(
            sql.SQL(
                "CREATE FUNCTION {fail}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF current_setting('test.counted', true) IS DISTINCT FROM pg_current_xact_id()::text THEN "
                "PERFORM set_config('test.counted', pg_current_xact_id()::text, true); "
                "IF nextval({text}) %% {every} = 0 THEN "
                "RAISE EXCEPTION 'injected' USING ERRCODE = 'serialization_failure'; "
                "END IF; END IF; RETURN NULL; END $$"
            )
            .format(**names)
            .as_string(server)
            .replace("%%", "%")
            .encode()
        )
        for table in _FAILING:
            server.execute(
                sql.SQL(
                    "CREATE CONSTRAINT TRIGGER fails AFTER INSERT OR UPDATE ON {table} "
                    "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {fail}()"
                ).format(table=sql.Identifier(schema, table), **names)
            )


class Pooled:
    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        store = PostgresStore(pooled(tmp_path), namespace=namespace, patience=60)
        make_fail(schema_of(tmp_path))
        return store


@covers("G1")
class TestThroughPooler(Pooled, LeaseContract, ConcurrencyContract):
    """The parts of the contract in which processes compete. `make test-stores` runs all of it."""


if IN_FULL:

    class TestAllThroughPooler(Pooled, StoreContract):
        pass


def test_failures_are_injected(tmp_path: Path) -> None:
    """Otherwise the contract above shows nothing."""
    store = TestThroughPooler().open_store(tmp_path)
    make_fail(schema_of(tmp_path))
    with psycopg.connect(pooled(tmp_path).partition("?")[0], autocommit=True) as server:
        assert server.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        thread = sql.Identifier(schema_of(tmp_path), "thread")
        insert = sql.SQL(
            "INSERT INTO {} (thread_no, namespace, head, move, last, deleted, deleted_checksum, head_id, step, status, "
            "size, updated_at, checksum) VALUES (%s, '', 0, 0, 0, 0, 0, '', 0, '', 0, 0, 0)"
        ).format(thread)
        for number in range(1, _EVERY):
            server.execute(insert, (number,))
        with pytest.raises(psycopg.errors.SerializationFailure):
            server.execute(insert, (_EVERY,))
    store.close()


def test_a_worker_finds_runs_without_being_notified(tmp_path: Path) -> None:
    done: list[str] = []

    def work(run: Run) -> None:
        done.append(run.thread)
        run.finish()

    with holdfast.open(pooled(tmp_path)) as hf:
        make_fail(schema_of(tmp_path))
        for n in range(3):
            hf.submit("work", f"t{n}", start={})
        hf.worker({"work": work}).run(until_idle=True)
        assert sorted(done) == ["t0", "t1", "t2"]
        assert hf.verify().ok
