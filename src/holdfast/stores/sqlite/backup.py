"""Copy a store's file while other processes read and write it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final
from urllib.parse import quote

from holdfast.errors import AlreadyExists, StoreError
from holdfast.stores.files import sync_folder
from holdfast.stores.sqlite.failures import FAILURES, translate

_PAGES: Final = 2048  # copied between two calls of `progress`


def copy(connection: sqlite3.Connection, path: str, progress: Callable[[int, int], None] | None) -> int:
    """Copy the snapshot of a read transaction; return the size. The copy is renamed into place when it is synced."""
    path = os.path.realpath(path)
    # Files of another store under these names would be taken for parts of the copy.
    for there in (path, f"{path}-wal", f"{path}-journal"):
        if os.path.lexists(there):
            raise AlreadyExists(f"{there}: the path already exists; nothing was copied. Choose a new path.")
    part = f"{path}.{os.urandom(6).hex()}.part"
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            _fill(connection, part, progress)
            size = os.stat(part).st_size
            os.rename(part, path)
            sync_folder(os.path.dirname(path))
        finally:
            for name in (part, f"{part}-journal"):
                with suppress(FileNotFoundError):
                    os.unlink(name)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the copy") from error
    return size


def _fill(connection: sqlite3.Connection, part: str, progress: Callable[[int, int], None] | None) -> None:
    # The first read takes the snapshot; later writes of other processes are not in it.
    connection.execute("SELECT count(*) FROM epoch").fetchone()

    def tell(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(part))}?mode=rw", uri=True)) as target:
            connection.backup(target, pages=_PAGES, progress=tell, sleep=0.0)
    except FAILURES as error:
        raise translate(error, part) from error
    descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
