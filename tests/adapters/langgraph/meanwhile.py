"""Lets something happen between two calls to a store: at the first, the second, … until the work makes no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import Holdfast


class Moment:
    """Before which call to the store something happens, and whether that call was made."""

    def __init__(self, call: int, happen: Callable[[], None]) -> None:
        self.came = False
        self._left = call
        self._happen = happen

    def pass_by(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.came = True
            self._happen()


class _Watched:
    """A store each of whose calls is a moment."""

    def __init__(self, store: Any, moment: Moment) -> None:
        self._store = store
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._moment.pass_by()
            return found(*args, **options)

        return call


@contextmanager
def meanwhile(handle: Holdfast, call: int, happen: Callable[[], None]) -> Iterator[Moment]:
    """What this handle does in here is interrupted before its so many-th call to the store, for `happen`."""
    context = handle.context
    store: Any = context.store
    moment = Moment(call, happen)
    watched: Any = _Watched(store, moment)
    context.store = watched
    try:
        yield moment
    finally:
        context.store = store
