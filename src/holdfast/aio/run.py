"""AsyncRun: an agent's durable run for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, aclosing, suppress
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

from holdfast.aio.executor import Outcome, done, is_in_loop, start, start_user_function, to_the_end
from holdfast.aio.tasks import ENDING_SECONDS, Tasks, acting_task, current_task
from holdfast.errors import CallTimedOut, LeaseHeld
from holdfast.policy import Policy
from holdfast.runs.block_end import at_end, decisive, termination, waits_in_hook_error
from holdfast.runs.calls import OnChange
from holdfast.runs.children import Child
from holdfast.runs.claim import ClaimRequest
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import (
    CALL,
    RUN,
    Call,
    Finished,
    Invocation,
    Uncalled,
    advance,
    is_async,
    pause,
    still_running,
)
from holdfast.runs.identity import short_name_of
from holdfast.runs.record import pauses
from holdfast.runs.retry import Retry
from holdfast.runs.run import Run, RunBase
from holdfast.signals import shield
from holdfast.types import Checkpoint

_END: Final = object()


class _Outcome(msgspec.Struct, frozen=True):
    """The outcome of an invocation. `cancelled` if its caller was cancelled while it could not be stopped."""

    result: Any = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None


async def drive(call: Call) -> Any:
    """Make a call: run its invocations, and return its result."""
    state = await _advanced(call)
    while isinstance(state, Invocation):
        state = await _advanced(call, await _invoke(state))
    return state.result


async def start_call(call: Call) -> Invocation | Finished:
    """Advance a call to the invocation of its own function, which the caller makes, or to its end."""
    state = await _advanced(call)
    while isinstance(state, Invocation) and state.is_internal:
        state = await _advanced(call, await _invoke(state))
    return state


async def end_call(call: Call, result: Any = None, error: BaseException | None = None) -> Any:
    """End a call that `start_call` started, with the outcome of its function. Return its recorded result."""
    state = await _advanced(call, _Outcome(result, error))
    if isinstance(state, Invocation):  # a retry, which only the caller could make
        await _settled(functools.partial(advance, call, error=Uncalled()))
        raise error or Uncalled()
    return state.result


async def _advanced(call: Call, outcome: _Outcome | None = None) -> Invocation | Finished:
    """Advance a call by one step. A result is recorded first; then the caller's cancellation is raised."""
    outcome = outcome or _Outcome()
    advanced = await _settled(functools.partial(advance, call, outcome.result, outcome.error))
    cancelled = advanced.cancelled or outcome.cancelled
    if cancelled is not None:
        if isinstance(advanced.result, Invocation):
            # The next invocation will not be made.
            await _settled(functools.partial(advance, call, error=Uncalled()))
        raise cancelled
    return advanced.given()


async def _settled(work: Callable[[], Invocation | Finished]) -> Outcome[Invocation | Finished]:
    return await done(start(work))


async def _invoke(what: Invocation) -> _Outcome:
    if what.function is pause:
        return await _awaited(functools.partial(asyncio.sleep, *what.args), what)
    token = None if what.call is None else CALL.set(what.call)
    try:
        return await _invoke_function(what)
    finally:
        if token is not None:
            CALL.reset(token)


async def _invoke_function(what: Invocation) -> _Outcome:
    if is_async(what.function):
        awaited = _awaited_to_the_end if what.acts else _awaited
        return await awaited(functools.partial(what.function, *what.args, **what.kwargs), what)
    outcome = await _invoke_in_thread(what)
    if not inspect.isawaitable(outcome.result):
        return outcome
    if what.running is not None:
        what.running.note_async()
    if outcome.cancelled is not None:  # what ran in the thread may have acted
        if inspect.iscoroutine(outcome.result):
            outcome.result.close()
        return _Outcome(error=outcome.cancelled)
    return await (_awaited_to_the_end if what.acts else _awaited)(lambda: outcome.result, what)


