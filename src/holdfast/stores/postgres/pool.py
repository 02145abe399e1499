"""A pool of connections without session state.

No statement is prepared (unless the URL asks for it) and no setting is changed on a connection. So a pooler in
transaction mode between here and the server may run every transaction on another server connection.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper

from holdfast import forksafe
from holdfast.errors import Busy
from holdfast.stores import rules

T = TypeVar("T")

_KEPT_SECONDS: Final = 300.0
# Executions of a statement before it is prepared, if prepare=yes.
_PREPARE_AFTER: Final = 5
_SYNCHRONOUS: Final = b"SELECT pg_catalog.current_setting('synchronous_commit')"
SILENCE = 60.0

# One type for all integers, so that the meaning of a statement does not depend on the size of its parameters.
_ADAPTERS: Final = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)
# Binary lists, so that bytes do not depend on how the server or this process writes text.
_ADAPTERS.register_dumper(list, ListBinaryDumper)


class _Context:
    adapters = _ADAPTERS
    connection = None


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is shut down if it receives nothing for `SILENCE` seconds while it `is_writing`.

    This way, writers do not wait forever for a write that was lost on the way to the server. `is_lax` means that the
    server acknowledges commits before they are flushed, although this store requires flushing.
    """

    is_lax = False
    is_writing = False

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        return super().wait(self._heard(gen) if self.is_writing else gen, *args, **kwargs)

    def _heard(self, gen: PQGen[T]) -> PQGen[T]:
        try:
            wanted = next(gen)
            deadline = time.monotonic() + SILENCE
            while True:
                ready = yield wanted
                if ready:
                    deadline = time.monotonic() + SILENCE
                elif time.monotonic() > deadline:
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


def connect(conninfo: str, *, prepares: bool, flushes: bool = False) -> Connection:
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
    if flushes:
        try:
            made.is_lax = made.execute(_SYNCHRONOUS).fetchone() == ("off",)
        except BaseException:
            made.close()
            raise
    return made


class Pool:
    """At most `limit` connections at once. If all are in use, `take` waits for at most `patience` seconds."""

    def __init__(
        self, conninfo: str, shown: str, *, limit: int, patience: float, prepares: bool, flushes: bool
    ) -> None:
        self._conninfo = conninfo
        self._prepares = prepares
        self._flushes = flushes
        self._shown = shown
        self._limit = limit
        self._patience = patience
        self._free = threading.Condition()
        self._idle: list[tuple[float, Connection]] = []
        self._taken: set[Connection] = set()
        self._opening = 0
        self._closed = False
        forksafe.renew_in_child(self)

    def take(self) -> Connection:
        """A connection for the exclusive use of the caller, who returns it with `give`."""
        deadline = time.monotonic() + self._patience
        with self._free:
            while True:
                self.ready()
                old = time.monotonic() - _KEPT_SECONDS
                while self._idle:
                    since, connection = self._idle.pop()
                    if since > old and not connection.closed:
                        self._taken.add(connection)
                        return connection
                    connection.close()
                if len(self._taken) + self._opening < self._limit:
                    self._opening += 1
                    break
                if not self._free.wait(deadline - time.monotonic()):
                    raise Busy(
                        f"{self._shown}: all {self._limit} connections of this handle are in use; nothing was changed. "
                        "Try again."
                    )
        made: Connection | None = None
        try:
            made = connect(self._conninfo, prepares=self._prepares, flushes=self._flushes)
            return made
        finally:
            with self._free:
                self._opening -= 1
                if made is not None:
                    self._taken.add(made)
                else:
                    self._free.notify()

    def give(self, connection: Connection) -> None:
        """Return a connection. One that is broken or in a transaction is closed, not reused."""
        fit = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        with self._free:
            self._taken.discard(connection)
            self._free.notify()
            if fit and not self._closed:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def forget_idle(self) -> None:
        """Close idle connections: if one connection broke, the others probably did, too."""
        with self._free:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def ready(self) -> None:
        """Raise `Closed` if the pool was closed."""
        if self._closed:
            raise rules.closed(self._shown)

    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""
        with self._free:
            self._closed = True
            self._free.notify_all()
        self.forget_idle()

    def renew(self) -> None:
        """In a forked child: leave the inherited connections to the parent and start with an empty pool."""
        _inherited.extend(connection for _, connection in self._idle)
        _inherited.extend(self._taken)
        self._free = threading.Condition()
        self._idle = []
        self._taken = set()
        self._opening = 0
