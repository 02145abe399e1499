"""Migrations: how states stored by an older program become what this one expects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from holdfast.errors import Incompatible, InvalidArgument
from holdfast.text import quoted

Migration: TypeAlias = Callable[[Any], Any]
M = TypeVar("M", bound=Migration)


class Migrations:
    """The migrations of one handle, by the schema versions between which they lead."""

    def __init__(self) -> None:
        # Replaced, never changed: a load in another thread goes on with those it began with.
        self._known: Mapping[tuple[int, int], Migration] = {}
        self._lock = threading.Lock()

    def registering(self, from_: int, to: int) -> Callable[[M], M]:
        """A decorator that takes the migration between two versions. InvalidArgument if there is one already."""
        if type(from_) is not int or type(to) is not int or not 0 <= from_ < to < 2**63:
            raise InvalidArgument("a migration leads from a schema version, 0 or more, to a higher one")

        def register(function: M) -> M:
            if not callable(function):
                raise InvalidArgument("a migration is a function of a state that returns a state")
            with self._lock:
                if (from_, to) in self._known:
                    raise InvalidArgument(f"there is a migration from schema version {from_} to {to} already")
                self._known = {**self._known, (from_, to): function}
            return function

        return register

    def migrated(self, thread: str, plain: Any, stored: int | None, wanted: int | None) -> Any:
        """A plain state of version `stored` as one of version `wanted`; as it is if no version is wanted.

        Incompatible if no migrations lead from one to the other, or one of them raised.
        """
        if wanted is None or stored == wanted:
            return plain
        known = self._known
        # Without a version it is from before there were any. Unless a migration leads from 0, that is a dead end.
        path = _path(known, 0 if stored is None else stored, wanted)
        if path is None:
            raise Incompatible(_refusal(thread, stored, wanted))
        for between in path:
            try:
                plain = known[between](plain)
            except Exception as error:
                raise Incompatible(
                    f"thread {quoted(thread)}: the migration of its state from schema version {between[0]} to "
                    f"{between[1]} raised {type(error).__name__}; correct it, or leave schema_version= away to load "
                    "the state as it is stored"
                ) from error
        return plain


def _path(known: Mapping[tuple[int, int], Migration], stored: int, wanted: int) -> list[tuple[int, int]] | None:
    """The fewest migrations from one version to another; of equally many, those by the lowest versions."""
    came_from: dict[int, int] = {stored: stored}
    reached = [stored]
    between = sorted(known)
    # Grows while it is gone through: breadth first.
    for version in reached:
        for from_, to in between:
            if from_ == version and to not in came_from:
                came_from[to] = version
                reached.append(to)
    if wanted not in came_from:
        return None
    path: list[tuple[int, int]] = []
    at = wanted
    while at != stored:
        path.append((came_from[at], at))
        at = came_from[at]
    return path[::-1]


def _refusal(thread: str, stored: int | None, wanted: int) -> str:
    if stored is None:
        what = "was stored without a schema version"
        do = "register migrations from 0 on, which is what such states then count as"
    elif stored > wanted:
        what = f"is of schema version {stored}"
        do = "use a program that knows that version"
    else:
        what = f"is of schema version {stored}"
        do = f"register migrations that lead from {stored} there"
    return (
        f"thread {quoted(thread)}: its state {what}, and version {wanted} is wanted; {do}, "
        "or leave schema_version= away to load the state as it is stored"
    )
