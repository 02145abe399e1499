"""Threads for async code: a pool for Holdfast's own work, and one new thread for each call of a user's sync function.

asyncio's default pool is small and belongs to the program. A lease renewed in that pool could wait too long for slow
tools, and a tool in that pool could wait for the store for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Final, Generic, ParamSpec, TypeVar

import msgspec

from holdfast import forksafe
from holdfast.errors import HoldfastError
from holdfast.signals import shield

P = ParamSpec("P")
T = TypeVar("T")

_WORKERS: Final = 32  # they wait for disks and locks, not for processors
_PAGE: Final = 100  # items that `iterate` reads at a time


class Outcome(msgspec.Struct, Generic[T], frozen=True):
    """The outcome of work in a thread. An error is a value here: a future cannot carry a StopIteration."""

    result: T | None = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None  # raised in the caller while it waited

    def given(self) -> T:
        """Return the result, or raise: first the caller's cancellation, then the error of the work."""
        if self.cancelled is not None:
            raise self.cancelled
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # without an error there is a result, and it may be None


class _Pool:
    """The threads for Holdfast's own work, started when first needed. Started work ends before the process exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="holdfast")
            self._executor.submit(work)

    def forget(self) -> None:
        """Start again in a forked process: it has no threads, and the lock may be held by a thread of the parent."""
        self._lock = threading.Lock()
        self._executor = None


_pool = _Pool()
forksafe.register(in_child=_pool.forget)


class Queue:
    """Work that is done in the pool, one piece after the other in the order of the calls, also for several loops.

    Not a chain of tasks: the loop of a task may be closed, or be another one than that of the next caller.
    """

    def __init__(self) -> None:
        self.renew()
        forksafe.renew_in_child(self)

    def renew(self) -> None:
        """Start again in a forked process, which has none of the threads."""
        self.lock = threading.RLock()  # a caller may hold it around `is_idle` and `start`
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_in_pool = False
        self._unfinished = 0

    @property
    def is_idle(self) -> bool:
        """Whether all work has ended."""
        return not self._unfinished

    def start(self, work: Callable[[], T]) -> asyncio.Future[Outcome[T]]:
        """Start work after the work that was started before."""

        def counted() -> T:
            try:
                return work()
            finally:
                with self.lock:
                    self._unfinished -= 1

        return _start(counted, self._submit)

    def _submit(self, work: Callable[[], None]) -> None:
        with self.lock:
            if not self._is_in_pool:
                _pool.submit(self._work)
                self._is_in_pool = True
            self._waiting.append(work)
            self._unfinished += 1

    def _work(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        with self.lock:
            self._is_in_pool = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do Holdfast's own work in the pool. If the caller is cancelled, the work still ends there: no write is torn."""
    return (await asyncio.shield(start(functools.partial(work, *args, **kwargs)))).given()


async def to_the_end(work: Callable[[], T]) -> T:
    """Do Holdfast's own work in the pool and wait for its end, also when the caller is cancelled meanwhile."""
    return (await done(start(work))).given() if is_in_loop() else work()


def is_in_loop() -> bool:
    """Whether the caller can await. A coroutine that is closed after its event loop cannot."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def iterate(items: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Iterate in the pool, a page at a time."""
    iterator = await in_thread(items)
    is_over = False
    while not is_over:
        page, error = await in_thread(lambda: _page_of(iterator))
        for item in page:
            yield item
        if error is not None:
            raise error
        is_over = not page


def _page_of(items: Iterator[T]) -> tuple[list[T], HoldfastError | None]:
    """Some items, and the error raised after them: the caller gets the items first."""
    page: list[T] = []
    try:
        page.extend(islice(items, _PAGE))
    except HoldfastError as error:
        return page, error
    return page, None


def start(work: Callable[[], T]) -> asyncio.Future[Outcome[T]]:
    """Start Holdfast's own work in the pool."""
    return _start(work, _pool.submit)


def start_user_function(work: Callable[[], T], *, is_daemon: bool = True) -> asyncio.Future[Outcome[T]]:
    """Start a user's function in a thread of its own. It cannot be stopped; a daemon ends with the process."""
    return _start(work, lambda run: threading.Thread(target=run, name="holdfast-tool", daemon=is_daemon).start())


async def done(future: asyncio.Future[Outcome[T]]) -> Outcome[T]:
    """Wait for the end of work, however often the caller is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    outcome = future.result()
    return outcome if cancelled is None else Outcome(outcome.result, outcome.error, cancelled)


def _start(work: Callable[[], T], run_in_thread: Callable[[Callable[[], None]], None]) -> asyncio.Future[Outcome[T]]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome[T]] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome = Outcome(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            outcome = Outcome(error=error)
        with suppress(RuntimeError):  # the loop was closed, so no caller is waiting
            loop.call_soon_threadsafe(_settle, future, outcome)

    with shield:  # as in `drivers`: the start of a thread is not interrupted
        run_in_thread(run)
    return future


def _settle(future: asyncio.Future[Outcome[T]], outcome: Outcome[T]) -> None:
    if not future.done():
        future.set_result(outcome)
