"""The async and the sync form of the seam: calls are awaited, or made in the thread of the caller."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, Self, TypeVar

from holdfast.aio.executor import to_the_end
from holdfast.aio.run import AsyncRun
from holdfast.aio.run import drive as drive_async
from holdfast.aio.run import end_call as end_async
from holdfast.aio.run import start_call as begin_async
from holdfast.runs.drivers import SCOPE, Call, Finished, Invocation, drive, end_call, start_call
from holdfast.runs.run import Run

P = ParamSpec("P")
T = TypeVar("T")

_POLL_SECONDS: Final = 0.005

# The verbs of the seam are written once, as coroutines. Those with `BLOCKING` never wait, so `finished` runs one to its
# end like a function, and `in_thread` makes the sync verbs of them.


def _at_once(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A function as a coroutine that never waits."""

    async def call(*args: P.args, **options: P.kwargs) -> T:
        return function(*args, **options)

    return call


def _done(work: Callable[[], Any]) -> Any:
    return work()


def _face(run: Run | AsyncRun) -> AsyncRun:
    return run.aio if isinstance(run, Run) else run


def _in_task(run: Run | AsyncRun) -> AbstractContextManager[None]:
    return _face(run).tasks.inside()


def _anywhere(_: Run | AsyncRun) -> AbstractContextManager[None]:
    return nullcontext()


class Mode(NamedTuple):
    """The way in which calls are made: awaited, or in the thread of the caller."""

    drive: Callable[[Call], Coroutine[Any, Any, Any]]
    begin: Callable[[Call], Coroutine[Any, Any, Invocation | Finished]]
    end: Callable[[Call, Any, BaseException | None], Coroutine[Any, Any, Any]]
    work: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]  # work of Holdfast
    pause: Callable[[float], Coroutine[Any, Any, None]]
    inside: Callable[[Run | AsyncRun], AbstractContextManager[None]]  # the end of a run's block waits for its tasks
    awaits: bool

    async def poll(self, is_over: Callable[[], bool], seconds: float = math.inf) -> None:
        """Wait until something is so. Other calls may be in threads and loops of their own."""
        until = time.monotonic() + seconds
        while not is_over() and time.monotonic() < until:
            await self.pause(_POLL_SECONDS)

    def body(
        self, function: Callable[[], Any], scope: str, caught: Callable[[Exception], Any] | None = None
    ) -> Callable[..., Any]:
        """The function of a call: a framework's function, in its own scope. `caught` makes a result of an exception."""

        async def body(*_: Any, **__: Any) -> Any:
            token = SCOPE.set(scope)
            try:
                result = function()
                return await result if self.awaits and inspect.isawaitable(result) else result
            except Exception as error:
                if caught is None:
                    raise
                return caught(error)
            finally:
                SCOPE.reset(token)

        return body if self.awaits else lambda *_, **__: finished(body())


AWAITING: Final = Mode(drive_async, begin_async, end_async, to_the_end, asyncio.sleep, _in_task, awaits=True)
BLOCKING: Final = Mode(
    *(_at_once(drive), _at_once(start_call), _at_once(end_call), _at_once(_done), _at_once(time.sleep), _anywhere),
    awaits=False,
)


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine that never waits has waited")


class HasThread(Protocol):
    """An object whose coroutines never wait if they are those of `blocking`."""

    @property
    def blocking(self) -> Self: ...


H = TypeVar("H", bound=HasThread)


def in_thread(verb: Callable[Concatenate[H, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[H, P], T]:
    """The sync verb of an async one."""

    def call(self: H, /, *args: P.args, **options: P.kwargs) -> T:
        return finished(verb(self.blocking, *args, **options))

    call.__doc__ = f"See `{verb.__name__}`."
    return call


def stream_in_thread(
    verb: Callable[Concatenate[H, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[H, P], Iterator[T]]:
    """The sync verb of an async one that yields chunks."""

    def chunks(self: H, /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        source = verb(self.blocking, *args, **options)
        try:
            while True:
                try:
                    chunk = finished(_coroutine(source.__anext__()))
                except StopAsyncIteration:
                    return
                yield chunk
        finally:
            finished(_coroutine(source.aclose()))

    chunks.__doc__ = f"See `{verb.__name__}`."
    return chunks


async def _coroutine(awaited: Awaitable[T]) -> T:
    return await awaited


async def as_stream(source: Any) -> AsyncGenerator[Any, None]:
    """The chunks of a stream, of an awaitable that returns one, or of an iterable. The stream is closed at the end."""
    source = await source if inspect.isawaitable(source) else source
    try:
        if hasattr(source, "__aiter__"):
            async for chunk in source:
                yield chunk
        else:
            for chunk in source:
                yield chunk
    finally:
        close = getattr(source, "aclose", None) or getattr(source, "close", None)
        closing = None if close is None else close()
        if inspect.isawaitable(closing):
            await closing
