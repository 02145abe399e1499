"""Stores that earlier versions wrote are read for ever; a store of a later version is refused, and left as it was."""

from __future__ import annotations

import json
import lzma
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast import Cipher, Happened, Holdfast
from holdfast.errors import NewerFormat
from holdfast.stores.log import folder as folders
from holdfast.stores.postgres import schema as postgres
from holdfast.stores.sqlite import schema as sqlite
from tests.codec.strategies import identical
from tests.covers import covers
from tests.fixtures import write
from tests.stores.postgres.server import address_at, database, schema_of

FIXTURES = Path(write.__file__).parent
KEPT = sorted(told.parent.relative_to(FIXTURES).as_posix() for told in FIXTURES.glob("format-*/*/told.json"))
ENCRYPTED = [kept for kept in KEPT if not kept.startswith("format-1/")]
MOST = 200_000  # bytes that all fixtures may have


class Kept:
    """A copy of a kept store, which a test may write to."""

    def __init__(self, name: str, folder: Path) -> None:
        self._source = FIXTURES / name
        self._folder = folder
        self.told: dict[str, Any] = json.loads((self._source / "told.json").read_text().replace("LARGE", write.LARGE))
        self.url = self._restored(name.partition("/")[2])

    def open(self, namespace: str = write.NAMESPACE, cipher: Cipher | None = None) -> Holdfast:
        return holdfast.open(self.url, namespace=namespace, tools=[pay], cipher=cipher)

    def _restored(self, kind: str) -> str:
        if kind == "sqlite":
            for name in ("store", "store-wal"):
                (self._folder / name).write_bytes(lzma.decompress((self._source / f"{name}.xz").read_bytes()))
            return str(self._folder / "store")
        if kind == "directory":
            shutil.copytree(self._source / "store", self._folder / "store")
            return f"dir:{self._folder / 'store'}"
        schema = schema_of(self._folder)
        dump = (self._source / "store.sql").read_text().replace(write.SCHEMA, schema)
        with psycopg.connect(database(), autocommit=True) as connection:
            connection.execute(dump.encode())
        return address_at(self._folder)


@holdfast.tool(in_doubt="ask")
def pay(amount: int) -> str:
    raise AssertionError(f"{amount} is paid twice")


def think(turn: int) -> str:
    raise AssertionError(f"the model is asked again for turn {turn}")


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return Kept(request.param, tmp_path)


# -- earlier versions --------------------------------------------------------------------------------------------------


def test_every_format_is_kept() -> None:
    assert [f"format-{number}/sqlite" in KEPT for number in range(1, sqlite.VERSION + 1)] == [True] * sqlite.VERSION
    assert [f"format-{number}/postgres" in KEPT for number in range(1, postgres.VERSION + 1)] == [
        True
    ] * postgres.VERSION
    assert sum(path.stat().st_size for path in FIXTURES.rglob("format-*/**/*") if path.is_file()) < MOST


@covers("G4")
@pytest.mark.parametrize("kept", KEPT, indirect=True)
def test_every_state_is_what_was_saved(kept: Kept) -> None:
    with kept.open() as hf:
        told = kept.told["threads"]
        assert {info.name for info in hf.threads()} == {*told, *kept.told["journals"]}
        for name, thread in told.items():
            require_as_told(hf, name, thread)
        report = hf.verify()
        assert report.ok, report.problems


@pytest.mark.parametrize("kept", KEPT, indirect=True)
def test_every_journal_is_what_was_recorded(kept: Kept) -> None:
    with kept.open() as hf:
        for name, told in kept.told["journals"].items():
            calls = [effect for effect in hf.effects(name) if effect.name in ("think", "pay")]
            status = {"begun": "in_doubt"}
            assert [[e.name, status.get(e.status, e.status), e.result] for e in calls] == told, name
        [question] = hf.waiting()
        assert (question.thread, question.name, question.payload) == ("waiting-run", "approve", {"amount": 7})
        [interrupted] = hf.interrupted()
        assert interrupted.thread == "interrupted-run"
        assert [(effect.name, effect.arguments) for effect in interrupted.in_doubt] == [("pay", {"amount": 7})]


@pytest.mark.parametrize("kept", KEPT, indirect=True)
def test_runs_go_on_where_they_were(kept: Kept) -> None:
    with kept.open() as hf:
        hf.answer("waiting-run", "approve", True)
        with hf.run("waiting-run") as run:
            for _ in run.steps():
                run.state["said"].append(run.model(think, 0))
                run.finish(run.wait("approve", {"amount": 7}))
                break
        assert run.result is True
        assert run.state == {"said": ["thought 0"]}
        hf.settle("interrupted-run", 2, Happened("paid"))
        with hf.run("interrupted-run") as run:
            for _ in run.steps():
                run.state["said"].append(run.model(think, 0))
                run.state["said"].append(run.tool("pay", {"amount": 7}))
                run.finish("done")
                break
        assert run.state == {"said": ["thought 0", "paid"]}
        with hf.run("done-run") as run:
            pass
        assert run.result == "all done"


@pytest.mark.parametrize("kept", KEPT, indirect=True)
def test_it_can_be_worked_on(kept: Kept) -> None:
    with kept.open() as hf:
        for name in kept.told["threads"]:
            thread = hf.thread(name)
            before = thread.head()
            assert before is not None
            state = thread.load(before).state
            made = thread.save({"before": state, "n": 1}, label="new")
            assert made.parent == before.id
    with kept.open() as hf:
        for name in kept.told["threads"]:
            latest = hf.thread(name).latest()
            assert latest is not None
            assert latest.label == "new"
        for thread in kept.told["threads"].values():
            thread.pop("head")
        for name, thread in kept.told["threads"].items():
            require_as_told(hf, name, thread)
        hf.thread("talk").fork("another", at=kept.told["threads"]["talk"]["checkpoints"][3]["id"])
        hf.thread("talk").rewind(kept.told["threads"]["talk"]["checkpoints"][1]["id"])
        hf.thread("long").prune(holdfast.Retention(keep_last=1))
        hf.thread("fork").drop()
        hf.optimize()
        report = hf.verify()
        assert report.ok, report.problems


