"""Open the store's file, and apply and verify SQLite settings."""

from __future__ import annotations

import os
import sqlite3
import stat
from typing import Final, Literal
from urllib.parse import quote

from holdfast import forksafe
from holdfast.errors import Damaged, NotAStore, ReadOnly, StoreError
from holdfast.stores import rules
from holdfast.stores.folder_sync import sync_folder
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.failures import FAILURES, primary, translate
from holdfast.stores.write_queue import Gate

Durability = Literal["full", "normal", "off"]

# The first version with STRICT tables.
OLDEST_SQLITE: Final = (3, 37, 0)

# A save fills about half of SQLite's default page of 4 kB, and the WAL stores whole pages.
# docs/internals/decisions.md compares page sizes.
PAGE_SIZE: Final = 2048
_SYNCHRONOUS: Final[dict[Durability, int]] = {"full": 2, "normal": 1, "off": 0}
_SETTINGS: Final = {
    "wal_autocheckpoint": 0,  # checkpoints run under the gate, started by the store
    "trusted_schema": 0,
    "cell_size_check": 1,
    "fullfsync": 1,  # macOS: fsync alone leaves the data in the drive's cache
    "checkpoint_fullfsync": 1,
    "temp_store": 2,  # memory
    "secure_delete": 1,  # deleted data is overwritten; `reclaim(scrub=True)` handles pages that were merely rewritten
}
# Bytes: the smallest page of SQLite, and so its smallest database.
_SMALLEST: Final = 512

# Creating a file involves closing a descriptor of it, which would drop the locks that another thread's connection has
# just taken. So a process opens files one at a time.
opening: Final = forksafe.OpeningLock()


def open_writer(
    path: str, durability: Durability, timeout: float, gate: Gate, *, upgrades: bool = True
) -> sqlite3.Connection:
    """A connection to the store at `path`, which is created if necessary, and upgraded if it `upgrades`."""
    with opening.lock:
        try:
            version = _inspect(path)
            if version < schema.VERSION:
                if version and not upgrades:
                    raise rules.older_format(path, version, schema.VERSION)
                _prepare(path, gate, timeout)
            return connect(path, durability, timeout)
        except FAILURES as error:
            if primary(error) == sqlite3.SQLITE_READONLY:
                raise ReadOnly(
                    f"{path}: SQLite cannot read the store without its -wal and -shm files, and this process may not "
                    "create them in the folder. Open the store as its owner, or read a copy."
                ) from error
            if primary(error) == sqlite3.SQLITE_CORRUPT:
                raise rules.damaged_at_open(path, error) from error
            raise translate(error, path) from error


def connect(path: str, durability: Durability, timeout: float, *, reading: bool = False) -> sqlite3.Connection:
    """A connection with every setting read back. `StoreError` if a setting did not take effect."""
    connection = _connect(path, "rw", timeout)
    try:
        settings = {**_SETTINGS, "synchronous": _SYNCHRONOUS[durability], "query_only": int(reading)}
        for name, value in settings.items():
            # PRAGMA takes no bound parameters; the names and values are constants of this module.
            connection.execute(f"PRAGMA {name} = {value}")
        expected = {
            **settings,
            "journal_mode": b"wal",
            "page_size": PAGE_SIZE,
            "auto_vacuum": schema.INCREMENTAL,
            "application_id": schema.APPLICATION_ID,
            "user_version": schema.VERSION,
        }
        for name, wanted in expected.items():
            found = schema.pragma(connection, name)
            if found != wanted:
                raise StoreError(
                    f"{path}: the SQLite setting {name} is {found!r} instead of {wanted!r}; the store was not opened"
                )
        # A trigger or view would run with the statements of this store. A missing unique index would let in duplicates.
        if schema.objects(connection) != schema.known(schema.VERSION):
            raise Damaged(
                f"{path}: the tables of the store were altered by another program, or are damaged; the store was not "
                "opened. Restore the file from a backup, or copy its data to a new store with `holdfast repair`."
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: str, mode: Literal["ro", "rw", "ro&immutable=1"], timeout: float) -> sqlite3.Connection:
    # A URI, because only its mode keeps SQLite from creating a missing file.
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    # A blob whose type code was damaged to that of text is still returned as bytes, and checked like other blobs.
    connection.text_factory = bytes
    return connection


