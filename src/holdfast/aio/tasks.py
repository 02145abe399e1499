"""The asyncio tasks inside a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.runs.call_keys import MAIN_CALLER

ENDING_SECONDS: Final = 5.0  # the time that an acting tool has to end after its caller was cancelled

_POLL_SECONDS: Final = 0.02


class Tasks:
    """The asyncio tasks inside one run. Made in the task that enters its block."""

    def __init__(self) -> None:
        self._main_task = current_task()
        self._entries: list[_Entry] = []
        self._is_left = False

    @contextmanager
    def inside(self) -> Generator[None]:
        """Count the current task as inside the run while it is in a method of the run."""
        leave = self.enter()
        try:
            yield
        finally:
            leave()

    def enter(self) -> Callable[[], None]:
        """Count the current task as inside the run, until it calls the returned function."""
        if self._is_left:
            raise HoldfastError(
                "the block of this run is ending; nothing was done. Await all calls of other tasks before it ends."
            )
        entry = _Entry(current_task())
        self._entries.append(entry)

        def leave() -> None:
            if entry in self._entries:
                self._entries.remove(entry)
                if not entry.over.done():
                    entry.over.set_result(None)

        return leave

    async def end(self) -> asyncio.CancelledError | None:
        """Cancel what other tasks do in the run, and wait for its end.

        A task that was cancelled before has 5 seconds to end: a tool in it may be acting, and a second cancellation
        would stop it. Returns the cancellation of the caller, if it was cancelled meanwhile.
        """
        self._is_left = True
        here = asyncio.current_task()
        cancelled: asyncio.CancelledError | None = None
        loop = asyncio.get_running_loop()
        until = loop.time() + ENDING_SECONDS
        while others := [entry for entry in self._entries if entry.task is not here and not entry.task.done()]:
            left = max(until - loop.time(), 0)
            for entry in others:
                if not entry.is_cancelled and not (entry.task.cancelling() and left):
                    entry.cancel(loop)
            waited = [entry for entry in others if entry.loop.is_running()]
            if not waited:  # a loop that was left may never run again, nor be closed
                break
            limit = None if all(entry.is_cancelled for entry in waited) else left
            near = next((entry for entry in waited if entry.loop is loop), None)
            try:
                if near is None:  # a sync tool may have a loop of its own, whose tasks cannot be awaited here
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                # Also wait for the task itself: it may end without having left the block of its child.
                await asyncio.wait([near.over, near.task], return_when=asyncio.FIRST_COMPLETED, timeout=limit)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def caller(self) -> object:
        """The task that makes a call; MAIN_CALLER if it entered the block."""
        task = current_task()
        if self._main_task.done():
            self._main_task = task  # in a notebook, each cell is a task: the next one takes over
        return MAIN_CALLER if task is self._main_task else task


class _Entry:
    """A task inside a method of the run, or inside the block of a child."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.loop = task.get_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.is_cancelled = False

    def cancel(self, here: asyncio.AbstractEventLoop) -> None:
        """Cancel the task, from the loop `here`."""
        self.is_cancelled = True
        if self.loop is here:
            self.task.cancel()
        else:
            with suppress(RuntimeError):  # its loop is closed
                self.loop.call_soon_threadsafe(self.task.cancel)


# The task in which a tool that acts is awaited, and the task that called it.
acting_task: Final[ContextVar[tuple[asyncio.Task[Any], asyncio.Task[Any]] | None]] = ContextVar("acting", default=None)


def current_task() -> asyncio.Task[Any]:
    """The current task. A tool is part of the task that called it."""
    task = asyncio.current_task()
    if task is None:
        raise HoldfastError("an async run must be used inside a task")
    acting = acting_task.get()
    return acting[1] if acting is not None and acting[0] is task else task
