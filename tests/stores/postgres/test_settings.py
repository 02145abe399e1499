"""Databases and roles that are set up otherwise: what is stored, and where it is looked for, does not depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from holdfast.errors import InvalidArgument
from holdfast.stores.contract import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres import schema as schemas
from holdfast.testing.contract.build import effect, journaled, names_of, running, saved, swept_blobs, value
from holdfast.testing.contract.journal_entries import JournalContract
from holdfast.testing.contract.stored_blobs import BlobContract
from tests.stores.postgres.conftest import Open
from tests.stores.postgres.server import address, reused_address_at

Server = psycopg.Connection[Any]


def setting(text: str) -> str:
    """An option of an address."""
    return f"&options={quote(f'-c {text}')}"


class TestBackslashesEscape(JournalContract, BlobContract):
    """Where a backslash in a literal is an escape, as it once was everywhere."""

    durable = True

    def open_store(self, tmp_path: Path, namespace: str = "default") -> Store:
        url = reused_address_at(tmp_path) + setting("standard_conforming_strings=off")
        return PostgresStore(url, namespace=namespace)


# What somebody who may create things in a schema of the search path would put there, to have it run by others: each
# fits better than what is meant, where types are not given exactly. A sequence is not rolled back.
TRAPS = """
CREATE SEQUENCE {0}.sprung;
CREATE FUNCTION {0}.spring() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_catalog.nextval('{0}.sprung'); RAISE EXCEPTION 'a trap'; END $$;
CREATE FUNCTION {0}.nextval(text) RETURNS bigint LANGUAGE sql AS $$ SELECT {0}.spring() $$;
CREATE FUNCTION {0}.generate_series(integer, bigint) RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT {0}.spring() $$;
CREATE FUNCTION {0}.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT {0}.spring() $$;
CREATE FUNCTION {0}.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE sql AS $$ SELECT {0}.spring()::text::bytea $$;
CREATE FUNCTION {0}.cardinality(bigint[]) RETURNS integer LANGUAGE sql AS $$ SELECT {0}.spring()::integer $$;
CREATE FUNCTION {0}.floor(integer) RETURNS bigint LANGUAGE sql AS $$ SELECT {0}.spring() $$;
CREATE FUNCTION {0}.set_config(varchar, varchar, boolean) RETURNS text LANGUAGE sql AS $$ SELECT {0}.spring()::text $$;
CREATE FUNCTION {0}.pg_notify(varchar, varchar) RETURNS void LANGUAGE sql AS $$ SELECT {0}.spring() $$;
CREATE FUNCTION {0}.numeric_integer(numeric, integer) RETURNS numeric LANGUAGE sql AS $$ SELECT {0}.spring() $$;
CREATE OPERATOR {0}.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = {0}.numeric_integer);
"""


@pytest.fixture
def trapped(server: Server, schema: str) -> Iterator[str]:
    """A schema with traps."""
    name = f"{schema}_traps"
    server.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    server.execute(sql.SQL(TRAPS).format(sql.Identifier(name)))
    yield name
    server.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def test_nothing_of_the_search_path_is_run(open_store: Open, url: str, server: Server, trapped: str) -> None:
    store = open_store(url + setting(f"search_path={trapped}"))
    line, _ = running(store)
    other = saved(store, "b", "x")
    other.save("y", blobs=[value(b'"a"'), value(b'"b"')])
    journaled(store, line.number, 1, [effect("started", key="k")])
    journaled(store, line.number, 1, [effect(key="k", number=1), effect("started", key="l")])
    swept_blobs(store)
    store.delete(other.number, [1])
    store.sweep(other.number, other.whole(other.span()))
    assert store.clock().now > 0
    assert store.due(limit=9) == []
    assert list(store.check()) == []
    sprung = server.execute(sql.SQL("SELECT is_called FROM {}").format(sql.Identifier(trapped, "sprung"))).fetchone()
    assert sprung == (False,)


def test_every_statement_names_its_functions_and_types_exactly(schema: str) -> None:
    """The rule by which the traps are avoided, for statements that no test of them runs."""
    for name, text in schemas.statements(schema).items():
        for loose in (b" nextval(", b"generate_series(1,", b" set_config(", b" pg_notify(", b"* 1000000)"):
            assert loose not in text, name


@pytest.mark.parametrize(
    "name", ["o'brien", "back\\slash", "a;b", "a$1b", "hf.", "%s", "x'||pg_sleep(9)||'", 'q"hf.q', "ünï"]
)
@pytest.mark.parametrize("option", ["", "&client_encoding=LATIN1", setting("standard_conforming_strings=off")])
def test_a_schema_may_have_any_printable_name(
    open_store: Open, server: Server, schema: str, name: str, option: str
) -> None:
    name = f"{schema}{name}"
    store = open_store(address(quote(name)) + option)
    line = saved(store, "a", "x")
    line.save("y", blobs=[value(b'"a prompt"')])
    assert names_of(open_store(address(quote(name)))) == ["a"]
    found = server.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (name,)).fetchone()
    assert found == (1,)
    server.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\x7fb"])
def test_a_schema_whose_name_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="schema="):
        PostgresStore(f"postgresql://127.0.0.1:1/db?schema={quote(name)}", namespace="default")


def test_a_role_whose_transactions_only_read_can_make_a_store_and_write(open_store: Open, url: str) -> None:
    store = open_store(url + setting("default_transaction_read_only=on"))
    saved(store, "a", "x", "y")
    assert names_of(store) == ["a"]
