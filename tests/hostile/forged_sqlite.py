"""Rows of a SQLite store changed by somebody who can write the file and compute its checksums."""

from __future__ import annotations

import atexit
import contextlib
import random
import shutil
import sqlite3
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

import holdfast
from holdfast.stores import rows, segments
from tests.checksums import checksum_of
from tests.hostile.forging import forged_bytes, forged_value
from tests.hostile.scene import build, tour

Row = dict[str, Any]
_CRC = 4
_TABLES = (
    "thread",
    "checkpoint",
    "checkpoint",
    "segment",
    "run",
    "entry",
    "entry",
    "fork",
    "move",
    "blob",
    "piece",
    "epoch",
    "sweep",
)
_KEYS = {
    "thread": "thread_no",
    "run": "thread_no",
    "fork": "origin",
    "blob": "blob_no",
    "piece": "piece_key",
    "sweep": "thread_no",
}


@cache
def _template() -> Path:
    path = Path(tempfile.mkdtemp(prefix="holdfast-hostile-")) / "agent.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    with holdfast.open(path, durability="off") as hf:
        build(hf)
        hf.optimize()
        hf.thread("main").save({"messages": ["one more"] * 40, "plan": {"steps": ["z" * 300] * 20}})
    return path


def attempt(seed: int) -> None:
    """One tour over a store with one forged row. Whatever it raises is a defect."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        shutil.copy(_template(), path)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                _forge(connection, rng)
            connection.commit()
        with contextlib.suppress(holdfast.HoldfastError), holdfast.open(path, durability="off") as hf:
            tour(hf)


def _forge(connection: sqlite3.Connection, rng: random.Random) -> None:
    connection.row_factory = sqlite3.Row
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    table = rng.choice([name for name in _TABLES if name in tables])
    found = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 - names of the schema
    if not found:
        return
    row = rng.choice(found)
    try:
        forged = _FORGERS.get(table, _any_column)(dict(row), rng)
    except (TypeError, ValueError, struct.error, IndexError, holdfast.HoldfastError, msgspec.MsgspecError):
        return  # forged before, and no more what a forger could start from
    key = _KEYS.get(table, "row_key" if "row_key" in row else next(iter(row)))
    changes = ", ".join(f"{name} = ?" for name in forged)
    with contextlib.suppress(
        sqlite3.Error, OverflowError, UnicodeError
    ):  # what the schema or a number's width does not let in
        statement = f"UPDATE {table} SET {changes} WHERE {key} = ?"  # noqa: S608 - as above
        connection.execute(statement, (*(_fitting(v) for v in forged.values()), row[key]))


def _fitting(value: Any) -> Any:
    return value if isinstance(value, int | bytes | str | float | None) else msgspec.msgpack.encode(value)


def _any_column(row: Row, rng: random.Random) -> Row:
    name = rng.choice(list(row))
    row[name] = forged_bytes(row[name], rng) if isinstance(row[name], bytes) else forged_value(row[name], rng)
    return row


def _thread(row: Row, rng: random.Random) -> Row:
    row = _any_column(row, rng)
    with contextlib.suppress(msgspec.MsgspecError, OverflowError, struct.error):
        row["deleted_checksum"] = checksum_of(row["thread_no"], row["deleted"])
        row["checksum"] = msgspec.convert(list(row.values())[:-1], rows.StoredThread).checksum()
    return row


def _checkpoint(row: Row, rng: random.Random) -> Row:
    head = msgspec.msgpack.decode(row["head"][:-_CRC])
    name = rng.choice(("head", "head", "meta", "refs", "refs", "skeleton", "skeleton", "step", "label", "cells"))
    if name == "head":
        head = forged_value(head, rng)
    elif name == "cells":
        row["cells"] = _segment_blob(row["cells"], row["row_key"], rng)
    elif name == "skeleton" and head[6]:
        plain = forged_bytes(segments.decompress(row["skeleton"], head[6]), rng)
        row["skeleton"], head[6] = plain, 0
    else:
        row = _one(row, name, rng)
    if name in ("refs", "skeleton"):
        head[4], head[5] = crc32(row["refs"]), crc32(row["skeleton"])
    with contextlib.suppress(TypeError, struct.error, OverflowError, UnicodeError):
        packed = msgspec.msgpack.encode(head)
        checksum = checksum_of(row["row_key"], row["step"], row["label"], packed, row["meta"])
        row["head"] = packed + struct.pack("<I", checksum)
    return row


def _one(row: Row, name: str, rng: random.Random) -> Row:
    row[name] = forged_bytes(row[name], rng) if isinstance(row[name], bytes) else forged_value(row[name], rng)
    return row


def _segment(row: Row, rng: random.Random) -> Row:
    if rng.random() < 0.2:
        return _any_column(row, rng)
    row["cells"] = _segment_blob(row["cells"], row["row_key"], rng, row["first_seq"])
    return row


def _segment_blob(blob: bytes | None, row_key: int, rng: random.Random, first: int | None = None) -> bytes | None:
    if blob is None:
        return None
    version, encoding, length = struct.unpack_from("<BBI", blob)
    header, body = blob[6 : 6 + length], blob[6 + length : -_CRC]
    if rng.random() < 0.6:
        header = forged_bytes(header, rng)
    else:
        size = msgspec.msgpack.decode(header)[1]
        plain = segments.decompress(body, size) if encoding == segments.ZSTD else body
        body = forged_bytes(plain, rng)
        encoding = segments.RAW
    drafted = struct.pack("<BBI", version, encoding, len(header)) + header + body
    return segments.seal(drafted, segments.context_of(row_key, first))


def _run(row: Row, rng: random.Random) -> Row:
    if rng.random() < 0.8:
        row["record"] = rng.choice((b"\0", b"\0", b"\1", b"\2")) + forged_bytes(row["record"][1:], rng)
    else:
        row = _any_column(row, rng)
    with contextlib.suppress(TypeError, struct.error, AttributeError):
        row["lease_checksum"] = rows.lease_checksum(row["thread_no"], row["fence"], row["lease_until"])
        row["checksum"] = checksum_of(row["namespace"], row["record"])
    return row


def _effect(row: Row, rng: random.Random) -> Row:
    if rng.random() < 0.9:
        packed = rng.choice((b"\0", b"\0", b"\1")) + forged_bytes(row["record"][1:-_CRC], rng)
        row["record"] = packed + struct.pack("<I", checksum_of(row["row_key"], packed))
    else:
        row = _any_column(row, rng)
    return row


_FORGERS = {"thread": _thread, "checkpoint": _checkpoint, "segment": _segment, "run": _run, "entry": _effect}
