"""Hooks around fork(): the one place that registers them with the operating system.

A forked child inherits locks that no thread of it will release, and threads and connections that are the parent's.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final, Protocol


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
