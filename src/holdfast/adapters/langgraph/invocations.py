"""Invocations: one at a time on a thread, in this process and in others.

LangGraph tells a saver when an invocation starts: it loads the latest checkpoint. It does not tell when it ends. So an
invocation counts as alive as long as an object exists that LangGraph makes for it, and its task or thread runs. For
other processes, the record of the thread's run names the process, with a lease. A background thread renews it, and
removes it soon after no invocation is alive. It keeps out other invocations only, not a rewind or a deletion. A dead
process is recognised by its lease, or at once on the same machine.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from msgspec.structs import replace

from holdfast.adapters.langgraph.checkpoints import GraphThread
from holdfast.adapters.langgraph.writes import idle_run
from holdfast.aio.executor import to_the_end
from holdfast.errors import Closed, Conflict, HoldfastError, NotFound
from holdfast.stores.contract_runs import Clock, RunRow
from holdfast.text import quoted
from holdfast.threads.process import is_dead, this_process

_LEASE: Final = 30.0  # seconds
_TICK: Final = 0.1  # seconds after which a thread that is not in use is released
_POLL: Final = 0.005
_POLL_MAX: Final = 0.05
REFUSAL: Final = 3 * _TICK  # seconds to wait at least: a thread that was just released may not be free yet
_SETTLED: Final = 1.0  # seconds after the last checkpoint of an invocation, in which it returns
_COLLECT: Final = 0.5  # seconds of waiting after which objects of ended invocations are collected
_IDLE: Final = 30.0  # seconds without a write after which the objects of an invocation are collected, if it has ended
_HANDLED: Final = "__error_source_node__"  # the channel of an error after which LangGraph continues
_CALLED: Final = "~__pregel_push, ~"  # the path of a task that another task called, which may catch its error
# Keys of LangGraph's config.
_RUNTIME: Final = "__pregel_runtime"
_TASK: Final = "__pregel_task_id"


def token_of(config: RunnableConfig) -> Any:
    """The object that LangGraph makes for an invocation; None if the config is not that of an invocation."""
    said: Mapping[str, Any] = config.get("configurable", {})
    if _TASK in said or said.get("checkpoint_ns"):
        return None
    return getattr(said.get(_RUNTIME), "stream_writer", None)


class Update:
    """An update of a state from outside an invocation, from its first write to its checkpoint."""

    def __init__(self, config: RunnableConfig) -> None:
        metadata: Any = config.get("metadata")
        # LangGraph passes one metadata object through a whole update.
        self.token: Final = metadata if type(metadata).__weakrefoffset__ else self
        self.caller: Final = Caller()
        around: Mapping[str, Any] = ensure_config().get("configurable", {})
        own: Mapping[str, Any] = config.get("configurable", {})
        self.is_in_node: Final = _TASK in around and str(around.get("thread_id")) == str(own.get("thread_id"))


def update_of(config: RunnableConfig) -> Update | None:
    """The update that a config is of; None if it is that of an invocation, or of a program that uses the saver."""
    if "metadata" not in config or _RUNTIME in config.get("configurable", {}):
        return None
    return Update(config)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


_inside: Final[ContextVar[tuple[weakref.ref[Any], ...]]] = ContextVar("holdfast_invocations", default=())
"""The invocations and the blocks of `saver.lock` around the current code, and around what it starts."""


class Caller:
    """The Python thread and the asyncio task in which an invocation runs."""

    def __init__(self) -> None:
        task = _current_task()
        self._around = _inside.get()
        self._thread = threading.current_thread()
        self._task = None if task is None else weakref.ref(task)

    def is_gone(self) -> bool:
        if self._task is None:
            return not self._thread.is_alive()
        task = self._task()
        return task is None or task.done()

    def is_within(self, invocation: GraphInvocation) -> bool:
        """Whether it runs in an invocation or a block, which can only wait for it."""
        return any(invocation.is_of(token()) for token in self._around)

    def is_same(self, other: Caller) -> bool:
        own, theirs = (None if each._task is None else each._task() for each in (self, other))
        return self._thread is other._thread and own is theirs


class GraphInvocation:
    """One invocation of a graph, one update of its state, or one block of `saver.lock`."""

    def __init__(self, token: Any, caller: Caller) -> None:
        self._token = weakref.ref(token)
        self._is_block = isinstance(token, Lock)
        self.caller = caller
        self.is_over = False
        self.finished_at: float | None = None  # when a checkpoint was stored after which no node runs
        self._pause = _IDLE
        self._collect_at = time.monotonic() + _IDLE

    def is_of(self, token: Any) -> bool:
        return self._token() is token

    def is_alive(self) -> bool:
        if self.finished_at is not None and time.monotonic() - self.finished_at > _SETTLED:
            return False  # a node may have kept the object
        return not self.is_over and self._token() is not None and not self.caller.is_gone()

    def keeps_out(self, caller: Caller) -> bool:
        """Whether a caller may not use the thread meanwhile.

        Within the same task another invocation can only be over, or be waiting for this one.
        """
        if not self.is_alive() or caller.is_within(self):
            return False
        return self._is_block or not self.caller.is_same(caller)

    def wrote(self, *, has_paused: bool) -> None:
        """Note that it has stored something; `has_paused`: a node has interrupted it, so it ends soon."""
        if has_paused:
            self._pause = _TICK
        self._collect_at = time.monotonic() + self._pause

    def collect(self) -> None:
        """Collect its objects now and then, if it may be over.

        LangGraph leaves them in a reference cycle after an interrupt, and after errors that it does not store.
        """
        if time.monotonic() >= self._collect_at and self.is_alive():
            gc.collect()
            self._pause *= 2
            self._collect_at = time.monotonic() + self._pause


class Hold:
    """A thread whose run this process holds, and the invocations that use it: one, and those within it."""

    def __init__(self, thread: GraphThread, run: RunRow, guard: threading.RLock) -> None:
        """`guard` is the lock with which its saver starts an invocation."""
        self.thread = thread
        self.run = run
        self.invocations: list[GraphInvocation] = []
        self.renewed_at = time.monotonic()
        self.is_lost = False
        self._guard = guard
        self._lock = threading.RLock()  # for one claim after the other: each replaces the record of the one before

    def is_in_use(self) -> bool:
        return any(each.is_alive() for each in self.invocations)

    def is_closed_to(self, caller: Caller) -> bool:
        return any(each.keeps_out(caller) for each in self.invocations)

    def of(self, token: Any) -> GraphInvocation | None:
        """The invocation with this token, if it uses the thread."""
        return next((each for each in self.invocations if token is not None and each.is_of(token)), None)

    def start(self, token: Any, caller: Caller) -> None:
        around = [each for each in self.invocations if caller.is_within(each) and each.is_alive()]
        self.invocations = [*around, GraphInvocation(token, caller)]

    def stop(self, token: Any) -> None:
        self.invocations = [each for each in self.invocations if not each.is_of(token)]

    def make_way(self, caller: Caller) -> bool:
        """Leave the thread to another saver of this process. False if an invocation uses it."""
        with self._guard:
            if self.is_closed_to(caller):
                return False
            self.lose()
            return True

    def lose(self) -> None:
        if not self.is_lost:  # by now the thread may be held again
            self.is_lost = True
            self.thread.is_held = False

    def release(self) -> None:
        """Let other processes have the thread."""
        self.lose()
        with self._lock, suppress(HoldfastError):  # deleted, or held by another process since
            self.thread.store.claim(self.run, _next(self.run, owner=None, clock="", lease_until=0, nonce=b""))

    def renew(self) -> None:
        with self._lock:
            if self.is_lost or time.monotonic() - self.renewed_at < _LEASE / 3:
                return
            store = self.thread.store
            try:
                until = store.clock().now + round(_LEASE * 1000)
                self.run = store.claim(self.run, _next(self.run, lease_until=until)).run
                self.renewed_at = time.monotonic()
            except (Conflict, NotFound, Closed):
                self.lose()
            except HoldfastError:
                return  # locked or restarting: try again


def _next(run: RunRow, **changes: Any) -> RunRow:
    """The next record of a run. It stays completed: only invocations look at its lease."""
    return replace(run, fence=run.fence + 1, updated_at=time.time_ns() // 1000, **changes)


def _is_free(run: RunRow, clock: Clock) -> bool:
    """Whether no other process has an invocation on the thread."""
    owner = run.owner
    if owner is None or owner == this_process() or is_dead(owner) or run.clock != clock.id:
        return True
    return clock.has_reached(run.lease_until)


_held: Final[weakref.WeakValueDictionary[bytes, Hold]] = weakref.WeakValueDictionary()
"""The holds of all savers of this process, by the nonces of their claims."""


class Invocations:
    """The threads that the invocations of a saver hold."""

    def __init__(self, at_close: list[Callable[[], None]]) -> None:
        """`at_close` are functions that the handle calls before it is closed."""
        self._at_close = at_close
        self._lock = threading.RLock()
        self._holds: dict[str, Hold] = {}
        self._keeper: threading.Thread | None = None

    # -- starting ---------------------------------------------------------------------------------------------------

    def start(self, thread: GraphThread, token: Any, patience: Patience, caller: Caller | None = None) -> None:
        """Hold a thread for an invocation. Conflict if another one is alive and does not end in time."""
        caller = caller or Caller()
        while not self._try(thread, token, caller):
            time.sleep(patience.pause())
        _enter(token)

    async def astart(self, thread: GraphThread, token: Any, patience: Patience) -> None:
        """The same as `start`, for async callers."""
        caller = Caller()
        while not self._use(thread, token, caller):
            if await to_the_end(lambda: self._try(thread, token, caller)):
                break
            await asyncio.sleep(patience.pause())
        _enter(token)

    def update(self, thread: GraphThread, update: Update, *, is_last: bool) -> None:
        """Hold a thread for a part of an update. Conflict if an invocation is alive on the thread.

        After a part that is not the last one the update may fail, which LangGraph tells no saver. So it counts as over
        if no other part follows soon.
        """
        patience = Patience(thread, REFUSAL, "nothing was stored. Try again when it has ended.")
        hold = self._holds.get(thread.name)
        if update.is_in_node and hold is not None and hold.is_in_use():
            raise patience.over()  # the invocation waits for its node, and could not store the result
        self.start(thread, update.token, patience, update.caller)
        with self._lock:
            hold = self._holds.get(thread.name)
            started = None if hold is None else hold.of(update.token)
            if started is not None:
                started.finished_at = None if is_last else time.monotonic()

    def _try(self, thread: GraphThread, token: Any, caller: Caller) -> bool:
        """Start an invocation. False if another one is alive on the thread."""
        is_started = self._use(thread, token, caller)
        if is_started is None:
            with thread.lock:
                is_started = self._use(thread, token, caller)
                if is_started is None and (hold := self._claimed(thread, caller)) is not None:
                    with self._lock:
                        self._holds[thread.name] = hold
                        thread.is_held = True
                        self._keep()
                        is_started = self._use(thread, token, caller)
        return bool(is_started)

    def _use(self, thread: GraphThread, token: Any, caller: Caller) -> bool | None:
        """Start an invocation on a thread that is held. None if the thread has to be claimed first.

        It does not use the store, so that no caller waits for the claim of another thread.
        """
        with self._lock:
            hold = self._holds.get(thread.name)
            if hold is None:
                return None
            if hold.of(token) is not None:
                return True
            if hold.is_closed_to(caller):
                return False
            if hold.is_lost or hold.thread is not thread:
                return None
            hold.start(token, caller)
            return True

    def stop(self, thread: GraphThread, token: Any) -> None:
        """End an update or a block of `saver.lock`."""
        with self._lock:
            hold = self._holds.get(thread.name)
            if hold is not None:
                hold.stop(token)

    def _claimed(self, thread: GraphThread, caller: Caller) -> Hold | None:
        """Claim the run of a thread; None if another process, or another saver of this one, uses it."""
        store = thread.store
        for _ in range(2):
            clock, number = store.clock(), thread.known_number()
            own = {
                "owner": this_process(),
                "clock": clock.id,
                "lease_until": clock.now + round(_LEASE * 1000),
                "nonce": os.urandom(8),
            }
            if number is None:
                hold = self._hold(thread, replace(idle_run(), **own))
                if thread.create(hold.run):
                    hold.run = replace(hold.run, thread=thread.known_number() or 0)
                    return hold
                continue
            run = store.run(number)
            if run is not None and run.owner is not None:
                other = _held.get(run.nonce)
                if other is not None:  # of another saver of this process
                    if not other.make_way(caller):
                        return None
                elif not _is_free(run, clock):
                    return None
            hold = self._hold(thread, replace(idle_run(number), **own) if run is None else _next(run, **own))
            try:
                hold.run = store.claim(run, hold.run).run
                return hold
            except NotFound:
                thread.forget()
            except Conflict:
                continue
        return None

    def _hold(self, thread: GraphThread, run: RunRow) -> Hold:
        """A hold for a record that is not stored yet: another saver of this process must find it as soon as it is."""
        hold = _held[run.nonce] = Hold(thread, run, self._lock)
        return hold

    # -- while it runs ----------------------------------------------------------------------------------------------

    def wrote(
        self, thread: GraphThread, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_path: str
    ) -> None:
        """Note the writes of a task: after an error the invocation ends, after an interrupt it ends soon.

        LangGraph stores writes in several threads, so those of an earlier task may come after the error.
        """
        hold = self._holds.get(thread.name)
        invocation = None if hold is None else hold.of(token_of(config))
        if invocation is not None:
            channels = {channel for channel, _ in writes}
            if ERROR in channels and _HANDLED not in channels and not task_path.startswith(_CALLED):
                invocation.is_over = True
            invocation.wrote(has_paused=INTERRUPT in channels)

    def stored(self, thread: GraphThread, config: RunnableConfig, *, is_last: bool) -> None:
        """Note that a checkpoint was stored, and whether it is the last one of its invocation."""
        hold = self._holds.get(thread.name)
        invocation = None if hold is None else hold.of(token_of(config))
        if invocation is not None:
            invocation.finished_at = time.monotonic() if is_last else None
            invocation.wrote(has_paused=False)

    # -- releasing --------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        if self._keeper is None or not self._keeper.is_alive():
            if self.close not in self._at_close:
                self._at_close.append(self.close)  # also keeps this object until the threads are released
            self._keeper = threading.Thread(target=_run_keeper, args=(weakref.ref(self),), daemon=True)
            self._keeper.name = "holdfast-invocations"
            self._keeper.start()
            _at_exit.add(self)

    def tick(self) -> bool:
        """Renew what is in use, release the rest. False if nothing is left."""
        with self._lock:
            holds = list(self._holds.items())
        for name, hold in holds:
            for each in hold.invocations:
                each.collect()
            if hold.is_in_use():
                hold.renew()
            elif self._give_up(name, hold):
                hold.release()
        with self._lock:
            if not self._holds and self._keeper is threading.current_thread():
                self._keeper = None  # it ends now. After a tick in another thread it continues.
                self._at_close.remove(self.close)
            return bool(self._holds)

    def _give_up(self, name: str, hold: Hold) -> bool:
        """Remove a hold that is not in use. True if it has to be released."""
        with self._lock:
            if self._holds.get(name) is not hold or (hold.is_in_use() and not hold.is_lost):
                return False
            del self._holds[name]
            was_lost = hold.is_lost
            hold.lose()
            return not was_lost

    def close(self) -> None:
        """Release everything, also what is in use."""
        with self._lock:
            holds = [hold for hold in self._holds.values() if not hold.is_lost]
            self._holds.clear()
        for hold in holds:
            hold.release()

    def renew(self) -> None:
        """Forget the holds of the parent after fork()."""
        self._lock = threading.RLock()
        for hold in self._holds.values():
            hold.thread.is_held = False
        self._holds, self._keeper = {}, None
        _held.clear()  # a thread of the parent, which does not run here, may still refer to them


def _enter(token: Any) -> None:
    """Note that the current code, and what it starts, is in an invocation or in a block."""
    around = [each for each in _inside.get() if each() is not None and each() is not token]
    _inside.set((*around, weakref.ref(token)))


class Lock:
    """A block in which only this caller, and what it starts, invokes graphs on a thread: `saver.lock`."""

    def __init__(self, invocations: Invocations, thread: GraphThread, wait: float) -> None:
        self._invocations = invocations
        self._thread = thread
        self._wait = wait

    def _patience(self) -> Patience:
        return Patience(self._thread, self._wait, "nothing was done. Try again later, or pass a longer wait=.")

    def __enter__(self) -> None:
        self._invocations.start(self._thread, self, self._patience())

    def __exit__(self, *_: object) -> None:
        _inside.set(tuple(each for each in _inside.get() if each() is not self))
        self._invocations.stop(self._thread, self)

    async def __aenter__(self) -> None:
        try:
            await self._invocations.astart(self._thread, self, self._patience())
        except BaseException:  # it may be cancelled when it has the thread
            self._invocations.stop(self._thread, self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


class Patience:
    """How long a caller waits for the end of an invocation."""

    def __init__(self, thread: GraphThread, wait: float, otherwise: str) -> None:
        """`otherwise` is what the error says that was not done."""
        self._thread = thread
        self._otherwise = otherwise
        now = time.monotonic()
        self._deadline = now + max(wait, REFUSAL)
        self._pause = _POLL
        self._collect_at = now + min(_COLLECT, max(wait, REFUSAL) / 3)

    def pause(self) -> float:
        """Seconds to sleep. Conflict if the time is over."""
        now = time.monotonic()
        if now >= self._deadline:
            raise self.over()
        if now >= self._collect_at:
            gc.collect()  # an invocation that failed may be part of a reference cycle
            self._collect_at = now + _COLLECT
        self._pause = min(self._pause * 1.5, _POLL_MAX)
        return self._pause

    def over(self) -> Conflict:
        return Conflict(f"thread {quoted(self._thread.name)} is in use by another invocation; {self._otherwise}")


def _run_keeper(owner: Callable[[], Invocations | None]) -> None:
    while True:
        time.sleep(_TICK)
        kept = owner()
        if kept is None or not kept.tick():
            return
        del kept


_at_exit: Final[weakref.WeakSet[Invocations]] = weakref.WeakSet()


def _release_all() -> None:
    for kept in list(_at_exit):
        kept.close()


atexit.register(_release_all)
