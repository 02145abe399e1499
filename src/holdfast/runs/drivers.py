"""Invoking what users wrote: the one place where a call leaves Holdfast, for sync runs; async ones have their own.

A call is a generator: it looks into the journal, yields what is to be invoked, is sent the result or thrown the error,
and returns what the caller gets. So the rules of calls are written once, and who invokes, and how, is another matter.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import CallTimedOut
from holdfast.observer import Observation, Observed
from holdfast.runs.outcome import NotDone


class Invocation(msgspec.Struct, frozen=True):
    """A function of the user's that is to be called now, for at most `timeout` seconds."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    timeout: float | None = None
    is_probe: bool = False  # asks about a call, and is none itself


class Ended(msgspec.Struct, frozen=True):
    """A call is over, with this result."""

    result: Any


Call: TypeAlias = Generator[Invocation, Any, Any]


class Uncalled(BaseException):
    """Thrown into a call whose invocation was never begun: its caller was cancelled first."""


def advance(call: Call, result: Any = None, error: BaseException | None = None) -> Invocation | Ended:
    """Go on with a call, with what its last invocation gave."""
    try:
        return call.send(result) if error is None else call.throw(error)
    except StopIteration as end:
        return Ended(end.value)


def drive(call: Call, observed: Observed | None = None) -> Any:
    """Make a call, invoking in this thread."""
    if observed is not None:
        with observed as observation:
            return drive(watched(call, observation))
    state = advance(call)
    while isinstance(state, Invocation):
        try:
            result = _invoke(state)
        except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
            state = advance(call, error=error)
        else:
            state = advance(call, result)
    return state.result


def watched(call: Call, observation: Observation) -> Call:
    """The call, telling an observer whether it was executed or answered from the journal.

    One that ends with an error before anything is invoked was neither: it was refused, it waits, or it fails again.
    """
    is_executed = False
    state = advance(call)
    while isinstance(state, Invocation):
        if not state.is_probe and not is_executed:
            is_executed = True
            observation.tell(replayed=False)
        try:
            result = yield state
        except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
            state = advance(call, error=error)
        else:
            state = advance(call, result)
    if not is_executed:
        observation.tell(replayed=True)
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
    context = contextvars.copy_context()

    def call() -> None:
        try:
            outcome.append((context.run(what.function, *what.args, **what.kwargs), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            outcome.append((None, error))

    thread = threading.Thread(target=call, name="holdfast-tool", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise CallTimedOut(f"no answer after {seconds:g} seconds", thread.is_alive)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
