"""PostgreSQL as others run it: behind a pooler, without LISTEN, and where any transaction may fail to serialize.

Engines that speak PostgreSQL's protocol and spread a table over many servers run every transaction at SERIALIZABLE and
ask clients to repeat those that conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.stores.contract import Store
from holdfast.stores.postgres import PostgresStore, session, writer
from holdfast.testing.contract.commits import CommitContract
from holdfast.testing.contract.concurrency import ConcurrencyContract
from holdfast.testing.contract.forks import ForkContract
from holdfast.testing.contract.journal import JournalContract
from holdfast.testing.contract.leases import LeaseContract
from holdfast.testing.contract.runs import RunContract
from holdfast.testing.contract.sweeping import SweepContract
from tests.selection import IN_FULL
from tests.stores.postgres.pooler import pooler
from tests.stores.postgres.server import database, schema_of

SERIALIZABLE = b"BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"


class SomeContract(LeaseContract, ConcurrencyContract):
    """What `make test` runs: the parts of the store contract in which processes compete."""


class RestContract(CommitContract, ForkContract, RunContract, JournalContract, SweepContract):
    """What `make test-stores` runs in addition: the other parts that write."""


@pytest.fixture(scope="module")
def pooled() -> Iterator[str]:
    with pooler() as url:
        yield url


class Pooled:
    durable = True
    url: str

    @pytest.fixture(autouse=True)
    def _address(self, pooled: str) -> None:
        self.url = pooled

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        schema = schema_of(tmp_path)
        return PostgresStore(f"{self.url}?schema={schema}&notify=no", namespace=namespace)


class Serializable:
    """One write in ten fails with a serialization error: half of them when it writes, half when it commits."""

    durable = True

    @pytest.fixture(autouse=True)
    def _isolation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session, "BEGIN_WRITING", SERIALIZABLE)
        monkeypatch.setattr(writer, "BEGIN_WRITING", SERIALIZABLE)
        monkeypatch.setitem(session._BEGIN, "write", SERIALIZABLE)

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        schema = schema_of(tmp_path)
        store = PostgresStore(f"{database()}?schema={schema}&notify=no", namespace=namespace, patience=120)
        with psycopg.connect(database(), autocommit=True) as server:
            _fail_sometimes(server, schema)
        return store


class TestThroughAPooler(Pooled, SomeContract):
    pass


class TestSerializable(Serializable, SomeContract):
    def test_the_server_did_refuse_writes(self, tmp_path: Path) -> None:
        with holdfast.open(f"{database()}?schema={schema_of(tmp_path)}&notify=no") as hf:
            self.open_store(tmp_path).close()
            thread = hf.thread("t")
            for n in range(150):
                thread.save({"n": n})
            assert [checkpoint.step for checkpoint in thread.history()] == list(range(150, 0, -1))
        with psycopg.connect(database(), autocommit=True) as server:
            failures = sql.SQL("SELECT last_value, is_called FROM {}.failures").format(
                sql.Identifier(schema_of(tmp_path))
            )
            found = server.execute(failures).fetchone()
        assert found is not None
        assert found[1]
        assert found[0] > 3


if IN_FULL:

    class TestTheRestThroughAPooler(Pooled, RestContract):
        pass

    class TestTheRestSerializable(Serializable, RestContract):
        pass


def _fail_sometimes(server: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    """Make the server refuse some writes, as an engine does that could not serialize them."""
    found = server.execute("SELECT 1 FROM pg_proc WHERE oid = to_regproc(%s)", (f"{schema}.fail_sometimes",))
    if found.fetchone() is not None:
        return
    place = sql.Identifier(schema)
    server.execute(sql.SQL("CREATE SEQUENCE {}.failures").format(place))  # counts also what is rolled back
    server.execute(
        sql.SQL(
            "CREATE FUNCTION {}.fail_sometimes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF random() < 0.05 THEN PERFORM nextval({}); "
            "RAISE EXCEPTION 'restart transaction' USING ERRCODE = '40001'; END IF; "
            "RETURN coalesce(NEW, OLD); END $$"
        ).format(place, sql.Literal(f"{schema}.failures"))
    )
    for table in ("thread", "run"):
        server.execute(
            sql.SQL(
                "CREATE TRIGGER at_write BEFORE INSERT OR UPDATE OR DELETE ON {0}.{1} "
                "FOR EACH ROW EXECUTE FUNCTION {0}.fail_sometimes()"
            ).format(place, sql.Identifier(table))
        )
        server.execute(
            sql.SQL(
                "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON {0}.{1} DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION {0}.fail_sometimes()"
            ).format(place, sql.Identifier(table))
        )
