"""Opening: what becomes a store, what is refused, and that what is refused is left as it was."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.errors import Damaged, InvalidArgument, NewerFormat, NotAStore, ReadOnly, StoreError
from holdfast.stores.sql.transaction import named
from holdfast.stores.sqlite import SQLiteStore, connection, schema
from holdfast.stores.sqlite.connection import PAGE_SIZE, Durability
from holdfast.testing.contract.build import saved, texts_of
from holdfast.threads.scan import thread_named
from holdfast.urls import open_plain
from tests.covers import covers
from tests.stores.sqlite.conftest import NOBODY, Open, finished, forked, output, script
from tests.waiting import DEADLINE

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def pragma(store: SQLiteStore, name: str) -> object:
    assert store.writer.connection is not None
    return store.writer.connection.execute(f"PRAGMA {name}").fetchone()[0]


@covers("A3", "smooth/SqliteCheckpointStore.wal")
@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("normal", 1), ("off", 0)])
def test_settings_are_as_documented(open_store: Open, durability: Durability, synchronous: int) -> None:
    store = open_store(durability=durability)
    expected = {
        "synchronous": synchronous,
        "journal_mode": b"wal",
        "wal_autocheckpoint": 0,
        "page_size": PAGE_SIZE,
        "auto_vacuum": 2,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "fullfsync": 1,
        "checkpoint_fullfsync": 1,
        "temp_store": 2,
        "application_id": 0x686C6466,
        "user_version": 1,
    }
    assert {name: pragma(store, name) for name in expected} == expected


def test_a_setting_that_does_not_take_is_refused(path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store().close()
    monkeypatch.setattr(connection, "PAGE_SIZE", 8192)
    with pytest.raises(StoreError, match=f"page_size is {PAGE_SIZE} instead of 8192"):
        open_store()


def test_readers_cannot_write(store: SQLiteStore) -> None:
    reader = store._readers.take()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM thread")
    store._readers.give(reader)


def test_an_old_sqlite_is_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.36.0")
    with pytest.raises(StoreError, match=r"3\.36\.0 is too old.*3\.37\.0"):
        SQLiteStore(path, namespace="n", durability="full")
    assert not path.exists()


def test_an_unknown_durability_is_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument):
        open_plain(path, namespace="n", durability=cast("Durability", "most"))
    assert not path.exists()


def test_files_are_private(path: Path, store: SQLiteStore) -> None:
    saved(store, "t", "x")
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == ["store.db", "store.db-gate", "store.db-shm", "store.db-turn", "store.db-wal"]
    for entry in path.parent.iterdir():
        assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_an_empty_file_becomes_a_store(path: Path, open_store: Open) -> None:
    path.touch()
    line = saved(open_store(), "t", "x")
    assert texts_of(line.store, line.span()) == [["x"]]


@covers("C5")
@pytest.mark.parametrize("name", ["a store?.db", "100%.db", "#1.db", "ünïcode.db", "a&b=c;d.db", "q'uote.db"])
def test_odd_names(tmp_path: Path, open_store: Open, name: str) -> None:
    saved(open_store(tmp_path / name), "t", "x").store.close()
    assert (tmp_path / name).exists()
    assert thread_named(open_store(tmp_path / name), "t") is not None


def test_a_missing_folder_is_named(tmp_path: Path, open_store: Open) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        open_store(tmp_path / "nowhere" / "store.db")
    assert list(tmp_path.iterdir()) == []


def refused(open_store: Open, path: Path, error: type[StoreError], why: str = "left unchanged") -> None:
    """Opening fails and changes nothing, in the file or beside it."""
    before = {entry: (entry.read_bytes() if entry.is_file() else None) for entry in path.parent.iterdir()}
    with pytest.raises(error, match=f"{path.name}.*({why})"):
        open_store(path)
    assert {entry: (entry.read_bytes() if entry.is_file() else None) for entry in path.parent.iterdir()} == before


def test_a_folder_is_no_store(path: Path, open_store: Open) -> None:
    path.mkdir()
    refused(open_store, path, NotAStore)


@covers("A18", "cortex/CheckpointError.Storage")
def test_a_text_file_is_no_store(path: Path, open_store: Open) -> None:
    path.write_text("Dear diary,\n" * 1000)
    refused(open_store, path, NotAStore)


def test_a_short_file_is_no_store(path: Path, open_store: Open) -> None:
    path.write_bytes(b"x")
    refused(open_store, path, NotAStore, "not a database")


HOT = """
import os, signal, sqlite3, sys
owner = sqlite3.connect(sys.argv[1], isolation_level=None)
owner.execute("PRAGMA cache_size = 2")
owner.execute("CREATE TABLE IF NOT EXISTS diary (entry)")
owner.execute("INSERT INTO diary VALUES (randomblob(100000))")
owner.execute("BEGIN")
owner.execute("UPDATE diary SET entry = randomblob(100000)")
owner.execute("INSERT INTO diary SELECT randomblob(100000) FROM diary")
os.kill(os.getpid(), signal.SIGKILL)
"""


def crash(path: Path, *, journal: str = "DELETE") -> None:
    """Have its owner die in the middle of a transaction."""
    owner = sqlite3.connect(path)
    owner.execute(f"PRAGMA journal_mode = {journal}")
    owner.close()
    child = script(HOT, path)
    child.communicate(timeout=DEADLINE)
    assert path.with_name(f"{path.name}-{'wal' if journal == 'WAL' else 'journal'}").stat().st_size > 0


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_what_a_crash_left_of_another_program_is_left_to_it(path: Path, open_store: Open, journal: str) -> None:
    crash(path, journal=journal)
    refused(open_store, path, NotAStore, "another program")


def test_what_a_crash_left_of_a_newer_store_is_left_to_it(path: Path, open_store: Open) -> None:
    open_store().close()
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 7")
    later.close()
    crash(path)
    refused(open_store, path, NewerFormat, "format 7")


def test_a_creation_that_was_cut_off_before_its_header_is_finished(path: Path, open_store: Open) -> None:
    """Power can fail when the journal is on the disk and of the store's pages only some are, in any order."""
    crash(path)
    with path.open("r+b") as file:
        file.write(bytes(512))
    journal = bytearray(path.with_name("store.db-journal").read_bytes())
    journal[16:20] = bytes(4)  # the pages the file had before: none
    path.with_name("store.db-journal").write_bytes(journal)
    refused(open_store, path, NotAStore, "damaged")
    path.with_name("store.db-gate").touch()
    line = saved(open_store(), "t", "x")
    assert texts_of(line.store, line.span()) == [["x"]]


