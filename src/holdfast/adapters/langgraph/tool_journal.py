"""The journal of a graph's tools: one claim for concurrent calls, and the place of a call among the checkpoints."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from holdfast import forksafe
from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.records import journal_name, thread_id_of
from holdfast.adapters.langgraph.shared_run import Asked, Making, SharedRun
from holdfast.aio.executor import to_the_end
from holdfast.aio.run import drive as drive_async
from holdfast.errors import HoldfastError, LeaseHeld
from holdfast.runs.block_end import Suspended
from holdfast.runs.core import RunCore
from holdfast.runs.drivers import Call, drive
from holdfast.runs.earlier_calls import Lineage
from holdfast.runs.tools import Tool
from holdfast.threads.context import Context

T = TypeVar("T")

# Keys of LangGraph's config for a task.
CHECKPOINTER: Final = "__pregel_checkpointer"
CHECKPOINTS: Final = "checkpoint_map"

_STEP: Final = "loop"  # the source of a checkpoint that a step of the graph led to
POLL_SECONDS: Final = 0.005
_LOOK_PATIENCE: Final = 1.0  # seconds to wait for a checkpoint that is being stored
_PATIENCE: Final = 10.0  # seconds to wait for a checkpoint that is being stored
_PATIENCE_BELOW: Final = 1.0  # in a subgraph, which may have no checkpoints


class CheckpointLineage:
    """The checkpoint of the outermost graph in which a call is made, and its ancestors."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread_id: str, place: str) -> None:
        self._saver = saver
        self._thread_id = thread_id
        self.place: Final = place

    def nearest(self, places: Collection[str]) -> str | None:
        """The checkpoint itself or its nearest ancestor that is one of these; None if none is.

        An ancestor counts if its step led to the checkpoint that follows it here. If that is a new input or an update,
        the step failed or is of another branch. If an ancestor was deleted, the newest of those that are older is taken
        for one.
        """
        oldest = min(places)  # the ids of checkpoints grow with time
        at: str | None = self.place
        if at in places:
            return at
        while at is not None and at >= oldest:
            found = self._found(at)
            if found is None:
                return max((place for place in places if place < at), default=None)
            at = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            if at in places and found.metadata.get("source") == _STEP:
                return at
        return None

    def _found(self, id: str) -> CheckpointTuple | None:
        config: RunnableConfig = {
            "configurable": {"thread_id": self._thread_id, "checkpoint_ns": "", "checkpoint_id": id}
        }
        deadline = time.monotonic() + _LOOK_PATIENCE
        while (found := self._saver.get_tuple(config)) is None and id == self.place and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return found


def lineage_of(config: RunnableConfig) -> CheckpointLineage | None:
    """The lineage of a call; None in a graph without checkpoints."""
    said: Mapping[str, Any] = config.get("configurable", {})
    saver, place = said.get(CHECKPOINTER), (said.get(CHECKPOINTS) or {}).get("")
    if not isinstance(saver, BaseCheckpointSaver) or place is None:
        return None
    return CheckpointLineage(saver, thread_id_of(config), place)


class Awaited:
    """A checkpoint that is being stored."""

    def __init__(self, thread: GraphThread, id: str, tool: str) -> None:
        self._thread = thread
        self._id = id
        self._tool = tool
        self._deadline = time.monotonic() + (_PATIENCE_BELOW if thread.namespace else _PATIENCE)

    def is_stored(self) -> bool:
        """Whether the wait is over. HoldfastError after the deadline; a subgraph may have no checkpoints."""
        with self._thread.lock:
            head = self._thread.look()
            if head is not None and (head.note.id == self._id or self._id in self._thread.index(head)):
                return True
        is_late = time.monotonic() > self._deadline
        if is_late and not self._thread.namespace:
            raise HoldfastError(
                f"{self._tool} was not called: the checkpoint with the tool call was not stored in time"
            )
        return is_late


class Blocking:
    """The steps of a sync call. A call is written once, as a coroutine that gets one of these drivers."""

    async def do(self, work: Callable[[], T]) -> T:
        """Work with the store, which is done to its end."""
        return work()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    async def drive(self, call: Call) -> Any:
        """Call a tool."""
        return drive(call)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Make a call in this thread: it never waits for anything."""
        try:
            call.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise RuntimeError("a sync call awaits something")


class Awaiting(Blocking):
    """The same for a call in an event loop."""

    async def do(self, work: Callable[[], T]) -> T:
        return await to_the_end(work)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def drive(self, call: Call) -> Any:
        return await drive_async(call)


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

    async def call(
        self,
        driver: Blocking,
        tool: Tool,
        given: dict[str, Any],
        key: str,
        wait: float,
        lineage: Lineage | None = None,
    ) -> Any:
        """Return the recorded result of a call, or make it now. Unsettled if its outcome is unknown.

        If an earlier call may still act, it waits until that has ended, without holding the run.

        LeaseHeld if another process keeps calling tools of this thread for longer than `wait` seconds.
        """
        run = self._run
        while True:
            found = await driver.do(functools.partial(run.finished, tool, key))
            if found is not None:
                return found.result
            making = Making(await self._entered(driver, wait), tool, given, key, lineage)
            try:
                return await driver.drive(making.call())
            except Suspended as suspended:
                making.suspend(suspended)
            except Exception as error:
                await driver.do(functools.partial(making.failed, error))
                raise
            finally:
                await driver.do(functools.partial(run.leave, is_last=making.is_last))
            while run.is_held:  # calls in progress cannot be settled
                await driver.sleep(POLL_SECONDS)
            if making.question is not None:
                asked = await driver.do(functools.partial(run.asked, making.question))
                if asked is not None:
                    raise Unsettled(asked)
            await driver.sleep(await driver.do(functools.partial(run.seconds_until, making.wake_at)))

    async def _entered(self, driver: Blocking, wait: float) -> RunCore:
        """Enter the run. If the caller is cancelled meanwhile, the run is left again."""
        deadline = time.monotonic() + wait
        while True:
            entered: list[RunCore] = []
            try:
                await driver.do(functools.partial(_enter, self._run, entered))
            except LeaseHeld:
                if time.monotonic() >= deadline:
                    raise
            except BaseException:
                if entered:
                    await driver.do(self._run.leave)
                raise
            if entered:
                return entered[0]
            await driver.sleep(POLL_SECONDS)

    def renew(self) -> None:
        """Replace the locks after fork(), in the child."""
        self._run.renew()


def _enter(run: SharedRun, entered: list[RunCore]) -> None:
    core = run.enter()
    if core is not None:
        entered.append(core)


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
