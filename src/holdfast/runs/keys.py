"""Keys: what tells the calls of a step apart, so that a replay finds the one that was made."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from holdfast.errors import InvalidArgument


class Keys:
    """The keys of the step that is open, and the calls that are under way in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ordinals: dict[str, int] = {}
        self._caller: int | None = None
        self._under_way: dict[str, bool] = {}

    def open_step(self) -> None:
        with self._lock:
            self._ordinals.clear()
            self._caller = None

    def require_none_under_way(self, what: str) -> None:
        """InvalidArgument if calls are under way: a checkpoint would hold them without their results."""
        with self._lock:
            if self._under_way:
                raise InvalidArgument(f"{what} while calls are under way in it; wait for their results")

    @contextmanager
    def making(self, name: str, key: str | None, caller: int | None, *, can_be_left: bool = False) -> Generator[str]:
        """A call's key, with its name in it. Refuses calls beside each other that a replay could not tell apart.

        `caller` is the thread or task that makes the call, or None where calls without keys are told by overlapping
        only. A call that `can_be_left` half-way does not count as under way: nobody says when that happened.
        """
        if key is not None and (type(key) is not str or not key):
            raise InvalidArgument("a call's key is a text that is not empty")
        with self._lock:
            full = self._ordinal(name, caller) if key is None else f"{name}/{key}"
            if full in self._under_way:
                raise InvalidArgument(f"two calls of {name!r} are under way with the same key; give each its own")
            if not can_be_left:
                self._under_way[full] = key is None
        try:
            yield full
        except GeneratorExit:
            # Left half-way by its caller, who goes on: what comes next is another call.
            raise
        except BaseException:
            if key is None:
                # A call that failed and is made again is the same call, or a replay would count them otherwise.
                with self._lock:
                    self._ordinals[name] -= 1
            raise
        finally:
            with self._lock:
                self._under_way.pop(full, None)

    def _ordinal(self, name: str, caller: int | None) -> str:
        if (self._caller is not None and self._caller != caller) or any(self._under_way.values()):
            raise InvalidArgument(
                "calls that are made beside each other in one step need keys: after a crash nobody could tell which "
                "was which; pass key="
            )
        self._caller = caller
        ordinal = self._ordinals[name] = self._ordinals.get(name, 0) + 1
        return f"{name}#{ordinal}"
