"""Copy a store's file: with SQLite, while other processes read and write it; or byte by byte, even if damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final
from urllib.parse import quote

from holdfast.errors import NotAStore, NotFound, StoreError
from holdfast.signals import shield
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.failures import FAILURES, translate
from holdfast.stores.sqlite.transaction import SQLiteTransaction
from holdfast.stores.write_queue import Gate

_PAGES: Final = 2048  # copied between two calls of `progress`
_TIMEOUT: Final = 10.0
# Magic bytes, page size, change counter, number of pages, and the change counter when that was written.
_HEADER: Final = struct.Struct(">16sH6xII60xI")
_MAGIC: Final = b"SQLite format 3\0"
# A damaged page count must not make the copy arbitrarily large.
_LONGER: Final = 64
_LONGER_AT_LEAST: Final = 1 << 28


def copy(tx: SQLiteTransaction, path: str, progress: Callable[[int, int], None] | None) -> int:
    """Copy the snapshot of a read transaction to a new file; return the size."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _fill(tx.connection, path, progress)
        return os.stat(path).st_size
    except OSError as error:
        raise StoreError(
            f"{path}: the copy cannot be written; the store was not changed. Name another path."
        ) from error


def _fill(connection: sqlite3.Connection, path: str, progress: Callable[[int, int], None] | None) -> None:
    # The first read takes the snapshot; later writes of other processes are not in it.
    connection.execute("SELECT count(*) FROM epoch").fetchone()

    def report(_status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    try:
        # Copying takes long and calls the program. An interrupt ends it, and there is no copy.
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=rw", uri=True)) as target, shield.lifted():
            connection.backup(target, pages=_PAGES, progress=report, sleep=0.0)
    except FAILURES as error:
        raise translate(error, path) from error
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_raw(path: str, folder: str) -> str:
    """Copy a store to a folder and return the path of the copy. Writers are locked out, so the WAL fits the file.

    A truncated file is extended to its original length in the copy, because SQLite reads nothing from a short file.
    Objects of other programs are removed from the copy, because a store that has them is not opened.
    """
    path = os.path.realpath(path)
    copy = os.path.join(folder, os.path.basename(path))
    if os.path.exists(path) and not os.path.isfile(path):
        raise NotAStore(f"{path}: not a regular file; it was left unchanged. Name another file.")
    gate = Gate(path, _TIMEOUT) if os.path.exists(f"{path}-gate") else None
    try:
        if gate is not None:  # without a gate no store was opened here: the file was copied alone
            gate.enter()
        shutil.copyfile(path, copy)
        _lengthen(copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    except FileNotFoundError as error:
        raise NotFound(f"there is no store at {path}") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot copy the store") from error
    finally:
        if gate is not None:
            gate.close()
    with suppress(*FAILURES), closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.text_factory = bytes
        schema.restore(connection)
    return copy


def _lengthen(path: str) -> None:
    """Append zeros to a truncated file, up to the length in its header."""
    with open(path, "r+b") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        magic, page_size, changes, pages, checked = _HEADER.unpack(header)
        wanted, size = page_size * pages, os.fstat(file.fileno()).st_size
        # SQLite trusts the page count only if it was written with the last change.
        if magic == _MAGIC and changes == checked and size < wanted <= max(size * _LONGER, _LONGER_AT_LEAST):
            file.truncate(wanted)
