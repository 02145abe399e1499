"""The gate: one writer at a time, across processes, in turn.

SQLite's busy handler is a lottery that a busy writer wins against a waiting one nearly every time. The gate is two
`flock`s. Whoever wants in takes the turnstile, then the gate, then leaves the turnstile: a writer that comes back at
once finds the turnstile taken by whoever waits, and queues behind it.

A file that was locked may have lost its name meanwhile, when a copy of a store was put in its place, say: then the lock
keeps out nobody who comes later, and the one that has the name now is taken.

The locks are on files beside the database and never on the database itself: closing any descriptor of that would drop
the locks SQLite holds on it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from typing import Final

from holdfast.errors import Busy, ReadOnly, StoreError

# Seconds between two tries. flock() has no timeout, and blocking would need a signal or a thread to end it.
_FIRST_PAUSE: Final = 50e-6
_LAST_PAUSE: Final = 1e-3
_GROWTH: Final = 1.5


class Gate:
    """The gate of one database, as seen by one handle. Not thread-safe: the handle's own lock comes first."""

    def __init__(self, path: str, timeout: float) -> None:
        self._paths = (f"{path}-turn", f"{path}-gate")
        self._database = path
        self._timeout = timeout
        self._turnstile = -1
        self._gate = -1
        self._identity = (-1, -1)

    def enter(self, timeout: float | None = None) -> None:
        """Take the gate. `Busy` if others held it for too long, `ReadOnly` if this process may not."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            if self._gate < 0:
                self._open()
            try:
                self._take(self._turnstile, deadline)
                self._take(self._gate, deadline)
            finally:
                fcntl.flock(self._turnstile, fcntl.LOCK_UN)
            if self._is_in_place():
                return
            # Others lock the file that is there now: a copy was put in the place of the store, or somebody removed it.
            self.close()
            if time.monotonic() >= deadline:
                raise StoreError(f"{self._paths[1]}: the lock file is not the one that was opened; try again")

    def _is_in_place(self) -> bool:
        try:
            found = os.stat(self._paths[1])
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(f"{self._paths[1]}: the lock file cannot be looked at") from error
        return (found.st_dev, found.st_ino) == self._identity

    def leave(self) -> None:
        """Let the next one in. Harmless if the gate is not held."""
        if self._gate >= 0:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files; they stay, since removing one would split those who hold it from those who come."""
        descriptors = (self._turnstile, self._gate)
        self._turnstile = self._gate = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _open(self) -> None:
        descriptors: list[int] = []
        try:
            # One by one: those that were opened before one that cannot be are closed again.
            # Nor through links, which somebody may have put there who may not write where they lead.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptors.extend(os.open(path, flags, 0o600) for path in self._paths)
            opened = os.fstat(descriptors[1])
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise ReadOnly(
                    f"{self._database}: this process may not write the store; nothing was changed"
                ) from error
            raise StoreError(f"{self._paths[1]}: the lock file cannot be opened") from error
        self._turnstile, self._gate = descriptors
        self._identity = (opened.st_dev, opened.st_ino)

    def _take(self, descriptor: int, deadline: float) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise Busy(f"{self._paths[1]}: another process held the store for too long; try again") from error
            except OSError as error:
                raise StoreError(f"{self._paths[1]}: the file system cannot lock files; use a local disk") from error
            else:
                return
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LAST_PAUSE)
