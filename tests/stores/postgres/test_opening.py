"""Opening: made once however many begin at once, in the schema that is named, and refused clearly."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.errors import AlreadyExists, InvalidArgument, NewerFormat, NotAStore, NotInstalled, StoreError
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres import schema as schemas
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.schema import VERSION
from holdfast.stores.postgres.writer import Writer
from holdfast.testing.contract.build import names_of, saved
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.stores.postgres.conftest import Open
from tests.stores.postgres.server import address, database
from tests.stores.sqlite.conftest import output, script

Server = psycopg.Connection[Any]
SQL = Path(schemas.__file__).parent / "sql"

OPEN = """
import os, sys, traceback
import holdfast
import holdfast.stores.postgres  # once, for all children

def opened(name):
    with holdfast.open(sys.argv[1]) as hf:
        hf.thread(name).save({"n": 1})

reading, writing = os.pipe()
children = []
for name in sys.argv[2:]:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(writing)
            os.read(reading, 1)  # until all are there
            opened(name)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    children.append(pid)
os.close(writing)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in children]))
"""


@covers("smooth/PostgresCheckpointStore.connect")
def test_twenty_processes_open_a_store_that_is_not_there(url: str) -> None:
    output(script(OPEN, url, *(f"t{n:02}" for n in range(20))))
    with holdfast.open(url) as hf:
        assert [thread.name for thread in hf.threads()] == [f"t{n:02}" for n in range(20)]
        assert hf.verify() is not None


def test_a_store_that_another_process_creates_meanwhile_is_not_taken_for_other_tables(
    open_store: Open, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser of the race finds no format, then tables: it must read the format again."""
    execute = Connection.execute
    has_other_tables = schemas.statements(schema)["has_other_tables"]
    winners: list[PostgresStore | None] = []

    def racing(self: Connection, query: Any, *args: Any, **kwargs: Any) -> Any:
        if query == has_other_tables and not winners:
            winners.append(None)  # the winner asks this, too
            winners[0] = open_store()
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(Connection, "execute", racing)
    loser = open_store()
    [winner] = winners
    assert winner is not None
    saved(winner, "a", "x")
    assert names_of(loser) == ["a"]


def test_the_list_of_tables_that_show_another_program_is_complete() -> None:
    """All but `setting`, which is read first."""
    created = re.findall(r"CREATE (?:TABLE|SEQUENCE) IF NOT EXISTS hf\.(\w+)", (SQL / "schema.sql").read_text())
    listed = re.findall(r"'(\w+)'", schemas.statements("hf")["has_other_tables"].decode())
    assert sorted(listed) == sorted(created)


def test_tables_of_another_program_are_refused_after_the_second_look(
    open_store: Open, server: Server, schema: str
) -> None:
    server.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    server.execute(sql.SQL("CREATE TABLE {} (n int)").format(sql.Identifier(schema, "thread")))
    with pytest.raises(NotAStore, match="another program"):
        open_store()


@covers("smooth/PostgresCheckpointStore.connect")
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_handle_on_either_name_of_the_scheme(url: str, scheme: str) -> None:
    with holdfast.open(url.replace("postgresql://", f"{scheme}://")) as hf:
        hf.thread("a\0b").save({"text": "x\0y"})
    with holdfast.open(url) as hf:
        latest = hf.thread("a\0b").latest()
        assert latest is not None
        assert latest.state == {"text": "x\0y"}


def test_tables_are_in_the_schema_that_was_named_and_nowhere_else(
    open_store: Open, server: Server, schema: str
) -> None:
    odd = f'{schema} "quoted" hf.é'
    store = open_store(address(psycopg.conninfo.make_conninfo("") + odd.replace(" ", "%20").replace('"', "%22")))
    saved(store, "a", "x")
    found = server.execute(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = %s ORDER BY 1", (odd,)
    ).fetchall()
    assert [name for (name,) in found] == [
        *("act", "blob", "checkpoint", "claim_limit", "data_key", "entry", "epoch", "fork", "move", "piece", "run"),
        *("segment", "setting", "sweep", "thread"),
    ]
    server.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(odd)))


def test_two_schemas_are_two_stores(open_store: Open, url: str, schema: str) -> None:
    first, second = open_store(), open_store(address(f"{schema}_2"))
    saved(first, "a", "x")
    assert names_of(second) == []


def test_no_schema_named_means_holdfast() -> None:
    from holdfast.stores.postgres import address as addresses

    assert addresses.parse("postgresql://host/db").schema == "holdfast"


@pytest.mark.parametrize("schema", ["", "pg_x", "x" * 64, "a&schema=b"])
def test_a_schema_that_cannot_be_one_is_refused(schema: str) -> None:
    with pytest.raises(InvalidArgument, match="schema="):
        PostgresStore(f"{database()}?schema={schema}", namespace="default")


