"""AsyncHoldfast and AsyncThread: the async views of a handle and its threads, and `aopen()`."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from holdfast import handle
from holdfast.aio._views import HoldfastViews, ThreadViews
from holdfast.aio.executor import Queue, in_thread
from holdfast.aio.run import AsyncRun, AsyncRunBlock
from holdfast.aio.worker import recover
from holdfast.codec import msgpack
from holdfast.crypto.cipher import Cipher
from holdfast.policy import Policy
from holdfast.runs.arguments import checked_count
from holdfast.runs.claim import ClaimRequest, ClaimTerms
from holdfast.runs.earlier_calls import CallMode
from holdfast.runs.guards import Guard
from holdfast.runs.handlers import Handlers, Recovery
from holdfast.runs.run import Run
from holdfast.runs.status import PENDING, ResultSearch
from holdfast.stores.contract import Store
from holdfast.threads.metadata import Details
from holdfast.threads.migration import M
from holdfast.threads.retention import Retention
from holdfast.threads.save import ANY, Expect, PendingSave, Save, SaveRequest, save_all
from holdfast.threads.thread import Ref, Thread, checked_name
from holdfast.types import Checkpoint, RunInfo, Status, Usage
from holdfast.urls import Durability

P = ParamSpec("P")
T = TypeVar("T")


class AsyncThread(ThreadViews):
    """A thread object whose methods are awaited. Get it from `hf.aio.thread(name)`. `Thread` documents each method."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._saver = thread.saver
        self._moves = Queue()

    @property
    def name(self) -> str:
        return self._thread.name

    async def save(
        self,
        state: Any,
        *,
        step: int | None = None,
        label: str | None = None,
        tags: Iterable[str] = (),
        metadata: dict[str, Any] | None = None,
        status: Status = "running",
        reason: str | None = None,
        trigger: str = "manual",
        agent: str | None = None,
        usage: Usage | dict[str, Any] | None = None,
        resume_hint: str | None = None,
        expect: Expect = None,
        past_effects: bool = False,
    ) -> Checkpoint:
        """Save as `Thread.save` does. The state is encoded before the first await; later changes of it are not saved.

        Saves of one AsyncThread are stored in the order of the calls. A cancelled save is stored whole or not at all.
        """
        request = self._saver.request(
            state,
            step=step,
            label=label,
            tags=tags,
            metadata=metadata,
            status=status,
            reason=reason,
            trigger=trigger,
            agent=agent,
            usage=usage,
            resume_hint=resume_hint,
        )
        with self._moves.lock:  # a task of another loop moves the head before this save is prepared, or after it
            if self._moves.is_idle and self._saver.is_warm(expect):
                prepared = self._saver.prepare(request, expect)
                work = functools.partial(self._commit, lambda: prepared, False, past_effects)
            else:
                # The head must be read first, or another save is under way: keep a copy of the state as it is now.
                msgpack.check(request.state)
                frozen = [msgpack.encode(request.state)]
                work = functools.partial(self._save_frozen, frozen, request.details, expect, past_effects)
            started = self._moves.start(work)
        return (await asyncio.shield(started)).given()

    def _save_frozen(self, frozen: list[bytes], details: Details, expect: Expect, past_effects: bool) -> Checkpoint:
        # Taken out of the list, so that the copy is freed before the next one is made.
        request = SaveRequest(msgpack.decode(frozen.pop()), details)
        return self._commit(functools.partial(self._saver.prepare, request, expect), expect is ANY, past_effects)

    def _commit(self, prepare: Callable[[], Save], follows_any: bool, past_effects: bool) -> Checkpoint:
        return save_all([PendingSave(self._saver, prepare, follows_any, past_effects)])[0]

    async def fork(self, name: str, *, at: Ref = "@-1", state: Any = None) -> AsyncThread:
        """See `Thread.fork`."""
        return AsyncThread(await self._in_order(self._thread.fork, name, at=at, state=state))

    async def _moved(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method that moves the head after those that were called before it, also if its caller is cancelled."""
        started = self._moves.start(functools.partial(method, *args, **kwargs))
        return (await asyncio.shield(started)).given()

    async def _in_order(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method after those that move the head and were called before it."""
        run = in_thread if self._moves.is_idle else self._moved
        return await run(method, *args, **kwargs)


class AsyncHoldfast(HoldfastViews):
    """The async view of a handle. Get it from `hf.aio` or `await holdfast.aopen(…)`. `Holdfast` documents each method.

    >>> async def main() -> int:
    ...     async with await aopen("memory:") as hf:
    ...         return (await hf.thread("greeting").save({"messages": ["hello"]})).step
    >>> asyncio.run(main())
    1
    """

    def __init__(self, hf: handle.Holdfast) -> None:
        self._hf = hf

    @property
    def sync(self) -> handle.Holdfast:
        """The handle that this is a view of."""
        return self._hf

    def thread(self, name: str, type: Any = None, schema_version: int | None = None) -> AsyncThread:
        """See `Holdfast.thread`."""
        return AsyncThread(self._hf.thread(name, type, schema_version))

    def migration(self, from_: int, to: int) -> Callable[[M], M]:
        """See `Holdfast.migration`."""
        return self._hf.migration(from_, to)

    def run(
        self,
        thread: str,
        *,
        start: Any = None,
        type: Any = None,
        agent: str | None = None,
        version: str | None = None,
        policy: Policy | None = None,
        lease: float = 30.0,
        wait: float = 0.0,
        tools: Iterable[Callable[..., Any]] | None = None,
        turn: str | None = None,
        effects: CallMode | None = None,
        schema_version: int | None = None,
        guards: Iterable[Guard] = (),
        on_resume: Callable[[AsyncRun], Any] | None = None,
    ) -> AsyncRunBlock:
        """Resume or start a run, as `Holdfast.run` does: `async with hf.aio.run("name", start=state) as run`."""
        terms = ClaimTerms(lease=lease, wait=wait, agent=agent, version=version, turn=turn)
        hf = self._hf
        hf.context.check_open()
        return AsyncRunBlock(
            ClaimRequest(
                hf.context,
                thread,
                terms,
                tools=hf.tools.extended(tools),
                start=start,
                type=type,
                policy=policy,
                effects=effects,
                schema_version=schema_version,
                guards=guards,
                on_resume=on_resume,
            )
        )

    async def result(self, thread: str, *, turn: str | None = None, wait: float = 0.0) -> Any:
        """See `Holdfast.result`."""
        self._hf.context.check_open()
        checked_name(thread)
        search = ResultSearch(self._hf.context.store, thread, turn, wait)
        for pause in search.pauses():
            found = await in_thread(search.look)
            if found is not PENDING:
                return found
            await asyncio.sleep(pause)
        return await in_thread(search.look, is_last=True)

    async def recover(
        self,
        handlers: Mapping[str, Callable[[AsyncRun], Awaitable[Any]] | Callable[[Run], Any]],
        *,
        concurrency: int = 10,
        versions: Collection[str | None] | None = None,
        lease: float = 30.0,
        attempts: int = 5,
        guards: Iterable[Guard] = (),
    ) -> list[RunInfo]:
        """Resume interrupted runs as `Holdfast.recover` does, `concurrency` at a time.

        Async handlers run in this event loop, others in threads. If it is cancelled, the runs of async handlers are
        released; sync handlers run to their end.
        """
        hf = self._hf
        hf.context.check_open()
        found = Handlers(handlers, versions, guards)
        recovery = Recovery(hf.context, hf.tools, found, lease=lease, attempts=attempts)
        return await recover(recovery, checked_count("concurrency", concurrency))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def aopen(
    url: str | os.PathLike[str] | Store | None = None,
    *,
    namespace: str = "default",
    durability: Durability = "full",
    retention: Retention | None = None,
    max_state_bytes: int = handle.MAX_STATE_BYTES,
    base_bytes: int = handle.BASE_BYTES,
    tools: Iterable[Callable[..., Any]] = (),
    cipher: Cipher | None = None,
    redact: Callable[[str], str] | None = None,
) -> AsyncHoldfast:
    """Open a store as `holdfast.open` does, and return its async view."""
    hf = await in_thread(
        handle.open,
        url,
        namespace=namespace,
        durability=durability,
        retention=retention,
        max_state_bytes=max_state_bytes,
        base_bytes=base_bytes,
        tools=tools,
        cipher=cipher,
        redact=redact,
    )
    return hf.aio
