"""Async runs: the same rules as in sync ones, with the store in threads and what users wrote awaited."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import LeaseHeld
from holdfast.records import Checkpoint, Effect, Status
from holdfast.runs.block import Claiming
from holdfast.runs.calls import OnChange
from holdfast.runs.core import RunCore
from holdfast.runs.invoking import Call, Ended, Invocation, TimedOut, Uncalled, advance, is_async
from holdfast.runs.signals import termination

T = TypeVar("T")

_POLL_SECONDS: Final = 0.05
_END: Final = object()


class AsyncRun:
    """A run that this process holds, inside `async with hf.aio.run(…) as run`. `Run` says what each verb does."""

    def __init__(self, core: RunCore) -> None:
        self._core = core

    @property
    def state(self) -> Any:
        """The state, to be changed in place or replaced; stored at the boundaries, as it is when they are reached."""
        return self._core.state

    @state.setter
    def state(self, state: Any) -> None:
        self._core.state = state

    @property
    def thread(self) -> str:
        """The name of its thread."""
        return self._core.thread

    @property
    def resumed(self) -> bool:
        """Whether the run was begun before."""
        return self._core.resumed

    @property
    def fresh(self) -> bool:
        """Whether nothing of this run, or this turn, is stored yet: put its input into the state then."""
        return self._core.fresh

    @property
    def attempt(self) -> int:
        """How often the run was claimed since its last checkpoint, this time included."""
        return self._core.attempt

    @property
    def age(self) -> float:
        """How many seconds old the checkpoint was from which the run goes on."""
        return self._core.age

    @property
    def status(self) -> Status:
        return self._core.status

    @property
    def result(self) -> Any:
        """What the run was finished with; None before."""
        return self._core.result

    @property
    def changed(self) -> tuple[Effect, ...]:
        """The recorded calls that were asked for with other arguments than they were made with."""
        return self._core.changed

    @property
    def step(self) -> int:
        """The step that is open."""
        return self._core.step

    async def steps(self) -> AsyncIterator[int]:
        """As `Run.steps`: `async for step in run.steps()`."""
        if self._core.is_open:
            yield self._core.step
        while self._core.is_open:
            await to_the_end(self._core.closing())
            yield self._core.step

    async def save(self) -> Checkpoint:
        """As `Run.save`."""
        return await to_the_end(self._core.saving())

    async def finish(self, result: Any = None) -> None:
        """As `Run.finish`."""
        await to_the_end(self._core.finishing(result))

    async def halt(self, reason: str) -> None:
        """As `Run.halt`."""
        await to_the_end(functools.partial(self._core.halt, reason))

    async def model(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        type: Any = None,
        on_change: OnChange = "recorded",
        **kwargs: Any,
    ) -> Any:
        """As `Run.model`. The function may be async or not; one that is not is called in a thread."""
        return await _drive(
            self._core.calling(
                lambda calls: calls.model(function, args, kwargs, key=key, type=type, on_change=on_change, caller=None)
            )
        )

    async def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """As `Run.tool`. The tool may be async or not; one that is not is called in a thread, and not cancelled."""
        return await _drive(self._core.calling(lambda calls: calls.tool(named, args, key, caller=None)))

    async def wait(self, name: str, payload: Any = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - not of this process: the run waits without one
        """As `Run.wait`."""
        return await to_the_end(functools.partial(self._core.wait, name, payload, timeout))

    async def sleep(self, seconds: float) -> None:
        """As `Run.sleep`."""
        await to_the_end(functools.partial(self._core.sleep, seconds))

    async def stream(
        self, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """As `Run.stream`. The function gives an async iterator or another, or a coroutine that gives one."""
        calls = await to_the_end(self._core.calls)
        with calls.streaming(function, args, kwargs, key=key, caller=id(asyncio.current_task())) as stream:
            if stream.recorded is not None:
                for chunk in stream.recorded:
                    yield chunk
                return
            source = function(*args, **kwargs)
            if inspect.isawaitable(source):
                source = await source
            async for chunk in _chunks(source):
                yield stream.take(chunk)
            await to_the_end(stream.end)


class AsyncRunBlock:
    """What `hf.aio.run(…)` gives: `async with` it, the run is claimed, and given back at the end."""

    def __init__(self, claiming: Claiming) -> None:
        self._claiming = claiming
        self._core: RunCore | None = None

    async def __aenter__(self) -> AsyncRun:
        self._claiming.enter_once()
        deadline = time.monotonic() + self._claiming.wait
        while True:
            try:
                self._core = await self._claimed()
                break
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)
        termination.listen()
        return AsyncRun(self._core)

    async def _claimed(self) -> RunCore:
        """The run, claimed. Given back at once if the caller is cancelled meanwhile."""
        claimed: list[RunCore] = []
        try:
            await to_the_end(lambda: claimed.append(self._claiming.enter(can_await=True, wait=0)))
        except asyncio.CancelledError as cancelled:
            if claimed:
                await to_the_end(functools.partial(claimed[0].leave, cancelled))
            raise
        return claimed[0]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._core is None:
            return False
        with termination.deferred():
            return await to_the_end(functools.partial(self._core.leave, error))


async def to_the_end(work: Callable[[], T]) -> T:
    """Do work in a thread. A caller that is cancelled hears of that when the work is done: a write is never torn."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # its caller does not hear of it any more
        raise cancelled
    return future.result()


