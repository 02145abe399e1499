"""A time limit for the store calls of one Python thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final


class _Limits(threading.local):
    stack: tuple[Callable[[], bool], ...] = ()


_limits: Final = _Limits()


class TimeLimit:
    """In a `with` block, a store stops waiting for its database once `is_over` returns True.

    The call then fails as after a lost connection. A store that does not wait for a network may ignore the limit.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over

    def __enter__(self) -> None:
        _limits.stack = (*_limits.stack, self._is_over)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _limits.stack = _limits.stack[:-1]


def is_exhausted() -> bool:
    """Whether a limit of the calling Python thread is over."""
    return any(is_over() for is_over in _limits.stack)
