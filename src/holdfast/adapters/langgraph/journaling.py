"""The journal of a graph's tools: a run of its own beside each LangGraph thread, idle between two calls."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from typing import Any, Final

from holdfast.adapters.langgraph.naming import journal_name
from holdfast.adapters.shared_run import Asked, Making, SharedRun
from holdfast.aio.executor import to_the_end
from holdfast.aio.run import drive as drive_async
from holdfast.errors import LeaseHeld
from holdfast.runs.context import Suspended
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import drive
from holdfast.runs.tools import Tool
from holdfast.threads.context import Session

_POLL_SECONDS: Final = 0.01


class Unsettled(Exception):
    """Somebody has to say what became of a call."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked


class Desk:
    """Makes the tool calls of one LangGraph thread. Any thread, and any event loop, may use it.

    Calls that are under way in this process at one time share one claim: those that LangGraph makes beside each other
    need not wait for each other, and another process is refused before it acts.
    """

    def __init__(self, session: Session, thread_id: str, lease: float) -> None:
        self._run = SharedRun(session, journal_name(thread_id), {"thread": thread_id}, lease)

    @property
    def name(self) -> str:
        """The thread of the journal."""
        return self._run.name

    def call(self, tool: Tool, given: dict[str, Any], key: str, wait: float) -> Any:
        """The recorded result of a call, or that of one made now. Unsettled if somebody has to be asked.

        LeaseHeld if another process has been calling tools of this thread for longer than `wait` seconds.
        """
        run = self._run
        while True:
            found = run.finished(tool, key)
            if found is not None:
                return found.result
            making = Making(self._entered(wait), tool, given, key)
            try:
                return drive(making.call())
            except Suspended as suspended:
                making.suspend(suspended)
            except Exception as error:
                making.failed(error)
                raise
            finally:
                run.leave(is_last=making.is_last)
            while run.is_held:  # what is under way cannot be settled
                time.sleep(_POLL_SECONDS)
            if making.question is not None:
                raise Unsettled(run.asked(making.question))

    async def acall(self, tool: Tool, given: dict[str, Any], key: str, wait: float) -> Any:
        """As `call`, for what may have to be awaited."""
        run = self._run
        while True:
            found = await to_the_end(lambda: run.finished(tool, key))
            if found is not None:
                return found.result
            making = Making(await self._aentered(wait), tool, given, key)
            try:
                return await drive_async(making.call())
            except Suspended as suspended:
                making.suspend(suspended)
            except Exception as error:
                await _failed(making, error)
                raise
            finally:
                await _left(run, making)
            while run.is_held:  # noqa: ASYNC110 - calls of other loops and threads are waited for
                await asyncio.sleep(_POLL_SECONDS)
            if making.question is not None:
                raise await _unsettled(run, making)

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
        """As `SharedRun.enter`. Left at once if the caller is cancelled meanwhile."""
        entered: list[RunCore | None] = []
        try:
            await to_the_end(lambda: entered.append(self._run.enter()))
        except asyncio.CancelledError:
            if entered and entered[0] is not None:
                await to_the_end(self._run.leave)
            raise
        return entered[0]

    def renew(self) -> None:
        """After fork(), in the child."""
        self._run.renew()


async def _failed(making: Making, error: Exception) -> None:
    await to_the_end(lambda: making.failed(error))


async def _left(run: SharedRun, making: Making) -> None:
    await to_the_end(lambda: run.leave(is_last=making.is_last))


async def _unsettled(run: SharedRun, making: Making) -> Unsettled:
    question = making.question
    assert question is not None  # noqa: S101 - asked for only then
    return Unsettled(await to_the_end(lambda: run.asked(question)))


class Desks:
    """The desks of a handle, shared by all who wrap tools for it: calls of one process are no strangers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._desks: weakref.WeakValueDictionary[tuple[int, str], Desk] = weakref.WeakValueDictionary()

    def of(self, session: Session, thread_id: str, lease: float) -> Desk:
        """The desk of a thread; kept by whoever is at it."""
        with self._lock:
            place = (id(session), thread_id)
            desk = self._desks.get(place)
            if desk is None:
                desk = self._desks[place] = Desk(session, thread_id, lease)
            return desk

    def renew(self) -> None:
        """After fork(), in the child."""
        self._lock = threading.Lock()
        for desk in list(self._desks.values()):
            desk.renew()


desks: Final = Desks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=desks.renew)