def test_a_store_is_recognised_in_the_middle_of_a_checkpoint(path: Path, open_store: Open) -> None:
    """The first page tells how long the file is, and is written before the last."""
    saved(open_store(), "t", *["x"] * 20).store.close()
    os.truncate(path, path.stat().st_size - PAGE_SIZE)
    connection._recognise(str(path))


def test_a_link_leads_to_the_same_gate(path: Path, open_store: Open) -> None:
    saved(open_store(), "t", "x")
    folder = path.with_name("elsewhere")
    folder.mkdir()
    (folder / "link.db").symlink_to(path)
    line = saved(open_store(folder / "link.db"), "u", "y")
    assert texts_of(open_store(), line.span()) == [["y"]]
    assert [entry.name for entry in folder.iterdir()] == ["link.db"]


@pytest.mark.parametrize("wal", [False, True])
def test_a_database_of_somebody_else_is_no_store(path: Path, open_store: Open, wal: bool) -> None:
    foreign = sqlite3.connect(path)
    if wal:
        foreign.execute("PRAGMA journal_mode = WAL")
    foreign.execute("CREATE TABLE diary (entry TEXT)")
    foreign.commit()
    foreign.close()
    refused(open_store, path, NotAStore)


def test_an_empty_database_of_somebody_else_is_no_store(path: Path, open_store: Open) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE diary (entry TEXT)")
    foreign.execute("DROP TABLE diary")
    foreign.commit()
    foreign.close()
    refused(open_store, path, NotAStore)


def test_a_damaged_header_is_refused(path: Path, open_store: Open) -> None:
    saved(open_store(), "t", "x").store.close()
    stored = bytearray(path.read_bytes())
    stored[:16] = bytes(16)
    path.write_bytes(stored)
    with pytest.raises(NotAStore, match="damaged"):
        open_store()
    assert path.read_bytes() == stored


