"""The journal of a graph's tools: a separate run for each LangGraph thread, idle between calls."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from typing import Any, Final

from holdfast import forksafe
from holdfast.adapters.langgraph.naming import journal_name
from holdfast.adapters.shared_run import Asked, Making, SharedRun
from holdfast.aio.executor import to_the_end
from holdfast.aio.run import drive as drive_async
from holdfast.errors import LeaseHeld
from holdfast.runs.context import Suspended
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import drive
from holdfast.runs.lineage import Lineage
from holdfast.runs.tools import Tool
from holdfast.threads.context import Context

_POLL_SECONDS: Final = 0.01


class Unsettled(Exception):
    """A call has to be settled: its outcome is unknown, or it may repeat another one."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked


class Desk:
    """Makes the tool calls of one LangGraph thread. It may be used from any thread and event loop.

    Concurrent calls in this process share one claim of the run. So parallel calls of LangGraph need not wait for each
    other, and another process is rejected before it acts.
    """

    def __init__(self, context: Context, thread_id: str, lease: float) -> None:
        self._run = SharedRun(context, journal_name(thread_id), {"thread": thread_id}, lease)

    @property
    def name(self) -> str:
        """The name of the thread with the journal."""
        return self._run.name

    def call(self, tool: Tool, given: dict[str, Any], key: str, wait: float, lineage: Lineage | None = None) -> Any:
        """Return the recorded result of a call, or make it now. Unsettled if its outcome is unknown.

        If an earlier call may still act, it waits until that has ended, without holding the run.

        LeaseHeld if another process keeps calling tools of this thread for longer than `wait` seconds.
        """
        run = self._run
        while True:
            found = run.finished(tool, key)
            if found is not None:
                return found.result
            making = Making(self._entered(wait), tool, given, key, lineage)
            try:
                return drive(making.call())
            except Suspended as suspended:
                making.suspend(suspended)
            except Exception as error:
                making.failed(error)
                raise
            finally:
                run.leave(is_last=making.is_last)
            while run.is_held:  # calls in progress cannot be settled
                time.sleep(_POLL_SECONDS)
            asked = None if making.question is None else run.asked(making.question)
            if asked is not None:
                raise Unsettled(asked)
            time.sleep(run.seconds_until(making.wake_at))

    async def acall(
        self, tool: Tool, given: dict[str, Any], key: str, wait: float, lineage: Lineage | None = None
    ) -> Any:
        """The same as `call`, for async tools."""
        run = self._run
        while True:
            found = await to_the_end(lambda: run.finished(tool, key))
            if found is not None:
                return found.result
            making = Making(await self._aentered(wait), tool, given, key, lineage)
            try:
                return await drive_async(making.call())
            except Suspended as suspended:
                making.suspend(suspended)
            except Exception as error:
                await _failed(making, error)
                raise
            finally:
                await _left(run, making)
            while run.is_held:  # noqa: ASYNC110 - waits for calls of other loops and threads
                await asyncio.sleep(_POLL_SECONDS)
            asked = await _asked(run, making)
            if asked is not None:
                raise Unsettled(asked)
            await asyncio.sleep(await to_the_end(lambda: run.seconds_until(making.wake_at)))  # noqa: B023 - awaited here

    def _entered(self, wait: float) -> RunCore:
        deadline = time.monotonic() + wait
        while True:
            try:
                core = self._run.enter()
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            else:
                if core is not None:
                    return core
            time.sleep(_POLL_SECONDS)

    async def _aentered(self, wait: float) -> RunCore:
        deadline = time.monotonic() + wait
        while True:
            try:
                core = await self._aenter()
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            else:
                if core is not None:
                    return core
            await asyncio.sleep(_POLL_SECONDS)

    async def _aenter(self) -> RunCore | None:
        """The same as `SharedRun.enter`. If the caller is cancelled meanwhile, the run is left again."""
        entered: list[RunCore | None] = []
        try:
            await to_the_end(lambda: entered.append(self._run.enter()))
        except asyncio.CancelledError:
            if entered and entered[0] is not None:
                await to_the_end(self._run.leave)
            raise
        return entered[0]

    def renew(self) -> None:
        """Replace the locks after fork(), in the child."""
        self._run.renew()


async def _failed(making: Making, error: Exception) -> None:
    await to_the_end(lambda: making.failed(error))


async def _left(run: SharedRun, making: Making) -> None:
    await to_the_end(lambda: run.leave(is_last=making.is_last))


async def _asked(run: SharedRun, making: Making) -> Asked | None:
    question = making.question
    return None if question is None else await to_the_end(lambda: run.asked(question))


class Desks:
    """The desks of all handles. Wrapped tools of one thread share a desk, so they share the claim."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._desks: weakref.WeakValueDictionary[tuple[int, str], Desk] = weakref.WeakValueDictionary()

    def of(self, context: Context, thread_id: str, lease: float) -> Desk:
        """The desk of a thread. It exists as long as a call uses it."""
        with self._lock:
            place = (id(context), thread_id)
            desk = self._desks.get(place)
            if desk is None:
                desk = self._desks[place] = Desk(context, thread_id, lease)
            return desk

    def renew(self) -> None:
        """Replace the locks after fork(), in the child."""
        self._lock = threading.Lock()
        for desk in list(self._desks.values()):
            desk.renew()


desks: Final = Desks()
forksafe.register(in_child=desks.renew)
