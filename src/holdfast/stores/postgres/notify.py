"""LISTEN and NOTIFY: workers learn of a queued run without waiting for their next poll.

Nothing depends on it. A notification is sent after the commit, in its own transaction. As part of a commit it would
hold a lock of the whole server until the log is flushed, and all other commits with notifications would wait. If a
process dies before it notifies, the next poll finds the run.
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

from holdfast import forksafe
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.connection import Connection, connect, leave
from holdfast.stores.postgres.failures import is_absent

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
# A vanished server sends nothing, so the connection is tested from time to time.
_QUIET_SECONDS: Final = 60.0
_ENDING_SECONDS: Final = 1.0


def channel(schema: str, namespace: bytes) -> str:
    """The channel for the runs of a namespace. Its name does not reveal the schema or the namespace."""
    digest = hashlib.sha256(schema.encode("utf-8", "surrogateescape") + b"\0" + namespace).hexdigest()
    return f"holdfast_{digest[:32]}"


class Listener:
    """Calls `wake`, in its own thread, on every notification and whenever it starts to listen.

    It has its own connection and replaces it when it is lost. It ends if the server has no LISTEN, or if a pooler
    shares the connection with others; then `wake` is not called.
    """

    def __init__(self, place: Address, name: str, wake: Callable[[], None]) -> None:
        self._place = place
        self._channel = name
        self._wake = wake
        self._ended = threading.Event()
        self._bell, self._ear = socket.socketpair()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-listener", daemon=True)
        forksafe.renew_in_child(self)
        self._thread.start()

    @property
    def is_listening(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    def end(self) -> None:
        """Stop calling `wake`."""
        if not self._ended.is_set():
            self._ended.set()
            with suppress(OSError):  # the thread has ended by itself
                self._bell.send(b"\0")
            self._bell.close()
            self._thread.join(_ENDING_SECONDS)  # do not wait for a thread that waits for an unresponsive server

    def renew(self) -> None:
        """In a forked child: leave the thread and its connection to the parent."""
        self._ended = threading.Event()  # the lock of the old one may be held by a thread that does not exist here
        self._ended.set()
        if self._connection is not None:
            leave(self._connection)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while not self._ended.is_set():
                try:
                    self._connection = connect(
                        self._place.conninfo, prepares=False, answer_timeout=self._place.answer_timeout
                    )
                    if not self._is_direct(self._connection):
                        return
                    self._connection.execute(f'LISTEN "{self._channel}"'.encode())
                    pause = _FIRST_PAUSE
                    self._wake()  # for runs queued while it did not listen
                    self._hear(self._connection)
                except psycopg.Error as error:
                    if is_absent(error):
                        return
                finally:
                    self._close()
                self._ended.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the reconnects of a fleet
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._ear.close()

    @staticmethod
    def _is_direct(connection: Connection) -> bool:
        """Whether the server process is the one reported at connection time. A pooler reports another one."""
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
                    self._wake()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
