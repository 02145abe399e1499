"""Who can read the files of a store: nobody but their owner, whatever the umask says, and whatever there was stays."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from tests.covers import covers
from tests.hostile.scene import build


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): stat.S_IMODE(path.stat().st_mode) for path in sorted(top.rglob("*"))}


@covers("C10")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_files_of_sqlite_are_their_owners(tmp_path: Path, mask: int) -> None:
    with umask(mask), holdfast.open(tmp_path / "agent.db") as hf:
        build(hf)
        found = modes(tmp_path)
        hf.backup(tmp_path / "copy.db")
    assert {name.removeprefix("agent.db") for name in found} == {"", "-wal", "-shm", "-gate", "-turn"}
    assert set(modes(tmp_path).values()) == {0o600}


@covers("C10")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_files_of_a_directory_are_their_owners(tmp_path: Path, mask: int) -> None:
    with umask(mask), holdfast.open(f"dir:{tmp_path}/agents") as hf:
        build(hf)
        hf.thread("job").drop()
        hf.optimize()
        hf.backup(f"dir:{tmp_path}/copy")
    for name, mode in modes(tmp_path).items():
        assert mode == (0o700 if (tmp_path / name).is_dir() else 0o600), name


def test_a_database_that_was_made_readable_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as hf:
        hf.thread("main").save({"n": 1})
    path.chmod(0o640)
    with umask(0), holdfast.open(path) as hf:
        hf.thread("main").save({"n": 2})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        beside = [entry for entry in tmp_path.iterdir() if entry.name in ("agent.db-wal", "agent.db-shm")]
        # SQLite gives these the mode of their database, so that whoever may read it can.
        assert [stat.S_IMODE(entry.stat().st_mode) for entry in beside] == [0o640, 0o640]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir(mode=0o750)
    folder.chmod(0o750)
    with umask(0), holdfast.open(f"dir:{folder}") as hf:
        hf.thread("main").save({"n": 1})
    found = modes(tmp_path)
    assert found.pop("agents") == 0o750
    assert set(found.values()) == {0o600, 0o700}
