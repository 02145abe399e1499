"""What the suites of defects share: stores of each kind, states, damage, and what there is on the disk."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

import holdfast
from holdfast import Checkpoint, Holdfast, Thread
from tests.crash.nursery import Child, Nursery
from tests.crash.tracing import trace

everywhere = pytest.mark.parametrize("url", ["memory", "sqlite", "directory"], indirect=True)
on_disk = pytest.mark.parametrize("url", ["sqlite", "directory"], indirect=True)
with_a_fleet = pytest.mark.parametrize("url", ["memory", "sqlite", "directory", "postgres"], indirect=True)

SYNCS = ("fsync", "fdatasync")
WRITES = ("write", "pwrite64")
SAYS = "writev"  # how a process that is traced reports
_ABOUT = re.compile(r"\(\d+<([^>]*)>")
_CRC = len('{"crc":"00000000",')


def opened(url: str, **options: Any) -> Holdfast:
    """A handle that does not wait for the disk: these suites kill processes, not machines."""
    given: dict[str, Any] = {"durability": "off", **options}
    return holdfast.open(url, **given)


def state_at(n: int) -> dict[str, Any]:
    """A state whose parts tell whether they belong together."""
    source = Random(n)
    return {
        "n": n,
        "messages": [{"role": "user", "content": f"message {i} of {n} {source.randbytes(60).hex()}"} for i in range(8)],
        "end": n,
    }


def fill(thread: Thread, count: int) -> list[Checkpoint]:
    """Save states 1, 2, 3 … as the steps of these numbers."""
    return [thread.save(state_at(n), step=n) for n in range(1, count + 1)]


def latest(thread: Thread) -> Checkpoint:
    """The head with its state, which must be there."""
    found = thread.latest()
    assert found is not None
    return found


def seqs(thread: Thread, **filters: Any) -> list[int]:
    """The numbers that a history lists."""
    return [checkpoint.seq for checkpoint in thread.history(**filters)]


# -- processes ---------------------------------------------------------------------------------------------------------


def child_of(nursery: Nursery, folder: Path, program: str, **told: Any) -> Child:
    """A process that runs a program of `defects_children`."""
    return nursery.start(f"tests.parity.defects_children:{program}", _task(folder, **told))


def calls_of(nursery: Nursery, folder: Path, program: str, **told: Any) -> list[tuple[str, str]]:
    """What such a process asks of the system, in order: the name of each call, and the file it is about."""
    traced = trace(nursery, f"tests.parity.defects_children:{program}", _task(folder, **told), (*SYNCS, *WRITES, SAYS))
    assert traced.ended == "itself"
    assert not [line for line in traced.lines if line.startswith("!")], traced.lines
    return [(call.name, found[1]) for call in traced.calls if (found := _ABOUT.search(call.shown))]


def _task(folder: Path, **told: Any) -> Path:
    task = folder / f"task-{len(list(folder.glob('task-*')))}"
    task.write_text(json.dumps(told, default=str))
    return task


def wait_for_line(child: Child, line: str) -> None:
    """Read until the child says that; fail if it ends before."""
    while line not in child.lines and not child.ended:
        child.wait_for(len(child.lines) + 1)
    assert line in child.lines, child.failure


# -- clocks ------------------------------------------------------------------------------------------------------------


class WallClock:
    """The wall clock of this process, which a test sets: nanoseconds since 1970."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000_123_456_000
        patch.setattr(time, "time_ns", lambda: self.now)

    def move(self, seconds: float) -> None:
        """Forward, or back."""
        self.now += round(seconds * 1_000_000_000)


# -- what is on the disk -----------------------------------------------------------------------------------------------


def database(url: str) -> Path | None:
    """The file of a store in SQLite; None of one in a folder."""
    return None if url.startswith("dir:") else Path(url)


def place(url: str) -> Path:
    """The file or the folder of a store."""
    return database(url) or Path(url.removeprefix("dir:"))


def files(url: str) -> list[Path]:
    """The files of a store, those beside its database too."""
    where = place(url)
    found = where.rglob("*") if where.is_dir() else where.parent.glob(f"{where.name}*")
    return sorted(path for path in found if path.is_file())


