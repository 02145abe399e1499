"""A pool of connections."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from holdfast.errors import Busy
from holdfast.signals import shield
from holdfast.stores import rules
from holdfast.time_limit import is_exhausted

# Seconds. A connection that was idle for longer may have been dropped by the network.
_KEPT: Final = 300.0
_POLL: Final = 0.05


class PooledConnection(Protocol):
    """A connection that a pool lends."""

    def close(self) -> None: ...


C = TypeVar("C", bound=PooledConnection)


class Pool(Generic[C]):
    """At most `limit` connections at once. If all are in use, `take` waits for `patience` seconds.

    Callers are shielded from signals between `take` and `give`.
    """

    def __init__(
        self,
        connect: Callable[[], C],
        is_busy: Callable[[C], bool],
        shown: str,
        *,
        idle: int,
        limit: int | None = None,
        patience: float = 0.0,
    ) -> None:
        """`is_busy` tells whether a connection cannot be used again; at most `idle` others are kept."""
        self._connect = connect
        self._is_busy = is_busy
        self._shown = shown
        self._most_idle = idle
        self._limit = limit
        self._patience = patience
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Start as an empty pool with new locks."""
        self.door = threading.Lock()  # `take` needs it
        self.idle: deque[tuple[float, C]] = deque()
        # With a placeholder for each connection that is being made. `give` first makes a connection idle, then removes
        # it here: a connection that another thread takes in between is in the list twice.
        self._lent: list[object] = []
        self._returned = threading.Lock()  # released by `give` for a caller that waits

    @property
    def in_use(self) -> int:
        """How many connections are in use or being made."""
        return len(self._lent)

    def take(self) -> C:
        """A connection for the exclusive use of the caller, who returns it with `give`."""
        opening = object()
        deadline = 0.0
        while True:
            with self.door:
                if self._closed:
                    raise rules.closed(self._shown)
                while self.idle:
                    try:
                        since, connection = self.idle.pop()
                    except IndexError:  # `forget_idle` was faster
                        break
                    if time.monotonic() - since < _KEPT and not self._is_busy(connection):
                        self._lent.append(connection)
                        return connection
                    connection.close()
                if self._limit is None or len(self._lent) < self._limit:
                    self._lent.append(opening)
                    break
            now = time.monotonic()
            deadline = deadline or now + self._patience
            if now > deadline or is_exhausted():
                raise Busy(
                    f"{self._shown}: all {self._limit} connections of this handle are in use; nothing was changed. "
                    "Try again."
                )
            with shield.lifted():
                self._returned.acquire(timeout=_POLL)
        try:
            with shield.lifted():  # a server that does not answer
                connection = self._connect()
            self._lent.append(connection)
        finally:
            with suppress(ValueError):  # a signal handler has forked, and this is the child
                self._lent.remove(opening)
        return connection

    def give(self, connection: C) -> None:
        """Return a connection. One that is broken or in a transaction is closed, not reused."""
        if self._is_busy(connection) or len(self.idle) >= self._most_idle:
            connection.close()
        else:
            self.idle.append((time.monotonic(), connection))
        if self._closed:
            self.forget_idle()
        with suppress(ValueError):  # the same
            self._lent.remove(connection)
        if self._returned.locked():
            with suppress(RuntimeError):  # another thread released it
                self._returned.release()

    def forget_idle(self) -> None:
        """Close idle connections: if one connection broke, the others probably did, too."""
        with suppress(IndexError):  # when there is none left
            while True:
                self.idle.pop()[1].close()

    def ready(self) -> None:
        """Raise `Closed` if the pool was closed."""
        if self._closed:
            raise rules.closed(self._shown)

    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""
        self._closed = True
        self.forget_idle()
