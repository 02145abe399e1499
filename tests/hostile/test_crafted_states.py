"""Checkpoints whose lists have tables without end, or items that nobody stored: loading them ends soon, as damage."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast.codec import msgpack
from holdfast.delta import salvage
from holdfast.delta.parts import Ext, Kind, SeriesShape
from holdfast.errors import Damaged
from holdfast.stores import segments
from holdfast.stores.contract import Refs, Span
from tests.crash.bounds import held_to, soon
from tests.hostile.test_crafted import set_checkpoint, set_segment

SECONDS = 60
MEMORY = 512 << 20
MUCH = 1 << 48  # the most that a skeleton may say
NODES, ITEMS = 16, 18  # logs that the first save opened


def set_state(connection: sqlite3.Connection, shape: SeriesShape, *spans: Span, size: int = MUCH) -> None:
    """Make the state of checkpoint 2 a list of that shape, and of that size."""
    body = msgpack.extension(Ext.SERIES, msgspec.msgpack.encode(shape))
    skeleton = msgspec.msgpack.encode((1, (0, 0), (), size, body))
    set_checkpoint(connection, 2, refs=Refs(spans), skeleton=skeleton)


def tables_without_end(connection: sqlite3.Connection) -> None:
    set_state(connection, SeriesShape(Kind.LIST, 1 << 62, 1, 1), Span(0, ITEMS, 0, 1, 1, 1))


def a_table_that_names_itself(connection: sqlite3.Connection) -> None:
    itself = Span(0, NODES, 0, 1, 2, 2)
    set_table(connection, itself)
    set_state(connection, SeriesShape(Kind.LIST, 1 << 62, 1, 1), itself)


def a_table_that_names_itself_often(connection: sqlite3.Connection) -> None:
    itself = Span(0, NODES, 0, 1, 2, 2)
    set_table(connection, *[itself] * 40)
    set_state(connection, SeriesShape(Kind.LIST, 12, 1, 1), itself, size=100_000)


def set_table(connection: sqlite3.Connection, *spans: Span) -> None:
    set_segment(connection, 2, [[[NODES, 0, 1]], 4, [[Refs(spans)]]], struct.pack("<I", 0), segments.RAW)


def items_that_nobody_stored(connection: sqlite3.Connection) -> None:
    set_state(connection, SeriesShape(Kind.LIST, 0, 1, 1 << 40), Span(0, ITEMS, 0, 1 << 40, 1, 2))


def a_lost_table_of_endless_items(connection: sqlite3.Connection) -> None:
    set_state(connection, SeriesShape(Kind.LIST, 1, 1, 1 << 40), Span(0, NODES, 7, 1, 1, 2))


def a_table_of_items_that_nobody_stored(connection: sqlite3.Connection) -> None:
    set_table(connection, *(Span(0, ITEMS, n << 30, 1 << 30, 1, 2) for n in range(1, 9)))
    set_state(connection, SeriesShape(Kind.LIST, 1, 1, 8 << 30), Span(0, NODES, 0, 1, 2, 2))


CRAFTED: dict[str, Callable[[sqlite3.Connection], None]] = {
    "tables without end": tables_without_end,
    "a table that names itself": a_table_that_names_itself,
    "a table that names itself often": a_table_that_names_itself_often,
    "items that nobody stored": items_that_nobody_stored,
    "a lost table of endless items": a_lost_table_of_endless_items,
    "a table of items that nobody stored": a_table_of_items_that_nobody_stored,
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        for saves in (1, 2):
            hf.thread("main").save({"messages": [{"content": f"message {n} " + "x" * 60} for n in range(50 * saves)]})
    return path


@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_it_is_damage_soon_and_in_little_memory(
    name: str, partial: bool, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvage, "_MARKS_MAX", 1 << 12)  # each is looked for: a million takes minutes
    with contextlib.closing(sqlite3.connect(store)) as connection:
        CRAFTED[name](connection)
        connection.commit()
    with soon(SECONDS), held_to(MEMORY), holdfast.open(store, durability="off") as hf:
        thread = hf.thread("main")
        with pytest.raises(Damaged):
            thread.load("@2", partial=partial)
        assert not hf.verify().ok


def test_the_store_that_is_forged_is_what_the_forger_thinks(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        (blob,) = connection.execute("SELECT cells FROM checkpoint WHERE row_key = ?", (segments.key(1, 1),)).fetchone()
        assert segments.open_(blob, segments.context_of(segments.key(1, 1)))[0].ranges == ((ITEMS, 0, 50),)
        set_state(connection, SeriesShape(Kind.LIST, 0, 1, 1), Span(0, ITEMS, 0, 1, 1, 1), size=86)
        connection.commit()
    with holdfast.open(store, durability="off") as hf:
        assert hf.thread("main").load("@2").state == [{"content": "message 0 " + "x" * 60}]
