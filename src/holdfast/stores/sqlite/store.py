"""`SQLiteStore`: a store in one SQLite file, with one writer connection and a pool of readers."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from holdfast import forksafe
from holdfast.errors import StoreError
from holdfast.signals import shield
from holdfast.stores import clock as clocks
from holdfast.stores import rows, rules
from holdfast.stores.abilities import StoreSettings
from holdfast.stores.contract_runs import Clock
from holdfast.stores.sql.store import SQLStore
from holdfast.stores.sql.transaction import Transaction
from holdfast.stores.sqlite import backup, schema
from holdfast.stores.sqlite.connection import OLDEST_SQLITE, PAGE_SIZE, Durability, opening
from holdfast.stores.sqlite.failures import FAILURES, translate
from holdfast.stores.sqlite.rebuild import rebuild
from holdfast.stores.sqlite.transaction import Readers, SQLiteTransaction
from holdfast.stores.sqlite.writer import Writer
from holdfast.types import Problem

P = ParamSpec("P")
T = TypeVar("T")

_VACUUM_PAGES: Final = 256  # as in the statement `vacuum`
_SETTINGS: Final = ("journal_mode", "synchronous", "secure_delete", "fullfsync", "auto_vacuum", "page_size")
_SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")


class SQLiteStore(SQLStore[Writer]):
    """One SQLite file, opened on one namespace. Any number of threads and processes may use it.

    Raises `StoreError` if the folder does not exist or the file cannot be opened. Raises `NotAStore` or `NewerFormat`,
    leaving the file unchanged, if it is not a store that this version can read. So does an earlier format, unless it
    `upgrades` the file.
    """

    kind = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: str,
        durability: Durability,
        busy_timeout: float = 10.0,
        upgrades: bool = True,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            oldest = ".".join(map(str, OLDEST_SQLITE))
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; install SQLite {oldest} or later")
        # The gate and the WAL are next to the file itself, so links must be resolved; abspath does not do that.
        self.path = os.path.realpath(path)  # see `BackingUp`
        self._namespace = rows.to_bytes(namespace)
        self._clock = clock or clocks.machine
        self._wall = wall or clocks.wall
        self._readers = Readers(self.path, durability, busy_timeout)
        self.writer = Writer(self.path, durability, busy_timeout, self._writing, upgrades=upgrades)
        self._held = forksafe.HeldLocks()
        _stores.add(self)  # before there is a connection that a fork would have to wait for
        try:
            self.writer.open()
        except BaseException:
            _stores.discard(self)
            raise

    # -- the file ---------------------------------------------------------------------------------------------------

    def clock(self) -> Clock:
        self.writer.ready()
        return self._clock()

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        if scrub:
            self.writer.scrub()
            return (rules.BEYOND_FILES,)
        while self.repeatable(_VACUUM_PAGES * PAGE_SIZE, _vacuum):
            continue
        self.writer.truncate_wal()
        return ()

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """See `BackingUp`."""
        return self.read(backup.copy, path, progress)

    def mended(self, folder: str) -> tuple[SQLiteStore, list[Problem]]:
        """See `Mending`."""
        path = os.path.join(folder, "mended.db")
        self.backup(path)
        problems = rebuild(path, self._namespace)
        return SQLiteStore(path, namespace=rows.to_text(self._namespace), durability="off"), problems

    def settings(self) -> StoreSettings:
        """See `Configured`."""
        found = self.read(_settings)
        found["journal_mode"] = rows.to_text(found["journal_mode"])
        synchronous = _SYNCHRONOUS[found["synchronous"]]
        are_right = found["journal_mode"] == "wal" and synchronous in ("FULL", "EXTRA") and bool(found["secure_delete"])
        shown = ", ".join(f"{name} {value}" for name, value in {**found, "synchronous": synchronous}.items())
        return StoreSettings(are_right, shown)

    def close(self) -> None:
        if self.writer.refusal is not rules.forked:  # a lock that was held during the fork stays locked forever
            self._readers.close()
        if self.writer.close():
            _stores.discard(self)

    # -- how a verb runs --------------------------------------------------------------------------------------------

    def read(self, verb: Callable[Concatenate[SQLiteTransaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.writer.refusal is not None:
            self.writer.ready()
        try:
            with shield:
                reader = self._readers.take()
                try:
                    reader.execute("BEGIN")
                    try:
                        tx = SQLiteTransaction(reader, self._namespace, self._clock, self._wall, self.path)
                        return verb(tx, *args, **kwargs)
                    finally:
                        # It fails after an unreadable page. Then the pool does not reuse the connection.
                        with suppress(*FAILURES):
                            reader.execute("COMMIT")
                finally:
                    self._readers.give(reader)
        except FAILURES as error:
            raise translate(error, self.path) from error

    def _writing(self, connection: sqlite3.Connection) -> SQLiteTransaction:
        return SQLiteTransaction(connection, self._namespace, self._clock, self._wall)

    # -- fork() -----------------------------------------------------------------------------------------------------
    # SQLite keeps its file locks in process memory, which a child inherits. A connection that the child opens while it
    # still has an inherited one takes no locks, and the parent may delete the WAL that the child uses. So calls in
    # progress are finished before the fork, and the child closes inherited connections before it opens new ones.

    def pause(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        if self._held.take(self.writer.lock, patience):
            self._readers.pause(deadline, self._held)

    def is_paused(self) -> bool:
        return self._held.has(self.writer.lock) and self._readers.is_paused(self._held)

    def resume(self) -> None:
        self._held.release()

    def restart(self, *, paused: bool) -> None:
        self.writer.restart(paused=paused)
        if paused:
            self._readers.restart()
        else:
            _stores.discard(self)  # another fork has no connection to wait for


def _settings(tx: SQLiteTransaction) -> dict[str, Any]:
    return {name: schema.pragma(tx.connection, name) for name in _SETTINGS}


def _vacuum(tx: Transaction) -> bool:
    """Return some free pages to the file system; return whether there are more."""
    [(before,)] = tx.rows("free_pages")
    if not before:
        return False
    tx.rows("vacuum")
    [(after,)] = tx.rows("free_pages")
    return bool(0 < after < before)


_stores: Final = forksafe.PausedAtFork[SQLiteStore](opening)