@pytest.mark.parametrize("tail", ["host:port/db", "host/db?nonsense=1", "host/db?=", "[::1/db"])
def test_an_address_that_makes_no_sense_is_refused_without_its_password(tail: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        holdfast.open(f"postgresql://me:s3cret@{tail}")
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(StoreError, match=r"postgresql://127\.0\.0\.1:1/db .*cannot be reached") as refused:
        PostgresStore("postgresql://me:s3cret@127.0.0.1:1/db", namespace="default", patience=0.2)
    assert "s3cret" not in "".join([str(refused.value), repr(refused.value.__cause__), repr(refused.value.__context__)])


def test_the_extra_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(NotInstalled, match=r"nothing was opened.*holdfast\[postgres\]"):
        holdfast.open("postgresql://localhost/db")


def test_a_newer_format_is_left_alone(store: PostgresStore, open_store: Open, server: Server, schema: str) -> None:
    setting = sql.Identifier(schema, "setting")
    newer = VERSION + 1
    server.execute(sql.SQL("UPDATE {} SET value = %s WHERE name = 'format'").format(setting), (newer,))
    with pytest.raises(NewerFormat, match=f"format {newer}"):
        open_store()


def test_tables_of_another_program_are_left_alone(open_store: Open, server: Server, schema: str) -> None:
    server.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    server.execute(sql.SQL("CREATE TABLE {} (id int)").format(sql.Identifier(schema, "run")))
    with pytest.raises(NotAStore):
        open_store()
    found = server.execute("SELECT count(*) FROM information_schema.tables WHERE table_schema = %s", (schema,))
    assert found.fetchone() == (1,)


def test_tables_that_cannot_be_seen_are_left_alone(open_store: Open, server: Server, url: str, schema: str) -> None:
    role = f"{schema}_guest"
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    server.execute(sql.SQL("CREATE ROLE {role} LOGIN; CREATE SCHEMA {schema}").format(**names))
    server.execute(sql.SQL("CREATE TABLE {schema}.thread (id int)").format(**names))
    server.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}").format(**names))
    with pytest.raises(NotAStore):
        open_store(url.replace("postgres@", f"{role}@"))
    assert tables(server, schema) == ["thread"]
    server.execute(sql.SQL("DROP OWNED BY {role}; DROP ROLE {role}").format(**names))


def test_a_set_up_that_fails_leaves_nothing_behind(
    open_store: Open, server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = schemas._split
    monkeypatch.setattr(schemas, "_split", lambda file, name: [*split(file, name), b"SELECT 1 / 0"])
    with pytest.raises(StoreError, match="nothing was changed"):
        open_store()
    assert tables(server, schema) == []


def tables(server: Server, schema: str) -> list[str]:
    found = server.execute(
        "SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = %s AND relkind = 'r' ORDER BY 1",
        (schema,),
    )
    return [name for (name,) in found.fetchall()]


def test_a_name_that_is_taken_costs_no_thread_number(store: PostgresStore) -> None:
    first = saved(store, "a", "x").number
    for _ in range(3):
        with pytest.raises(AlreadyExists):
            saved(store, "a", "x")
    assert (first, saved(store, "b", "x").number) == (1 << 30, 1 << 29)


def test_thread_numbers_spread(store: PostgresStore) -> None:
    """15 threads created one after the other have numbers in 15 different sixteenths of all numbers."""
    numbers = [saved(store, f"t{n}", "x").number for n in range(15)]
    assert len({number >> 27 for number in numbers}) == 15
    assert all(0 < number < 1 << 31 for number in numbers)


@pytest.mark.parametrize(("part", "other"), [("postgres@", "nobody-of-that-name@"), ("/postgres?", "/no-such-one?")])
def test_who_is_not_let_in_is_told_so_at_once(url: str, part: str, other: str) -> None:
    assert part in url
    with pytest.raises(
        StoreError, match=r"refused the connection.*user, the password and the name of the database"
    ) as refused:
        PostgresStore(url.replace(part, other), namespace="default", patience=10)
    assert refused.value.__cause__ is None


def test_a_set_up_that_was_cut_off_is_finished(
    store: PostgresStore, open_store: Open, server: Server, schema: str
) -> None:
    server.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(schema, "piece")))
    server.execute(sql.SQL("UPDATE {} SET value = 0 WHERE name = 'format'").format(sql.Identifier(schema, "setting")))
    saved(open_store(), "a", "x")


def test_compressed_bytes_are_not_compressed_again(store: PostgresStore, server: Server, schema: str) -> None:
    found = server.execute(
        "SELECT relname::text, attname::text FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid "
        "JOIN pg_namespace ON relnamespace = pg_namespace.oid "
        "WHERE nspname = %s AND attstorage = 'e' AND relkind = 'r' ORDER BY 1, 2",
        (schema,),
    ).fetchall()
    assert found == [("checkpoint", "cells"), ("checkpoint", "skeleton"), ("piece", "data"), ("segment", "cells")]


