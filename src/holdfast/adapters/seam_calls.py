"""The calls of an agent framework that are under way in a run, and how they are made and recorded."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from importlib import metadata
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from holdfast import forksafe
from holdfast.aio.executor import to_the_end
from holdfast.aio.run import AsyncRun
from holdfast.aio.run import begin as begin_async
from holdfast.aio.run import drive as drive_async
from holdfast.aio.run import end as end_async
from holdfast.observer import Observed
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import SCOPE, Call, Finished, Invocation, begin, drive, end
from holdfast.runs.identity import escaped
from holdfast.runs.results import Codec
from holdfast.runs.run import Run
from holdfast.runs.tools import Tool, tool, tool_of

P = ParamSpec("P")
T = TypeVar("T")

_POLL_SECONDS: Final = 0.005
_above: Final[ContextVar[int]] = ContextVar("holdfast_seam_call", default=0)  # the call that the code is part of


class CallsUnderWay:
    """The calls that a framework makes in one claim of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._under_way: dict[int, int] = {}  # by number: the call that it is part of, or 0
        self._waiting: set[int] = set()  # calls that wait for the others to end
        self._step = 0
        self._keys: Counter[tuple[str, str, str]] = Counter()  # the keys used in the open step, with scope and tool

    def own_key(self, step: int, name: str, key: str) -> str:
        """The key of a call. Some models number their calls anew in each reply: equal keys are counted."""
        key = escaped(key)  # the scope before it ends with a separator
        count = self.count(step, name, key)
        return key if count == 1 else f"{key}~{count}"

    def count(self, step: int, name: str, key: str) -> int:
        """How often this was called in a step and in this scope, from 1."""
        with self._lock:
            if step != self._step:
                self._step = step
                self._keys.clear()
            at = SCOPE.get(), name, key
            self._keys[at] += 1
            return self._keys[at]

    def start(self) -> int:
        """Note that a call starts. Return its number."""
        with self._lock:
            number = next(self._numbers)
            self._under_way[number] = _above.get()
            return number

    def end(self, number: int) -> None:
        with self._lock:
            del self._under_way[number]
            self._waiting.discard(number)

    @contextmanager
    def inside(self) -> Generator[int]:
        """A call that is under way in this block."""
        number = self.start()
        token = _above.set(number)
        try:
            yield number
        finally:
            _above.reset(token)
            self.end(number)

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        with self._lock:
            return not self._under_way

    def is_quiet(self, number: int) -> bool:
        """Note that a call waits. Return whether all others have ended, or wait too, or contain one that waits."""
        with self._lock:
            self._waiting.add(number)
            stopped: set[int] = set()
            for each in self._waiting:
                above = each
                while above and above not in stopped:
                    stopped.add(above)
                    above = self._under_way.get(above, 0)
            return stopped >= self._under_way.keys()


_all: WeakKeyDictionary[RunCore, CallsUnderWay] = WeakKeyDictionary()
_lock = threading.Lock()


def calls_of(core: RunCore) -> CallsUnderWay:
    """The calls of a claimed run."""
    with _lock:
        return _all.setdefault(core, CallsUnderWay())


def _renew() -> None:
    """In a forked process, the lock may be held by a thread of the parent."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


forksafe.register(in_child=_renew)


class Conversion(Codec):
    """The codec of one call. `is_loaded` is whether its result is that of the tool, and not reported by a person."""

    __slots__ = ("is_loaded",)

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec.name, codec.to_plain, codec.from_plain)
        self.is_loaded = False

    def from_plain(self, plain: Any) -> Any:
        self.is_loaded = True
        return super().from_plain(plain)

    fitted = from_plain


# -- functions of calls -------------------------------------------------------------------------------------------


def declared(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    """A tool of a framework. Its calls are not in the state of the program, so its name alone identifies it."""
    given = {option: value for option, value in options.items() if option != "errors"}
    return tool_of(tool(name=name, **given)(function))


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


# -- async and sync frameworks ------------------------------------------------------------------------------------

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

    drive: Callable[[Call, Observed | None], Coroutine[Any, Any, Any]]
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
    *(_at_once(drive), _at_once(begin), _at_once(end), _at_once(_done), _at_once(time.sleep), _anywhere),
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


# -- packages of frameworks ---------------------------------------------------------------------------------------


def require(package: str, first: str, before: str, extra: str) -> None:
    """ImportError, with the command that helps, unless a version from `first` on and before `before` is installed."""
    install = f"pip install 'holdfast[{extra}]'"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"this adapter needs {package}, which is not installed: {install}") from None
    if not _parts(first) <= _parts(found) < _parts(before):
        raise ImportError(
            f"this adapter was tested with {package} from {first} to before {before}, and {found} is installed: "
            f"{install}"
        )


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a version. What follows them, as in 2.0rc1, is ignored."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return () if numbers is None else tuple(map(int, numbers[0].split(".")))
