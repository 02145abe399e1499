"""The writer: one connection, used by one caller at a time, for all who wait. Poison, and the size of the WAL."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.errors import Closed, ErasePending, HoldfastError, Replaced, StoreError
from holdfast.stores.gate import Gate
from holdfast.stores.group import Entry, GroupCommit, again
from holdfast.stores.sqlite.connection import PAGE_SIZE, Durability, open_writer
from holdfast.stores.sqlite.errors import FAILURES, is_input_output, translate, unknown

T = TypeVar("T")

# What a save writes to the WAL besides its own bytes, on average: the pages around them.
_PAGES: Final = 4 * PAGE_SIZE
# Bytes written between two checkpoints of the WAL: what SQLite's own default comes to with pages of 4 kB.
_CHECKPOINT_AFTER: Final = 4 << 20
# A WAL of this size is not being emptied because there is always a reader in it: wait for a moment without.
_TOO_LONG: Final = 64 << 20
# Milliseconds.
_READERS_LEAVE: Final = 50
_SCRUB_WAITS: Final = 1000
# Bytes of a file that may be written anew in memory; a larger one goes over a file where SQLite has its temporary ones.
_VACUUMED_IN_MEMORY: Final = 64 << 20


class Work(NamedTuple):
    """Something to do inside a write transaction, and about how many bytes it will write."""

    run: Callable[[sqlite3.Connection], Any]
    weight: int


class _Struck(BaseException):
    """Carries what a signal handler raised once the work was done, past those who would take it for the work's."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Writer:
    """Runs work in durable transactions, under the gate, in groups."""

    def __init__(self, path: str, durability: Durability, timeout: float) -> None:
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.group: GroupCommit[Work, Any] = GroupCommit(self._run_batch)
        self._path = path
        self._durability: Durability = durability
        self._timeout = timeout
        self._gate = Gate(path, timeout)
        self._written = 0
        self._file: tuple[int, int] | None = None
        self._closed = False
        self._poisoned = False
        self.torn = False

    def open(self) -> None:
        """Open or create the store's file."""
        with self.lock:
            try:
                self._connected()
            except BaseException:
                self._gate.close()
                raise

    def write(self, work: Work) -> Any:
        """Do the work in a transaction, its own or one shared with others that wait; returns when it is durable."""
        try:
            return self.group.submit(work)
        except _Struck as struck:
            raise struck.error from struck.error.__cause__

    def truncate_wal(self) -> None:
        """Empty the WAL and give its space back, if no reader is in it."""
        self._exclusively(self._truncate)

    def scrub(self) -> None:
        """Write the whole file anew, without what is free in it, and leave nothing in the WAL.

        `ErasePending` if a reader needs the WAL: what is in the file then may be that of before.
        """
        self._exclusively(self._scrub)

    def ready(self) -> None:
        """Raise unless the store can be used."""
        if self._closed:
            raise Closed(f"{self._path}: the store was closed; open it again")
        if self._poisoned:
            raise unknown(self._path)
        if self.torn:
            raise StoreError(
                f"{self._path}: the process was forked in the middle of a call; use the store in its parent"
            )

    def close(self) -> bool:
        """Close; whether it was open."""
        with self.lock:
            if self._closed:
                return False
            self._closed = True
            if self.torn:
                return True
            connection, self.connection = self.connection, None
            if connection is not None:
                try:
                    if not self._poisoned:
                        self._last_checkpoint(connection)
                finally:
                    connection.close()
            self._gate.close()
        return True

    def restart(self, *, paused: bool) -> None:
        """In a forked child: let go of what was inherited. What was in use at the time cannot even be closed."""
        self.lock = threading.Lock()
        self.group = GroupCommit(self._run_batch)
        # Not left, only closed: the lock is the parent's, and would outlive it for as long as the child has it open.
        self._gate.close()
        if not paused:
            self.torn = True
            return
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    # -- transactions -----------------------------------------------------------------------------------------------

    def _connected(self) -> sqlite3.Connection:
        if self.connection is None:
            self.connection = open_writer(self._path, self._durability, self._timeout, self._gate)
            self._file = self._identity()
            # What an earlier process left behind counts as written since the last checkpoint.
            self._written = self._wal_size()
        return self.connection

    def _exclusively(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run something while neither this process nor another writes."""
        with self.lock:
            self.ready()
            connection = self._connected()
            try:
                self._gate.enter()
                # SQLite would go on writing to a file that has lost its name, and acknowledge what nobody can find.
                found = self._identity()
                if found is None:
                    raise StoreError(f"{self._path} is not there any more; nothing was written")
                if found != self._file:
                    raise Replaced(f"{self._path} was replaced while it was open; nothing was written. Open it again")
                return run(connection)
            finally:
                self._gate.leave()

    def _run_batch(self, entries: Sequence[Entry[Work, Any]]) -> None:
        try:
            self._exclusively(lambda connection: self._run(connection, entries))
        except HoldfastError as error:
            for entry in entries:
                if not entry.settled:
                    entry.fail(again(error))

    def _run(self, connection: sqlite3.Connection, entries: Sequence[Entry[Work, Any]]) -> None:
        if not self._transact(connection, entries):
            # Some failures end the transaction for all. Apart, each gets the answer it deserves.
            for entry in entries:
                self.ready()
                self._transact(connection, [entry])
        if self._written >= _CHECKPOINT_AFTER:
            self._empty_wal(connection)

    def _transact(self, connection: sqlite3.Connection, entries: Sequence[Entry[Work, Any]]) -> bool:
        """Run the entries in one transaction and answer them. False, with nothing done, if they must be run apart."""
        outcomes: list[tuple[Any, Exception | None]] = []
        committing = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes += [self._member(connection, entry.item) for entry in entries]
            committing = True
            connection.execute("COMMIT")
            self._answer(entries, outcomes)
        except BaseException as error:
            if committing and not isinstance(error, FAILURES) and not connection.in_transaction:
                # The commit went through; an interrupt came before everybody was told. Whoever is not would go back
                # to the line, and what is done would be done again.
                self._answer(entries, outcomes)
                if isinstance(error, Exception):
                    raise _Struck(error) from error
                raise
            self._roll_back(connection)
            if not isinstance(error, Exception):
                raise
            if isinstance(error, FAILURES) and is_input_output(error):
                self._poisoned = True
            if len(entries) > 1 and not self._poisoned:
                return False
            for entry in entries:
                entry.fail(self._failure(error))
        return True

    def _member(self, connection: sqlite3.Connection, work: Work) -> tuple[Any, Exception | None]:
        """One entry's answer, or its error if it left nothing in the transaction; else it raises.

        Work that is refused is nearly always refused before it writes. Savepoints would isolate the rest as well, at
        the price of two more statements for every member; instead the rest is rolled back together and run apart.
        """
        before = connection.total_changes
        try:
            return work.run(connection), None
        except HoldfastError as error:
            if connection.total_changes != before:
                raise
            return None, error

    def _answer(self, entries: Sequence[Entry[Work, Any]], outcomes: Sequence[tuple[Any, Exception | None]]) -> None:
        # Refusals wait for the commit, too: what they were refused for may have been written in the same transaction.
        for entry, (answer, error) in zip(entries, outcomes, strict=True):
            if entry.settled:
                entry.wake()
            elif error is None:
                self._written += entry.item.weight + _PAGES
                entry.settle(answer)
            else:
                entry.fail(error)

    def _failure(self, error: Exception) -> Exception:
        """The error to raise in one caller: an instance of its own, as each has its own traceback."""
        if self._poisoned:
            failure: Exception = unknown(self._path)
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
                # What cannot be rolled back cannot be trusted to be gone.
                self._poisoned = True

    # -- the WAL ----------------------------------------------------------------------------------------------------

    def _empty_wal(self, connection: sqlite3.Connection, *, truncate: bool = False) -> None:
        """Move the WAL's pages into the database. Failing to is no failure of the commits, which are durable in it."""
        self._written = 0
        try:
            _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if truncate or frames * PAGE_SIZE > _TOO_LONG:
                # These wait for readers to leave, and everybody's writes wait meanwhile: not for long.
                connection.execute(f"PRAGMA busy_timeout = {_READERS_LEAVE:d}")
                try:
                    if truncate:
                        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    else:
                        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
                finally:
                    connection.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000):d}")
        except sqlite3.Error:
            return

    def _scrub(self, connection: sqlite3.Connection) -> None:
        try:
            self._require_empty_wal(connection)  # first: whoever is in the way is so before the long part, too
            in_memory = os.stat(self._path).st_size <= _VACUUMED_IN_MEMORY
            connection.execute(f"PRAGMA temp_store = {2 if in_memory else 1:d}")
            try:
                connection.execute("VACUUM")
            finally:
                connection.execute("PRAGMA temp_store = 2")
            self._require_empty_wal(connection)
        except FAILURES as error:
            self._poisoned = self._poisoned or is_input_output(error)
            raise self._failure(error) from error
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be looked at") from error

    def _require_empty_wal(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_SCRUB_WAITS:d}")
        try:
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000):d}")
        if busy or self._wal_size():
            raise ErasePending(
                f"{self._path}: a read that is under way keeps what was erased in the -wal file; erase again when it "
                "has ended"
            )
        self._written = 0

    def _truncate(self, connection: sqlite3.Connection) -> None:
        self._empty_wal(connection, truncate=True)

    def _last_checkpoint(self, connection: sqlite3.Connection) -> None:
        if not self._wal_size():
            return
        try:
            self._gate.enter(timeout=0.1)
            self._truncate(connection)
        except StoreError:
            return  # somebody is writing, or this process may not: the next checkpoint will do it
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