async def _awaited_to_the_end(make: Callable[[], Any], what: Invocation) -> _Outcome:
    """Await a tool that acts in a task of its own. If its caller is cancelled, it has 5 seconds to end.

    If its caller is cancelled once more, the tool is cancelled at once.
    """
    caller = current_task()

    async def act() -> _Outcome:
        task = current_task()
        acting_task.set((task, caller))
        return await _awaited(make, what)

    acting = asyncio.create_task(act())
    loop, cancelled = asyncio.get_running_loop(), None
    until: float | None = None
    while not acting.done():
        try:
            await asyncio.wait([acting], timeout=None if until is None else max(until - loop.time(), 0))
        except asyncio.CancelledError as error:
            is_again, cancelled = cancelled is not None, error
            until = loop.time() + (0 if is_again else ENDING_SECONDS)
        if until is not None and loop.time() >= until:
            acting.cancel()
            until = None
    outcome = _Outcome(error=asyncio.CancelledError()) if acting.cancelled() else acting.result()
    if cancelled is None or isinstance(outcome.error, asyncio.CancelledError):
        return outcome
    return _Outcome(outcome.result, outcome.error, cancelled)


async def _awaited(make: Callable[[], Any], what: Invocation) -> _Outcome:
    limit = asyncio.timeout(what.timeout)
    try:
        async with limit:
            result = make()
            return _Outcome(await result if inspect.isawaitable(result) else result)
    except BaseException as error:  # noqa: BLE001 - the call records it and raises it again
        if isinstance(error, TimeoutError) and limit.expired():
            name = short_name_of(what.function)
            late = f"{name} did not return within {what.timeout:g} seconds and was cancelled; it may have acted"
            return _Outcome(error=CallTimedOut(late))
        return _Outcome(error=error)


async def _invoke_in_thread(what: Invocation) -> _Outcome:
    """Call a sync function in a thread. It cannot be stopped, so a cancellation of the caller is raised afterwards."""
    if what.running is not None:
        what.running.start()
    future = start_user_function(what.call_in_thread)
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
            return _Outcome(error=CallTimedOut(still_running(what)), cancelled=cancelled)
    given = future.result()
    return _Outcome(given.result, given.error, cancelled)


