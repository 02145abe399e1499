"""Mending: threads whose records are gone come back under their own name, or one of nobody else's, to nobody else."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged
from holdfast.types import RepairResult
from tests.threads.wholes import CIPHER, execute, fill


def save(path: Path, namespace: str, *names: str) -> None:
    with holdfast.open(path, namespace=namespace, durability="off") as hf:
        for name in names:
            hf.thread(name).save({"of": f"{namespace} {name}"})


def forget(path: Path, name: str, *, in_indexes: bool = True) -> int:
    """Remove the record of a thread; its number. Without `in_indexes`, as where a page of the table is lost."""
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT thread_no FROM thread WHERE name = ?", (name.encode(),)).fetchone()
    indexes: list[tuple[Any, ...]] = []
    if not in_indexes:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            indexes = connection.execute("SELECT * FROM sqlite_schema WHERE name LIKE 'thread_by_%'").fetchall()
            connection.execute("DELETE FROM sqlite_schema WHERE name LIKE 'thread_by_%'")
    execute(path, f"DELETE FROM thread WHERE thread_no = {number}")  # noqa: S608 - a number
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", indexes)
    return int(number)


def repaired(path: Path, namespace: str = "default") -> tuple[RepairResult, dict[str, Any]]:
    target = path.with_name("new.db")
    with holdfast.open(path, namespace=namespace, durability="off") as hf:
        done = hf.repair(target)
    with holdfast.open(target, namespace=namespace, durability="off") as new:
        assert new.verify().ok
        states: dict[str, Any] = {}
        for info in new.threads():
            latest = new.thread(info.name).latest()
            assert latest is not None
            states[info.name] = latest.state["of"]
        return done, states


def test_what_may_be_of_another_namespace_is_given_to_none_and_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    save(path, "one", "a")
    save(path, "other", "b", "c")
    number = forget(path, "b")
    done, states = repaired(path, "one")
    assert states == {"a": "one a"}
    told = f"the thread with number {number} is lost"
    assert [(lost.thread, told in lost.what) for lost in done.lost] == [(None, True)]


def test_a_run_says_whose_thread_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    save(path, "other", "b")
    for namespace in ("one", "other"):
        with (
            holdfast.open(path, namespace=namespace, durability="off") as hf,
            hf.run(f"run of {namespace}", start={"of": namespace}) as run,
        ):
            run.finish()
    number = forget(path, "run of one")
    forget(path, "run of other")
    done, states = repaired(path, "one")
    assert states == {f"recovered thread {number}": "one"}
    assert [(lost.thread, "its name is lost" in lost.what) for lost in done.lost] == [(*states, True)]


def test_nobody_is_put_in_the_place_of_a_thread_that_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    save(path, "default", "a", "recovered thread 1", "recovered thread 1 (2)")
    assert forget(path, "a") == 1
    done, states = repaired(path)
    assert states == {
        "recovered thread 1": "default recovered thread 1",
        "recovered thread 1 (2)": "default recovered thread 1 (2)",
        "recovered thread 1 (3)": "default a",
    }
    assert not done.ok


def test_a_name_that_the_indexes_still_have_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    save(path, "other", "a")
    save(path, "one", "a", "b")
    forget(path, "b", in_indexes=False)
    done, states = repaired(path, "one")
    assert states == {"a": "one a", "b": "one b"}
    assert done.ok


PAGES = None if os.environ.get("HOLDFAST_LAB") == "full" else 12


@pytest.mark.parametrize("start", [0, 400], ids=["all", "most"])
def test_no_page_that_is_lost_takes_a_thread_with_it_in_silence(start: int, tmp_path: Path) -> None:
    path, new = tmp_path / "store.db", tmp_path / "new.db"
    with holdfast.open(path, durability="off") as hf:
        fill(hf)
        before = {info.name: [c.id for c in hf.thread(info.name).history()] for info in hf.threads()}
    whole = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'thread'").fetchone()
    opened = 0
    for page in [root, *random.Random(start).sample(range(2, len(whole) // 2048 + 1), PAGES or len(whole) // 2048 - 1)]:
        changed = bytearray(whole)
        changed[(page - 1) * 2048 + start : page * 2048] = bytes(2048 - start)
        for each in tmp_path.iterdir():
            each.unlink()
        path.write_bytes(changed)
        with suppress(Damaged), holdfast.open(path, durability="off") as hf:
            done = hf.repair(new)
            opened += 1
            with holdfast.open(new, durability="off") as copy:
                assert copy.verify().ok, page
                after = {info.name: [c.id for c in copy.thread(info.name).history()] for info in copy.threads()}
            assert after == before or not done.ok, page
            assert page != root or after == before
    assert opened


def test_keys_are_found_though_their_index_has_lost_them(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with holdfast.open(path, durability="off", cipher=CIPHER) as hf:
        hf.thread("a").save({"n": 1})
    newest = "rowid = (SELECT max(rowid) FROM data_key)"
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute(f"SELECT rowid, * FROM data_key WHERE {newest}").fetchall()  # noqa: S608 - a constant
        connection.execute(f"DELETE FROM data_key WHERE {newest}")  # noqa: S608 - as above
        connection.execute("PRAGMA writable_schema = ON")
        index = connection.execute("SELECT * FROM sqlite_schema WHERE name = 'data_key_by_id'").fetchall()
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'data_key_by_id'")
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = "(rowid, namespace, id, name, wrapped, thread_no)"
        connection.executemany(f"INSERT INTO data_key {columns} VALUES (?, ?, ?, ?, ?, ?)", rows)  # noqa: S608 - as above
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", index)
    with holdfast.open(path, durability="off", cipher=CIPHER) as hf:
        done = hf.repair(tmp_path / "new.db")
    assert (done.ok, done.checkpoints) == (True, 1)