@covers("G4", "continuum/ChecksumUtils version")
def test_a_newer_store_is_refused_by_name(path: Path, open_store: Open) -> None:
    open_store().close()
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 7")
    later.close()
    before = path.read_bytes()
    with pytest.raises(NewerFormat, match=r"format 7.*Upgrade"):
        open_store()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON checkpoint BEGIN DELETE FROM thread; END",
        "CREATE VIEW v AS SELECT * FROM thread",
        "CREATE INDEX thread_by_size ON thread (size)",
        "CREATE TABLE other (a)",
    ],
)
def test_a_file_with_other_objects_than_ours_is_not_opened(path: Path, open_store: Open, planted: str) -> None:
    store = open_store(path)
    saved(store, "a", "x")
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(planted)
    with pytest.raises(Damaged, match="altered"):
        open_store(path)


def test_a_creation_that_was_cut_off_is_finished(path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off before each statement in turn, until it gets through; each time the next open makes a store of it."""

    class Cut(Exception):
        pass

    class Fragile(sqlite3.Connection):
        left = 0

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            Fragile.left -= 1
            if Fragile.left < 0:
                raise Cut
            return super().execute(*arguments)

    original = sqlite3.connect

    def fragile(*arguments: Any, **options: Any) -> Any:
        options["factory"] = Fragile
        return original(*arguments, **options)

    for allowed in range(200):
        at = path.with_name(f"{allowed}.db")
        Fragile.left = allowed
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", fragile)
            try:
                SQLiteStore(at, namespace="default", durability="off").close()
            except Cut:
                finished_ = False
            else:
                finished_ = True
        line = saved(open_store(at), "t", "x")
        assert texts_of(line.store, line.span()) == [["x"]]
        if finished_:
            break
    else:
        pytest.fail("it never got through")
    assert allowed > 20


def test_many_create_the_same_store_at_once(path: Path) -> None:
    source = """
import sys
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contract.build import saved
store = SQLiteStore(sys.argv[1], namespace="default", durability="off")
saved(store, sys.argv[2], "x")
store.close()
"""
    children = [script(source, path, str(n)) for n in range(4)]
    for child in children:
        output(child)
    store = SQLiteStore(path, namespace="default", durability="off")
    assert [thread.name for thread in store.threads(prefix="", after=None, limit=10)] == [str(n) for n in range(4)]
    store.close()


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder that everybody may look into and only its owner may change."""
    folder = tmp_path / "public"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


def without_rights(folder: Path, work: Callable[[], None]) -> None:
    """Run `work` as somebody who may read the folder's files and write nothing."""
    for entry in folder.iterdir():
        entry.chmod(0o444)
    folder.chmod(0o555)
    try:
        finished(forked(work, user=NOBODY))
    finally:
        folder.chmod(0o755)


def test_a_store_that_may_only_be_read(public: Path, open_store: Open) -> None:
    path = public / "store.db"
    line = saved(open_store(path), "t", "x")

    def work() -> None:
        store = SQLiteStore(path, namespace="default", durability="full")
        assert texts_of(store, line.span()) == [["x"]]
        with pytest.raises(ReadOnly):
            saved(store, "new", "y")
        assert thread_named(store, "t") is not None
        assert list(store.check()) == []
        store.close()

    without_rights(public, work)
    assert thread_named(line.store, "new") is None


def test_a_read_only_store_without_a_writer_opens_or_says_why(public: Path, open_store: Open) -> None:
    path = public / "store.db"
    saved(open_store(path), "t", "x").store.close()

    def work() -> None:
        with pytest.raises(StoreError, match="without its -wal and -shm files"):
            SQLiteStore(path, namespace="default", durability="full")

    without_rights(public, work)


def test_a_missing_store_in_a_folder_that_may_not_be_written(public: Path) -> None:
    def work() -> None:
        with pytest.raises(ReadOnly, match="does not exist"):
            SQLiteStore(public / "store.db", namespace="default", durability="full")

    without_rights(public, work)
    assert list(public.iterdir()) == []


# Statements that read a whole table or index on purpose.
SCANS = {"forks_in_index", "thread_counts", "threads_newest", "threads_containing", "tally", "metadata"}


@covers("H4")
def test_every_statement_is_valid_and_uses_the_index_it_names(store: SQLiteStore) -> None:
    reader = store._readers.take()
    reads = {*schema.statements("reads"), *named("holdfast.stores.sql", "reads")} - SCANS
    for name, statement in schema.statements().items():
        parameters = [1] * max((int(n) for n in re.findall(r"\?(\d+)", statement)), default=0)
        if statement.startswith("PRAGMA"):
            continue
        plan = reader.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
        if name in reads:
            scans = [row[3] for row in plan if row[3].startswith(b"SCAN") and row[3] != b"SCAN CONSTANT ROW"]
            assert not scans, name
    store._readers.give(reader)
