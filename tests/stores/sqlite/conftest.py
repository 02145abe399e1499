"""Stores on files of their own, ways to damage them, and children to do to them what a test cannot do to itself."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from holdfast.stores.sqlite import SQLiteStore
from holdfast.stores.sqlite.connection import PAGE_SIZE, Durability
from tests.waiting import DEADLINE

NOBODY = 65534


class Open(Protocol):
    def __call__(
        self, at: Path | None = None, *, namespace: str = ..., durability: Durability = ..., busy_timeout: float = ...
    ) -> SQLiteStore:
        """A store that is closed when the test ends."""
        ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Open]:
    opened: list[SQLiteStore] = []

    def open_(
        at: Path | None = None,
        *,
        namespace: str = "default",
        durability: Durability = "off",
        busy_timeout: float = 10.0,
    ) -> SQLiteStore:
        store = SQLiteStore(at or path, namespace=namespace, durability=durability, busy_timeout=busy_timeout)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> SQLiteStore:
    return open_store()


def forked(work: Callable[[], None], *, user: int | None = None) -> int:
    """Start `work` in a forked child; its pid. An exception becomes exit status 1, its traceback on stderr."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if user is not None and os.getuid() == 0:
            os.setgid(user)
            os.setuid(user)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not run on into pytest
        traceback.print_exc()
    finally:
        os._exit(status)


def finished(pid: int) -> None:
    """Wait for a forked child, which must have ended well."""
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def script(source: str, *arguments: str | Path, stdin: int | None = None) -> subprocess.Popen[str]:
    """Start a Python program with the library on its path."""
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", source, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def output(child: subprocess.Popen[str]) -> str:
    """What a program printed; it must have ended well."""
    out, err = child.communicate(timeout=DEADLINE)
    assert child.returncode == 0, err
    return out


def alter(path: Path, sql: str, *parameters: object) -> None:
    """Change the database behind the store's back."""
    foreign = sqlite3.connect(path)
    changed = foreign.execute(sql, parameters).rowcount
    assert changed != 0
    foreign.commit()
    foreign.close()


def damage(path: Path, tree: str, old: bytes, new: bytes) -> None:
    """Change bytes on the first page of a tree."""
    reader = sqlite3.connect(path)
    (page,) = reader.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (tree,)).fetchone()
    reader.close()
    stored = bytearray(path.read_bytes())
    start = (page - 1) * PAGE_SIZE
    at = stored.rfind(old, start, start + PAGE_SIZE)
    assert at >= 0
    stored[at : at + len(old)] = new
    path.write_bytes(stored)
