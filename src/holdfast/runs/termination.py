"""Termination: a SIGTERM that would kill the process ends its runs' blocks first, so that they are given back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Termination:
    """Turns SIGTERM into SystemExit while runs' blocks are open, as Ctrl-C is turned into KeyboardInterrupt.

    Only where nobody has said otherwise, and in the main thread, which alone hears signals. A process with a handler
    of its own, such as a worker's or a web server's, ends its blocks itself.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._leaving = 0
        self._came = False

    def listen(self) -> None:
        """A block is being entered."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._blocks += 1
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)

    def unlisten(self) -> None:
        """A block has been left, or could not be entered."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._blocks = max(self._blocks - 1, 0)
        if not self._blocks and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @contextmanager
    def deferred(self) -> Generator[None]:
        """A block is being left: what gives its run back is not to be interrupted."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._leaving += 1
        try:
            yield
        finally:
            self._leaving -= 1
            if self._came:
                # Other tasks may be at it too: they are cancelled, and end what they began.
                self._came = False
                raise SystemExit(128 + signal.SIGTERM)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._leaving:
            self._came = True
        else:
            raise SystemExit(128 + signal.SIGTERM)


termination = Termination()
