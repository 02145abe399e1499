"""Termination: on SIGTERM, the blocks of runs end before the process does, so that the runs are released."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Termination:
    """Turns SIGTERM into SystemExit while blocks of runs are open, as Python turns Ctrl-C into KeyboardInterrupt.

    Only in the main thread, which receives signals, and only if SIGTERM has no other handler. A process with its own
    handler, such as a worker or a web server, ends its blocks itself.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._leaving = 0
        self._came = False

    def listen(self) -> None:
        """Note that a block is being entered."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._blocks += 1
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)

    def unlisten(self) -> None:
        """Note that a block was left, or could not be entered."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._blocks = max(self._blocks - 1, 0)
        if not self._blocks and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @contextmanager
    def deferred(self) -> Generator[None]:
        """Defer signals while a block releases its run."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._leaving += 1
        try:
            yield
        finally:
            self._leaving -= 1
            if self._came:
                # Other tasks may be releasing runs too. They are cancelled, and finish that first.
                self._came = False
                raise SystemExit(128 + signal.SIGTERM)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._leaving:
            self._came = True
        else:
            raise SystemExit(128 + signal.SIGTERM)


termination = Termination()
