"""Connections: made when needed, kept when idle, let go when they break. No thread, no state of a session.

Nothing is prepared (unless the address says so) and nothing is set on a connection, so that whatever is between it and
the server (a pooler in transaction mode) may give every transaction to another one.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.numeric import Int8BinaryDumper

from holdfast.errors import Busy, Closed

Connection = psycopg.Connection[tuple[Any, ...]]

_KEPT_SECONDS: Final = 300.0
# Executions of a statement before it is prepared, where it may be.
_PREPARE_AFTER: Final = 5

# One type for every number: what a statement means does not depend on how large its parameters happen to be.
_ADAPTERS: Final = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(int, Int8BinaryDumper)


class _Context:
    adapters = _ADAPTERS
    connection = None


# What a forked child inherited. Closing one would end it for the parent, too; so would letting go of the last name of
# one.
_inherited: list[Connection] = []


def connect(conninfo: str, *, prepares: bool) -> Connection:
    """A connection that is in no transaction. It prepares nothing unless it is told to."""
    return psycopg.Connection.connect(
        conninfo,
        autocommit=True,
        prepare_threshold=_PREPARE_AFTER if prepares else None,
        cursor_factory=psycopg.RawCursor,
        context=_Context(),
        fallback_application_name="holdfast",
    )


class Pool:
    """At most `limit` connections at once. Who comes while all are taken waits, for at most `patience` seconds."""

    def __init__(self, conninfo: str, shown: str, *, limit: int, patience: float, prepares: bool) -> None:
        self._conninfo = conninfo
        self._prepares = prepares
        self._shown = shown
        self._limit = limit
        self._patience = patience
        self._free = threading.Condition()
        self._idle: list[tuple[float, Connection]] = []
        self._taken: set[Connection] = set()
        self._opening = 0
        self._closed = False

    def take(self) -> Connection:
        """A connection for the caller alone, to be given back."""
        deadline = time.monotonic() + self._patience
        with self._free:
            while True:
                if self._closed:
                    raise Closed(f"{self._shown}: the store was closed; open it again")
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
                    raise Busy(f"{self._shown}: all {self._limit} connections of this handle are in use; try again")
        made: Connection | None = None
        try:
            made = connect(self._conninfo, prepares=self._prepares)
            return made
        finally:
            with self._free:
                self._opening -= 1
                if made is not None:
                    self._taken.add(made)
                else:
                    self._free.notify()

    def give(self, connection: Connection) -> None:
        """Give a connection back. One that is broken, or not idle, is not fit for reuse."""
        fit = not connection.closed and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        with self._free:
            self._taken.discard(connection)
            self._free.notify()
            if fit and not self._closed:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def forget_idle(self) -> None:
        """Close what is idle: where one connection broke, the others most likely did."""
        with self._free:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def ready(self) -> None:
        """Raise if the pool was closed."""
        if self._closed:
            raise Closed(f"{self._shown}: the store was closed; open it again")

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        with self._free:
            self._closed = True
            self._free.notify_all()
        self.forget_idle()

    def restart(self) -> None:
        """In a forked child: leave what was inherited to the parent, begin anew."""
        _inherited.extend(connection for _, connection in self._idle)
        _inherited.extend(self._taken)
        self._free = threading.Condition()
        self._idle = []
        self._taken = set()
        self._opening = 0
