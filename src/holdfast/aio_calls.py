"""Calls of async runs: their own work in threads, what they invoke on the loop, or in threads if it is not async."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec

from holdfast.aio_threads import Done, begin, begin_theirs, done
from holdfast.errors import CallTimedOut
from holdfast.observing import Observed
from holdfast.runs.invoking import Call, Ended, Invocation, Uncalled, advance, is_async, watched

_END: Final = object()


class _Outcome(msgspec.Struct, frozen=True):
    """What an invocation gave. `cancelled` if its caller was meanwhile, and it could not be stopped."""

    result: Any = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None


async def drive(call: Call, observed: Observed | None = None) -> Any:
    """Make a call."""
    if observed is not None:
        with observed as observation:
            return await drive(watched(call, observation))
    state = await _advanced(call)
    while isinstance(state, Invocation):
        state = await _advanced(call, await _invoke(state))
    return state.result


async def _advanced(call: Call, outcome: _Outcome | None = None) -> Invocation | Ended:
    """Go on with a call. What an invocation gave is recorded, then its caller hears that it was cancelled meanwhile."""
    outcome = outcome or _Outcome()
    gone_on = await _settled(functools.partial(advance, call, outcome.result, outcome.error))
    cancelled = gone_on.cancelled or outcome.cancelled
    if cancelled is not None:
        if isinstance(gone_on.result, Invocation):
            # What it was about to invoke never was.
            await _settled(functools.partial(advance, call, error=Uncalled()))
        raise cancelled
    return gone_on.given()


async def _settled(work: Callable[[], Invocation | Ended]) -> Done[Invocation | Ended]:
    return await done(begin(work))


async def _invoke(what: Invocation) -> _Outcome:
    if is_async(what.function):
        return await _awaited(functools.partial(what.function, *what.args, **what.kwargs), what)
    outcome = await _invoke_in_thread(what)
    if not inspect.isawaitable(outcome.result):
        return outcome
    if outcome.cancelled is not None:
        if inspect.iscoroutine(outcome.result):
            outcome.result.close()
        return _Outcome(error=Uncalled(), cancelled=outcome.cancelled)
    return await _awaited(lambda: outcome.result, what)


async def _awaited(make: Callable[[], Any], what: Invocation) -> _Outcome:
    limit = asyncio.timeout(what.timeout)
    try:
        async with limit:
            result = make()
            return _Outcome(await result if inspect.isawaitable(result) else result)
    except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
        if isinstance(error, TimeoutError) and limit.expired():
            return _Outcome(error=_timed_out(what))
        return _Outcome(error=error)


async def _invoke_in_thread(what: Invocation) -> _Outcome:
    """Call a function that is not async. It cannot be stopped: a caller that is cancelled hears of it afterwards."""
    future = begin_theirs(functools.partial(what.function, *what.args, **what.kwargs))
    loop = asyncio.get_running_loop()
    deadline = None if what.timeout is None else loop.time() + what.timeout
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        left = None if deadline is None else max(deadline - loop.time(), 0)
        try:
            await asyncio.wait([future], timeout=left)
        except asyncio.CancelledError as asked:
            cancelled = asked
        if not future.done() and deadline is not None and loop.time() >= deadline:
            return _Outcome(error=_timed_out(what), cancelled=cancelled)
    given = future.result()
    return _Outcome(given.result, given.error, cancelled)


def _timed_out(what: Invocation) -> CallTimedOut:
    return CallTimedOut(f"no answer after {what.timeout:g} seconds")


async def source_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives to be streamed. One that is not async is called in a thread."""
    if is_async(function) or inspect.isasyncgenfunction(function):
        source = function(*args, **kwargs)
    else:
        source = (await done(begin_theirs(functools.partial(function, *args, **kwargs)))).given()
    return await source if inspect.isawaitable(source) else source


async def chunks(source: Any) -> AsyncGenerator[Any, None]:
    """What a source gives, piece by piece; one that is not async is asked in threads. Closes it in the end."""
    try:
        if hasattr(source, "__aiter__"):
            async for chunk in source:
                yield chunk
            return
        iterator = iter(source)
        while (chunk := (await done(begin_theirs(functools.partial(next, iterator, _END)))).given()) is not _END:
            yield chunk
    finally:
        if hasattr(source, "aclose"):
            await source.aclose()
        elif inspect.isgenerator(source):
            (await done(begin_theirs(source.close))).given()
