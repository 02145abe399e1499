"""SQLite's errors in Holdfast's terms."""

from __future__ import annotations

import sqlite3
from typing import Final

from holdfast.errors import (
    Busy,
    Damaged,
    HoldfastError,
    NotAStore,
    OutcomeUnknown,
    ReadOnly,
    StoreError,
    StoreFull,
    TooLarge,
)

POISONED = (
    "the store failed while writing, so the last write may or may not have happened; "
    "close this handle and open the store again to find out"
)


# Where the schema is damaged, SQLite's message may quote bytes of it, and Python fails to decode the message.
FAILURES: Final = (sqlite3.Error, UnicodeDecodeError)
Failure = sqlite3.Error | UnicodeDecodeError


def primary(error: Failure) -> int:
    """The primary result code of an error; 0 for errors that Python itself raised."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    # Only errors that come from the library carry a code.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_input_output(error: Failure) -> bool:
    """Whether the operating system failed, so that what reached the disk is not known."""
    return primary(error) == sqlite3.SQLITE_IOERR


def translate(error: Failure, path: str) -> HoldfastError:
    """The error to raise from `error`. SQLite's messages name tables and columns, never values."""
    code = primary(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return Busy(f"{path}: the database is in use by another program; try again")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: no room for the write; nothing was changed. Free space, then try again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return ReadOnly(f"{path}: this process may not write the store; nothing was changed")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(
            f"{path}: the database cannot be opened. The file must be readable, and so must its -wal and -shm files; "
            "where those are missing, the folder must be writable"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{path}: not a Holdfast store, or its first bytes are damaged; it was left as it was")
    if code == sqlite3.SQLITE_CORRUPT:
        return Damaged(f"{path}: the database is damaged ({error}); run a check to see what is hurt")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return Damaged(f"{path}: the tables contradict each other ({error}); run a check to see what is hurt")
    if code == sqlite3.SQLITE_TOOBIG:
        return TooLarge(f"{path}: a record is larger than SQLite can store; nothing was changed")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"{path}: the operating system could not read or write the database ({error})")
    return StoreError(f"{path}: SQLite failed: {error}")


def unknown(path: str) -> OutcomeUnknown:
    """The error of a store whose last write has an unknown outcome."""
    return OutcomeUnknown(f"{path}: {POISONED}")
