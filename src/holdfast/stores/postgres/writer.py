"""Writes: one guarded statement when possible, retried on conflicts, and looked up after a lost connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import psycopg

from holdfast import forksafe
from holdfast.errors import AlreadyExists, Conflict, HoldfastError
from holdfast.signals import shield
from holdfast.stores.postgres.connection import Connection, PostgresPool, roll_back
from holdfast.stores.postgres.failures import Backoff, is_absent, is_away, is_conflict, translate, unknown
from holdfast.stores.postgres.transaction import BEGIN_WRITING, COMMIT, PostgresTransaction, Scope, Sent, send
from holdfast.stores.sql.transaction import Query, StoreWrite
from holdfast.stores.write_queue import GroupCommit, QueuedWrite

T = TypeVar("T")

_UNIQUE: Final = "23505"
# If another transaction took the name at the same moment, the next attempt finds its thread. After several attempts the
# cause is another one.
_UNIQUE_TRIES: Final = 3


class Writer:
    """Runs writes on connections of a pool."""

    def __init__(self, pool: PostgresPool, scope: Scope, *, patience: float, channel: str | None = None) -> None:
        self._pool = pool
        self._scope = scope
        self._patience = patience
        self._channel = channel
        self._has_functions = True  # until a guarded write finds out that the database does not have them
        self.group: GroupCommit[Sent, bool | None] = GroupCommit(self._run_batch)
        forksafe.renew_in_child(self)

    def renew(self) -> None:
        """In a forked child: start with an empty queue."""
        self.group = GroupCommit(self._run_batch)

    def write(self, write: StoreWrite[T]) -> T:
        """Do the write; return when it is durable."""
        self._pool.ready()
        guarded = write.guarded(self._scope.namespace) if self._has_functions else None
        with shield:
            done = False if guarded is None else self._guarded(guarded, write)
            return write.guarded_answer() if done else self._write(write, lost=done is None)

    def _guarded(self, guarded: Query, write: StoreWrite[T]) -> bool | None:
        sent = self._scope.sql[guarded[0]], guarded[1]
        if write.is_grouped:
            return self.group.submit(sent)
        alone: QueuedWrite[Sent, bool | None] = QueuedWrite(sent)
        self._run_batch([alone])
        return alone.answer()

    # -- in a transaction of its own --------------------------------------------------------------------------------

    def _write(self, write: StoreWrite[T], *, lost: bool) -> T:
        patience = Backoff(self._patience)
        unique = 0
        while True:
            tx: PostgresTransaction | None = None
            try:
                with self._pool.lent() as connection:
                    tx = PostgresTransaction(connection, self._scope, "write")
                    answer = self._attempt(write, tx, lost=lost)
                    if tx.queues:
                        self._announce(connection)
                    return answer
            except psycopg.Error as error:
                if is_away(error) or (tx is not None and tx.connection.closed):
                    self._pool.forget_idle()
                    lost = lost or (tx is not None and tx.committing)
                elif error.sqlstate == _UNIQUE and unique < _UNIQUE_TRIES:
                    unique += 1
                elif not is_conflict(error):
                    raise self._given_up(error, lost=lost) from None
                if not patience.wait():
                    raise self._given_up(error, lost=lost) from None

    def _given_up(self, error: psycopg.Error, *, lost: bool) -> HoldfastError:
        """The error to raise. It is not chained to the server's error, which may quote the row."""
        return unknown(self._scope.shown) if lost else translate(error, self._scope.shown)

    def _attempt(self, write: StoreWrite[T], tx: PostgresTransaction, *, lost: bool) -> T:
        found = write.find_result(tx) if lost else None
        if found is None:
            try:
                answer = write.run(tx)
            except (AlreadyExists, Conflict):
                if not lost:
                    raise
                # The name was free a moment ago and is taken now, possibly by the very write whose result was lost.
                # In another transaction: this one would find what the attempt has written.
                roll_back(tx.connection)
                found = write.find_result(PostgresTransaction(tx.connection, self._scope, "write"))
                if found is None:
                    raise
            else:
                tx.commit()
                return answer
        return found.answer

    def _announce(self, connection: Connection) -> None:
        """Notify workers that a run was queued. A failure does not matter: the run is queued."""
        if self._channel is None:
            return
        try:
            connection.execute(self._scope.sql["announce"], (self._channel,))
        except psycopg.Error as error:
            if is_absent(error):
                self._channel = None

    # -- in a group --------------------------------------------------------------------------------------------------

    def _run_batch(self, writes: Sequence[QueuedWrite[Sent, bool | None]]) -> None:
        """Do guarded writes in one transaction. Each result is True (done), False (not done) or None (not known)."""
        nothing: list[bool | None] = [False] * len(writes)
        try:
            with self._pool.lent() as connection:
                outcomes: list[bool | None] = [None] * len(writes)
                try:
                    outcomes = self._send(connection, writes)
                except psycopg.Error as error:
                    if connection.closed or is_away(error):
                        self._pool.forget_idle()
                    else:
                        self._has_functions = self._has_functions and not is_absent(error)
                        outcomes = nothing
                finally:
                    # Whatever happens, no write returns to the queue: a write that may be done is looked up, not
                    # repeated.
                    self._finish(writes, outcomes)
        except psycopg.Error:
            self._finish(writes, nothing)  # no connection: each will wait for the database by itself

    def _send(self, connection: Connection, writes: Sequence[QueuedWrite[Sent, bool | None]]) -> list[bool | None]:
        if len(writes) == 1 and not connection.is_lax:
            text, values = writes[0].write
            return [connection.execute(text, values, binary=True).rowcount == 1]
        begin: list[Sent] = [(BEGIN_WRITING, ()), (self._scope.sql["durable"], ())]
        begin = begin if connection.is_lax else begin[:1]
        cursors = send(connection, [*begin, *(queued.write for queued in writes), (COMMIT, ())])
        return [cursor.rowcount == 1 for cursor in cursors[len(begin) : -1]]

    @staticmethod
    def _finish(writes: Sequence[QueuedWrite[Sent, bool | None]], outcomes: Sequence[bool | None]) -> None:
        for queued, outcome in zip(writes, outcomes, strict=True):
            if not queued.finished:
                queued.finish(outcome)
