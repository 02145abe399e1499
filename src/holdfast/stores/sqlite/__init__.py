"""The SQLite store: one file, any number of processes on one machine."""

from holdfast.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
