"""Calls as generators, the driver that makes them in sync runs, and the run and the call that are current.

A call reads the journal, yields the function to invoke, receives its result or error, and returns the value for the
caller. So the rules of calls are written once. The driver decides how functions are invoked; async runs have their own.

The current run, call and scope are context variables. Tasks, and threads that copy the context (such as the tools of a
run), inherit them. Other threads do not.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from holdfast.codec.typed import StateType
from holdfast.errors import CallTimedOut, ToolNotDone
from holdfast.runs.identity import short_name_of
from holdfast.signals import shield
from holdfast.stores.contract_runs import Entry

if TYPE_CHECKING:
    from holdfast.aio.run import AsyncRun
    from holdfast.runs.run import Run


_JOIN_SECONDS: Final = 0.5


class CurrentCall(msgspec.Struct, frozen=True):
    """The tool call that the current code is part of. `attempt` is 1, plus the failed tries before this one."""

    name: str
    key: str | None
    attempt: int
    make_key: Callable[[], str]
    journal: object  # of its run. Only calls in that run record the place of this one
    entry: Entry  # of this try

    @property
    def idempotency_key(self) -> str:
        """The same text for every try of this call, and for no other call."""
        return self.make_key()


CALL: Final[contextvars.ContextVar[CurrentCall | None]] = contextvars.ContextVar("holdfast_call", default=None)

RUN: Final[ContextVar[Any]] = ContextVar("holdfast_run", default=None)  # set by the block of a run
SCOPE: Final[ContextVar[str]] = ContextVar("holdfast_scope", default="")  # before the key of each call


def current_run() -> Run | AsyncRun | None:
    """Return the run whose block the current code is in; None outside a run. In a child's block, it is the child."""
    run: Run | AsyncRun | None = RUN.get()
    return run


def current_call() -> CurrentCall | None:
    """Return the tool call that the current code is part of: its name, key, attempt and idempotency key; else None."""
    return CALL.get()


class ToolThread:
    """The Python thread of a call's function, which may outlive the call. Not started if the function is awaited."""

    def __init__(
        self, can_act_seconds: float, not_done: tuple[type[BaseException], ...], result_type: StateType | None = None
    ) -> None:
        """`can_act_seconds` is for how long a call can act. After the errors `not_done`, nothing was done.

        `result_type` is the type of what the function returns, if it is declared.
        """
        self.can_act_seconds: Final = can_act_seconds
        self.result_type: Final = result_type
        self.not_done: Final = not_done
        self.is_started = False
        self.has_returned = False
        self._lock = threading.Lock()
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self._then: Callable[[Any, BaseException | None], None] | None = None

    def start(self) -> None:
        """Note that the function is about to be called in its thread."""
        self.is_started = True

    def note_async(self) -> None:
        """Note that what the function returned has to be awaited, so it does not run in a thread."""
        self.is_started = False

    def end(self, result: Any, error: BaseException | None) -> None:
        """Note that the function returned or raised."""
        with self._lock:
            self.has_returned = True
            self._outcome = (result, error)
        if self._then is not None:
            self._then(result, error)

    def when_returned(self, then: Callable[[Any, BaseException | None], None]) -> None:
        """Call a function with the result and the error: when the function ends, or now if it has ended."""
        with self._lock:
            if not self.has_returned:
                self._then = then
                return
        then(*self._outcome)