async def source_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that returns a stream. A sync function is called in a thread."""
    if is_async(function) or inspect.isasyncgenfunction(function):
        source = function(*args, **kwargs)
    else:
        source = (await done(start_user_function(functools.partial(function, *args, **kwargs)))).given()
    return await source if inspect.isawaitable(source) else source


async def chunks(source: Any) -> AsyncGenerator[Any, None]:
    """Iterate over a stream, and close it at the end. A sync stream is read in threads."""
    try:
        if hasattr(source, "__aiter__"):
            async for chunk in source:
                yield chunk
            return
        iterator = iter(source)
        while (chunk := (await done(start_user_function(functools.partial(next, iterator, _END)))).given()) is not _END:
            yield chunk
    finally:
        # A client's stream holds a connection. Its `close` is async if the stream is.
        if hasattr(source, "aclose"):
            await source.aclose()
        elif hasattr(source, "close"):
            closed = source.close() if hasattr(source, "__aiter__") else _close_in_thread(source)
            if inspect.isawaitable(closed):
                await closed


async def _close_in_thread(source: Any) -> None:
    (await done(start_user_function(source.close))).given()


T = TypeVar("T")


class AsyncRun(RunBase):
    """A run held by this process, inside `async with hf.aio.run(…) as run`. `Run` documents each method.

    Equal calls of several tasks need a `key=`.
    """

    def __init__(self, core: RunCore, request: ClaimRequest) -> None:
        super().__init__(core, request)
        self.tasks = Tasks()

    def steps(self) -> AsyncIterator[int]:
        """Iterate over the steps, as `Run.steps` does: `async for step in run.steps()`."""
        return _Steps(self)

    async def save(self) -> Checkpoint:
        """See `Run.save`."""
        with self.tasks.inside():
            return await to_the_end(self.core.prepare_save())

    async def finish(self, result: Any = None) -> None:
        """See `Run.finish`."""
        with self.tasks.inside():
            await to_the_end(self.core.prepare_finish(result))

    async def halt(self, reason: str) -> None:
        """See `Run.halt`."""
        with self.tasks.inside():
            await to_the_end(functools.partial(self.core.halt, reason))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """See `Run.progress`. It is not awaited."""
        self.core.progress(done, total, note)

    async def model(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        type: Any = None,
        on_change: OnChange = "recorded",
        retry: Retry | None = None,
        **kwargs: Any,
    ) -> Any:
        """See `Run.model`. The function may be async; a sync function is called in a thread."""
        calls, caller = self.core.calls(), self.tasks.caller()
        with calls.watched("model") as watched, self.tasks.inside():
            call = calls.model(
                function,
                args,
                kwargs,
                key=key,
                type=type,
                on_change=on_change,
                caller=caller,
                watched=watched,
                retry=retry,
            )
            return await drive(call)

    async def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """See `Run.tool`. The tool may be async; a sync tool is called in a thread and cannot be cancelled."""
        calls = self.core.calls()
        with calls.watched("tool", named) as watched, self.tasks.inside():
            return await drive(calls.tool(named, args, key, caller=self.tasks.caller(), watched=watched))

    def child(
        self,
        name: str,
        *,
        start: Any = None,
        type: Any = None,
        agent: str | None = None,
        policy: Policy | None = None,
        tools: Iterable[Callable[..., Any]] | None = None,
    ) -> AsyncChildBlock:
        """See `Run.child`: `async with run.child("name", start=state) as child`."""
        child = Child(self.core, self.request, name, start, type, agent, policy, tools)
        return AsyncChildBlock(child, self.tasks)

    async def wait(self, name: str, payload: Any = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - the run waits in the store, not in this process
        """See `Run.wait`."""
        with self.tasks.inside():
            return await to_the_end(functools.partial(self.core.calls().wait, name, payload, timeout))

    async def sleep(self, seconds: float) -> None:
        """See `Run.sleep`."""
        with self.tasks.inside():
            await to_the_end(functools.partial(self.core.calls().sleep, seconds))

    async def stream(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        final: Callable[[list[Any]], Any] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """See `Run.stream`. The function returns an iterator or an async iterator, or a coroutine that returns one."""
        with self.tasks.inside():
            calls = self.core.calls()
            await to_the_end(calls.context.require_active)
        caller = self.tasks.caller()
        with calls.streaming(function, args, kwargs, key=key, final=final, caller=caller) as stream:
            if stream.recorded is not None:
                for chunk in stream.recorded:
                    yield chunk
                return
            given = stream.given
            async with aclosing(chunks(await source_of(function, *given.args, **given.kwargs))) as source:
                async for chunk in source:
                    yield stream.take(chunk)
            await to_the_end(stream.end)


def face_of(run: Run) -> AsyncRun:
    """Return an AsyncRun for a run that the block of a sync run holds."""
    face = AsyncRun.__new__(AsyncRun)
    face.core, face.request = run.core, run.request
    face.tasks = Tasks()
    if face.core.is_open:
        face.core.calls().context.can_await = True
    return face


class Handover:
    """A run that a thread of the pool claims for a task. If the task no longer waits for the run, it is released.

    A cancellation or an interrupt may end the task at any point, while the thread still claims the run.
    """

    def __init__(self, enter: Callable[[], RunCore], leave: Callable[[RunCore, BaseException], object]) -> None:
        self._enter = enter
        self._leave = leave
        self._lock = threading.Lock()
        self._claimed: RunCore | None = None
        self._refused: BaseException | None = None

    def claim(self) -> RunCore:
        """In the thread: claim the run."""
        core = self._enter()
        with self._lock:
            self._claimed = core
            refused = self._refused
        if refused is not None:
            self._leave(core, refused)
        return core

    async def refuse(self, error: BaseException) -> None:
        """In the task: release the run, now or as soon as it is claimed, because of an error."""
        with shield, self._lock:
            self._refused = error
            claimed = self._claimed
        if claimed is not None:
            await to_the_end(functools.partial(self._leave, claimed, error))


class _Steps:
    """The steps of a run. Not an async generator: one that is left by `break` is closed later."""

    def __init__(self, run: AsyncRun) -> None:
        self._run = run
        self._looping: AbstractContextManager[None] | None = None

    def __aiter__(self) -> _Steps:
        return self

    async def __anext__(self) -> int:
        core = self._run.core
        if not core.is_open:
            self._leave()
            raise StopAsyncIteration
        try:
            if self._looping is None:
                looping = core.in_steps()
                looping.__enter__()
                self._looping = looping
            else:
                with self._run.tasks.inside():
                    await to_the_end(core.prepare_step_end())
        except BaseException:
            self._leave()
            raise
        return core.step

    def _leave(self) -> None:
        looping, self._looping = self._looping, None
        if looping is not None:
            looping.__exit__(None, None, None)

    def __del__(self) -> None:
        self._leave()


class AsyncRunBlock:
    """The block of `async with hf.aio.run(…)`: claims the run, and releases it at the end."""

    def __init__(self, request: ClaimRequest) -> None:
        self._request = request
        self._run: AsyncRun | None = None
        self._token: Token[Any] | None = None

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> NoReturn:
            advice = "; use `async with hf.aio.run(…) as run:`" if hasattr(AsyncRun, name) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    async def __aenter__(self) -> AsyncRun:
        self._request.enter_once()
        handover = Handover(functools.partial(self._request.enter, can_await=True), RunCore.leave)
        try:
            termination.listen(self)  # before the claim, so that a signal cannot come between them
            with self._request.observed():
                core = await self._claimed_in_time(handover)
            self._run = run = AsyncRun(core, self._request)
        except BaseException as error:
            try:
                await handover.refuse(error)
            finally:
                termination.unlisten(self)
            raise
        self._token = RUN.set(run)
        hook = self._request.on_resume
        if hook is not None and core.resumed and core.is_open:
            await self._resume(run, hook)
        return run

    async def _resume(self, run: AsyncRun, hook: Callable[[AsyncRun], Any]) -> None:
        """Call the hook of a resumed run. An error in it ends the run as an error in the block does."""
        try:
            with run.core.in_hook():
                result = hook(run)
                if inspect.isawaitable(result):
                    await result
        except BaseException as error:
            if await self.__aexit__(type(error), error, error.__traceback__):
                raise waits_in_hook_error(run.thread, run.status) from None
            raise

    async def _claimed_in_time(self, handover: Handover) -> RunCore:
        for seconds in pauses(self._request.wait):
            with suppress(LeaseHeld):
                return await to_the_end(handover.claim)
            await asyncio.sleep(seconds)
        return await to_the_end(handover.claim)

    @at_end
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._run is None:
            return False
        try:
            return await _left(self._run, functools.partial(self._run.core.leave, error))
        finally:
            try:
                termination.unlisten(self)
            finally:
                self._request.left()
                _forget(self._token)


class AsyncChildBlock:
    """The block of `async with run.child(…)`."""

    def __init__(self, child: Child, tasks: Tasks) -> None:
        """`tasks` are those of the parent run: a task in the child's block is also inside the parent."""
        self._child = child
        self._tasks = tasks
        self._run: AsyncRun | None = None
        self._leave_parent: Callable[[], None] = _nothing
        self._token: Token[Any] | None = None

    async def __aenter__(self) -> AsyncRun:
        self._leave_parent = self._tasks.enter()
        handover = Handover(functools.partial(self._child.enter, can_await=True), self._child.leave)
        try:
            with self._child.request.observed():
                core = await to_the_end(handover.claim)
            self._run = AsyncRun(core, self._child.request)
        except BaseException as error:
            try:
                await handover.refuse(error)
            finally:
                self._leave_parent()
            raise
        self._token = RUN.set(self._run)
        return self._run

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is None:
            return
        try:
            await _left(self._run, functools.partial(self._child.leave, self._run.core, decisive(error)))
        finally:
            self._leave_parent()
            self._child.request.left()
            _forget(self._token)


async def _left(run: AsyncRun, leave: Callable[[], T]) -> T:
    """Leave the block of a run: end what its tasks do, then release it."""
    if not is_in_loop():
        return leave()
    leaving: asyncio.Future[Outcome[T]] | None = None
    try:
        cancelled = await run.tasks.end()
        leaving = start(leave)
        outcome = await done(leaving)
    except BaseException:  # an interrupt: the run is released all the same
        await done(start(leave) if leaving is None else leaving)
        raise
    result = outcome.given()
    if cancelled is not None:
        raise cancelled
    return result


def _forget(token: Token[Any] | None) -> None:
    """Reset the current run at the end of its block."""
    if token is not None:
        with suppress(ValueError):  # the block is left in another context than it was entered in
            RUN.reset(token)


def _nothing() -> None:
    pass
