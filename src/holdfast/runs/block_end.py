"""The end of a run's block: suspended, stopped, by an error, or by a signal to the process."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.errors import Cancelled, HoldfastError, LeaseLost
from holdfast.signals import shield
from holdfast.stores.contract_runs import Entry
from holdfast.text import quoted
from holdfast.types import Status

# -- exceptions that end a block without an error -----------------------------------------------------------------


class Waiting(BaseException):
    """Ends a run's block without ending the run, which waits for an answer, a time or a child.

    Not an Exception, so that programs do not catch it by accident.
    """

    def __init__(
        self,
        entry: Entry | None,
        reason: str,
        wake_at: int = 0,
        wake_wall: int = 0,
        seen_until: int | None = None,
        blocked_call: Entry | None = None,
        more_entries: tuple[Entry, ...] = (),
    ) -> None:
        """`entry` is the journal entry to answer. `wake_at` and `wake_wall` are as in the run's record.

        `more_entries` are those of other calls at the same time. `seen_until` is the number of the newest entry when no
        answer was found. `blocked_call` is the call that has to wait.
        """
        super().__init__(reason)
        self.entry = entry
        self.reason = reason
        self.wake_at = wake_at
        self.wake_wall = wake_wall
        self.seen_until = seen_until
        self.blocked_call = blocked_call
        self.more_entries = more_entries

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The journal entries to answer."""
        return (*(() if self.entry is None else (self.entry,)), *self.more_entries)


class Stopped(BaseException):
    """Ends a run's block at the end of a step because its worker stops. Another worker resumes the run."""


# -- errors: several tasks or threads may fail at the same time ---------------------------------------------------

_SILENT: Final = (Waiting, Stopped)


def decisive(error: BaseException | None) -> BaseException | None:
    """The error that decides about the run: the error itself, or one from a group of tasks or threads.

    In order of precedence: a lost or cancelled run; an interrupt, which ends the program; failures. A run waits or
    stops only if no other error is in the group.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    each = list(_leaves(error))
    for kind in (LeaseLost, Cancelled):
        if found := next((leaf for leaf in each if isinstance(leaf, kind)), None):
            return found
    for leaf in each:
        if not isinstance(leaf, Exception | Waiting | Stopped) and not _is_cancelled_task(leaf):
            return leaf
    failed = error.subgroup(Exception)
    if failed is not None:
        return failed
    for silent in _SILENT:
        if waits := next((leaf for leaf in each if isinstance(leaf, silent)), None):
            return waits
    return error


def without_silent(error: BaseException | None) -> BaseException | None:
    """The error for the caller of a block: a group without the exceptions that only ended the block."""
    if not isinstance(error, BaseExceptionGroup) or not any(isinstance(leaf, _SILENT) for leaf in _leaves(error)):
        return error
    return error.subgroup(_is_for_caller) or error


def _is_for_caller(part: BaseException) -> bool:
    return not isinstance(part, (*_SILENT, BaseExceptionGroup))


def _is_cancelled_task(error: BaseException) -> bool:
    # By its name: to import asyncio takes longer than to import Holdfast.
    return type(error).__name__ == "CancelledError"


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def waits_in_hook_error(thread: str, status: Status) -> HoldfastError:
    """The error of a block that cannot start because the hook of its run has to wait."""
    return HoldfastError(
        f"the run of thread {quoted(thread)} is {status}, because its on_resume waits; the block was not entered. "
        "Call hf.run again later."
    )


# -- signals: on SIGTERM and Ctrl-C, blocks end before the process does, so that the runs are released ------------

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
