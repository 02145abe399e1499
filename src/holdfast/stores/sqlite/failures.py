"""Translate errors of SQLite to errors of Holdfast."""

from __future__ import annotations

import sqlite3
from typing import Final

from holdfast.errors import Busy, Damaged, HoldfastError, NotAStore, StoreError, TooLarge
from holdfast.stores import rules

# If the schema is damaged, SQLite's message may quote its bytes, which Python cannot decode.
FAILURES: Final = (sqlite3.Error, UnicodeDecodeError)
Failure = sqlite3.Error | UnicodeDecodeError


def primary(error: Failure) -> int:
    """The primary result code of an error; 0 for errors that Python itself raised."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    # Only errors of the library have a code.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_input_output(error: Failure) -> bool:
    """Whether the operating system failed, so that it is not known what reached the disk."""
    return primary(error) == sqlite3.SQLITE_IOERR


def translate(error: Failure, path: str) -> HoldfastError:
    """The error to raise from `error`. SQLite's messages name tables and columns, never values."""
    code = primary(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return Busy(f"{path}: another program uses the database; nothing was changed. Try again.")
    if code == sqlite3.SQLITE_FULL:
        return rules.store_full(path)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return rules.read_only(path)
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(
            f"{path}: cannot open the database. The file and its -wal and -shm files must be readable; "
            "if those two are missing, the folder must be writable."
        )
    if code == sqlite3.SQLITE_NOTADB:
        return NotAStore(
            f"{path}: not a Holdfast store, or its first bytes are damaged; it was left unchanged. "
            "Name another file, or restore a backup of this one."
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return Damaged(f"{path}: the database is damaged ({error}); run hf.verify() to see what is affected")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return rules.tables_differ(path, error)
    if code == sqlite3.SQLITE_TOOBIG:
        return TooLarge(f"{path}: a record is larger than SQLite can store; nothing was changed")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"{path}: the operating system could not read or write the database ({error}). Check the disk, then open "
            "the store again."
        )
    return StoreError(f"{path}: SQLite failed: {error}")
