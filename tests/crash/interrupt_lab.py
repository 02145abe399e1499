"""Interrupts at every line: SIGINT and SIGTERM arrive at a chosen line, and Python handles them when it would."""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Arrival:
    """Reading `now` is the arrival of a signal.

    Python calls handlers after a call, at the start of a function and in loops, not in between. So the trace function
    must not call anything to send the signal, or its handler would run there. Reading an attribute is not a call.
    """

    def __init__(self, number: signal.Signals) -> None:
        send = ctypes.pythonapi.PyErr_SetInterruptEx  # what the C handler of every signal does
        send.argtypes = [ctypes.c_int, ctypes.py_object]
        kind = type("Sent", (), {"now": property(functools.partial(send, number))})
        self.sent: Any = kind()


class Interrupt:
    """One signal at the `at`-th event of a traced call. An event is the entry of a function or the start of a line."""

    def __init__(self, number: signal.Signals, at: int) -> None:
        self._sent = Arrival(number).sent
        self._at = at
        self._seen = 0
        self.place = ""

    @property
    def came(self) -> bool:
        """Whether the call was long enough to be interrupted."""
        return bool(self.place)

    @contextmanager
    def strike(self) -> Generator[None]:
        """Interrupt the block. What the handler raises ends the block silently."""
        try:
            sys.settrace(self._trace)
            try:
                yield
            finally:
                sys.settrace(None)
        except (KeyboardInterrupt, SystemExit):
            if not self.came:
                raise

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if name == __file__ or (name.endswith("contextlib.py") and self._is_own(frame)):
            return None
        trace = self._trace
        if event in ("call", "line"):
            self._seen += 1
            if self._seen == self._at:
                self.place = f"{name}:{frame.f_lineno} {frame.f_code.co_qualname} ({event})"
                sys.settrace(None)
                self._sent.now  # noqa: B018 - sends the signal
        return trace

    def _is_own(self, frame: FrameType) -> bool:
        """Whether contextlib only starts or ends `strike`."""
        generator = frame.f_locals.get("self")
        return getattr(getattr(generator, "gen", None), "gi_code", None) is _STRIKE


_STRIKE = Interrupt.strike.__wrapped__.__code__  # type: ignore[attr-defined]


def terminate(number: int, _: FrameType | None) -> None:
    """A handler of SIGTERM as programs have it."""
    sys.exit(128 + number)


def renewals() -> list[str]:
    """The threads of this process that renew leases."""
    return [thread.name for thread in threading.enumerate() if thread.name == "holdfast-lease"]
