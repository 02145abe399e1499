"""Walking: a store gives its checkpoints many at once, and what it gives is what it gives one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from holdfast import Damaged, Holdfast
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.transaction import PostgresTransaction
from holdfast.stores.sqlite.transaction import SQLiteTransaction
from holdfast.threads.scan import checkpoint_at, last_of, numbered, thread_named, with_refs
from tests.stores.postgres.server import schema_of
from tests.threads.tables import Tables
from tests.threads.wholes import fill, flip


def test_it_is_what_each_checkpoint_is_by_itself(hf: Holdfast) -> None:
    fill(hf)
    store = hf.context.store
    for info in hf.threads():
        row = thread_named(store, info.name)
        assert row is not None
        number, last = row.position.thread, row.position.last
        single = [checkpoint_at(store, number, seq) for seq in range(1, last + 1)]
        assert store.walk(number, after=0, limit=1000) == single
        assert store.walk(number, after=0, limit=3) == single[:3]
        assert store.walk(number, after=2, limit=last) == single[2:]
        assert store.walk(number, after=last, limit=5) == []
        assert store.walk(number, after=0, limit=0) == []
        bare = [None if each is None else replace(each, meta=b"", skeleton=b"") for each in single]
        assert store.walk(number, after=0, limit=1000, refs_only=True) == bare
        assert store.walk(number, after=2, limit=2, refs_only=True) == bare[2:4]
    assert store.walk(10_000, after=0, limit=5) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_in_the_place_of_one_that_cannot_be_read_is_what_is_wrong(kind: Any, tmp_path: Path) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        fill(hf)
    where = tables.in_thread("t")
    tables.change_blob("checkpoint", "skeleton", f"{where} AND row_key & 4294967295 = 4", flip)
    tables.execute(f"DELETE FROM checkpoint WHERE {where} AND row_key & 4294967295 = 6")  # noqa: S608 - a number
    with tables.opened() as hf:
        store = hf.context.store
        number = next(each for each, name in _names(hf).items() if name == "t")
        found = store.walk(number, after=2, limit=5)
        assert [isinstance(row, Damaged) or row.seq for row in found] == [3, True, 5, True, 7]
        assert "is missing" in str(found[3])
        bare = store.walk(number, after=2, limit=5, refs_only=True)
        assert [isinstance(row, Damaged) or row.seq for row in bare] == [3, 4, 5, True, 7]
        with pytest.raises(Damaged, match="is missing"):
            list(with_refs(store, number))


def _names(hf: Holdfast) -> dict[int, str]:
    found = {info.name: thread_named(hf.context.store, info.name) for info in hf.threads()}
    return {row.position.thread: name for name, row in found.items() if row is not None}


def test_what_lies_beside_a_damaged_page_of_a_database_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables("postgres", tmp_path)
    with tables.opened() as hf:
        fill(hf)
        store = hf.context.store
        assert isinstance(store, PostgresStore)
        number = next(each for each, name in _names(hf).items() if name == "t")
        before = store.walk(number, after=0, limit=100)
        # What the server reports of a page with a wrong checksum.
        tables.execute(
            "CREATE FUNCTION damaged(bigint) RETURNS boolean LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION USING ERRCODE = ''XX001''; END'"
        )
        schema = schema_of(tables.folder / "store")
        for name in ("walk", "refs"):
            fails = f'SELECT 1 WHERE "{schema}".damaged($1) AND $2::bigint > 0'
            monkeypatch.setitem(cast(dict[str, bytes], store._scope.sql), name, fails.encode())
        assert store.walk(number, after=0, limit=100) == before != []
        bare = [isinstance(row, Damaged) or replace(row, meta=b"", skeleton=b"") for row in before]
        assert store.walk(number, after=0, limit=100, refs_only=True) == bare


def damaged(monkeypatch: pytest.MonkeyPatch, kind: str, damaged: str, what: str) -> None:
    """Let a statement fail as on a damaged page."""
    transaction: Any = SQLiteTransaction if kind == "sqlite" else PostgresTransaction
    ask, rows = transaction.ask, transaction.rows

    def asked(tx: Any, *queries: Any) -> Any:
        if any(name == damaged for name, _ in queries):
            raise Damaged(what)
        return ask(tx, *queries)

    def read(tx: Any, name: str, *args: Any) -> Any:
        if name == damaged:
            raise Damaged(what)
        return rows(tx, name, *args)

    monkeypatch.setattr(transaction, "ask", asked)
    monkeypatch.setattr(transaction, "rows", read)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_damaged_head_is_returned_with_its_thread(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        fill(hf)
        before = hf.context.store.head("fork")
        assert before is not None
    at = before.thread.position.head
    tables.change_blob("checkpoint", "skeleton", f"{tables.in_thread('fork')} AND row_key & 4294967295 = {at}", flip)
    with tables.opened() as hf:
        store = hf.context.store
        head = store.head("fork")
        assert head is not None
        assert head.thread == before.thread
        assert isinstance(head.checkpoint, Damaged)
        with pytest.raises(Damaged):
            hf.thread("fork").latest()
        found = hf.thread("fork").latest(fallback=True)
        assert found is not None
        assert [skipped.seq for skipped in found.skipped] == [at]
        assert {problem.thread for problem in hf.verify().problems} >= {"fork"}

        damaged(monkeypatch, kind, "head", "the page of the head is damaged")
        apart = store.head("fork")
        assert apart is not None
        assert apart.thread == before.thread
        assert isinstance(apart.checkpoint, Damaged)
        assert store.head("origin") is None


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_names_the_threads_beside_a_damaged_one(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(kind, tmp_path)
    with tables.opened() as hf:
        fill(hf)
        names = _names(hf)
        assert _numbered(hf) == names
    tables.execute("UPDATE thread SET step = step + 1 WHERE name = ?", b"fork")
    with tables.opened() as hf:
        found = _numbered(hf)
        [(number, damage)] = [(number, name) for number, name in found.items() if isinstance(name, Damaged)]
        assert names[number] == "fork"
        assert {**found, number: "fork"} == names
        with pytest.raises(Damaged, match=str(damage)):
            last_of(hf.context.store, number)

        damaged(monkeypatch, kind, "threads_by_number", "a page of the table is damaged")
        apart = {each.number: str(each.name) for each in hf.context.store.numbered(after=None, limit=100) if each.name}
        assert apart == {number: str(name) for number, name in found.items()}
        with pytest.raises(Damaged, match="a page of the table"):
            hf.context.store.numbered(after=max(found), limit=100)


def _numbered(hf: Holdfast) -> dict[int, str | Damaged]:
    return {each.number: each.name for each in numbered(hf.context.store) if each.name is not None}
