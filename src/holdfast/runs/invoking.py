"""Invoking what users wrote: the one place where a call leaves Holdfast, for sync runs; async ones have their own.

A call is a generator: it looks into the journal, yields what is to be invoked, is sent the result or thrown the error,
and returns what the caller gets. So the rules of calls are written once, and who invokes, and how, is another matter.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import HoldfastError
from holdfast.runs.outcome import NotDone


class Invocation(msgspec.Struct, frozen=True):
    """A function of the user's that is to be called now, for at most `timeout` seconds."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    timeout: float | None = None


class Ended(msgspec.Struct, frozen=True):
    """A call is over, with this result."""

    result: Any


Call: TypeAlias = Generator[Invocation, Any, Any]


class TimedOut(HoldfastError):
    """A function took longer than it may. It cannot be stopped: it may still happen."""


class Uncalled(BaseException):
    """Thrown into a call whose invocation was never begun: its caller was cancelled first."""


def advance(call: Call, result: Any = None, error: BaseException | None = None) -> Invocation | Ended:
    """Go on with a call, with what its last invocation gave."""
    try:
        return call.send(result) if error is None else call.throw(error)
    except StopIteration as end:
        return Ended(end.value)


def drive(call: Call) -> Any:
    """Make a call, invoking in this thread."""
    state = advance(call)
    while isinstance(state, Invocation):
        try:
            result = _invoke(state)
        except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
            state = advance(call, error=error)
        else:
            state = advance(call, result)
    return state.result


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling a function gives something that has to be awaited."""
    called = getattr(function, "__call__", None)  # noqa: B004 - not whether it can be called, but what is called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _invoke(what: Invocation) -> Any:
    result = what.function(*what.args, **what.kwargs) if what.timeout is None else _within(what.timeout, what)
    if inspect.iscoroutine(result):
        result.close()
        raise NotDone(
            "a sync run cannot await what was called; use hf.aio.run, or give it a function that is not async"
        )
    return result


def _within(seconds: float, what: Invocation) -> Any:
    """Call a function in a thread of its own and wait so long."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((what.function(*what.args, **what.kwargs), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            outcome.append((None, error))

    thread = threading.Thread(target=call, name="holdfast-tool", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimedOut(f"no answer after {seconds:g} seconds")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
