"""The locks of a handle: one writer at a time, across processes, and one user at a time of what the handle has read.

Reading never waits for a sync: a writer reads, releases the lock, writes, and reads again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager

from holdfast import forksafe
from holdfast.errors import Busy, Closed
from holdfast.stores.directory import files
from holdfast.stores.directory.log import Log
from holdfast.stores.directory.space import Space
from holdfast.stores.gate import Gate


class Turns:
    """The locks of one handle. `writing` is taken before `looking`."""

    def __init__(self, path: str, space: Space, timeout: float) -> None:
        self._path = path
        self._space = space
        self._gate = Gate(os.path.join(space.path, "lock"), timeout)
        self._writing = threading.Lock()
        self._looking = threading.Lock()
        self._writer: int | None = None
        self._looker: int | None = None
        self._is_closed = False
        self._is_poisoned = False
        self._has_folder = False
        _all.add(self)

    def ready(self) -> None:
        """Raise unless the store can be used."""
        if self._is_closed:
            raise Closed(f"{self._path}: the store was closed; open it again")
        if self._is_poisoned:
            raise files.unknown(self._path)

    @contextmanager
    def looking(self) -> Generator[None]:
        """Exclusive use, within this process, of what the handle has read."""
        self._refuse_handler(self._looker)
        with self._looking:
            self._looker = threading.get_ident()
            try:
                self.ready()
                yield
            except OSError as error:
                raise files.translate(error, self._path) from error
            finally:
                self._looker = None

    @contextmanager
    def writing(self) -> Generator[None]:
        """Exclusive permission to write, among all threads and processes."""
        self._refuse_handler(self._writer)
        with self._writing:
            self._writer = threading.get_ident()
            try:
                self.ready()
                if not self._has_folder:
                    files.make_folder(self._space.path, sync=self._space.sync)
                    self._has_folder = True
                try:
                    self._gate.enter()
                    with self.looking():
                        self._space.keep_ledger()
                    yield
                finally:
                    self._gate.leave()
            except files.SyncFailed as error:
                self._is_poisoned = True
                raise files.unknown(self._path) from error
            except OSError as error:
                raise files.translate(error, self._path) from error
            finally:
                self._writer = None

    @contextmanager
    def appending(self, log: Log) -> Generator[None]:
        """An append to a pinned log. Readers of this handle see it when it is durable."""
        try:
            yield
        except files.SyncFailed:
            self._is_poisoned = True  # before another thread can read
            raise
        finally:
            with self._looking:
                log.unpin()

    def close(self) -> None:
        with self._writing, self._looking:
            if not self._is_closed:
                self._is_closed = True
                self._space.close()
                self._gate.close()

    def _refuse_handler(self, holder: int | None) -> None:
        if holder == threading.get_ident():
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
        """In the child: close the gate without unlocking it, because the inherited lock belongs to the parent."""
        self._gate.close()
        self._has_folder = False  # so that the lock files are opened again
        self.resume()


_all: weakref.WeakSet[Turns] = weakref.WeakSet()
_paused: list[Turns] = []
_fork = threading.Lock()


def _before_fork() -> None:
    _fork.acquire()
    for turns in list(_all):
        turns.pause()
        _paused.append(turns)


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().resume()
    _fork.release()


def _after_fork_in_child() -> None:
    while _paused:
        _paused.pop().restart()
    _fork.release()


forksafe.register(before=_before_fork, in_parent=_after_fork_in_parent, in_child=_after_fork_in_child)
