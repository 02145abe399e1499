"""Calls of an agent framework in a run: those under way, their tools, their results and errors, and their events."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from importlib import metadata
from types import NoneType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from holdfast import forksafe
from holdfast.adapters.seam_modes import BLOCKING, Mode, in_thread
from holdfast.errors import HoldfastError
from holdfast.runs.block_end import Waiting
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import SCOPE, Call, Uncalled, current_call
from holdfast.runs.identity import escaped
from holdfast.runs.results import Codec
from holdfast.runs.tools import Tool, tool, tool_of

_above: Final[ContextVar[int]] = ContextVar("holdfast_seam_call", default=0)  # the call that the code is part of


class CallsUnderWay:
    """The calls that a framework makes in one claim of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._under_way: dict[int, int] = {}  # by number: the call that it is part of, or 0
        self._waiting: set[int] = set()  # calls that wait for the others to end
        self._step = 0
        self._keys: Counter[tuple[str, ...]] = Counter()  # the keys used in the open step, with scope and tool

    def own_key(self, step: int, name: str, key: str) -> str:
        """The key of a call. Some models number their calls anew in each reply: equal keys are counted."""
        key = escaped(key)  # the scope before it ends with a separator
        count = self.count(step, SCOPE.get(), name, key)
        return key if count == 1 else f"{key}~{count}"

    def count(self, step: int, *what: str) -> int:
        """How often this was counted in a step, from 1."""
        with self._lock:
            if step != self._step:
                self._step = step
                self._keys.clear()
            self._keys[what] += 1
            return self._keys[what]

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


# -- tools and their outcomes -----------------------------------------------------------------------------------------


def declared(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    """A tool of a framework. Its calls are not in the state of the program, so its name alone identifies it."""
    given = {option: value for option, value in options.items() if option != "errors"}
    return tool_of(tool(name=name, **given)(function))


_ERROR: Final = "$error"  # the key of an exception in a recorded result
_PLAIN: Final = (str, int, float, bool, NoneType)  # arguments of exceptions that are recorded


class OutcomeCodec(Codec):
    """The codec of one tool call, for its result, or for its exception if that is the outcome.

    `is_loaded` is whether the result is that of the tool, and not reported by a person.
    """

    __slots__ = ("_error", "is_loaded")

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec.name, codec.to_plain, codec.from_plain)
        self._error: Exception | None = None
        self.is_loaded = False

    def caught(self, chosen: Tool, error: Exception) -> Exception:
        """Make an exception of the tool its outcome, unless Holdfast raised it, nothing was done, or it is retried."""
        if isinstance(error, (HoldfastError, *chosen.not_done)) or _is_retried(chosen, error):
            raise error
        self._error = error
        return error

    def to_plain(self, state: Any, hidden: str | None = None) -> Any:
        if self._error is not None and state is self._error:
            return {_ERROR: error_record(self._error)}
        plain = super().to_plain(state, hidden)
        return {_ERROR: None, "result": plain} if isinstance(plain, dict) and _ERROR in plain else plain

    def from_plain(self, plain: Any) -> Any:
        self.is_loaded = True
        if not isinstance(plain, dict) or _ERROR not in plain:
            return super().from_plain(plain)
        if plain[_ERROR] is None:
            return super().from_plain(plain["result"])
        self._error = self._error or recorded_error(*plain[_ERROR])
        return None

    fitted = from_plain

    def raise_error(self) -> None:
        """Raise the exception that is the outcome, if it is one."""
        if self._error is not None and self.is_loaded:
            raise self._error


def _is_retried(chosen: Tool, error: Exception) -> bool:
    """Whether the call that the current code is part of is made again after an error."""
    call, retry = current_call(), chosen.retry
    if call is None or retry is None or chosen.effect == "irreversible":
        return False
    return call.attempt <= retry.times and isinstance(error, retry.on)


def error_record(error: Exception) -> list[Any]:
    """An exception as plain data: the name of its class, its text, and its arguments if they are plain too."""
    kind = type(error)
    args = list(error.args) if all(type(each) in _PLAIN for each in error.args) else [str(error)]
    return [f"{kind.__module__}.{kind.__qualname__}", str(error), args]


def recorded_error(name: str, text: str, args: list[Any]) -> Exception:
    """A recorded exception. If its class is not loaded, or has another text now, a RuntimeError with its name."""
    kind = next((each for each in _classes_of(Exception) if f"{each.__module__}.{each.__qualname__}" == name), None)
    with suppress(Exception):  # a class may need more to be made
        if kind is not None:
            native: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
            made: Exception = native.__new__(kind, *args)  # no code of the class is called
            made.args = tuple(args)
            if str(made) == text:
                return made
    return RuntimeError(f"{name.rpartition('.')[2]}: {text}")


def _classes_of(kind: type[Exception]) -> Iterator[type[Exception]]:
    """A class of exceptions and those that derive from it, the newest first."""
    for each in reversed(kind.__subclasses__()):
        yield from _classes_of(each)
    yield kind


class BegunCall:
    """A call that was started. If `is_recorded`, the framework must not make it: `recorded` is its result.

    Otherwise the framework makes the call, and the adapter ends it with one of `done`, `failed` and `not_called`.
    """

    def __init__(
        self, call: Call, mode: Mode, stack: ExitStack, *, is_recorded: bool = False, recorded: Any = None
    ) -> None:
        self.is_recorded: Final = is_recorded
        self.recorded: Final = recorded
        self._call = call
        self._mode = mode
        self._stack = stack

    @property
    def blocking(self) -> Self:
        """This call, with coroutines that never wait."""
        return type(self)(self._call, BLOCKING, self._stack, is_recorded=self.is_recorded, recorded=self.recorded)

    async def done(self, result: Any) -> Any:
        """Record the result, and return it as recorded."""
        with self._stack:
            return await self._mode.end(self._call, result, None)

    async def failed(self, error: Exception) -> None:
        """Record that the call failed. `Waiting` if the declaration of its tool leaves it to a person."""
        with self._stack, _but(error):
            await self._mode.end(self._call, None, error)

    async def not_called(self) -> None:
        """Record that the framework did not make the call."""
        with self._stack, suppress(Uncalled):
            await self._mode.end(self._call, None, Uncalled())

    done_sync = in_thread(done)
    failed_sync = in_thread(failed)
    not_called_sync = in_thread(not_called)


@contextmanager
def _but(error: Exception) -> Generator[None]:
    """Raise every error but this one: the framework raises it itself."""
    try:
        yield
    except Exception as raised:
        if raised is not error:
            raise


# -- events of calls --------------------------------------------------------------------------------------------------

Emit = Callable[[Any], None]
_END: Final = object()


async def call_events(call: Callable[[Emit], Awaitable[Any]]) -> AsyncGenerator[Any, None]:
    """Yield the events that a call emits as they arrive, and then its result.

    The call has a context of its own: a generator would share that of its consumer. If the consumer leaves, the call is
    cancelled.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(call(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(_END))
    try:
        while (event := await queue.get()) is not _END:
            yield event
        yield await task
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception, Waiting):
                await task


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