def size(url: str) -> int:
    """How many bytes a store takes."""
    return sum(path.stat().st_size for path in files(url))


def content(url: str) -> bytes:
    """All bytes of a store."""
    return b"\n".join(path.read_bytes() for path in files(url))


def log_of(url: str, thread: str) -> Path:
    """The log of a thread in a folder, by its name as it is."""
    return place(url) / "default" / "threads" / thread / "log.jsonl"


@contextmanager
def counted_reads() -> Generator[list[int]]:
    """How many bytes this process reads from files meanwhile; told at the end."""
    told: list[int] = []
    before = _read_so_far()
    yield told
    told.append(_read_so_far() - before)


def _read_so_far() -> int:
    descriptor = os.open("/proc/self/io", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 200).split()[1])
    finally:
        os.close(descriptor)


# -- damage ------------------------------------------------------------------------------------------------------------


def damage_record(url: str, seq: int, thread: str = "t") -> None:
    """Flip a bit of the record of a checkpoint: what a listing shows of it."""
    _damage(url, seq, thread, "head", "checkpoint")


def damage_content(url: str, seq: int, thread: str = "t") -> None:
    """Flip a bit of what a checkpoint brought to its thread: a part of its state."""
    _damage(url, seq, thread, "cells", "cell")


def _damage(url: str, seq: int, thread: str, column: str, kind: str) -> None:
    path = database(url)
    if path is None:
        log = log_of(url, thread)
        lines = log.read_bytes().splitlines(keepends=True)
        [at] = [n for n, line in enumerate(lines) if f'"t":"{kind}","seq":{seq},'.encode() in line]
        lines[at] = _flipped(lines[at])
        log.write_bytes(b"".join(lines))
        return
    with closing(sqlite3.connect(path)) as connection, connection:
        (number,) = connection.execute("SELECT thread_no FROM thread WHERE name = ?", (thread.encode(),)).fetchone()
        row = number << 32 | seq
        column_of = {"head": "SELECT head FROM checkpoint WHERE row_key = ?", "cells": _SELECT_CELLS}
        change = {"head": "UPDATE checkpoint SET head = ? WHERE row_key = ?", "cells": _UPDATE_CELLS}
        (stored,) = connection.execute(column_of[column], (row,)).fetchone()
        connection.execute(change[column], (_flipped(stored), row))


_SELECT_CELLS = "SELECT cells FROM checkpoint WHERE row_key = ?"
_UPDATE_CELLS = "UPDATE checkpoint SET cells = ? WHERE row_key = ?"


def _flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 4
    return bytes(changed)


def swap_members(log: Path, first: int, second: int, *members: str) -> None:
    """Exchange what the records of two checkpoints in a log hold, with checksums that fit."""
    lines = log.read_text("utf-8").splitlines()
    found = {seq: n for seq in (first, second) for n, line in enumerate(lines) if _is_checkpoint(line, seq)}
    one, two = (json.loads(lines[found[seq]]) for seq in (first, second))
    for member in members:
        one[member], two[member] = two.get(member), one.get(member)
    for seq, record in ((first, one), (second, two)):
        del record["crc"]
        shown = {name: value for name, value in record.items() if value is not None}
        lines[found[seq]] = _sealed(json.dumps(shown, separators=(",", ":"), ensure_ascii=False)[1:])
    log.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _is_checkpoint(line: str, seq: int) -> bool:
    return f'"t":"checkpoint","seq":{seq},' in line


def _sealed(rest: str) -> str:
    return f'{{"crc":"{crc32(rest.encode()):08x}",{rest}'


def forge_lines(log: Path, old: str, new: str) -> int:
    """Put one text for another in the lines of a log, with checksums that fit; how many lines were changed."""
    lines = log.read_text("utf-8").splitlines()
    changed = 0
    for n, line in enumerate(lines):
        rest = line[_CRC:]
        if old in rest:
            rest = rest.replace(old, new)
            lines[n] = _sealed(rest)
            changed += 1
    log.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return changed
