"""Threads for async code: Holdfast's own work in a pool of its own, what users wrote in threads of their own.

asyncio's default pool is small and belongs to the program. Work of the store that waits there behind slow tools comes
too late for a lease, and a tool that waits there for the store never ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Generic, TypeVar

import msgspec

from holdfast import forksafe

T = TypeVar("T")

_WORKERS: Final = 32  # it waits for disks and locks, not for processors


class Done(msgspec.Struct, Generic[T], frozen=True):
    """What work in a thread came to. An error is a value here: a future cannot carry a StopIteration."""

    result: T | None = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None  # of who waited for it, meanwhile

    def given(self) -> T:
        """The result; raises the error there was. That its caller is gone is heard first."""
        if self.cancelled is not None:
            raise self.cancelled
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # without an error there is a result, and it may be None


class _Pool:
    """The threads of Holdfast's own work, begun when they are first needed. Work that was begun ends before exit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="holdfast")
            self._executor.submit(work)

    def forget(self) -> None:
        """In a forked process: threads are not inherited, and a lock may be held by one that is not there."""
        self._lock = threading.Lock()
        self._executor = None


_pool = _Pool()
forksafe.register(in_child=_pool.forget)


async def to_the_end(work: Callable[[], T]) -> T:
    """Do work of Holdfast's. A caller that is cancelled hears of that when the work is done: a write is never torn."""
    return (await done(begin(work))).given()


def begin(work: Callable[[], T]) -> asyncio.Future[Done[T]]:
    """Do work of Holdfast's in the pool, whoever waits for it."""
    return _begin(work, _pool.submit)


def begin_theirs(work: Callable[[], T]) -> asyncio.Future[Done[T]]:
    """Do what a user wrote, in a thread of its own. It cannot be stopped, and the end of the process ends it."""
    return _begin(work, lambda run: threading.Thread(target=run, name="holdfast-tool", daemon=True).start())


async def done(future: asyncio.Future[Done[T]]) -> Done[T]:
    """What work came to when it is over, however often its caller is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    outcome = future.result()
    return outcome if cancelled is None else Done(outcome.result, outcome.error, cancelled)


def _begin(work: Callable[[], T], start: Callable[[Callable[[], None]], None]) -> asyncio.Future[Done[T]]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Done[T]] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome = Done(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcome = Done(error=error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, outcome)

    start(run)
    return future


def _settle(future: asyncio.Future[Done[T]], outcome: Done[T]) -> None:
    if not future.done():
        future.set_result(outcome)