@pytest.mark.parametrize("kept", ENCRYPTED, indirect=True)
def test_what_was_encrypted_is_opened_with_its_key(kept: Kept) -> None:
    with kept.open(namespace=write.SEALED, cipher=Cipher(keys=write.KEYS, current="2026-11")) as hf:
        latest = hf.thread("secret").latest()
        assert latest is not None
        assert (latest.state, latest.label) == ({"text": "kept to ourselves"}, "private")
        assert {info.name: info.agent for info in hf.threads()} == {
            "secret": None,
            "large": "keeper",
            "fork": "keeper",
            "waiting-run": None,
        }
        for name in ("large", "fork"):
            latest = hf.thread(name).latest()
            assert latest is not None
            assert latest.state == {"text": write.LARGE, "messages": [{"n": n} for n in range(80)]}
        assert hf.verify().ok
        hf.answer("waiting-run", "approve", True)
        with hf.run("waiting-run") as run:
            for _ in run.steps():
                run.state["said"].append(run.model(think, 0))
                run.finish(run.wait("approve", {"amount": 7}))
                break
        assert (run.result, run.state) == (True, {"said": ["thought 0"]})


def require_as_told(hf: Holdfast, name: str, told: dict[str, Any]) -> None:
    """A thread holds the checkpoints that the JSON names, and all that is said of them."""
    thread = hf.thread(name)
    if "head" in told:
        head = thread.head()
        assert head is not None
        assert head.seq == told["head"]
        assert [found.seq for found in thread.history()] == [each["seq"] for each in reversed(told["checkpoints"])]
    for each in told["checkpoints"]:
        about = dict(each)
        state = about.pop("state")
        found = thread.load(about["id"])
        assert identical(found.state, write.EVERY_TYPE if state is None else state), (name, found.seq)
        shown = {key: list(value) if key == "tags" else value for key, value in fields(found, about).items()}
        assert shown == about


def fields(checkpoint: holdfast.Checkpoint, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in names}


# -- later versions ----------------------------------------------------------------------------------------------------


def later_sqlite(folder: Path) -> tuple[str, Callable[[], object]]:
    path = folder / "store"
    holdfast.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {sqlite.VERSION + 1}")
    connection.close()
    return str(path), lambda: contents(folder)


def later_sqlite_in_use(folder: Path) -> tuple[str, Callable[[], object]]:
    """The version is in the WAL alone, as a killed process leaves it. Whoever looks makes SQLite's index of the WAL."""
    path = folder / "elsewhere"
    holdfast.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA user_version = {sqlite.VERSION + 1}")
    there = folder / "there"
    there.mkdir()
    for name in ("", "-wal"):
        shutil.copyfile(f"{path}{name}", there / f"store{name}")
    connection.close()
    return str(there / "store"), lambda: {name: data for name, data in contents(there).items() if name != "store-shm"}


def later_directory(folder: Path) -> tuple[str, Callable[[], object]]:
    url = f"dir:{folder / 'store'}"
    with holdfast.open(url) as hf:
        hf.thread("a").save({"n": 1})
    marker = folder / "store" / folders.MARKER
    told = json.loads(marker.read_text())
    marker.write_text(json.dumps({**told, "format": folders.FORMAT + 1, "new": "field"}))
    return url, lambda: contents(folder)


def later_postgres(folder: Path) -> tuple[str, Callable[[], object]]:
    url, schema = address_at(folder), schema_of(folder)
    with holdfast.open(url) as hf:
        hf.thread("a").save({"n": 1})
    with psycopg.connect(database(), autocommit=True) as connection:
        setting = sql.Identifier(schema, "setting")
        newer = postgres.VERSION + 1
        connection.execute(sql.SQL("UPDATE {} SET value = %s WHERE name = 'format'").format(setting), (newer,))
    return url, lambda: rows(schema)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and its bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(schema: str) -> dict[str, list[str]]:
    """Every table, its columns and its rows, with the number of the transaction that wrote each."""
    with psycopg.connect(database(), autocommit=True) as connection:
        found = connection.execute(
            "SELECT table_name::text, array_agg(column_name::text ORDER BY ordinal_position)::text "
            "FROM information_schema.columns WHERE table_schema = %s GROUP BY 1",
            (schema,),
        ).fetchall()
        return {
            f"{table} {columns}": [
                str(row)
                for row in connection.execute(
                    sql.SQL("SELECT xmin::text, t::text FROM {} t ORDER BY ctid").format(sql.Identifier(schema, table))
                )
            ]
            for table, columns in found
        }


@covers("G4", "continuum/ChecksumUtils version")
@pytest.mark.parametrize("make", [later_sqlite, later_sqlite_in_use, later_directory, later_postgres])
def test_a_later_version_is_refused_and_left_as_it_was(
    make: Callable[[Path], tuple[str, Callable[[], object]]], tmp_path: Path
) -> None:
    url, look = make(tmp_path)
    before = look()
    for _ in range(2):
        with pytest.raises(NewerFormat, match="left unchanged"):
            holdfast.open(url)
        with pytest.raises(NewerFormat, match="left unchanged"):
            holdfast.open(url, namespace="another")
    assert look() == before
