"""Connections without session state, and the pool of a handle.

No statement is prepared (unless the URL asks for it) and no setting is changed on a connection. So a pooler in
transaction mode between here and the server may run every transaction on another server connection.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper

from holdfast import forksafe
from holdfast.stores.postgres.address import ANSWER_TIMEOUT, Address
from holdfast.stores.sql.pool import Pool
from holdfast.time_limit import is_exhausted

T = TypeVar("T")

# Executions of a statement before it is prepared, if prepare=yes.
_PREPARE_AFTER: Final = 5
_SYNCHRONOUS: Final = b"SELECT pg_catalog.current_setting('synchronous_commit')"
_OPEN: Final = (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR)

# One type for all integers, so that the meaning of a statement does not depend on the size of its parameters.
_ADAPTERS: Final = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)
# Binary lists, so that bytes do not depend on how the server or this process writes text.
_ADAPTERS.register_dumper(list, ListBinaryDumper)


class Unanswered(psycopg.OperationalError):
    """The server, or what is between, accepted a statement and did not answer in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__("no answer")
        self.seconds: Final = seconds


class _Context:
    adapters = _ADAPTERS
    connection = None


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is shut down if it receives nothing for `answer_timeout` seconds.

    A pooler or a network may accept a statement and never answer. `is_lax` means that the server acknowledges commits
    before they are flushed, although this store requires flushing.
    """

    is_lax = False
    unanswered_for: float | None = None  # seconds, if it was shut down
    answer_timeout = ANSWER_TIMEOUT

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        try:
            return super().wait(self._heard(gen), *args, **kwargs)
        except psycopg.OperationalError as error:
            if self.unanswered_for is None:
                raise
            raise Unanswered(self.unanswered_for) from error

    def _heard(self, gen: PQGen[T]) -> PQGen[T]:
        try:
            wanted = next(gen)
            deadline = time.monotonic() + self.answer_timeout
            while True:
                ready = yield wanted
                if ready:
                    deadline = time.monotonic() + self.answer_timeout
                elif time.monotonic() > deadline or is_exhausted():
                    self.unanswered_for = time.monotonic() - deadline + self.answer_timeout
                    self._hang_up()
                wanted = gen.send(ready)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def _hang_up(self) -> None:
        """Shut down the socket, so that the waiting call fails as if the server had closed it."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


# Connections that a forked child inherited. They are kept, because closing or garbage-collecting one would end it for
# the parent, too.
_inherited: list[Connection] = []


def leave(connection: Connection) -> None:
    """In a forked child: leave a connection to the parent."""
    _inherited.append(connection)


def connect(conninfo: str, *, prepares: bool, answer_timeout: float, flushes: bool = False) -> Connection:
    """A connection outside any transaction. With `flushes`, find out whether the server flushes commits by itself."""
    made = Connection.connect(
        conninfo,
        autocommit=True,
        prepare_threshold=_PREPARE_AFTER if prepares else None,
        cursor_factory=psycopg.RawCursor,
        context=_Context(),
        fallback_application_name="holdfast",
        client_encoding="utf8",
    )
    made.answer_timeout = answer_timeout
    if flushes:
        try:
            made.is_lax = made.execute(_SYNCHRONOUS).fetchone() == ("off",)
        except BaseException:
            made.close()
            raise
    return made


def _is_busy(connection: Connection) -> bool:
    # Without `connection.info`, which makes an object for each question: every call asks several times.
    return connection.closed or connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE


def roll_back(connection: Connection) -> None:
    """End a transaction without changes. Errors are ignored: the pool closes a connection in a transaction."""
    if not connection.closed and connection.pgconn.transaction_status in _OPEN:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")


class PostgresPool(Pool[Connection]):
    """The connections of a handle: at most `limit` at once."""

    def __init__(self, place: Address, *, limit: int, patience: float, flushes: bool) -> None:
        made = partial(
            connect, place.conninfo, prepares=place.prepares, answer_timeout=place.answer_timeout, flushes=flushes
        )
        super().__init__(made, _is_busy, place.shown, idle=limit, limit=limit, patience=patience)
        forksafe.renew_in_child(self)

    @contextmanager
    def lent(self) -> Generator[Connection]:
        """A connection for the exclusive use of the caller. A transaction that was not committed is rolled back."""
        connection = self.take()
        try:
            yield connection
        finally:
            roll_back(connection)
            self.give(connection)

    def renew(self) -> None:
        """In a forked child: leave the inherited connections to the parent and start with an empty pool."""
        for _, connection in self.idle:
            leave(connection)
        self.reset()
