"""The tasks of an async run: which are in it, so that none is when it is left, and in which order they call."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.runs.keys import BESIDE

_Task: TypeAlias = asyncio.Task[Any]


class _Line(msgspec.Struct, frozen=True):
    """A task that is, or was, in a run, and those that it was begun by."""

    task: weakref.ref[_Task]
    parent: _Line | None

    def has(self, task: _Task) -> bool:
        line: _Line | None = self
        while line is not None:
            if line.task() is task:
                return True
            line = line.parent
        return False


# A task inherits the context of the one that begins it: so it is known which were begun by whom.
_line: ContextVar[_Line | None] = ContextVar("holdfast_line", default=None)


class _Called(msgspec.Struct, frozen=True):
    """The last call without a key: by whom, and who could have made it instead."""

    step: int
    line: _Line
    beside: weakref.WeakSet[_Task]


class _Entry:
    """A task inside a verb, or inside the block of a child."""

    def __init__(self, task: _Task) -> None:
        self.task = task
        self.over: asyncio.Future[None] = task.get_loop().create_future()
        self.is_told = False


class Tasks:
    """The tasks inside one run. Made by the one that enters its block."""

    def __init__(self) -> None:
        self._home = _this_line()
        self._entries: list[_Entry] = []
        self._called: _Called | None = None
        self._is_left = False

    @contextmanager
    def inside(self) -> Generator[None]:
        """While a task is inside a verb, or in the block of a child."""
        leave = self.enter()
        try:
            yield
        finally:
            leave()

    def enter(self) -> _Leave:
        """The task is inside the run from here on, until it calls what this gives."""
        if self._is_left:
            raise HoldfastError("the block of this run is being left: nothing more can be done in it")
        task = _this_line().task()
        entry = _Entry(task) if task is not None else None
        if entry is not None:
            self._entries.append(entry)
        return _Leave(self._entries, entry)

    async def end(self) -> asyncio.CancelledError | None:
        """Begin to leave the block: cancel what other tasks are in, and wait until it is over.

        Cancelled meanwhile, the caller is told of it afterwards.
        """
        self._is_left = True
        here = asyncio.current_task()
        cancelled: asyncio.CancelledError | None = None
        while others := [entry for entry in self._entries if entry.task is not here and not entry.task.done()]:
            for entry in others:
                if not entry.is_told:
                    entry.is_told = True
                    entry.task.cancel()
            try:
                # Its task, too: one may end that never left the block of its child.
                await asyncio.wait([others[0].over, others[0].task], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def require_order(self, step: int) -> None:
        """InvalidArgument if the call without a key that is made here could as well have come before the last one.

        It cannot if the same task made both, if the one began the task of the other, or if this task was begun later.
        """
        line = _this_line()
        last = self._called
        task = line.task()
        if last is not None and last.step == step and task is not None:
            caller = last.line.task()
            if caller is not None and not caller.done():
                is_ordered = line.has(caller)
            else:
                is_ordered = last.line.has(task) or task not in last.beside
            if not is_ordered:
                raise InvalidArgument(BESIDE)
        # While the block is open its own task is never done: nobody asks who was beside it.
        beside = weakref.WeakSet[_Task]() if line is self._home else weakref.WeakSet(asyncio.all_tasks())
        self._called = _Called(step, line, beside)


class _Leave:
    def __init__(self, entries: list[_Entry], entry: _Entry | None) -> None:
        self._entries = entries
        self._entry = entry

    def __call__(self) -> None:
        if self._entry is not None and self._entry in self._entries:
            self._entries.remove(self._entry)
            if not self._entry.over.done():
                self._entry.over.set_result(None)


def _this_line() -> _Line:
    task = asyncio.current_task()
    if task is None:
        raise HoldfastError("an async run is used inside a task")
    line = _line.get()
    if line is not None and line.task() is task:
        return line
    while line is not None and ((begun_by := line.task()) is None or begun_by.done()):
        line = line.parent  # it can be nobody's beside any more
    line = _Line(weakref.ref(task), line)
    _line.set(line)
    return line
