"""A pool of connections that loses none of them to interrupts."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from holdfast.errors import Busy
from holdfast.interrupts import shield
from holdfast.patience import is_exhausted
from holdfast.stores import rules

# Seconds. A connection that was idle for longer may have been dropped by the network.
_KEPT: Final = 300.0
_POLL: Final = 0.05


class PooledConnection(Protocol):
    """A connection that a pool lends. It can be referred to weakly."""

    def close(self) -> None: ...


class _Opening:
    """Stands for a connection that is being made."""


C = TypeVar("C", bound=PooledConnection)


class Pool(Generic[C]):
    """At most `limit` connections at once. If all are in use, `take` waits for `patience` seconds.

    An interrupt may end a call at any point between `take` and `give`. So the pool refers to connections in use weakly:
    one that its user lost is garbage, and no longer counts.
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
        self._all: weakref.WeakSet[C | _Opening] = weakref.WeakSet()
        self._returned = threading.Lock()  # released by `give` for a caller that waits

    @property
    def in_use(self) -> int:
        """How many connections are in use or being made."""
        return len(self._all) - len(self.idle)

    def take(self) -> C:
        """A connection for the exclusive use of the caller, who returns it with `give`."""
        opening = _Opening()
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
                        return connection
                    self._drop(connection)
                if self._limit is None or len(self._all) < self._limit:
                    self._all.add(opening)
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
            self._all.add(connection)
        finally:
            self._all.discard(opening)
        return connection

    def give(self, connection: C) -> None:
        """Return a connection. One that is broken or in a transaction is closed, not reused."""
        if self._is_busy(connection) or len(self.idle) >= self._most_idle:
            self._drop(connection)
        else:
            self.idle.append((time.monotonic(), connection))
        if self._closed:
            self.forget_idle()
        if self._returned.locked():
            with suppress(RuntimeError):  # another thread released it
                self._returned.release()

    def forget_idle(self) -> None:
        """Close idle connections: if one connection broke, the others probably did, too."""
        with suppress(IndexError):  # when there is none left
            while True:
                self._drop(self.idle.pop()[1])

    def ready(self) -> None:
        """Raise `Closed` if the pool was closed."""
        if self._closed:
            raise rules.closed(self._shown)

    def close(self) -> None:
        """Close idle connections now and the others when they are returned."""
        self._closed = True
        self.forget_idle()

    def _drop(self, connection: C) -> None:
        connection.close()
        self._all.discard(connection)
