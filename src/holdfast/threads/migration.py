"""Migrations: convert states that an older program stored to a later schema version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from holdfast.errors import Incompatible, InvalidArgument
from holdfast.text import quoted

Migration: TypeAlias = Callable[[Any], Any]
M = TypeVar("M", bound=Migration)


class Migrations:
    """The migrations of one handle, by the schema versions that they convert from and to."""

    def __init__(self) -> None:
        # Replaced, never changed: a load in another Python thread keeps using the migrations it started with.
        self._known: Mapping[tuple[int, int], Migration] = {}
        self._lock = threading.Lock()

    def registering(self, from_: int, to: int) -> Callable[[M], M]:
        """A decorator that registers the migration between two versions. Raises InvalidArgument if there is one."""
        if type(from_) is not int or type(to) is not int or not 0 <= from_ < to < 2**63:
            raise InvalidArgument("a migration must lead from a schema version, 0 or more, to a higher one")

        def register(function: M) -> M:
            if not callable(function):
                raise InvalidArgument("a migration must be a function that takes a state and returns a state")
            with self._lock:
                if (from_, to) in self._known:
                    raise InvalidArgument(f"there is already a migration from schema version {from_} to {to}")
                self._known = {**self._known, (from_, to): function}
            return function

        return register

    def migrated(self, thread: str, plain: Any, stored: int | None, wanted: int | None) -> Any:
        """Convert a plain state from version `stored` to version `wanted`. Without a wanted version it stays unchanged.

        Raises Incompatible if no migrations lead from one to the other, or if one of them raises.
        """
        if wanted is None or stored == wanted:
            return plain
        known = self._known
        # A state without a version counts as version 0, if there is a migration from 0.
        path = _path(known, 0 if stored is None else stored, wanted)
        if path is None:
            raise Incompatible(_refusal(thread, stored, wanted))
        for between in path:
            try:
                plain = known[between](plain)
            except Exception as error:
                raise Incompatible(
                    f"thread {quoted(thread)}: the migration of its state from schema version {between[0]} to "
                    f"{between[1]} raised {type(error).__name__}. Correct it, or omit schema_version= to load the "
                    "state as it is stored."
                ) from error
        return plain


def _path(known: Mapping[tuple[int, int], Migration], stored: int, wanted: int) -> list[tuple[int, int]] | None:
    """The shortest path of migrations between two versions; of equally short ones, the one with the lowest versions."""
    came_from: dict[int, int] = {stored: stored}
    reached = [stored]
    between = sorted(known)
    # Breadth first: the list grows while the loop reads it.
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
        do = "Register migrations from version 0, which such states count as"
    elif stored > wanted:
        what = f"has schema version {stored}"
        do = "Use a program that knows that version"
    else:
        what = f"has schema version {stored}"
        do = f"Register migrations that lead from {stored} to {wanted}"
    return (
        f"thread {quoted(thread)}: its state {what}, and version {wanted} is wanted. {do}, "
        "or omit schema_version= to load the state as it is stored."
    )
