"""A log that lost its end after a write was acknowledged: what docs/trust/guarantees.md says about it.

Such a log is equal to one whose last write was interrupted, so the state before it is returned. Only a fingerprint that
was taken after the write, and is kept outside the store, shows the loss.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged


def zeroed(log: bytes, start: int) -> bytes:
    assert start < len(log)
    return log[:start] + bytes(len(log) - start)


Lose = Callable[[bytes, int, int], bytes]
"""Changes a log, given the offset of its last write and that of the last line of it."""

UNDETECTED: dict[str, Lose] = {
    "the last write is cut off": lambda log, write, line: log[:write],
    "cut off in the last write": lambda log, write, line: log[: write + 30],
    "the last line is cut off": lambda log, write, line: log[:line],
    "the last byte is cut off": lambda log, write, line: log[:-1],
    "the last write is zero bytes": lambda log, write, line: zeroed(log, write),
    "zero bytes from a sector of the last write on": lambda log, write, line: zeroed(log, -(-write // 512) * 512),
}
DETECTED: dict[str, Lose] = {
    "zero bytes from inside a sector": lambda log, write, line: zeroed(log, write + 30 + (not (write + 30) % 512)),
    "the last line is zero bytes": lambda log, write, line: zeroed(log, line + (not line % 512)),
    "the last byte is zero": lambda log, write, line: log[:-1] + b"\0",
    "a flipped bit in the last line": lambda log, write, line: (
        log[: line + 40] + bytes([log[line + 40] ^ 1]) + log[line + 41 :]
    ),
    "the write before is cut out": lambda log, write, line: (
        log[: log[:write].rindex(b'{"crc"', 0, write - 1)] + log[write:]
    ),
}


def state(n: int) -> dict[str, object]:
    """Large enough that a write has several sectors."""
    return {"n": n, "text": random.Random(n).randbytes(1_000).hex()}


def damaged(folder: Path, lose: Lose) -> tuple[str, str]:
    """The address of a directory store with three saves whose log is changed, and its fingerprint before that."""
    url = f"dir:{folder / 'store'}"
    with holdfast.open(url) as hf:
        for n in range(3):
            hf.thread("a").save(state(n))
        fingerprint = hf.fingerprint()
    [path] = (folder / "store").rglob("log.jsonl")
    log = path.read_bytes()
    line = log.rindex(b"\n", 0, len(log) - 1) + 1
    write = log.rindex(b'"t":"end"', 0, line)
    write = log.index(b"\n", write) + 1
    assert b'"t":"end"' in log[line:]
    path.write_bytes(lose(log, write, line))
    return url, fingerprint


@pytest.mark.parametrize("how", UNDETECTED)
def test_a_log_cut_at_its_end_is_as_if_the_last_write_was_interrupted(tmp_path: Path, how: str) -> None:
    url, fingerprint = damaged(tmp_path, UNDETECTED[how])
    with holdfast.open(url) as hf:
        latest = hf.thread("a").latest()
        assert latest is not None
        assert latest.state == state(1)
        assert hf.verify().ok
        assert not hf.verify(fingerprint=fingerprint).ok
        assert hf.thread("a").save({"n": 9}).seq == 3  # the number of the lost checkpoint
        assert hf.verify().ok
        assert not hf.verify(fingerprint=fingerprint).ok


@pytest.mark.parametrize("how", DETECTED)
def test_other_damage_at_the_end_of_a_log_is_detected(tmp_path: Path, how: str) -> None:
    url, fingerprint = damaged(tmp_path, DETECTED[how])
    with holdfast.open(url) as hf:
        assert not hf.verify().ok
        assert not hf.verify(fingerprint=fingerprint).ok
        try:
            latest = hf.thread("a").latest()
        except Damaged:
            return
        assert latest is not None
        assert latest.state == state(2)  # never an earlier one


def test_a_wal_cut_at_its_end_is_as_if_the_last_write_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    copy = tmp_path / "copy.db"
    with holdfast.open(path) as hf:
        hf.thread("a").save({"n": 0})
        hf.thread("a").save({"n": 1})
        before = (tmp_path / "store.db-wal").stat().st_size
        hf.thread("a").save({"n": 2})
        fingerprint = hf.fingerprint()
        for name in ("", "-wal"):
            shutil.copyfile(f"{path}{name}", f"{copy}{name}")
    with (tmp_path / "copy.db-wal").open("r+b") as wal:
        assert before < wal.seek(0, 2)
        wal.truncate(before)
    with holdfast.open(copy) as hf:
        latest = hf.thread("a").latest()
        assert latest is not None
        assert latest.state == {"n": 1}
        assert hf.verify().ok
        assert not hf.verify(fingerprint=fingerprint).ok
