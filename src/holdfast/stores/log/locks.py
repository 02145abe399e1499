"""The locks of a handle: one writer at a time, across processes, and one user at a time of what the handle has read.

Reading never waits for a sync: a writer reads, releases the lock, writes, and reads again.

    with locks.to_look(), locks.looking(): ...
    with locks.to_write(), locks.writing(): ...

The first of each pair is a plain lock, which no interrupt (Ctrl-C) leaves locked. If one ends the second too early, the
next use of the handle mends that.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress

from holdfast import forksafe
from holdfast.errors import Busy, Closed, HoldfastError, StoreError
from holdfast.stores.log import disk
from holdfast.stores.log.device import Device, Moved, Unsure
from holdfast.stores.log.groups import Log


class Locks:
    """The locks of one handle. The one for writing is taken before the one for looking."""

    def __init__(self, path: str, device: Device) -> None:
        self._path = path
        self._device = device
        self._writing = threading.Lock()
        self._looking = threading.Lock()
        self._writer: int | None = None
        self._looker: int | None = None
        self._hidden: Log | None = None
        self._turn: object = None
        self._is_closed = False
        self._is_poisoned = False
        _all.add(self)

    def ready(self) -> None:
        """Raise unless the store can be used."""
        if self._is_closed:
            raise Closed(f"{self._path}: the store was closed; open it again")
        if self._is_poisoned:
            raise disk.unknown(self._path)

    def to_look(self) -> threading.Lock:
        """The lock for what the handle has read."""
        self._refuse_handler(self._looker, self._looking)
        return self._looking

    def to_write(self) -> threading.Lock:
        """The lock for writing, among the threads of this handle."""
        self._refuse_handler(self._writer, self._writing)
        return self._writing

    @contextmanager
    def looking(self) -> Generator[None]:
        """Use of what the handle has read."""
        self._looker = threading.get_ident()
        try:
            self.ready()
            yield
        except OSError as error:
            raise disk.translate(error, self._path) from error
        finally:
            self._looker = None

    @contextmanager
    def writing(self) -> Generator[None]:
        """Exclusive permission to write, among all processes."""
        turn = self._turn = object()
        self._writer = threading.get_ident()
        self._hidden = None  # only an interrupt at an unlucky moment leaves one: no append is in progress now
        try:
            self.ready()
            self._device.enter()
            yield
        except Unsure as error:
            self._is_poisoned = True
            raise disk.unknown(self._path) from error
        except Moved as error:
            raise StoreError(f"{self._path}: another writer changed the store at the same time. Try again.") from error
        except OSError as error:
            raise disk.translate(error, self._path) from error
        finally:
            # Python may end an interrupted turn late, when another one has started.
            if self._turn is turn:
                self._device.leave()
                self._writer = None

    def append(self, log: Log, data: bytes, *, sync: bool) -> None:
        """Append a group to a log. Readers of this handle see it when it is durable."""
        self._hidden = log
        try:
            log.append(data, sync=sync)
        except Unsure:
            self._is_poisoned = True  # before another thread can read
            raise
        finally:
            with self._looking:
                self._hidden = None
                # If it cannot be read back now, the next read tries again.
                with suppress(OSError, HoldfastError):
                    log.catch_up()

    def hides(self, log: Log) -> bool:
        """Whether an append to a log is in progress."""
        return self._hidden is log and self._writing.locked()

    def close(self) -> bool:
        """Wait for calls in progress and refuse later ones. False if the handle was closed before."""
        with self._writing, self._looking:
            was_closed, self._is_closed = self._is_closed, True
            return not was_closed

    def _refuse_handler(self, holder: int | None, lock: threading.Lock) -> None:
        if holder == threading.get_ident() and lock.locked():
            raise Busy(
                "a signal handler used the store while it interrupted a call of the same thread; nothing was stored. "
                "Set a flag in the handler and save later."
            )

    # -- fork() -----------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Before fork(): wait for calls in progress, so that the child inherits nothing half done."""
        self._writing.acquire()
        self._looking.acquire()

    def resume(self) -> None:
        self._looking.release()
        self._writing.release()

    def restart(self) -> None:
        """In the child: leave the lock to the parent."""
        self._device.forget_lock()
        self.resume()


_all: weakref.WeakSet[Locks] = weakref.WeakSet()
_paused: list[Locks] = []
_fork = threading.Lock()


def _before_fork() -> None:
    _fork.acquire()
    for locks in list(_all):
        locks.pause()
        _paused.append(locks)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().resume()
    _fork.release()


def _after_fork_in_child() -> None:
    while _paused:
        _paused.pop().restart()
    _fork.release()


forksafe.register(before=_before_fork, in_parent=_after_fork_in_parent, in_child=_after_fork_in_child)
