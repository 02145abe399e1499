"""The writer connection of a store: group commits, failure of the connection, and WAL checkpoints."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.errors import ErasePending, HoldfastError, Replaced, StoreError
from holdfast.signals import shield
from holdfast.stores import rules
from holdfast.stores.sql.transaction import StoreWrite
from holdfast.stores.sqlite.connection import PAGE_SIZE, Durability, open_writer
from holdfast.stores.sqlite.failures import FAILURES, is_input_output, translate
from holdfast.stores.sqlite.transaction import SQLiteTransaction
from holdfast.stores.write_queue import Gate, GroupCommit, QueuedWrite

T = TypeVar("T")

# What a save writes to the WAL in addition to its own bytes, on average.
_PAGES: Final = 4 * PAGE_SIZE
# Bytes written between two checkpoints of the WAL: SQLite's default with pages of 4 kB.
_CHECKPOINT_AFTER: Final = 4 << 20
# If readers overlap, SQLite cannot restart the WAL. Above this size, wait until there are no readers.
_TOO_LONG: Final = 64 << 20
# Milliseconds.
_READERS_LEAVE: Final = 50
_SCRUB_WAITS: Final = 1000
# Larger files are vacuumed through a temporary file of SQLite instead of in memory. Bytes.
_VACUUMED_IN_MEMORY: Final = 64 << 20
_TRUNCATE: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
_RESTART: Final = "PRAGMA wal_checkpoint(RESTART)"


class Writer:
    """Runs writes in durable transactions, under the gate, in groups."""

    def __init__(
        self,
        path: str,
        durability: Durability,
        timeout: float,
        transaction: Callable[[sqlite3.Connection], SQLiteTransaction],
        *,
        upgrades: bool = True,
    ) -> None:
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.group: GroupCommit[StoreWrite[Any], Any] = GroupCommit(self._run_batch)
        self._transaction = transaction
        self._tx: SQLiteTransaction
        self._path = path
        self._timeout = timeout
        self._gate = Gate(path, timeout)
        self._open_file = partial(open_writer, path, durability, timeout, self._gate, upgrades=upgrades)
        self._written = 0
        self._file: tuple[int, int] | None = None
        # Makes the error of every call, if the store cannot be used any longer.
        self.refusal: Callable[[str], HoldfastError] | None = None

    def open(self) -> None:
        """Open or create the store's file."""
        with self.lock:
            try:
                self._connected()
            except BaseException:
                self._gate.close()
                raise

    def write(self, write: StoreWrite[T]) -> T:
        """Run the write in a transaction, alone or in a group; return when it is durable."""
        with shield:
            answer: T = self.group.submit(write)
            return answer

    def truncate_wal(self) -> None:
        """Empty the WAL and release its disk space, unless a reader uses it."""
        self._exclusively(partial(self._empty_wal, truncate=True))

    def scrub(self) -> None:
        """Rewrite the whole file without its free space, and empty the WAL.

        `ErasePending` if a reader needs the WAL; the file may still hold the old data then.
        """
        self._exclusively(self._scrub)

    def ready(self) -> None:
        """Raise unless the store can be used."""
        if self.refusal is not None:
            raise self.refusal(self._path)

    def close(self) -> bool:
        """Close the writer; return whether it was open."""
        with self.lock:
            before, self.refusal = self.refusal, rules.closed
            if before is None or before is rules.write_failed:
                connection, self.connection = self.connection, None
                if connection is not None:
                    try:
                        if before is None:
                            self._last_checkpoint(connection)
                    finally:
                        connection.close()
                self._gate.close()
        return before is not rules.closed

    def restart(self, *, paused: bool) -> None:
        """In a forked child: release what was inherited. Connections in use during the fork cannot be closed."""
        if not paused:
            self.refusal = rules.forked
        elif self.connection is not None:
            self.connection.close()
            self.connection = None
        self.lock = threading.Lock()
        self.group = GroupCommit(self._run_batch)
        # Closed without unlocking: the lock belongs to the parent, and must not stay held by the child.
        self._gate.close()

    # -- transactions -----------------------------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        if self.connection is None:
            self.connection = self._open_file()
            self._tx = self._transaction(self.connection)
            self._file = self._identity()
            # What an earlier process left in the WAL counts as written since the last checkpoint.
            self._written = self._wal_size()
        return self.connection

    def _exclusively(self, run: Callable[[sqlite3.Connection], None]) -> None:
        """Run a function while no other thread or process writes."""
        with self.lock:
            try:
                run(self._enter())
            finally:
                self._gate.leave()

    def _enter(self) -> sqlite3.Connection:
        """Wait until no other process writes. The caller holds the lock, and leaves the gate."""
        if self.refusal is not None:
            self.ready()
        connection = self.connection or self._connected()
        self._gate.enter()
        # SQLite would continue to write to a file that was deleted or renamed, and acknowledge lost writes.
        found = self._identity()
        if found is None:
            raise StoreError(
                f"{self._path}: the file was deleted or moved; nothing was written. Restore it, then open it again."
            )
        if found != self._file:
            raise Replaced(
                f"{self._path}: the file was replaced while it was open; nothing was written. Open it again."
            )
        return connection

    def _run_batch(self, writes: Sequence[QueuedWrite[StoreWrite[Any], Any]]) -> None:
        with self.lock:
            try:
                connection = self._enter()
                if not self._transact(connection, writes):
                    # Some failures end the transaction for the whole group. Run separately, each write gets its own
                    # result.
                    for queued in writes:
                        self.ready()
                        self._transact(connection, [queued])
                if self._written >= _CHECKPOINT_AFTER:
                    self._empty_wal(connection)
            finally:
                self._gate.leave()

    def _transact(self, connection: sqlite3.Connection, writes: Sequence[QueuedWrite[StoreWrite[Any], Any]]) -> bool:
        """Run the writes in one transaction and finish them. False, with nothing done, if they must run separately."""
        outcomes: list[tuple[Any, Exception | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for queued in writes:
                before = connection.total_changes
                try:
                    outcomes.append((queued.write.run(self._tx), None))
                except HoldfastError as error:
                    # A write that fails nearly always fails before it changes a row. Savepoints would isolate the other
                    # cases too, but cost two more statements per write. Instead the writes of the group run separately.
                    if connection.total_changes != before:
                        raise
                    outcomes.append((None, error))
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection)
            if not isinstance(error, Exception):
                raise
            if isinstance(error, FAILURES) and is_input_output(error):
                self.refusal = rules.write_failed
            if len(writes) > 1 and self.refusal is None:
                return False
            for queued in writes:
                queued.fail(self._failure(error))
            return True
        # Errors wait for the commit, too: their cause may have been written in the same transaction.
        for queued, (answer, refusal) in zip(writes, outcomes, strict=True):
            if refusal is None:
                self._written += queued.write.weight + _PAGES
                queued.finish(answer)
            else:
                queued.fail(refusal)
        return True

    def _failure(self, error: Exception) -> Exception:
        """The error to raise in one caller: a separate instance, because each caller has its own traceback."""
        if self.refusal is not None:
            failure: Exception = self.refusal(self._path)
        elif isinstance(error, FAILURES):
            failure = translate(error, self._path)
        else:
            return error
        failure.__cause__ = error
        return failure

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                # After a failed rollback the state of the transaction is not known.
                self.refusal = rules.write_failed

    # -- the WAL ----------------------------------------------------------------------------------------------------

    def _empty_wal(self, connection: sqlite3.Connection, *, truncate: bool = False) -> None:
        """Move the WAL's pages into the database. Errors are ignored: the commits are already durable in the WAL."""
        self._written = 0
        try:
            _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if truncate or frames * PAGE_SIZE > _TOO_LONG:
                # These wait for readers, and all writes wait meanwhile, so the timeout is short.
                self._checkpoint(connection, _TRUNCATE if truncate else _RESTART, _READERS_LEAVE)
        except sqlite3.Error:
            return

    def _checkpoint(self, connection: sqlite3.Connection, statement: str, patience: int) -> bool:
        """Move the WAL's pages into the database and wait for readers, for some milliseconds. False if they stay."""
        connection.execute(f"PRAGMA busy_timeout = {patience:d}")
        try:
            (busy, _, _) = connection.execute(statement).fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000):d}")
        return not busy

    def _scrub(self, connection: sqlite3.Connection) -> None:
        try:
            self._require_empty_wal(connection)  # first, so that a reader in the way is found before the long part
            in_memory = os.stat(self._path).st_size <= _VACUUMED_IN_MEMORY
            connection.execute(f"PRAGMA temp_store = {2 if in_memory else 1:d}")
            try:
                connection.execute("VACUUM")
            finally:
                connection.execute("PRAGMA temp_store = 2")
            self._require_empty_wal(connection)
        except FAILURES as error:
            if is_input_output(error):
                self.refusal = rules.write_failed
            raise self._failure(error) from error
        except OSError as error:
            raise StoreError(f"{self._path}: cannot read the file's size; erased data may still be in it") from error

    def _require_empty_wal(self, connection: sqlite3.Connection) -> None:
        if not self._checkpoint(connection, _TRUNCATE, _SCRUB_WAITS) or self._wal_size():
            raise ErasePending(
                f"{self._path}: a read in progress keeps erased data in the -wal file. Erase again when the read has "
                "ended."
            )
        self._written = 0

    def _last_checkpoint(self, connection: sqlite3.Connection) -> None:
        if not self._wal_size():
            return
        try:
            self._gate.enter(timeout=0.1)
            self._empty_wal(connection, truncate=True)
        except StoreError:
            return  # another process is writing, or this one may not: the next checkpoint does it
        finally:
            self._gate.leave()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _wal_size(self) -> int:
        try:
            return os.stat(f"{self._path}-wal").st_size
        except OSError:
            return 0
