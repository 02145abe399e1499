"""Rights: the recipes of docs/reference/postgres.md, run as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from holdfast.errors import ReadOnly, StoreError
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.connection import connect
from holdfast.stores.postgres.schema import statements
from holdfast.stores.rows import name_digest
from holdfast.testing.contract.build import effect, held, journaled, names_of, put_run, saved, swept_blobs, value
from tests.stores.postgres.conftest import Open

Server = psycopg.Connection[Any]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "postgres.md"


def recipe(title: str) -> str:
    """The SQL that stands under a heading of the page."""
    found = re.search(rf"^## {re.escape(title)}$.*?^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/reference/postgres.md has no recipe {title}"
    return found[1]


def carry_out(server: Server, title: str, schema: str, **names: str) -> None:
    text = recipe(title).replace("holdfast.", f'"{schema}".').replace("SCHEMA holdfast", f'SCHEMA "{schema}"')
    for placeholder, name in names.items():
        text = re.sub(rf"\b{placeholder}\b", name, text)
    server.execute(text.encode())


@pytest.fixture
def roles(server: Server, schema: str) -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for role in made:
        server.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


def test_a_worker_needs_no_right_to_create_anything(
    store: PostgresStore, open_store: Open, server: Server, url: str, schema: str, roles: list[str]
) -> None:
    worker, reader = f"{schema}_worker", f"{schema}_reader"
    roles += [worker, reader]
    carry_out(server, "Roles", schema, holdfast_worker=worker, holdfast_reader=reader)
    own = open_store(as_role(url, worker))
    line = saved(own, "a", "x", "y")
    line.save("z", blobs=[value(b'"a prompt"')])
    own.claim(None, held(own, line.number))
    journaled(own, line.number, 1, [effect()])
    put_run(own, held(own, line.number, status="completed", owner=None, lease_until=0))
    own.delete(line.number, [1])
    swept_blobs(own)
    own.sweep(line.number, line.whole(line.span()))
    own.drop(line.number)
    assert list(own.check()) == []
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        psycopg.connect(as_role(url.partition("?")[0], worker)) as c,
    ):
        c.execute(sql.SQL("CREATE TABLE {} ()").format(sql.Identifier(schema, "more")))


def test_a_reader_cannot_write(
    store: PostgresStore, open_store: Open, server: Server, url: str, schema: str, roles: list[str]
) -> None:
    worker, reader = f"{schema}_worker", f"{schema}_reader"
    roles += [worker, reader]
    carry_out(server, "Roles", schema, holdfast_worker=worker, holdfast_reader=reader)
    line = saved(store, "a", "x")
    own = open_store(as_role(url, reader))
    assert names_of(own) == ["a"]
    with pytest.raises(ReadOnly):
        saved(own, "b", "x")
    with pytest.raises(ReadOnly):
        own.delete(line.number, [1])


@pytest.fixture
def tenants(store: PostgresStore, server: Server, schema: str, roles: list[str]) -> list[str]:
    """Two roles that are held by policies, each to the namespace of its name."""
    made = [f"{schema}_acme", f"{schema}_umbrella"]
    worker, reader = f"{schema}_worker", f"{schema}_reader"
    roles += [*made, worker, reader]
    carry_out(server, "Roles", schema, holdfast_worker=worker, holdfast_reader=reader)
    carry_out(server, "Tenants", schema, holdfast_worker=worker, acme=made[0], umbrella=made[1])
    return made


def test_row_level_security_keeps_tenants_apart(open_store: Open, url: str, schema: str, tenants: list[str]) -> None:
    own, other = (open_store(as_role(url, tenant), namespace=tenant) for tenant in tenants)
    line = saved(own, "a", "x", "y")
    line.save("z", blobs=[value(b'"a prompt"')])
    own.claim(None, held(own, line.number))
    journaled(own, line.number, 1, [effect()])
    fork = saved(own, "fork", "w")
    fork.save("v", origins=[line.number])
    saved(other, "b", "x")
    assert (names_of(own), names_of(other)) == (["a", "fork"], ["b"])
    # Who gives himself out for another finds nothing, and can leave nothing behind.
    thief = open_store(as_role(url, tenants[1]), namespace=tenants[0])
    assert names_of(thief) == []
    with pytest.raises(StoreError):
        saved(thief, "c", "x")
    with psycopg.connect(as_role(url.partition("?")[0], tenants[1])) as connection:
        for table in ("thread", "checkpoint", "run", "entry", "blob", "piece", "fork"):
            found = connection.execute(
                sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
            ).fetchone()
            assert found == ((1 if table in ("thread", "checkpoint") else 0),), table
    put_run(own, held(own, line.number, status="completed", owner=None, lease_until=0))
    own.delete(line.number, [1])
    own.sweep(fork.number, fork.whole(fork.span()))
    own.drop(line.number)


def test_every_table_that_holds_data_is_held_by_a_policy(server: Server, schema: str, tenants: list[str]) -> None:
    found = server.execute(
        "SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = %s AND relkind = 'r' AND NOT (relrowsecurity AND EXISTS ("
        "SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid))",
        (schema,),
    ).fetchall()
    assert found == [("setting",)]


def test_a_tenant_learns_of_no_name_elsewhere_and_takes_none(
    open_store: Open, url: str, schema: str, tenants: list[str]
) -> None:
    own, other = (open_store(as_role(url, tenant), namespace=tenant) for tenant in tenants)
    saved(own, "a", "x")
    saved(other, "secret", "x")
    theirs = [name_digest(tenants[1].encode(), name) for name in (b"secret", b"payroll")]
    with psycopg.connect(as_role(url.partition("?")[0], tenants[0]), autocommit=True) as connection:
        for number, digest in enumerate(theirs, 1000):
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} (thread_no, namespace, name, head, move, last, deleted, deleted_checksum, head_id, "
                    "step, status, size, updated_at, checksum, name_digest) "
                    "VALUES (%s, %s, 'x', 0, 0, 0, 0, 0, '', 0, '', 0, 0, 0, %s)"
                ).format(sql.Identifier(schema, "thread")),
                (number, tenants[0].encode(), digest),
            )
    saved(other, "payroll", "x")
    assert names_of(other) == ["payroll", "secret"]


def test_a_tenant_changes_nothing_that_all_go_by(open_store: Open, url: str, schema: str, tenants: list[str]) -> None:
    own, other = (open_store(as_role(url, tenant), namespace=tenant) for tenant in tenants)
    assert [own.sweep_blobs().epoch, own.sweep_blobs().epoch, other.sweep_blobs().epoch] == [2, 3, 2]
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        psycopg.connect(as_role(url.partition("?")[0], tenants[0])) as connection,
    ):
        connection.execute(sql.SQL("UPDATE {} SET value = 99").format(sql.Identifier(schema, "setting")))


@pytest.mark.parametrize(
    ("statement", "values", "column"),
    [
        ("thread_by_name", (b"n", b"name"), "name_start"),
        ("thread_by_digest", (b"n", b"digest"), "name_digest"),
        ("threads_from", (b"n", b"name", 9), "name_start"),
        ("checkpoints_by_label", (1, 9, 9, b"label"), "label_start"),
        ("entries_by_topic", (1, 9, 9, b"topic"), "topic_start"),
    ],
)
def test_a_tenant_is_led_by_the_indexes(
    url: str, schema: str, tenants: list[str], statement: str, values: tuple[Any, ...], column: str
) -> None:
    with connect(as_role(url.partition("?")[0], tenants[0]), prepares=False, answer_timeout=30.0) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        plan = connection.execute(b"EXPLAIN " + statements(schema)[statement], values).fetchall()
    assert re.search(rf"Index Cond: .*\b{column}\b", "\n".join(line for (line,) in plan)), plan
