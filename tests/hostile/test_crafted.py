"""Stores made to keep a reader busy for ever, or to fill its memory: circles, bombs and counts without end."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
import zstandard

import holdfast
from holdfast.errors import Damaged, HoldfastError
from holdfast.stores import rows, segments
from holdfast.stores.contract import Refs, Span
from holdfast.threads import repair, replica
from tests.checksums import checksum_of
from tests.crash.bounds import held_to, soon
from tests.hostile.scene import tour

SECONDS = 60
MEMORY = 200 << 20
WITHIN = 2 << 30  # of addresses: what is asked for and never touched is among them


def set_checkpoint(connection: sqlite3.Connection, seq: int, **changes: object) -> None:
    """Change fields of a checkpoint's record, its refs or its skeleton, and compute its checksums anew."""
    key = segments.key(1, seq)
    found = connection.execute(
        "SELECT step, label, head, meta, refs, skeleton FROM checkpoint WHERE row_key = ?", (key,)
    )
    step, label, head, meta, refs, skeleton = found.fetchone()
    fields = msgspec.to_builtins(rows._decode_head(head[:-4]), builtin_types=(bytes,))
    if "refs" in changes:
        refs = msgspec.msgpack.encode(changes.pop("refs"))
        fields[4] = crc32(refs)
    if "skeleton" in changes:
        skeleton = changes.pop("skeleton")
        assert isinstance(skeleton, bytes)
        fields[5], fields[6] = crc32(skeleton), 0
    names = rows._CheckpointHead.__struct_fields__
    for name, value in changes.items():
        fields[names.index(name)] = value
    packed = msgspec.msgpack.encode(fields)
    sealed = packed + struct.pack("<I", checksum_of(key, step, label, packed, meta))
    statement = "UPDATE checkpoint SET head = ?, refs = ?, skeleton = ? WHERE row_key = ?"
    connection.execute(statement, (sealed, refs, skeleton, key))


def set_thread(connection: sqlite3.Connection, **changes: int) -> None:
    row = list(connection.execute("SELECT * FROM thread WHERE thread_no = 1").fetchone())
    names = rows.StoredThread.__struct_fields__
    if "deleted" in changes:
        changes["deleted_checksum"] = checksum_of(1, changes["deleted"])
    for name, value in changes.items():
        row[names.index(name)] = value
    checksum = msgspec.convert(row[:-1], rows.StoredThread).checksum()
    for name, value in changes.items():
        statement = f"UPDATE thread SET {name} = ?, checksum = ? WHERE thread_no = 1"  # noqa: S608 - names of the schema
        connection.execute(statement, (value, checksum))


def set_segment(connection: sqlite3.Connection, seq: int, header: object, body: bytes, encoding: int) -> None:
    packed = msgspec.msgpack.encode(header)
    blob = segments.seal(
        struct.pack("<BBI", 1, encoding, len(packed)) + packed + body, segments.context_of(segments.key(1, seq))
    )
    connection.execute("UPDATE checkpoint SET cells = ? WHERE row_key = ?", (blob, segments.key(1, seq)))


def parents_in_a_circle(connection: sqlite3.Connection) -> None:
    for seq in range(1, 7):
        set_checkpoint(connection, seq, parent=(0, 7 - seq), deleted=True)


def a_parent_of_itself(connection: sqlite3.Connection) -> None:
    set_checkpoint(connection, 6, parent=(0, 6), deleted=True)


def four_billion_checkpoints(connection: sqlite3.Connection) -> None:
    set_thread(connection, last=(1 << 32) - 1, move=1 << 33)


def a_head_far_away(connection: sqlite3.Connection) -> None:
    set_thread(connection, last=(1 << 32) - 1, head=(1 << 32) - 1, move=1 << 33)


def a_checkpoint_far_away(connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE checkpoint SET row_key = ? WHERE row_key = ?", (segments.key(1, segments.MAX_SEQ), segments.key(1, 6))
    )


def a_checkpoint_far_away_that_is_the_last(connection: sqlite3.Connection) -> None:
    a_checkpoint_far_away(connection)
    set_thread(connection, last=segments.MAX_SEQ, head=segments.MAX_SEQ, move=1 << 33)


def numbers_of_no_thread(connection: sqlite3.Connection) -> None:
    set_thread(connection, last=-1, head=-5, deleted=1 << 62)


