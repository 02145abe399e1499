"""A fair lock across processes: one writer at a time, in order of arrival.

SQLite's busy handler retries at random, and a busy writer nearly always wins against a waiting one. The gate uses two
`flock`s. A writer locks the turnstile, then the gate, then unlocks the turnstile. A writer that returns at once finds
the turnstile locked by the next one and has to wait.

A lock file may lose its name while it is locked, for example when a backup is copied over the store. Then the lock no
longer excludes later writers, so the file that has the name now is locked instead.

The locks are on separate files, never on the database: closing any descriptor of the database would drop SQLite's own
locks on it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from typing import Final

from holdfast.errors import Busy, ReadOnly, StoreError
from holdfast.interrupts import sleep

# Seconds between two attempts. flock() has no timeout; a blocking call would need a signal or a thread to end it.
_FIRST_PAUSE: Final = 50e-6
_LAST_PAUSE: Final = 1e-3
_GROWTH: Final = 1.5
_TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB


class Gate:
    """The gate of one database for one handle. Not thread-safe: the handle's own lock comes first."""

    def __init__(self, path: str, timeout: float) -> None:
        self._paths = (f"{path}-turn", f"{path}-gate")
        self._database = path
        self._timeout = timeout
        self._turnstile = -1
        self._gate = -1
        self._identity = (-1, -1)

    def enter(self, timeout: float | None = None) -> None:
        """Lock the gate. `Busy` if other processes hold it for too long, `ReadOnly` if this process may not write."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            if self._gate < 0:
                self._open()
            try:
                fcntl.flock(self._turnstile, _TRY)
                fcntl.flock(self._gate, _TRY)
            except OSError:
                self._take(self._turnstile, deadline)
                self._take(self._gate, deadline)
            finally:
                fcntl.flock(self._turnstile, fcntl.LOCK_UN)
            if self._is_in_place():
                return
            # The lock file was removed, or the store was replaced by a copy. Others lock the file that has the name
            # now.
            self.close()
            if time.monotonic() >= deadline:
                raise StoreError(f"{self._paths[1]}: the lock file was replaced; nothing was changed. Try again.")

    def _is_in_place(self) -> bool:
        try:
            found = os.stat(self._paths[1])
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(
                f"{self._paths[1]}: cannot read the lock file; nothing was changed. Check the "
                "permissions of the folder."
            ) from error
        return (found.st_dev, found.st_ino) == self._identity

    def leave(self) -> None:
        """Unlock the gate. Does nothing if the gate is not held."""
        if self._gate >= 0:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files. They are not removed: others may hold a lock on the same file."""
        descriptors = (self._turnstile, self._gate)
        self._turnstile = self._gate = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _open(self) -> None:
        descriptors: list[int] = []
        try:
            # One by one, so that files opened before a failure are closed. O_NOFOLLOW: a planted link could lead to a
            # file that its author may not write.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptors.extend(os.open(path, flags, 0o600) for path in self._paths)
            opened = os.fstat(descriptors[1])
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise ReadOnly(
                    f"{self._database}: this process has no permission to write the store; nothing was changed. Change "
                    "the permissions of its files, or run as their owner."
                ) from error
            raise StoreError(f"{self._paths[1]}: cannot open the lock file; nothing was changed") from error
        self._turnstile, self._gate = descriptors
        self._identity = (opened.st_dev, opened.st_ino)

    def _take(self, descriptor: int, deadline: float) -> None:
        """Wait for a lock that may be held. Nothing changes if this descriptor holds it."""
        pause = _FIRST_PAUSE
        while True:
            try:
                fcntl.flock(descriptor, _TRY)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise Busy(
                        f"{self._paths[1]}: another process held the store too long; nothing was changed. Try again."
                    ) from error
            except OSError as error:
                raise StoreError(
                    f"{self._paths[1]}: the file system cannot lock files; nothing was changed. Use a local disk."
                ) from error
            else:
                return
            sleep(pause)
            pause = min(pause * _GROWTH, _LAST_PAUSE)
