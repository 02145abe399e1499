"""Hooks around fork(): the one place that registers them with the operating system.

A forked child inherits locks that no thread of it will release, and threads and connections that are the parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from operator import methodcaller
from typing import Final, Generic, Protocol, TypeVar

_PATIENCE: Final = 5.0  # seconds for which fork() waits for calls in progress of one object


class Renewable(Protocol):
    """An object that a forked child can make usable again."""

    def renew(self) -> None:
        """Replace locks, threads and connections that only the parent can use."""


def register(
    *,
    before: Callable[[], None] | None = None,
    in_parent: Callable[[], None] | None = None,
    in_child: Callable[[], None] | None = None,
) -> None:
    """Call functions before every fork() of this process, and after it in the parent and in the child.

    The functions of `before` are called in reverse order, the others in the order in which they were registered.

    Python ignores an exception in a hook, so an interrupt (Ctrl-C) ends a hook at any point and the fork continues. A
    function of `in_parent` or `in_child` that was interrupted is called again, so it must be repeatable.
    """
    if not hasattr(os, "register_at_fork"):  # not on Windows
        return
    if before is not None:
        os.register_at_fork(before=before)
    child_hook = None if in_child is None else _InChild(in_child)
    for _ in range(2):
        if in_parent is not None:
            os.register_at_fork(after_in_parent=in_parent)
        if child_hook is not None:
            os.register_at_fork(after_in_child=child_hook)


class _InChild:
    """Calls a function until it has finished once in this process."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._process = os.getpid()

    def __call__(self) -> None:
        if self._process != os.getpid():
            self._function()
            self._process = os.getpid()


def renew_in_child(thing: Renewable) -> None:
    """Call `thing.renew()` in every forked child, as long as the object exists."""
    _renewables.add(thing)


def _renew_all() -> None:
    for thing in list(_renewables):
        thing.renew()


_renewables: Final[weakref.WeakSet[Renewable]] = weakref.WeakSet()
register(in_child=_renew_all)


class HeldLocks(threading.local):
    """The locks that a thread holds during its fork().

    Python runs signal handlers between two instructions of Python code. So one call of C code takes and records a lock:
    no interrupt can leave it held but not recorded, or recorded but not held.
    """

    def __init__(self) -> None:
        self._locks: list[threading.Lock] = []

    def has(self, *locks: threading.Lock) -> bool:
        return all(lock in self._locks for lock in locks)

    def take(self, lock: threading.Lock, patience: float = -1) -> bool:
        """Acquire a lock, for some seconds at most (-1: no limit). Return whether the thread holds it."""
        if not self.has(lock):
            self._locks.extend(filter(methodcaller("acquire", timeout=patience), (lock,)))
        return self.has(lock)

    def release(self) -> None:
        """Release all locks."""
        with suppress(IndexError):  # when there is none left
            list(map(_RELEASE, iter(self._locks.pop, None)))


_RELEASE: Final = methodcaller("release")


class Pausable(Protocol):
    """An object whose calls in progress are finished before a fork(), so that the child inherits nothing half done.

    An interrupt may end each method at any point.
    """

    def pause(self, patience: float) -> None:
        """Wait for calls in progress, for some seconds at most, and let no other start."""

    def is_paused(self) -> bool:
        """Whether no call is in progress and none can start."""
        ...

    def resume(self) -> None:
        """In the parent: let calls start again. Does nothing if the object is not paused."""

    def restart(self, *, paused: bool) -> None:
        """In the child: leave locks and connections to the parent. Unless it was paused, refuse all calls."""


P = TypeVar("P", bound=Pausable)


class OpeningLock:
    """A lock that is held while an object is opened. A forked child replaces it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class PausedAtFork(Generic[P]):
    """Pauses objects of one kind during every fork(), as long as they exist."""

    def __init__(self, opening: OpeningLock | None = None) -> None:
        """`opening` is taken after the objects are paused."""
        self._opening = opening or OpeningLock()
        self._things: weakref.WeakValueDictionary[int, P] = weakref.WeakValueDictionary()
        # Two threads that fork at once would each pause some of the objects, and wait for the other.
        self._fork = threading.Lock()
        self._held = HeldLocks()
        self._process = os.getpid()
        self._paused: set[int] = set()  # in a child: ids of the objects that were paused when it was forked
        register(before=self._before, in_parent=self._in_parent, in_child=self._in_child)

    def add(self, thing: P) -> None:
        self._things[id(thing)] = thing

    def discard(self, thing: P) -> None:
        self._things.pop(id(thing), None)

    def _all(self) -> list[P]:
        # A list of the references: other threads may add objects meanwhile.
        return [thing for reference in self._things.valuerefs() if (thing := reference()) is not None]

    def _before(self) -> None:
        self._held.take(self._fork)
        for thing in self._all():
            thing.pause(_PATIENCE)
        # The limit is for a signal handler that interrupted the opening of an object in this thread.
        self._held.take(self._opening.lock, _PATIENCE)
        for thing in self._all():  # objects opened meanwhile; one that is not opened yet has nothing to lose
            thing.pause(0.0)

    def _in_parent(self) -> None:
        for thing in self._all():
            thing.resume()
        self._held.release()

    def _in_child(self) -> None:
        if self._process != os.getpid():
            self._paused = {id(thing) for thing in self._all() if thing.is_paused()}
            self._process = os.getpid()
        for thing in self._all():
            thing.restart(paused=id(thing) in self._paused)
        self._opening.lock = threading.Lock()
        self._fork = threading.Lock()
        self._held = HeldLocks()
