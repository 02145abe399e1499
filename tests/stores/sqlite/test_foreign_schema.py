"""A file with a damaged schema, or with objects of another program, is not opened; a repair copies what is sound."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged, StoreError
from holdfast.maintenance import untouched

FLIPS = 400 if os.environ.get("HOLDFAST_LAB") == "full" else 40


def filled(path: Path) -> None:
    with holdfast.open(path, durability="off") as hf:
        for name in ("a", "b"):
            hf.thread(name).save({"of": name})


def repaired(path: Path, target: Path) -> dict[str, object]:
    """Repair a file as the command line does, and return the latest states in the new store."""
    with untouched(path, near=target) as address, holdfast.open(address) as hf:
        hf.repair(target)
    with holdfast.open(target) as hf:
        assert hf.verify().ok
        return {info.name: hf.thread(info.name).latest().state for info in hf.threads()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER thread AFTER INSERT ON checkpoint BEGIN DELETE FROM thread; END",
        "CREATE TABLE other (x)",
        "CREATE VIEW other AS SELECT * FROM thread",
        "CREATE INDEX other ON checkpoint (step)",
    ],
)
def test_objects_of_another_program(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "agent.db"
    filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    before = path.read_bytes()
    with pytest.raises(StoreError):
        holdfast.open(path)
    assert repaired(path, tmp_path / "new.db") == {"a": {"of": "a"}, "b": {"of": "b"}}
    assert path.read_bytes() == before


def test_a_missing_index_or_table(tmp_path: Path) -> None:
    """A store without one of its objects is not opened. A repair adds it, and copies what the others hold."""
    path = tmp_path / "agent.db"
    filled(path)
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        ours = "SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'"
        objects = connection.execute(ours).fetchall()
    assert len(objects) > 20
    for kind, name in objects:
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"DROP {kind} {name}")
        before = path.read_bytes()
        with pytest.raises(Damaged, match="altered"):
            holdfast.open(path)
        states = repaired(path, tmp_path / f"{name}.db")
        if name == "thread":
            assert sorted(map(str, states.values())) == ["{'of': 'a'}", "{'of': 'b'}"]  # the names are lost
        elif name == "checkpoint":
            assert not any(states.values())
        else:
            assert states == {"a": {"of": "a"}, "b": {"of": "b"}}, name
        assert path.read_bytes() == before


def test_flipped_bits_in_the_text_of_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    filled(path)
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        texts = [sql.encode() for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]
    starts = [(content.find(text[:40]), len(text)) for text in texts]
    chance = random.Random(7)
    for n in range(FLIPS):
        start, size = chance.choice([(start, size) for start, size in starts if start > 0])
        at = start + chance.randrange(min(size, 400))
        rotten = bytearray(content)
        rotten[at] ^= 1 << chance.randrange(7)
        path.write_bytes(rotten)
        assert repaired(path, tmp_path / f"new{n}.db") == {"a": {"of": "a"}, "b": {"of": "b"}}, at