def test_a_namespace_that_no_index_can_hold_is_refused(url: str) -> None:
    PostgresStore(url, namespace="x" * 1024).close()
    with pytest.raises(InvalidArgument, match="1024"):
        PostgresStore(url, namespace="x" * 1025)


def test_long_names_labels_and_marks(store: PostgresStore, tmp_path: Path) -> None:
    long = [tmp_path.name * 2000 + end for end in "ab"]
    for name in long:
        saved(store, name, "x").save("y", label=name)
    assert names_of(store) == sorted(long)
    for name in long:
        thread = thread_named(store, name)
        assert thread is not None
        assert [row.label for row in store.checkpoints(thread.position.thread, before=None, limit=9, label=name)] == [
            name
        ]


@pytest.mark.parametrize(("option", "some"), [("", False), ("&prepare=no", False), ("&prepare=yes", True)])
def test_statements_are_prepared_only_where_the_address_allows_it(
    open_store: Open, url: str, option: str, some: bool
) -> None:
    store = open_store(url + option, connections=1)
    line = saved(store, "a", *["x"] * 20)
    [(_, connection)] = store._pool.idle
    found = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert found is not None
    assert (found[0] > 0) == some
    assert line.at.last == 20


@pytest.mark.parametrize("option", ["prepare", "notify"])
def test_switches_are_yes_or_no(url: str, option: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{option}="):
        PostgresStore(f"{url}&{option}=perhaps", namespace="default")


def test_options_of_libpq_reach_it_as_they_were_written(open_store: Open, url: str) -> None:
    store = open_store(f"{url}&options=-c%20statement_timeout%3D54321&application_name=a+b%2Bc%20d")
    connection = store._pool.take()
    found = connection.execute("SELECT current_setting('statement_timeout'), current_setting('application_name')")
    store._pool.give(connection)
    assert found.fetchone() == ("54321ms", "a+b+c d")


def test_a_store_without_functions_makes_the_same_writes(
    open_store: Open, schema: str, url: str, server: Server
) -> None:
    """A compatible database may not have the language of the functions, or may not let a role use them."""
    open_store()
    rows = server.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace "
        "WHERE n.nspname = %s",
        (schema,),
    ).fetchall()
    assert len(rows) == 4
    for (function,) in rows:
        server.execute(f"DROP FUNCTION {function}".encode())
    with holdfast.open(url) as hf:
        thread = hf.thread("chat")
        for n in range(3):
            thread.save({"n": n})
        with hf.run("work", start={"n": 0}) as run:
            for step in run.steps():
                run.state["n"] = run.model(lambda: 7)
                if step == 2:
                    run.finish()
        assert [checkpoint.seq for checkpoint in thread.history()] == [3, 2, 1]
        found = hf.thread("work").latest()
        assert found is not None
        assert found.state == {"n": 7}
        assert len(hf.effects("work")) == 2
        assert hf.verify().ok


def test_the_writes_of_workers_are_made_by_functions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_a_transaction(*_: object, **__: object) -> None:
        pytest.fail("the write was made in a transaction of several statements")

    @holdfast.tool(effect="idempotent")
    def put(n: int) -> int:
        return n

    with holdfast.open(url) as hf:
        thread = hf.thread("chat")
        thread.save({"n": 0})
        store = hf.context.store
        with hf.run("work", start={"n": 0}) as run:
            row = thread_named(store, "work")
            held = None if row is None else store.run(row.position.thread)
            assert held is not None
            with monkeypatch.context() as patched:
                patched.setattr(Writer, "_write", in_a_transaction)
                thread.save({"n": 1})
                for step in run.steps():
                    if step > 3:
                        run.state["n"] = run.tool(put, {"n": step})  # its result is written with the step's checkpoint
                    else:
                        run.state["n"] = run.model(lambda: 7)
                        run.save()
                    if step == 6:
                        break
                store.renew(held.thread, held.fence, held.lease_until + 60_000)
        assert hf.verify().ok


def test_a_renamed_store_does_not_write_to_the_one_that_has_its_name_now(
    open_store: Open, server: Server, url: str, schema: str
) -> None:
    """As after a restore beside the old store: both have the same threads."""
    line = saved(open_store(), "a", "x")
    server.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{schema}_old"'.encode())
    other = saved(open_store(), "a", "x")
    line.store = open_store(url.replace(schema, f"{schema}_old"))
    line.save("y")
    counts = [len(each.store.checkpoints(each.number, before=None, limit=9)) for each in (line, other)]
    server.execute(f'DROP SCHEMA "{schema}_old" CASCADE'.encode())
    assert counts == [2, 1]
