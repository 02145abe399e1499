"""Interrupts at a chosen point of a block: at each line, or at each instruction where Python handles signals."""

from __future__ import annotations

import ctypes
import dis
import functools
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, Final

# After these instructions, Python calls the handlers of signals.
_CHECKS = frozenset(("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"))


class Interrupt:
    """One interrupt at the `at`-th event of a block, in code whose file name starts with `within`.

    An event is the entry of a function or the start of a line or, with `checks`, an instruction before which Python
    handles signals. With `number`, this signal arrives at the event, and Python calls its handler when it would.
    Without, the event raises KeyboardInterrupt.
    """

    def __init__(
        self, at: int, *, number: signal.Signals | None = None, within: str = "", checks: bool = False
    ) -> None:
        self._arrival = _arrival(number)
        self._at = at
        self._within = within
        self._checks = checks
        self._seen = 0
        self.place = ""
        self.ended_block = False
        # Python 3.11 does not always hold a reference to the functions that it calls for events.
        self._trace: Final = self._at_call
        self._trace_line: Final = self._at_line

    @property
    def came(self) -> bool:
        """Whether the block was long enough to be interrupted."""
        return bool(self.place)

    @contextmanager
    def strike(self) -> Generator[None]:
        """Interrupt the block. What the interrupt raises ends the block silently."""
        before = sys.gettrace()
        try:
            sys.settrace(self._trace)
            try:
                yield
            finally:
                sys.settrace(before)
        except (KeyboardInterrupt, SystemExit):
            if not self.came:
                raise
            self.ended_block = True

    def _at_call(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not name.startswith(self._within) or name == __file__:
            return None
        if name.endswith("contextlib.py") and self._is_own(frame):
            return None
        if self._checks:
            frame.f_trace_opcodes = True
            return self._at_checks(_checks(frame.f_code))
        trace = self._trace_line
        self._seen += 1
        if self._seen == self._at:
            self._note(frame, event)
            self._arrival.now  # noqa: B018 - the interrupt; after it nothing may be called
        return trace

    def _at_line(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        trace = self._trace_line
        if event == "line":
            self._seen += 1
            if self._seen == self._at:
                self._note(frame, event)
                self._arrival.now  # noqa: B018 - as above
        return trace

    def _at_checks(self, checks: frozenset[int]) -> Callable[..., Any]:
        def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == "opcode" and frame.f_lasti in checks:
                self._seen += 1
                if self._seen == self._at:
                    self._note(frame, event)
                    self._arrival.now  # noqa: B018 - as above
            return trace

        return trace

    def _note(self, frame: FrameType, event: str) -> None:
        code = frame.f_code
        self.place = f"{code.co_filename}:{frame.f_lineno} {code.co_qualname} ({event})"
        sys.settrace(None)

    def _is_own(self, frame: FrameType) -> bool:
        """Whether contextlib only starts or ends `strike`."""
        generator = frame.f_locals.get("self")
        return getattr(getattr(generator, "gen", None), "gi_code", None) is _STRIKE


_STRIKE = Interrupt.strike.__wrapped__.__code__  # type: ignore[attr-defined]


def _arrival(number: signal.Signals | None) -> Any:
    """An object whose attribute `now` interrupts when it is read.

    Python calls handlers after a call, at the start of a function and in loops, not in between. So the trace function
    must not call anything to send the signal, or its handler would run there. Reading an attribute is not a call.
    """
    send: Callable[[object], object]
    if number is None:
        send = _raise
    else:
        set_interrupt = ctypes.pythonapi.PyErr_SetInterruptEx  # what the C handler of every signal does
        set_interrupt.argtypes = [ctypes.c_int, ctypes.py_object]
        send = functools.partial(set_interrupt, number)
    return type("Arrival", (), {"now": property(send)})()


def _raise(_: object) -> None:
    raise KeyboardInterrupt


@functools.cache
def _checks(code: CodeType) -> frozenset[int]:
    """The offsets of the instructions before which Python handles signals."""
    instructions = list(dis.get_instructions(code))
    return frozenset(then.offset for one, then in pairwise(instructions) if one.opname in _CHECKS)
