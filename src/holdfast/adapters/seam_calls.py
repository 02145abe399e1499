"""The calls of an agent framework that are under way in a run, and how their results are recorded."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

from holdfast import forksafe
from holdfast.runs.core import RunCore
from holdfast.runs.current import SCOPE
from holdfast.runs.identity import escaped
from holdfast.runs.results import Codec
from holdfast.runs.tools import Tool, tool, tool_of

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

    async def quiet(self, number: int) -> None:
        """Wait until all calls under way have ended, or wait too, or contain one that waits."""
        while not self._is_quiet(number):  # noqa: ASYNC110 - the others may be in threads and loops of their own
            await asyncio.sleep(_POLL_SECONDS)

    def wait_for_quiet(self, number: int) -> None:
        """As `quiet`, in a thread."""
        while not self._is_quiet(number):
            time.sleep(_POLL_SECONDS)

    def _is_quiet(self, number: int) -> bool:
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


def async_body(
    function: Callable[[], Any], caught: Callable[[Exception], Any] | None, scope: str
) -> Callable[..., Any]:
    """The function of a call: a framework's function, in its own scope. `caught` makes a result of an exception."""

    async def body(*_: Any, **__: Any) -> Any:
        token = SCOPE.set(scope)
        try:
            result = function()
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            if caught is None:
                raise
            return caught(error)
        finally:
            SCOPE.reset(token)

    return body


def sync_body(function: Callable[[], Any], caught: Callable[[Exception], Any] | None, scope: str) -> Callable[..., Any]:
    """As `async_body`, for a function that is not async."""

    def body(*_: Any, **__: Any) -> Any:
        token = SCOPE.set(scope)
        try:
            return function()
        except Exception as error:
            if caught is None:
                raise
            return caught(error)
        finally:
            SCOPE.reset(token)

    return body


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
