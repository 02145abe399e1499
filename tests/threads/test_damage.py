"""Damage: a changed byte loads equal or raises, hurts only what names it, and verify finds it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, HoldfastError
from tests.covers import covers
from tests.selection import tries

STATES = 8


def state_at(n: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"message {i} " * 12} for i in range(3 * n)],
        "prompt": "You are careful. " * 1_200,
        "step": n,
        "notes": f"note {n} " * 30,
    }


@pytest.fixture(scope="module", params=["fresh", "optimized"])
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of two threads, in one file."""
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        for name in ("t", "other"):
            thread = hf.thread(name)
            for n in range(1, STATES + 1):
                thread.save(state_at(n), step=n)
        if request.param == "optimized":
            hf.optimize()
        assert hf.verify().ok
    return path


def copied(healthy: Path, tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(healthy, path)
    return path


def loads(path: Path, thread: str) -> Iterator[tuple[int, Any]]:
    """Each checkpoint's state, or the error that loading it raised."""
    with holdfast.open(path, durability="off") as hf:
        for n in range(1, STATES + 1):
            try:
                yield n, hf.thread(thread).load(f"@{n}").state
            except HoldfastError as error:
                yield n, error


SWAP_SKELETONS = """
UPDATE checkpoint SET skeleton = (SELECT skeleton FROM checkpoint c WHERE c.row_key = checkpoint.row_key - 1)
WHERE row_key & 4294967295 = 8
"""


@covers("A10", "continuum/ChecksumUtils.verify_checksum", "continuum/load checks")
def test_a_flipped_byte_in_the_file_is_never_a_wrong_state(healthy: Path, tmp_path: Path) -> None:
    content = healthy.read_bytes()
    source = random.Random(1)
    hurt = 0
    for _ in range(tries(250, 40)):
        path = copied(healthy, tmp_path)
        at = source.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        try:
            with holdfast.open(path, durability="off") as hf:
                latest = hf.thread("t").latest()
                assert latest is not None, f"byte {at}"
                assert latest.state == state_at(STATES), f"byte {at}"
        except HoldfastError:
            hurt += 1
    assert hurt


def rows_with(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def damage_cells(path: Path, seq: int) -> None:
    """Flip a bit in the middle of the new cells of one checkpoint of the thread `t`, past SQLite's own checks."""
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute(
            "SELECT row_key, cells FROM checkpoint WHERE row_key & 4294967295 = ? AND cells IS NOT NULL"
            " ORDER BY row_key LIMIT 1",
            (seq,),
        ).fetchone()
        assert found is not None
        row_key, cells = found
        damaged = bytearray(cells)
        damaged[len(damaged) // 2] ^= 4
        connection.execute("UPDATE checkpoint SET cells = ? WHERE row_key = ?", (bytes(damaged), row_key))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store in which the cells that checkpoint 5 of `t` brought are damaged."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        for name in ("t", "other"):
            thread = hf.thread(name)
            for n in range(1, STATES + 1):
                thread.save(state_at(n), step=n)
    damage_cells(path, 5)
    return path


@covers("A6", "G7", "ares/CheckpointError.Corrupt", "ares/CheckpointManager.load_latest.invalid")
@covers("continuum/load checks", "continuum/Layer2Error.CheckpointCorrupted", "continuum/CheckpointSystemTrait.verify")
def test_damage_hurts_the_checkpoints_that_name_those_bytes_and_no_other(damaged: Path) -> None:
    for n, loaded in loads(damaged, "t"):
        if n < 5:
            assert loaded == state_at(n)
        else:
            assert isinstance(loaded, Damaged)
    assert all(loaded == state_at(n) for n, loaded in loads(damaged, "other"))


@covers("A7", "G7", "continuum/CheckpointSystemTrait.verify", "continuum/AtomicFileWriter.with_verify")
def test_verify_names_the_hurt_checkpoint(damaged: Path) -> None:
    with holdfast.open(damaged, durability="off") as hf:
        report = hf.verify()
        assert not report.ok
        assert report.checkpoints == 2 * STATES
        assert {(p.thread, seq) for p in report.problems for seq in p.seqs} >= {("t", 5)}
        assert not any(p.thread == "other" for p in report.problems)


@covers("A5", "continuum/CrashRecovery.recover_session", "continuum/RecoveryResult.checkpoint_path")
@covers("continuum/RecoveryResult.data", "continuum/RecoveryResult.recovered_from_backup")
def test_latest_raises_and_falls_back_when_asked(damaged: Path) -> None:
    with holdfast.open(damaged, durability="off") as hf:
        thread = hf.thread("t")
        with pytest.raises(Damaged):
            thread.latest()
        found = thread.latest(fallback=True)
        assert found is not None
        assert found.state == state_at(4)
        assert [skipped.seq for skipped in found.skipped] == [8, 7, 6, 5]
        assert all(skipped.why and skipped.id for skipped in found.skipped)
        undamaged = hf.thread("other").latest(fallback=True)
        assert undamaged is not None
        assert undamaged.skipped == ()


@covers("A6")
def test_a_thread_with_a_damaged_head_can_be_saved_to(damaged: Path) -> None:
    with holdfast.open(damaged, durability="off") as hf:
        hf.thread("t").save(state_at(9))
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state == state_at(9)
        assert hf.thread("t").load("@4").state == state_at(4)


def test_optimize_leaves_damage_as_it_is(damaged: Path) -> None:
    with holdfast.open(damaged, durability="off") as hf:
        assert hf.optimize().damaged
        assert hf.thread("t").load("@4").state == state_at(4)
        assert not hf.verify().ok
        assert hf.optimize().damaged


@covers("A4")
def test_no_readable_checkpoint_is_an_error_not_none(damaged: Path) -> None:
    for seq in range(1, 5):
        damage_cells(damaged, seq)
    with holdfast.open(damaged, durability="off") as hf, pytest.raises(Damaged):
        hf.thread("t").latest(fallback=True)


@pytest.mark.parametrize(
    "forgery",
    [
        "UPDATE checkpoint SET head = zeroblob(64) WHERE row_key & 4294967295 = 3",
        "UPDATE thread SET head = 3",
        "UPDATE thread SET last = 3, head = 3",
        "DELETE FROM checkpoint WHERE row_key & 4294967295 = 8",
        "DELETE FROM checkpoint WHERE row_key & 4294967295 = 4",
        "DELETE FROM piece",
        "UPDATE checkpoint SET row_key = row_key + 100 WHERE row_key & 4294967295 = 8",
        SWAP_SKELETONS,
    ],
)
def test_rows_changed_behind_our_back_are_noticed(healthy: Path, tmp_path: Path, forgery: str) -> None:
    path = copied(healthy, tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(forgery)
    with holdfast.open(path, durability="off") as hf:
        assert not hf.verify().ok
        try:
            latest = hf.thread("t").latest()
        except Damaged:
            return
        assert latest is not None
        assert latest.state == state_at(STATES)


def damage_record(path: Path, seq: int) -> None:
    """Flip a bit in the record of one checkpoint of the thread `t`."""
    with closing(sqlite3.connect(path)) as connection, connection:
        row_key, head = connection.execute(
            "SELECT row_key, head FROM checkpoint WHERE row_key & 4294967295 = ? ORDER BY row_key LIMIT 1", (seq,)
        ).fetchone()
        flipped = head[:-1] + bytes([head[-1] ^ 1])
        connection.execute("UPDATE checkpoint SET head = ? WHERE row_key = ?", (flipped, row_key))


def test_a_thread_whose_head_has_no_readable_record_goes_on(damaged: Path) -> None:
    with holdfast.open(damaged, durability="off") as hf:
        second = hf.thread("t").load("@2").id
    damage_record(damaged, STATES)
    with holdfast.open(damaged, durability="off") as hf:
        thread = hf.thread("t")
        with pytest.raises(Damaged):
            thread.latest()
        saved = thread.save(state_at(9))
        assert (saved.seq, saved.step) == (STATES + 1, STATES + 1)
        latest = hf.thread("t").latest()
        assert latest is not None
        assert latest.state == state_at(9)
        assert not any(STATES + 1 in problem.seqs for problem in hf.verify().problems)
        assert hf.thread("t").rewind(second).step == 2


@covers("A5")
def test_falling_back_never_gives_what_was_abandoned(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        thread = hf.thread("t")
        root = thread.save({"n": "root"})
        thread.save({"n": "abandoned"})
        thread.rewind(root.id)
        thread.save({"n": "kept"})
    damage_record(path, 3)
    with holdfast.open(path, durability="off") as hf, pytest.raises(Damaged):
        hf.thread("t").latest(fallback=True)