def _inspect(path: str) -> int:
    """The schema version of the store at `path`; 0 if it must be created. Changes nothing on disk."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreError(f"{path}: the folder {folder} does not exist; nothing was changed. Create it first.")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ReadOnly(
                f"{path}: the store does not exist, and this process may not create it in the folder. Change the "
                "permissions of the folder, or name another file."
            ) from None
        return 0
    except OSError as error:
        raise StoreError(
            f"{path}: cannot access the store; nothing was changed. Check the path and its permissions."
        ) from error
    if stat.S_ISDIR(found.st_mode):
        raise NotAStore(f"{path}: a folder; it was left unchanged. For a directory store, write dir:{path}.")
    if not stat.S_ISREG(found.st_mode):
        raise NotAStore(f"{path}: not a regular file; it was left unchanged. Name another file.")
    if found.st_size == 0:
        return 0
    if found.st_size < _SMALLEST:
        raise NotAStore(f"{path}: not a database; it was left unchanged. Name another file.")
    _recognise(path)
    # A reader leaves -wal and -shm files of its own. A writer cleans up after itself, but moves the content of an
    # existing -wal file into the database, which may belong to another program.
    if os.path.exists(f"{path}-wal"):
        try:
            return _version(path, "ro")
        except sqlite3.Error as error:
            if primary(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
    return _version(path, "rw")


def _recognise(path: str) -> None:
    """Raise unless the file's header identifies a store that this version can read.

    Opening a database normally rolls back its journal after a crash and builds the index of its WAL. Only the program
    that owns it may do that. With "immutable", SQLite reads the file alone.
    """
    connection = _connect(path, "ro&immutable=1", 1.0)
    try:
        # Otherwise SQLite rejects a file that is shorter than its header states, as during a checkpoint.
        connection.execute("PRAGMA writable_schema = ON")
        _known_version(path, schema.pragma(connection, "application_id"), schema.pragma(connection, "user_version"))
    except FAILURES:
        # A store whose creation was interrupted may have no header yet. It has a gate, which is created first, and a
        # journal that rolls it back to nothing.
        if not (os.path.exists(f"{path}-journal") and os.path.exists(f"{path}-gate")):
            raise
    finally:
        connection.close()


def _known_version(path: str, identity: object, version: object) -> int:
    """The version, if the file is a store and this Holdfast can read it."""
    if identity != schema.APPLICATION_ID or not isinstance(version, int) or version < 1:
        raise NotAStore(f"{path}: a SQLite database of another program; it was left unchanged. Name another file.")
    if version > schema.VERSION:
        raise rules.newer_format(path, version, schema.VERSION)
    return version


def _version(path: str, mode: Literal["ro", "rw"]) -> int:
    connection = _connect(path, mode, 1.0)
    try:
        identity = schema.pragma(connection, "application_id")
        version = schema.pragma(connection, "user_version")
        pages = schema.pragma(connection, "page_count")
        journal = schema.pragma(connection, "journal_mode")
    finally:
        connection.close()
    if pages == 0 and os.stat(path).st_size == 0:
        return 0  # an interrupted creation that was just rolled back
    number = _known_version(path, identity, version)
    # Creation was interrupted just before the switch to WAL, so the store is not complete.
    return number if journal == b"wal" else 0


def _prepare(path: str, gate: Gate, timeout: float) -> None:
    """Create or upgrade the store, unless another process has just done it."""
    try:
        gate.enter()
        if not os.path.exists(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if _inspect(path) == schema.VERSION:
            return
        connection = _connect(path, "rw", timeout)
        try:
            version = schema.pragma(connection, "user_version")
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.execute("PRAGMA synchronous = FULL")
            if isinstance(version, int) and version < schema.VERSION:
                schema.upgrade(connection, version)
            # Last, so that no store exists without its schema: before this point, a crash rolls back to nothing.
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise StoreError(f"{path}: cannot create the store") from error
    finally:
        gate.leave()
