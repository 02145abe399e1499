"""Defer signals during an operation of the library, and call their handlers when it is done.

Python runs a signal handler between any two bytecodes of the main thread, and the handler may raise. An exception there
would leave a lock held, a connection lost or a run claimed. `shield` defers the handlers until the operation is done.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, Final

from holdfast import forksafe

# The signals whose handlers are known to raise: Ctrl-C, the end of a process, time limits.
_DEFERRED: Final = tuple(
    getattr(signal, name).value
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
# Not the functions of `signal`: their conversion to enums takes ten times as long as the call.
_signal: Final[Any] = import_module("_signal")
_get_handler: Final[Callable[[int], Any]] = _signal.getsignal
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal


class Shield:
    """Defers signals in a `with` block. Blocks may be nested. Other threads receive no signals.

    A signal that arrives in the block is handled at its end, by the handler of the program. SIGTERM without a handler
    ends the process at once, as SIGKILL does. Do not await in a block: it would also defer the signals of other tasks.
    """

    def __init__(self) -> None:
        self._main: int | None = threading.main_thread().ident
        self._depth = 0
        self._deferred: list[tuple[int, Callable[..., Any]]] = []
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._own: Final = self._handle

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        if not self._depth:
            # An interrupt before the last line of this method is raised here, and the block is not entered.
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
        if self._deferred:
            self.deliver()

    def lifted(self) -> Lifted:
        """Let signals take effect inside a shielded block, while it waits or calls the program."""
        return Lifted(self)

    def lift(self) -> int:
        """End the shield for now. Return how many blocks are open; 0 in threads that receive no signals."""
        if threading.get_ident() != self._main or not self._depth:
            return 0
        depth, self._depth = self._depth, 1
        try:
            self.__exit__(None, None, None)
        except BaseException:
            self.lower(depth)
            raise
        return depth

    def lower(self, depth: int) -> None:
        """Shield again, with `depth` blocks open."""
        self.__enter__()
        self._depth = depth

    def defer(self, number: int, handler: Callable[..., Any]) -> None:
        """Note a signal that `deliver` passes to its handler."""
        self._deferred.append((number, handler))

    def deliver(self) -> None:
        """Handle the signals that were deferred."""
        while self._deferred and not self._depth:
            number, handler = self._deferred.pop()
            handler(number, None)

    def renew(self) -> None:
        """In the child after fork(): the thread that forked is the main thread now."""
        main = threading.main_thread().ident
        if main != self._main:  # the blocks of the parent's main thread do not exist here
            self._main, self._depth = main, 0
            self._deferred.clear()
            self.__exit__(None, None, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self.defer(number, self._handlers[number])
        else:
            # An interrupt at the start or the end of a block left this handler installed.
            self._handlers[number](number, frame)


class Lifted:
    """The block of `Shield.lifted`.

    It is not a generator: after an interrupt, a generator could end late, inside another shielded block.
    """

    def __init__(self, lifted: Shield) -> None:
        self._shield = lifted
        self._depth = 0

    def __enter__(self) -> None:
        self._depth = self._shield.lift()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._depth:
            self._shield.lower(self._depth)


shield: Final = Shield()
forksafe.register(in_child=shield.renew)


def sleep(seconds: float) -> None:
    """Wait in a shielded block. Signals take effect meanwhile."""
    with shield.lifted():
        time.sleep(seconds)
