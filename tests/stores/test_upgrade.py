"""A store of an earlier format is upgraded when a program opens it. A store of a later format is left unchanged."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.cli.main import main
from holdfast.errors import NewerFormat
from holdfast.stores.log.device import FORMAT, MARKER
from holdfast.stores.postgres import schema as postgres
from holdfast.stores.sql.transaction import text_of
from holdfast.stores.sqlite import schema as sqlite
from tests.covers import covers
from tests.stores.postgres.server import address_at, database, schema_of

# -- earlier formats: there is none yet, so the step to the next one is made up ----------------------------------------


@covers("G4")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_earlier_format_is_upgraded_when_it_is_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = earlier(tmp_path, kind, monkeypatch)
    for _ in range(2):
        with holdfast.open(url) as hf:
            latest = hf.thread("a").latest()
            assert latest is not None
            assert latest.state == {"n": 1}
            assert hf.verify().ok
        assert made_up(kind, tmp_path) == [(7,)]
    monkeypatch.undo()
    with pytest.raises(NewerFormat):
        holdfast.open(url)


READING = [
    ["threads"],
    ["log", "a"],
    ["show", "a"],
    ["effects", "a"],
    ["inbox"],
    ["stats"],
    ["verify"],
    ["fingerprint"],
    ["export", "-o", "exported"],
    ["backup", "copy"],
]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_command_does_not_upgrade_an_earlier_format_unless_that_is_asked_for(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = earlier(tmp_path, kind, monkeypatch)
    before = look(kind, tmp_path)
    for arguments in READING:
        assert main([*arguments, "--store", url]) != 0, arguments
        assert "format 1" in (told := capsys.readouterr().err), told
        assert "it was left unchanged. Run `holdfast optimize`" in told
        assert look(kind, tmp_path) == before, arguments
    assert main(["optimize", "--store", url]) == 0
    assert main(["show", "a", "--store", url]) == 0
    assert made_up(kind, tmp_path) == [(7,)]


def look(kind: str, folder: Path) -> object:
    return contents(folder) if kind == "sqlite" else rows(schema_of(folder))


def earlier(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with a thread, and a format that comes after that of the store."""
    url = str(tmp_path / "store") if kind == "sqlite" else address_at(tmp_path)
    with holdfast.open(url) as hf:
        hf.thread("a").save({"n": 1})
    steps = {"next.sql": "CREATE TABLE made_up (n INTEGER PRIMARY KEY);\nINSERT INTO made_up VALUES (7);\n"}
    if kind == "postgres":
        steps = {
            "next.sql": "CREATE TABLE hf.made_up (n bigint);\nINSERT INTO hf.made_up VALUES (7);\n",
            "none.sql": "",
        }
    for module, step in ((sqlite, "next.sql"), (postgres, ("next.sql", "none.sql"))):
        monkeypatch.setattr(
            module, "text_of", lambda package, file: steps[file] if file in steps else text_of(package, file)
        )
        monkeypatch.setattr(module, "VERSION", 2)
        monkeypatch.setattr(module, "STEPS", {**module.STEPS, 2: step})
    return url


def made_up(kind: str, folder: Path) -> list[tuple[int]]:
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "store")) as connection:
            return connection.execute("SELECT n FROM made_up").fetchall()
    with psycopg.connect(database()) as server:
        table = sql.Identifier(schema_of(folder), "made_up")
        return server.execute(sql.SQL("SELECT n FROM {}").format(table)).fetchall()


# -- later formats ----------------------------------------------------------------------------------------------------


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
    marker = folder / "store" / MARKER
    told = json.loads(marker.read_text())
    marker.write_text(json.dumps({**told, "format": FORMAT + 1, "new": "field"}))
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
def test_a_later_format_is_refused_and_left_as_it_was(
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
