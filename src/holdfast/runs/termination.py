"""Termination: on SIGTERM and Ctrl-C, the blocks of runs end before the process does, so that the runs are released."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.interrupts import shield

P = ParamSpec("P")
T = TypeVar("T")
_ends: Final[set[CodeType]] = set()


def at_end(function: Callable[P, T]) -> Callable[P, T]:
    """Defer a signal that arrives at the first bytecode of a block's end, before the block can shield itself."""
    if isinstance(function, FunctionType):
        _ends.add(function.__code__)
    return function


class Termination:
    """Turns SIGTERM into SystemExit while blocks of runs are open, as Python turns Ctrl-C into KeyboardInterrupt.

    Only in the main thread, which receives signals, and only for a signal without a handler of the program. A process
    with its own handlers, such as a worker or a web server, ends its blocks itself.
    """

    def __init__(self) -> None:
        self._blocks: weakref.WeakSet[Any] = weakref.WeakSet()

    def listen(self, block: object) -> None:
        """Note that a block is being entered."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._blocks.add(block)
        for number, default in _DEFAULTS.items():
            if signal.getsignal(number) is default:
                signal.signal(number, self._handle)

    def unlisten(self, block: object) -> None:
        """Note that a block was left, or could not be entered."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._blocks.discard(block)
        for number, default in _DEFAULTS.items():
            if not self._blocks and signal.getsignal(number) == self._handle:
                signal.signal(number, default)
        shield.deliver()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code in _ends:
            shield.defer(number, self._handle)
        elif number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        else:
            raise SystemExit(128 + number)


_DEFAULTS: Final[dict[int, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}

termination = Termination()
