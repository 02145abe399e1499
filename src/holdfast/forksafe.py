"""Hooks around fork(): the one place that registers them with the operating system.

A forked child inherits locks that no thread of it will release, and threads and connections that are the parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
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
    """
    hooks = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(**{name: hook for name, hook in hooks.items() if hook is not None})


def renew_in_child(thing: Renewable) -> None:
    """Call `thing.renew()` in every forked child, as long as the object exists."""
    _renewables.add(thing)


def _renew_all() -> None:
    for thing in list(_renewables):
        thing.renew()


_renewables: Final[weakref.WeakSet[Renewable]] = weakref.WeakSet()
register(in_child=_renew_all)


class Pausable(Protocol):
    """An object whose calls in progress are finished before a fork(), so that the child inherits nothing half done."""

    def pause(self, patience: float) -> None:
        """Wait for calls in progress, for some seconds at most, and let no other start."""

    def resume(self) -> None:
        """In the parent: let calls start again, if `pause` succeeded."""

    def restart(self) -> None:
        """In the child: leave locks and connections to the parent, and resume."""


P = TypeVar("P", bound=Pausable)


class PausedAtFork(Generic[P]):
    """Pauses objects of one kind during every fork(), as long as they exist."""

    def __init__(self, opening: threading.Lock | None = None) -> None:
        """`opening` is a lock that is held while such an object is opened. It is taken after they are paused."""
        self._opening = opening
        self._things: weakref.WeakSet[P] = weakref.WeakSet()
        self._paused: list[P] = []
        # Two threads that fork at once would each pause some of the objects and release those that the other paused.
        self._fork = threading.Lock()
        register(before=self._before, in_parent=self._in_parent, in_child=self._in_child)

    def add(self, thing: P) -> None:
        self._things.add(thing)

    def discard(self, thing: P) -> None:
        self._things.discard(thing)

    def _before(self) -> None:
        self._fork.acquire()
        self._pause(_PATIENCE)
        if self._opening is not None:
            self._opening.acquire()
        self._pause(0.0)  # objects opened meanwhile; one that is not opened yet has nothing to lose

    def _pause(self, patience: float) -> None:
        for thing in self._things.difference(self._paused):
            self._paused.append(thing)
            thing.pause(patience)

    def _in_parent(self) -> None:
        while self._paused:
            self._paused.pop().resume()
        if self._opening is not None:
            self._opening.release()
        self._fork.release()

    def _in_child(self) -> None:
        self._fork = threading.Lock()
        if self._opening is not None:
            self._opening.release()
        while self._paused:
            self._paused.pop().restart()
