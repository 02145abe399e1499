"""Run async handlers, for a worker and for `hf.aio.recover`.

All async handlers of a worker run in one event loop, because a client that they share belongs to one loop. Each thread
of the worker hands its run to the event loop and waits for it.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from holdfast.aio.executor import in_thread, start_user_function
from holdfast.aio.run import AsyncRun, AsyncRunBlock
from holdfast.errors import LeaseHeld
from holdfast.runs.claim import ClaimRequest
from holdfast.runs.drivers import is_async
from holdfast.runs.handlers import Entered, Handler, Recovery, failure_of, resume
from holdfast.types import RunInfo


class AsyncServer:
    """See `AsyncHandlerRunner`. The event loop starts with the first run and ends with `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _Loop | None = None

    def serve(self, request: ClaimRequest, handler: Callable[[AsyncRun], Any], entered: Entered) -> None:
        """See `AsyncHandlerRunner`."""
        with self._lock:
            if self._loop is None:
                self._loop = _Loop()
            loop = self._loop
        asyncio.run_coroutine_threadsafe(serve_async(request, handler, entered), loop.running.result()).result()

    def close(self) -> None:
        """See `AsyncHandlerRunner`. Tasks that handlers left running are cancelled."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.running: Future[asyncio.AbstractEventLoop] = Future()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="holdfast-worker-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            self.running.set_result(loop)
            while not self._is_closed:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    # One task raised it. It is raised again where that task is awaited; the other tasks continue.
                    continue

    def close(self) -> None:
        loop = self.running.result()
        self._is_closed = True
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()


async def serve_async(request: ClaimRequest, handler: Callable[[AsyncRun], Any], entered: Entered) -> None:
    async with AsyncRunBlock(request) as run:
        with entered():
            result = await _handled(handler, run)
        if run.status == "running":
            await run.finish(result)


async def _handled(handler: Callable[[AsyncRun], Any], run: AsyncRun) -> Any:
    try:
        return await handler(run)
    except BaseException as error:
        failure = failure_of(error)
        if failure is None or isinstance(error, GeneratorExit):  # a coroutine being closed cannot await
            raise
        raise failure from error


async def recover(recovery: Recovery, concurrency: int) -> list[RunInfo]:
    """Resume interrupted runs, `concurrency` at a time. Return the status of each afterwards."""
    free = asyncio.Semaphore(concurrency)

    async def one(request: ClaimRequest, handler: Handler) -> list[RunInfo]:
        async with free:
            is_resumed = await (_resume if is_async(handler) else _resume_in_thread)(request, handler)
            return await in_thread(lambda: list(recovery.info(request))) if is_resumed else []

    due = await in_thread(recovery.due)
    found = await asyncio.gather(*(one(request, handler) for request, handler in due))
    return [info for each in found for info in each]


async def _resume(request: ClaimRequest, handler: Handler) -> bool:
    """See `holdfast.runs.handlers.resume`."""
    is_claimed = False
    try:
        async with AsyncRunBlock(request) as run:
            is_claimed = True
            result = await _called(handler, run)
            if run.status == "running":
                await run.finish(result)
    except Exception as error:  # noqa: BLE001 - the other runs must not wait for this one
        return is_claimed or not isinstance(error, LeaseHeld)
    return True


async def _called(handler: Handler, run: AsyncRun) -> Any:
    try:
        return await handler(run)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        failure = failure_of(error)
        if failure is None or task is None or task.cancelling():
            raise
        raise failure from error  # not the caller's cancellation: the handler awaited a task that was cancelled


async def _resume_in_thread(request: ClaimRequest, handler: Handler) -> bool:
    """Resume a run with a sync handler. If the caller is cancelled, the handler still runs to its end."""
    started = start_user_function(functools.partial(resume, request, handler), is_daemon=False)
    return (await asyncio.shield(started)).given()