def a_node_of_itself(connection: sqlite3.Connection) -> None:
    itself = Refs((Span(0, 16, 0, 1, 6, 6),))
    body = b"\x81\xa1a\xd4\x41\xc0"
    set_segment(
        connection,
        6,
        [[[16, 0, 1]], 4 + len(body), [[itself]]],
        struct.pack("<I", len(body)) + body,
        segments.RAW,
    )
    set_checkpoint(connection, 6, refs=itself)


def spans(*made: tuple[int, int, int, int, int, int]) -> Callable[[sqlite3.Connection], None]:
    def forge(connection: sqlite3.Connection) -> None:
        set_checkpoint(connection, 6, refs=Refs(tuple(Span(*fields) for fields in made)))

    return forge


def a_bomb(connection: sqlite3.Connection) -> None:
    body = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    set_segment(connection, 6, [[[16, 0, 1]], 1 << 28, []], body, segments.ZSTD)


def a_bomb_that_says_it_is_small(connection: sqlite3.Connection) -> None:
    body = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    set_segment(connection, 6, [[[16, 0, 1]], 100, []], body, segments.ZSTD)


def more_cells_than_bytes(connection: sqlite3.Connection) -> None:
    set_segment(connection, 6, [[[16, 0, (1 << 63) - 1]], 4, []], bytes(4), segments.RAW)


def a_large_value_that_is_a_bomb(connection: sqlite3.Connection) -> None:
    body = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    connection.execute("UPDATE piece SET data = ?, size = ?", (body, 1 << 28))


def values_of_many_pieces(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE blob SET pieces = ?", ((1 << 62),))


CRAFTED = {
    "parents in a circle": parents_in_a_circle,
    "a parent of itself": a_parent_of_itself,
    "four billion checkpoints": four_billion_checkpoints,
    "a head far away": a_head_far_away,
    "a checkpoint far away": a_checkpoint_far_away,
    "a checkpoint far away that is the last": a_checkpoint_far_away_that_is_the_last,
    "numbers of no thread": numbers_of_no_thread,
    "a node of itself": a_node_of_itself,
    "a huge span": spans((0, 16, 0, 1 << 62, 1, 6)),
    "a negative span": spans((0, 16, -5, -1, 1, 6)),
    "a span of later commits": spans((0, 16, 0, 1, 6, 1 << 40)),
    "spans over each other": spans((0, 18, 0, 20, 1, 6), (0, 18, 10, 20, 1, 6), (0, 18, 0, 20, 1, 6)),
    "a span of another thread": spans((2, 16, 0, 1, 1, 1)),
    "a span of no thread": spans((1 << 62, 16, 0, 1, 1, 1)),
    "a bomb": a_bomb,
    "a bomb that says it is small": a_bomb_that_says_it_is_small,
    "more cells than bytes": more_cells_than_bytes,
    "a large value that is a bomb": a_large_value_that_is_a_bomb,
    "values of many pieces": values_of_many_pieces,
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A thread of six saves without a rewind, so that the forged checkpoint 6 is its head."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        thread = hf.thread("main")
        for step in range(1, 7):
            messages = [{"content": f"message {number} " + "x" * 60} for number in range(step * 20)]
            thread.save({"messages": messages, "plan": {"steps": ["y" * 200] * 20}, "blob": "abcdefgh" * 4000})
    return path


@pytest.mark.parametrize("name", CRAFTED)
def test_it_is_an_error_soon_and_in_little_memory(name: str, store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        CRAFTED[name](connection)
        connection.commit()
    started = time.process_time()
    tracemalloc.start()
    try:
        with held_to(WITHIN), holdfast.open(store, durability="off") as hf:
            with pytest.raises(Damaged):
                hf.thread("main").latest()
            tour(hf)
    except HoldfastError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert time.process_time() - started < SECONDS
    assert peak < MEMORY


@pytest.mark.parametrize("name", [name for name in CRAFTED if "far away" in name or "billion" in name])
def test_a_repair_does_not_go_through_what_never_was(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "_UNREADABLE_MAX", 50)  # each of them takes a commit
    monkeypatch.setattr(replica, "_REWINDS_MAX", 50)
    with contextlib.closing(sqlite3.connect(store)) as connection:
        CRAFTED[name](connection)
        connection.commit()
    with held_to(WITHIN), soon(SECONDS), holdfast.open(store, durability="off") as hf:
        done = hf.repair(tmp_path / "new.db")
    assert done.checkpoints >= 5
    with holdfast.open(tmp_path / "new.db") as hf:
        saved = hf.thread("main").save({"n": 1})
        assert saved.seq <= 6 + 50 + 1