class _Outcome(msgspec.Struct, frozen=True):
    """What an invocation gave. `cancelled` if its caller was meanwhile, and it could not be stopped."""

    result: Any = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None


async def _drive(call: Call) -> Any:
    """Make a call, its own work in threads, what it invokes on the loop."""
    state = await _begun(call, functools.partial(advance, call))
    while isinstance(state, Invocation):
        outcome = await _invoke(state)
        work = functools.partial(advance, call, outcome.result, outcome.error)
        if outcome.cancelled is not None:
            # What it gave is recorded first.
            await _leave_uncalled(call, await to_the_end(work))
            raise outcome.cancelled
        state = await _begun(call, work)
    return state.result


async def _begun(call: Call, work: Callable[[], Invocation | Ended]) -> Invocation | Ended:
    """Go on with a call. Cancelled meanwhile, it is told that what it was about to invoke never was."""
    states: list[Invocation | Ended] = []
    try:
        await to_the_end(lambda: states.append(work()))
    except asyncio.CancelledError:
        if states:
            await _leave_uncalled(call, states[0])
        raise
    return states[0]


async def _leave_uncalled(call: Call, state: Invocation | Ended) -> None:
    if isinstance(state, Invocation):
        with suppress(Uncalled):
            await to_the_end(functools.partial(advance, call, error=Uncalled()))


async def _invoke(what: Invocation) -> _Outcome:
    if is_async(what.function):
        return await _awaited(what.function(*what.args, **what.kwargs), what)
    outcome = await _invoke_in_thread(what)
    if not inspect.isawaitable(outcome.result):
        return outcome
    if outcome.cancelled is not None:
        if inspect.iscoroutine(outcome.result):
            outcome.result.close()
        return _Outcome(error=Uncalled(), cancelled=outcome.cancelled)
    return await _awaited(outcome.result, what)


async def _awaited(result: Awaitable[Any], what: Invocation) -> _Outcome:
    limit = asyncio.timeout(what.timeout)
    try:
        async with limit:
            return _Outcome(await result)
    except BaseException as error:  # noqa: BLE001 - the call decides, and raises it again
        if isinstance(error, TimeoutError) and limit.expired():
            return _Outcome(error=_timed_out(what))
        return _Outcome(error=error)


async def _invoke_in_thread(what: Invocation) -> _Outcome:
    """Call a function that is not async. It cannot be stopped: a caller that is cancelled hears of it afterwards."""
    future = asyncio.ensure_future(asyncio.to_thread(what.function, *what.args, **what.kwargs))
    deadline = None if what.timeout is None else time.monotonic() + what.timeout
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            await asyncio.wait([future], timeout=left)
        except asyncio.CancelledError as asked:
            cancelled = asked
        if not future.done() and deadline is not None and time.monotonic() >= deadline:
            future.add_done_callback(_retrieve)
            return _Outcome(error=_timed_out(what), cancelled=cancelled)
    error = future.exception()
    return _Outcome(None if error is not None else future.result(), error, cancelled)


def _timed_out(what: Invocation) -> TimedOut:
    return TimedOut(f"no answer after {what.timeout:g} seconds")


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; without this, asyncio would complain of an error that nobody heard of."""
    if not future.cancelled():
        future.exception()


async def _chunks(source: Any) -> AsyncIterator[Any]:
    """What a source gives, piece by piece; one that is not async is asked in a thread."""
    if hasattr(source, "__aiter__"):
        async for chunk in source:
            yield chunk
        return
    iterator = iter(source)
    while (chunk := await to_the_end(functools.partial(next, iterator, _END))) is not _END:
        yield chunk
