"""The queue of writers: group commit for the threads of a process, and a gate that lets one process write at a time."""

from __future__ import annotations

import copy
import errno
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from holdfast.errors import Busy, StoreError
from holdfast.signals import sleep
from holdfast.stores import rules

Write = TypeVar("Write")
Answer = TypeVar("Answer")
Error = TypeVar("Error", bound=Exception)

BATCH: Final = 64
# Seconds between two attempts. flock() has no timeout; a blocking call would need a signal or a thread to end it.
_FIRST_PAUSE: Final = 50e-6
_LAST_PAUSE: Final = 1e-3
_GROWTH: Final = 1.5
_TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB


# -- group commit: concurrent writers share one sync -------------------------------------------------------------------
#
# A caller that arrives while no batch is being written becomes the leader and writes at once, on its own Python thread.
# Callers that arrive meanwhile are queued. A leader that is done promotes the first in the queue, which writes for
# all that are queued by then. So a single writer pays for one uncontended lock, and N waiting writers share the cost
# of one sync.


class QueuedWrite(Generic[Write, Answer]):
    """One caller's write in the queue, and its result once it is known."""

    __slots__ = ("_answer", "_error", "finished", "woken", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.finished = False
        self.woken: threading.Lock | None = None  # held until its caller need not wait; None if its caller leads
        self._answer: Answer
        self._error: BaseException | None = None

    def finish(self, answer: Answer) -> None:
        """Report that the write is durably done. Its caller continues at once; the leader may have more to do."""
        self._answer = answer
        self.finished = True
        if self.woken is not None:
            self.woken.release()

    def fail(self, error: BaseException) -> None:
        """Report that the write was not done. `error` is raised in its caller."""
        self._error = error
        self.finished = True
        if self.woken is not None:
            self.woken.release()

    def answer(self) -> Answer:
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error  # the traceback holds this frame, which would create a cycle per error


class GroupCommit(Generic[Write, Answer]):
    """Runs writes in batches. Each batch is run by one of the callers, who are shielded from signals.

    `run_batch` finishes or fails every write it is given. If it raises, the unfinished writes were not done. After an
    `Exception` they fail with it. After any other exception (an interrupt while the leader waits for its turn) the
    other writes return to the front of the queue.
    """

    def __init__(self, run_batch: Callable[[Sequence[QueuedWrite[Write, Answer]]], None]) -> None:
        self._run_batch = run_batch
        self._mutex = threading.Lock()
        self._is_led = False
        self._queue: deque[QueuedWrite[Write, Answer]] = deque()
        self._inside: set[int] = set()

    def submit(self, write: Write) -> Answer:
        """Run the write, alone or in a batch; return or raise the result that `run_batch` set for it.

        `Busy` in a signal handler that interrupted a call of the same Python thread: it would wait for itself forever.
        """
        caller = threading.get_ident()
        if caller in self._inside:
            raise rules.in_signal_handler()
        queued: QueuedWrite[Write, Answer] = QueuedWrite(write)
        self._inside.add(caller)
        try:
            woken: threading.Lock | None = None
            with self._mutex:
                if self._is_led:
                    queued.woken = woken = threading.Lock()
                    woken.acquire()
                    self._queue.append(queued)
                self._is_led = True
            if woken is not None:
                woken.acquire()  # until a leader has written it, or has promoted this caller
                queued.woken = None
            if not queued.finished:
                self._lead(queued)
        finally:
            self._inside.discard(caller)
        return queued.answer()

    def _lead(self, leader: QueuedWrite[Write, Answer]) -> None:
        batch = [leader]
        try:
            with self._mutex:
                while self._queue and len(batch) < BATCH:
                    batch.append(self._queue.popleft())
            self._run_batch(batch)
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets the error, each on its own thread
            for queued in batch:
                if not queued.finished:
                    queued.fail(error if queued is leader else again(error))
        except BaseException:
            with self._mutex:
                self._queue.extendleft(queued for queued in reversed(batch[1:]) if not queued.finished)
            raise
        finally:
            with self._mutex:
                self._is_led = bool(self._queue)
                if self._queue:
                    promoted = self._queue.popleft().woken
                    if promoted is not None:
                        promoted.release()


def again(error: Error) -> Error:
    """A copy of the error for one more caller: raised in two threads, one instance would mix their tracebacks."""
    try:
        other = copy.copy(error)
    except Exception:  # noqa: BLE001 - an error that cannot be copied is raised as it is
        return error
    other.__cause__ = error.__cause__
    return other


# -- the gate: one writing process at a time, in order of arrival ------------------------------------------------------
#
# SQLite's busy handler retries at random, and a busy writer nearly always wins against a waiting one. The gate uses
# two `flock`s. A writer locks the turnstile, then the gate, then unlocks the turnstile. A writer that returns at once
# finds the turnstile locked by the next one and has to wait.
#
# A lock file may lose its name while it is locked, for example when a backup is copied over the store. Then the lock
# no longer excludes later writers, so the file that has the name now is locked instead.
#
# The locks are on separate files, never on the database: closing any descriptor of the database would drop SQLite's
# own locks on it.


class Gate:
    """The gate of one store for one handle. Not thread-safe: the handle's own lock comes first."""

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
            for path in self._paths:
                descriptors.append(os.open(path, flags, 0o600))  # noqa: PERF401
            opened = os.fstat(descriptors[1])
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise rules.read_only(self._database) from error
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
