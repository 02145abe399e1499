"""AsyncRun: an agent's durable run for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from holdfast.aio.executor import Done, begin, begin_theirs, done, to_the_end
from holdfast.errors import CallTimedOut, HoldfastError, InvalidArgument, LeaseHeld
from holdfast.observer import Observed
from holdfast.policy import Policy
from holdfast.runs.calls import NEED_KEYS, OnChange, watched_stream
from holdfast.runs.children import Child
from holdfast.runs.claim import Claiming
from holdfast.runs.core import RunCore, decisive, waits_in_hook
from holdfast.runs.drivers import Call, Ended, Invocation, Uncalled, advance, is_async, watched
from holdfast.runs.run import RunFace
from holdfast.runs.termination import termination
from holdfast.types import Checkpoint

_Task: TypeAlias = asyncio.Task[Any]


class _Line(msgspec.Struct, frozen=True):
    """A task that is, or was, in a run, and those that it was begun by."""

    task: weakref.ref[_Task]
    parent: _Line | None

    def has(self, task: _Task) -> bool:
        line: _Line | None = self
        while line is not None:
            if line.task() is task:
                return True
            line = line.parent
        return False


# A task inherits the context of the one that begins it: so it is known which were begun by whom.
_line: ContextVar[_Line | None] = ContextVar("holdfast_line", default=None)


class _Called(msgspec.Struct, frozen=True):
    """The last call without a key: by whom, and who could have made it instead."""

    step: int
    line: _Line
    beside: weakref.WeakSet[_Task]


class _Entry:
    """A task inside a verb, or inside the block of a child."""

    def __init__(self, task: _Task) -> None:
        self.task = task
        self.over: asyncio.Future[None] = task.get_loop().create_future()
        self.is_told = False


class Tasks:
    """The tasks inside one run. Made by the one that enters its block."""

    def __init__(self) -> None:
        self._home = _this_line()
        self._entries: list[_Entry] = []
        self._called: _Called | None = None
        self._is_left = False

    @contextmanager
    def inside(self) -> Generator[None]:
        """While a task is inside a verb, or in the block of a child."""
        leave = self.enter()
        try:
            yield
        finally:
            leave()

    def enter(self) -> _Leave:
        """The task is inside the run from here on, until it calls what this gives."""
        if self._is_left:
            raise HoldfastError("the block of this run is being left: nothing more can be done in it")
        task = _this_line().task()
        entry = _Entry(task) if task is not None else None
        if entry is not None:
            self._entries.append(entry)
        return _Leave(self._entries, entry)

    async def end(self) -> asyncio.CancelledError | None:
        """Begin to leave the block: cancel what other tasks are in, and wait until it is over.

        Cancelled meanwhile, the caller is told of it afterwards.
        """
        self._is_left = True
        here = asyncio.current_task()
        cancelled: asyncio.CancelledError | None = None
        while others := [entry for entry in self._entries if entry.task is not here and not entry.task.done()]:
            for entry in others:
                if not entry.is_told:
                    entry.is_told = True
                    entry.task.cancel()
            try:
                # Its task, too: one may end that never left the block of its child.
                await asyncio.wait([others[0].over, others[0].task], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def require_order(self, step: int) -> None:
        """InvalidArgument if the call without a key that is made here could as well have come before the last one.

        It cannot if the same task made both, if the one began the task of the other, or if this task was begun later.
        """
        line = _this_line()
        last = self._called
        task = line.task()
        if last is not None and last.step == step and task is not None:
            caller = last.line.task()
            if caller is not None and not caller.done():
                is_ordered = line.has(caller)
            else:
                is_ordered = last.line.has(task) or task not in last.beside
            if not is_ordered:
                raise InvalidArgument(NEED_KEYS)
        # While the block is open its own task is never done: nobody asks who was beside it.
        beside = weakref.WeakSet[_Task]() if line is self._home else weakref.WeakSet(asyncio.all_tasks())
        self._called = _Called(step, line, beside)


class _Leave:
    def __init__(self, entries: list[_Entry], entry: _Entry | None) -> None:
        self._entries = entries
        self._entry = entry

    def __call__(self) -> None:
        if self._entry is not None and self._entry in self._entries:
            self._entries.remove(self._entry)
            if not self._entry.over.done():
                self._entry.over.set_result(None)


def _this_line() -> _Line:
    task = asyncio.current_task()
    if task is None:
        raise HoldfastError("an async run is used inside a task")
    line = _line.get()
    if line is not None and line.task() is task:
        return line
    while line is not None and ((begun_by := line.task()) is None or begun_by.done()):
        line = line.parent  # it can be nobody's beside any more
    line = _Line(weakref.ref(task), line)
    _line.set(line)
    return line


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


T = TypeVar("T")

_POLL_SECONDS: Final = 0.05


class AsyncRun(RunFace):
    """A run that this process holds, inside `async with hf.aio.run(…) as run`. `Run` says what each verb does."""

    def __init__(self, core: RunCore, claiming: Claiming) -> None:
        super().__init__(core, claiming)
        self._tasks = Tasks()

    async def steps(self) -> AsyncIterator[int]:
        """As `Run.steps`: `async for step in run.steps()`."""
        if self._core.is_open:
            yield self._core.step
        while self._core.is_open:
            with self._tasks.inside():
                await to_the_end(self._core.closing())
            yield self._core.step

    async def save(self) -> Checkpoint:
        """As `Run.save`."""
        with self._tasks.inside():
            return await to_the_end(self._core.saving())

    async def finish(self, result: Any = None) -> None:
        """As `Run.finish`."""
        with self._tasks.inside():
            await to_the_end(self._core.finishing(result))

    async def halt(self, reason: str) -> None:
        """As `Run.halt`."""
        with self._tasks.inside():
            await to_the_end(functools.partial(self._core.halt, reason))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """As `Run.progress`. Not awaited: nothing is stored here."""
        self._core.progress(done, total, note)

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
        call = self._core.calls().model(function, args, kwargs, key=key, type=type, on_change=on_change, caller=None)
        return await self._made(call, self._core.observed("model"), key)

    async def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """As `Run.tool`. The tool may be async or not; one that is not is called in a thread, and not cancelled."""
        call = self._core.calls().tool(named, args, key, caller=None)
        return await self._made(call, self._core.observed("tool", named), key)

    async def _made(self, call: Call, observed: Observed | None, key: str | None) -> Any:
        with self._tasks.inside():
            if key is None:
                self._tasks.require_order(self._core.step)
            return await drive(call, observed)

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
        """As `Run.child`: `async with run.child("name", start=state) as child`."""
        child = Child(self._core, self._claiming, name, start, type, agent, policy, tools)
        return AsyncChildBlock(child, self._tasks)

    async def wait(self, name: str, payload: Any = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - not of this process: the run waits without one
        """As `Run.wait`."""
        with self._tasks.inside():
            return await to_the_end(functools.partial(self._core.calls().wait, name, payload, timeout))

    async def sleep(self, seconds: float) -> None:
        """As `Run.sleep`."""
        with self._tasks.inside():
            await to_the_end(functools.partial(self._core.calls().sleep, seconds))

    async def stream(
        self, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """As `Run.stream`. The function gives an async iterator or another, or a coroutine that gives one."""
        with self._tasks.inside():
            if key is None:
                self._tasks.require_order(self._core.step)
            calls = self._core.calls()
            await to_the_end(calls.context.require_active)
        streaming = calls.streaming(function, args, kwargs, key=key, caller=None)
        with watched_stream(streaming, self._core.observed("model", is_stream=True)) as stream:
            if stream.recorded is not None:
                for chunk in stream.recorded:
                    yield chunk
                return
            async with aclosing(chunks(await source_of(function, *args, **kwargs))) as source:
                async for chunk in source:
                    yield stream.take(chunk)
            await to_the_end(stream.end)


class AsyncRunBlock:
    """What `hf.aio.run(…)` gives: `async with` it, the run is claimed, and given back at the end."""

    def __init__(self, claiming: Claiming) -> None:
        self._claiming = claiming
        self._run: AsyncRun | None = None

    async def __aenter__(self) -> AsyncRun:
        self._claiming.enter_once()
        termination.listen()  # before the run is claimed, or a signal in between would not give it back
        try:
            with self._claiming.observed():
                core = await self._claimed_in_time()
        except BaseException:
            termination.unlisten()
            raise
        self._run = run = AsyncRun(core, self._claiming)
        hook = self._claiming.on_resume
        if hook is not None and core.resumed and core.is_open:
            await self._resume(run, hook)
        return run

    async def _resume(self, run: AsyncRun, hook: Callable[[AsyncRun], Any]) -> None:
        """Let the hook of a resumed run have it first. What it raises ends the run as it would in the block."""
        try:
            with run._core.hooking():
                result = hook(run)
                if inspect.isawaitable(result):
                    await result
        except BaseException as error:
            if await self.__aexit__(type(error), error, error.__traceback__):
                raise waits_in_hook(run.status) from None
            raise

    async def _claimed_in_time(self) -> RunCore:
        deadline = time.monotonic() + self._claiming.wait
        while True:
            try:
                return await self._claimed()
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _claimed(self) -> RunCore:
        """The run, claimed. Given back at once if the caller is cancelled meanwhile, or a signal comes."""
        claimed: list[RunCore] = []
        try:
            with termination.deferred():
                await to_the_end(lambda: claimed.append(self._claiming.enter(can_await=True, wait=0)))
        except BaseException as ended:
            if claimed:
                with termination.deferred():
                    await to_the_end(functools.partial(claimed[0].leave, ended))
            raise
        return claimed[0]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._run is None:
            return False
        try:
            return await _left(self._run, functools.partial(self._run._core.leave, error))
        finally:
            try:
                termination.unlisten()
            finally:
                self._claiming.left()


class AsyncChildBlock:
    """What `run.child(…)` of an async run gives."""

    def __init__(self, child: Child, tasks: Tasks) -> None:
        """`tasks` are those of the parent: who is in the block of its child is in it."""
        self._child = child
        self._tasks = tasks
        self._run: AsyncRun | None = None
        self._leave_parent: Callable[[], None] = _nothing

    async def __aenter__(self) -> AsyncRun:
        self._leave_parent = self._tasks.enter()
        try:
            with self._child.claiming.observed():
                core = await self._entered()
        except BaseException:
            self._leave_parent()
            raise
        self._run = AsyncRun(core, self._child.claiming)
        return self._run

    async def _entered(self) -> RunCore:
        """The child, claimed. Given back at once if the caller is cancelled meanwhile."""
        entered: list[RunCore] = []
        try:
            await to_the_end(lambda: entered.append(self._child.enter(can_await=True)))
        except asyncio.CancelledError as cancelled:
            if entered:
                await to_the_end(functools.partial(self._child.leave, entered[0], cancelled))
            raise
        return entered[0]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is None:
            return
        try:
            await _left(self._run, functools.partial(self._child.leave, self._run._core, decisive(error)))
        finally:
            self._leave_parent()
            self._child.claiming.left()


async def _left(run: AsyncRun, leave: Callable[[], T]) -> T:
    """Leave the block of a run: nothing of it is under way any more when it is given back."""
    cancelled = await run._tasks.end()
    with termination.deferred():
        result = await to_the_end(leave)
    if cancelled is not None:
        raise cancelled
    return result


def _nothing() -> None:
    pass