class ActingThread:
    """A Python thread that calls the function of a tool for another one, which waits for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._waiting = threading.current_thread(), _ACTING.get()
        self._is_over = False

    @staticmethod
    def caller(thread: threading.Thread) -> threading.Thread:
        """The Python thread whose calls are made in the current one, `thread`: that which waits for the tool."""
        acting = _ACTING.get()
        while acting is not None and acting._thread is thread and not acting._is_over:
            thread, acting = acting._waiting
        return thread

    def start(self, call: Callable[[], None]) -> threading.Thread:
        """Start the thread, in the current context."""
        context = contextvars.copy_context()
        context.run(_ACTING.set, self)
        self._thread = threading.Thread(target=context.run, args=(call,), name="holdfast-tool", daemon=True)
        self._thread.start()
        return self._thread

    def end(self) -> None:
        """Note that nothing waits for the thread any longer: what it calls now is in no order with other calls."""
        self._is_over = True


_ACTING: Final[ContextVar[ActingThread | None]] = ContextVar("holdfast_acting_thread", default=None)


class Invocation(msgspec.Struct, frozen=True):
    """A user's function to call now, for at most `timeout` seconds."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    timeout: float | None = None
    is_internal: bool = False  # a probe asks about a call and does not count as one
    running: ToolThread | None = None  # records whether the function runs in a thread
    acts: bool = False  # a call of a tool that acts: if its caller is cancelled, it is allowed to end
    call: CurrentCall | None = None  # for the function, if it is that of a tool

    def call_in_thread(self) -> Any:
        """Call the function, in the thread that was started for it."""
        result: Any = None
        failure: BaseException | None = None
        try:
            result = self.function(*self.args, **self.kwargs)
        except BaseException as error:
            failure = error
            raise
        finally:
            if self.running is not None:
                self.running.end(result, failure)
        return result


class Finished(msgspec.Struct, frozen=True):
    """The end of a call, with its result."""

    result: Any


def pause(seconds: float) -> None:
    """Wait. In an async run, the driver awaits instead."""
    time.sleep(seconds)


Call: TypeAlias = Generator[Invocation, Any, Any]


class Uncalled(BaseException):
    """Thrown into a call whose function was never invoked because its caller was cancelled first."""


def advance(call: Call, result: Any = None, error: BaseException | None = None) -> Invocation | Finished:
    """Resume a call with the result or the error of its last invocation."""
    try:
        return call.send(result) if error is None else call.throw(error)
    except StopIteration as end:
        return Finished(end.value)


def drive(call: Call) -> Any:
    """Make a call in this Python thread and return its result."""
    try:
        invocation = call.send(None)
        while True:
            try:
                result = _invoke(invocation)
            except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
                invocation = call.throw(error)
            else:
                invocation = call.send(result)
    except StopIteration as end:
        return end.value


def start_call(call: Call) -> Invocation | Finished:
    """Advance a call to the invocation of its own function, which the caller makes, or to its end."""
    state = advance(call)
    while isinstance(state, Invocation) and state.is_internal:
        try:
            result = _invoke(state)
        except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
            state = advance(call, error=error)
        else:
            state = advance(call, result)
    return state


def end_call(call: Call, result: Any = None, error: BaseException | None = None) -> Any:
    """End a call that `start_call` started, with the outcome of its function. Return its recorded result."""
    state = advance(call, result, error)
    if isinstance(state, Invocation):  # a retry, which only the caller could make
        with suppress(Uncalled):
            advance(call, error=Uncalled())
        raise error or Uncalled()
    return state.result


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of the function returns something to await."""
    called = getattr(function, "__call__", None)  # noqa: B004 - the method itself may be async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _invoke(what: Invocation) -> Any:
    token = None if what.call is None else CALL.set(what.call)
    try:
        result = what.function(*what.args, **what.kwargs) if what.timeout is None else _within(what.timeout, what)
    finally:
        if token is not None:
            CALL.reset(token)
    if inspect.iscoroutine(result):
        result.close()
        raise ToolNotDone("a sync run cannot await the function; use hf.aio.run, or a function that is not async")
    return result


def still_running(what: Invocation) -> str:
    """The message about a function that was left running in its thread after its timeout."""
    name = short_name_of(what.function)
    return f"{name} did not return within {what.timeout:g} seconds and may still be running, so its outcome is unknown"


def _within(seconds: float, what: Invocation) -> Any:
    """Call a function in its own Python thread and wait at most so many seconds."""
    outcome: list[tuple[Any, BaseException | None]] = []
    acting = ActingThread()

    def call() -> None:
        try:
            outcome.append((what.call_in_thread(), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            outcome.append((None, error))

    try:
        with shield:  # an interrupt while Python waits for the start of a thread may be raised as RuntimeError
            if what.running is not None:
                what.running.start()
            thread = acting.start(call)
        until = time.monotonic() + seconds
        while thread.is_alive() and (left := until - time.monotonic()) > 0:
            # Not all at once: a signal that arrives just before the wait does not end it.
            thread.join(min(left, _JOIN_SECONDS))
    finally:
        acting.end()
    if not outcome:
        raise CallTimedOut(still_running(what))
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
