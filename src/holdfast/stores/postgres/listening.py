"""LISTEN and NOTIFY: workers hear of a run that was queued, and need not wait for their next look.

Nothing depends on it. A notification is sent after the commit, in a transaction of its own: one that is part of a
commit holds a lock of the whole server until the log is flushed, and every commit that notifies waits for that. What
is lost with a process that dies in between is found by the next look.
"""

from __future__ import annotations

import hashlib
import random
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from holdfast.stores.postgres.errors import is_absent
from holdfast.stores.postgres.pool import Connection, connect, leave

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
# Nothing comes from a server that has vanished: it is asked, now and then, whether it is still there.
_QUIET_SECONDS: Final = 60.0
_ENDING_SECONDS: Final = 1.0


def channel(schema: str, namespace: bytes) -> str:
    """Where the runs of a namespace are announced: a name that tells nothing of either."""
    digest = hashlib.sha256(schema.encode("utf-8", "surrogateescape") + b"\0" + namespace).hexdigest()
    return f"holdfast_{digest[:32]}"


class Listener:
    """Calls `heard` when something is announced, and whenever it began to listen, in a thread of its own.

    It has a connection of its own. One that is lost is made again. Where there is no LISTEN, or something between here
    and the server would give it to a connection that others use, it ends: nobody is called.
    """

    def __init__(self, conninfo: str, name: str, heard: Callable[[], None]) -> None:
        self._conninfo = conninfo
        self._channel = name
        self._heard = heard
        self._ended = threading.Event()
        self._bell, self._ear = socket.socketpair()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-listener", daemon=True)
        self._thread.start()

    @property
    def is_listening(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    def end(self) -> None:
        """Call nobody any more."""
        if not self._ended.is_set():
            self._ended.set()
            with suppress(OSError):  # the thread has ended by itself
                self._bell.send(b"\0")
            self._bell.close()
            self._thread.join(_ENDING_SECONDS)  # one that waits for a server that does not answer is left to itself

    def leave(self) -> None:
        """In a forked child: the thread and its connection are the parent's."""
        self._ended = threading.Event()  # somebody may have been at the old one's lock
        self._ended.set()
        if self._connection is not None:
            leave(self._connection)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while not self._ended.is_set():
                try:
                    self._connection = connect(self._conninfo, prepares=False)
                    if not self._is_direct(self._connection):
                        return
                    self._connection.execute(f'LISTEN "{self._channel}"'.encode())
                    pause = _FIRST_PAUSE
                    self._heard()  # of what was queued while nobody listened
                    self._hear(self._connection)
                except psycopg.Error as error:
                    if is_absent(error):
                        return
                finally:
                    self._close()
                self._ended.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - a fleet does not come back at once
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._ear.close()

    @staticmethod
    def _is_direct(connection: Connection) -> bool:
        """Whether the server's process is the one that was said when the connection was made. A pooler says another."""
        row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
        return row is not None and row[0] == connection.info.backend_pid

    def _hear(self, connection: Connection) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._ear, selectors.EVENT_READ)
            while True:
                ready = selector.select(_QUIET_SECONDS)
                if self._ended.is_set():
                    return
                if not ready:
                    connection.execute("SELECT 1")
                for _ in connection.notifies(timeout=0):
                    self._heard()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
