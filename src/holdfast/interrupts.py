"""Interrupts: Ctrl-C and SIGTERM take effect between two steps of the library, never in the middle of one.

Python runs a signal handler between any two bytecodes of the main thread, and the handler may raise. An exception there
would leave a lock held, a connection lost or a run claimed. `shield` defers the handlers until the step is done.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, Final

from holdfast import forksafe

_DEFERRED: Final = (signal.SIGINT.value, signal.SIGTERM.value)
# Not the functions of `signal`: their conversion to enums takes ten times as long as the call.
_signal: Final[Any] = import_module("_signal")
_get_handler: Final[Callable[[int], Any]] = _signal.getsignal
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal


class Shield:
    """Defers Ctrl-C and SIGTERM in a `with` block. Blocks may be nested. Other threads receive no signals.

    A signal that arrives in the block is handled at its end, by the handler of the program. SIGTERM without a handler
    ends the process at once, as SIGKILL does.
    """

    def __init__(self) -> None:
        self._main: int | None = threading.main_thread().ident
        self._depth = 0
        self._came: list[int] = []
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._own: Final = self._handle

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        if not self._depth:
            # Until the last line, an interrupt is raised here and nothing is shielded.
            for number in _DEFERRED:
                handler = _get_handler(number)
                if callable(handler) and handler is not self._own:
                    self._handlers[number] = handler
                    try:
                        _set_handler(number, self._own)
                    except ValueError:  # a subinterpreter, as in mod_wsgi: signals reach the main interpreter only
                        self._main = None
                        return
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.get_ident() != self._main:
            return
        if self._depth > 1:
            self._depth -= 1
            return
        self._depth = 0
        for number, handler in self._handlers.items():
            if _get_handler(number) is self._own:
                _set_handler(number, handler)
        if self._came:
            self.deliver()

    @contextmanager
    def lifted(self) -> Generator[None]:
        """Let signals take effect inside a shielded block, while it waits or calls the program."""
        if threading.get_ident() != self._main or not self._depth:
            yield
            return
        depth, self._depth = self._depth, 1
        try:
            self.__exit__(None, None, None)
            yield
        finally:
            self.__enter__()
            self._depth = depth

    def defer(self, number: int) -> None:
        """Note a signal that `deliver` handles."""
        self._came.append(number)

    def deliver(self) -> None:
        """Handle the signals that were deferred."""
        while self._came and not self._depth:
            number = self._came.pop()
            handler = _get_handler(number)
            if callable(handler):
                handler(number, None)

    def renew(self) -> None:
        """In the child after fork(): the thread that forked is the main thread now."""
        self._main = threading.main_thread().ident

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self.defer(number)
        else:
            # An interrupt at the start or the end of a block left this handler installed.
            self._handlers[number](number, frame)


shield: Final = Shield()
forksafe.register(in_child=shield.renew)


def sleep(seconds: float) -> None:
    """Wait in a shielded block. Signals take effect meanwhile."""
    with shield.lifted():
        time.sleep(seconds)
