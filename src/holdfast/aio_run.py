"""Async runs: the same rules as in sync ones, with the store in threads and what users wrote awaited."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, TypeVar

from holdfast.aio_calls import chunks, drive, source_of
from holdfast.aio_tasks import Tasks
from holdfast.aio_threads import to_the_end
from holdfast.errors import LeaseHeld
from holdfast.observing import Observed
from holdfast.policy import Policy
from holdfast.records import Checkpoint
from holdfast.runs.calls import OnChange, watched_stream
from holdfast.runs.children import Child
from holdfast.runs.core import RunCore, waits_in_hook
from holdfast.runs.entering import Claiming
from holdfast.runs.face import RunFace
from holdfast.runs.invoking import Call
from holdfast.runs.leaving import decisive
from holdfast.runs.signals import termination

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
        call = self._core.calling(
            lambda calls: calls.model(function, args, kwargs, key=key, type=type, on_change=on_change, caller=None)
        )
        return await self._made(call, self._core.observed("model"), key)

    async def tool(self, named: str | Callable[..., Any], args: Any = None, key: str | None = None) -> Any:
        """As `Run.tool`. The tool may be async or not; one that is not is called in a thread, and not cancelled."""
        call = self._core.calling(lambda calls: calls.tool(named, args, key, caller=None))
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
            return await to_the_end(functools.partial(self._core.wait, name, payload, timeout))

    async def sleep(self, seconds: float) -> None:
        """As `Run.sleep`."""
        with self._tasks.inside():
            await to_the_end(functools.partial(self._core.sleep, seconds))

    async def stream(
        self, function: Callable[..., Any], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """As `Run.stream`. The function gives an async iterator or another, or a coroutine that gives one."""
        with self._tasks.inside():
            if key is None:
                self._tasks.require_order(self._core.step)
            calls = await to_the_end(self._core.calls)
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
