"""The async view of a handle: the same verbs, awaited. Each runs the sync verb in a thread: nothing is done twice."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from holdfast import handle
from holdfast.aio.executor import begin
from holdfast.aio.run import AsyncRun, AsyncRunBlock
from holdfast.codec import msgpack
from holdfast.crypto.cipher import Cipher
from holdfast.errors import HoldfastError
from holdfast.maintenance import BackedUp
from holdfast.policy import Policy
from holdfast.runs.claim import Terms
from holdfast.runs.guards import Guard
from holdfast.runs.past import Effects
from holdfast.runs.tools import Outcome
from holdfast.threads.diff import Diff
from holdfast.threads.gc import Optimized
from holdfast.threads.migration import M
from holdfast.threads.retention import Pruned, Retention
from holdfast.threads.save import Details, Expect
from holdfast.threads.thread import Ref, Thread, saver_of
from holdfast.threads.verify import Looked, Repaired, Report
from holdfast.types import (
    Checkpoint,
    Effect,
    Erased,
    Interrupted,
    Progress,
    Question,
    RunInfo,
    Status,
    Stuck,
    ThreadInfo,
    Usage,
)
from holdfast.urls import Durability

P = ParamSpec("P")
T = TypeVar("T")

_PAGE = 100  # items fetched at a time


async def _in_thread(verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a verb in a thread. A cancelled await leaves it to finish there: a commit is never torn."""
    return (await asyncio.shield(begin(functools.partial(verb, *args, **kwargs)))).given()


async def _each(items: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    iterator = await _in_thread(items)
    is_over = False
    while not is_over:
        page, error = await _in_thread(lambda: _page_of(iterator))
        for item in page:
            yield item
        if error is not None:
            raise error
        is_over = not page


def _page_of(items: Iterator[T]) -> tuple[list[T], HoldfastError | None]:
    """Some items, and what was raised behind them: those that came before it are given first."""
    page: list[T] = []
    try:
        page.extend(islice(items, _PAGE))
    except HoldfastError as error:
        return page, error
    return page, None


async def _after(before: asyncio.Task[Any] | None, work: Callable[[], T]) -> T:
    if before is not None:
        await asyncio.wait([before])
    return await _in_thread(work)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """A caller that was cancelled does not hear of a failure; without this, asyncio would complain of that."""
    if not task.cancelled():
        task.exception()


class AsyncThread:
    """A handle on one thread, awaited. Get it from `hf.aio.thread(name)`; `Thread` says what each verb does."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._saver = saver_of(thread)
        self._last_move: asyncio.Task[Any] | None = None

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
    ) -> Checkpoint:
        """As `Thread.save`. The state is encoded before the first await: what is done to it later does not count.

        Saves of one AsyncThread are stored in the order of the calls. Cancelled, a save is stored whole or not at all.
        """
        given = {
            "step": step,
            "label": label,
            "tags": tags,
            "metadata": metadata,
            "status": status,
            "reason": reason,
            "trigger": trigger,
            "agent": agent,
            "usage": usage,
            "resume_hint": resume_hint,
        }
        plain, details = self._saver.request(state, given)
        before = self._under_way()
        if before is None and self._saver.is_warm(expect):
            work = functools.partial(self._saver.commit, self._saver.prepare(plain, details, expect))
        else:
            # The head has to be read, or another save is under way: keep a copy of the state as it is now.
            msgpack.check(plain)
            work = functools.partial(self._save_frozen, [msgpack.encode(plain)], details, expect)
        return await self._moved(before, work)

    def _under_way(self) -> asyncio.Task[Any] | None:
        return None if self._last_move is None or self._last_move.done() else self._last_move

    async def _moved(self, before: asyncio.Task[Any] | None, work: Callable[[], T]) -> T:
        """Do what moves the head. A task of its own: a cancelled caller must not let the next save overtake it."""
        task = asyncio.ensure_future(_after(before, work))
        task.add_done_callback(_retrieve)
        self._last_move = task
        return await asyncio.shield(task)

    def _save_frozen(self, frozen: list[bytes], details: Details, expect: Expect) -> Checkpoint:
        # Taken out of the list, so that the copy is gone before another is made.
        return self._saver.save(msgpack.decode(frozen.pop()), details, expect)

    async def _in_order(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb after the saves that were called before it."""
        before = self._under_way()
        if before is not None:
            await asyncio.wait([before])
        return await _in_thread(verb, *args, **kwargs)

    async def latest(self, *, fallback: bool = False) -> Checkpoint | None:
        return await self._in_order(self._thread.latest, fallback=fallback)

    async def load(self, ref: Ref, *, partial: bool = False) -> Checkpoint:
        return await self._in_order(self._thread.load, ref, partial=partial)

    async def head(self) -> Checkpoint | None:
        return await self._in_order(self._thread.head)

    async def step(self) -> int:
        return await self._in_order(self._thread.step)

    async def count(self) -> int:
        return await self._in_order(self._thread.count)

    def history(
        self,
        limit: int | None = None,
        before: Ref | None = None,
        label: str | None = None,
        tag: str | None = None,
        status: Status | None = None,
        *,
        skip_damaged: bool = False,
    ) -> AsyncIterator[Checkpoint]:
        return _each(lambda: self._thread.history(limit, before, label, tag, status, skip_damaged=skip_damaged))

    async def find(
        self, label: str | None = None, tag: str | None = None, status: Status | None = None
    ) -> Checkpoint | None:
        return await self._in_order(self._thread.find, label, tag, status)

    async def diff(self, a: Ref, b: Ref) -> Diff:
        return await self._in_order(self._thread.diff, a, b)

    async def rewind(self, ref: Ref, *, past_effects: bool = False) -> Checkpoint:
        rewind = functools.partial(self._thread.rewind, ref, past_effects=past_effects)
        return await self._moved(self._under_way(), rewind)

    async def fork(self, name: str, *, at: Ref = "@-1", state: Any = None) -> AsyncThread:
        return AsyncThread(await self._in_order(self._thread.fork, name, at=at, state=state))

    async def delete(self, ref: Ref) -> None:
        await self._in_order(self._thread.delete, ref)

    async def drop(self) -> None:
        await self._moved(self._under_way(), self._thread.drop)

    async def prune(self, retention: Retention, *, dry_run: bool = False) -> Pruned:
        return await self._in_order(self._thread.prune, retention, dry_run=dry_run)


class AsyncHoldfast:
    """The async view of a handle. Get it from `hf.aio` or `await holdfast.aopen(…)`."""

    def __init__(self, hf: handle.Holdfast) -> None:
        self._hf = hf

    @property
    def sync(self) -> handle.Holdfast:
        """The handle this is a view of."""
        return self._hf

    def thread(self, name: str, type: Any = None, schema_version: int | None = None) -> AsyncThread:
        return AsyncThread(self._hf.thread(name, type, schema_version))

    def migration(self, from_: int, to: int) -> Callable[[M], M]:
        return self._hf.migration(from_, to)

    def threads(
        self,
        prefix: str | None = None,
        status: Status | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> AsyncIterator[ThreadInfo]:
        return _each(lambda: self._hf.threads(prefix, status, limit, after))

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
        effects: Effects | None = None,
        schema_version: int | None = None,
        guards: Iterable[Guard] = (),
        on_resume: Callable[[AsyncRun], Any] | None = None,
    ) -> AsyncRunBlock:
        """As `Holdfast.run`: `async with hf.aio.run("name", start=state) as run`."""
        terms = Terms(lease=lease, wait=wait, agent=agent, version=version, turn=turn)
        claiming = self._hf._claiming(
            thread, terms, start, type, policy, tools, effects, schema_version, guards, on_resume
        )
        return AsyncRunBlock(claiming)

    async def effects(self, thread: str) -> list[Effect]:
        return await _in_thread(self._hf.effects, thread)

    async def run_info(self, thread: str) -> RunInfo | None:
        return await _in_thread(self._hf.run_info, thread)

    def interrupted(self) -> AsyncIterator[Interrupted]:
        return _each(self._hf.interrupted)

    async def settle(self, thread: str, effect: Effect | int, outcome: Outcome) -> None:
        await _in_thread(self._hf.settle, thread, effect, outcome)

    async def undo(self, thread: str, *, to: Ref) -> list[Effect]:
        return await _in_thread(self._hf.undo, thread, to=to)

    def waiting(self, name: str | None = None) -> AsyncIterator[Question]:
        return _each(lambda: self._hf.waiting(name))

    async def progress(self, thread: str) -> Progress | None:
        return await _in_thread(self._hf.progress, thread)

    def stuck(self, older_than: float = 300.0) -> AsyncIterator[Stuck]:
        return _each(lambda: self._hf.stuck(older_than))

    async def answer(self, thread: str, name: str, value: Any, by: str | None = None) -> None:
        await _in_thread(self._hf.answer, thread, name, value, by)

    async def cancel(self, thread: str, reason: str) -> None:
        await _in_thread(self._hf.cancel, thread, reason)

    async def submit(self, handler: str, thread: str, *, start: Any, version: str | None = None) -> None:
        await _in_thread(self._hf.submit, handler, thread, start=start, version=version)

    async def diff(self, a: str, b: str) -> Diff:
        return await _in_thread(self._hf.diff, a, b)

    async def verify(
        self, *, deep: bool = True, mark: str | None = None, progress: Callable[[Looked], None] | None = None
    ) -> Report:
        return await _in_thread(self._hf.verify, deep=deep, mark=mark, progress=progress)

    async def mark(self) -> str:
        return await _in_thread(self._hf.mark)

    async def backup(
        self,
        target: str | os.PathLike[str],
        *,
        verify: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> BackedUp:
        return await _in_thread(self._hf.backup, target, verify=verify, progress=progress)

    async def repair(
        self, target: str | os.PathLike[str], *, progress: Callable[[Looked], None] | None = None
    ) -> Repaired:
        return await _in_thread(self._hf.repair, target, progress=progress)

    async def rekey(self, progress: Callable[[int], None] | None = None) -> int:
        return await _in_thread(self._hf.rekey, progress)

    async def erase(
        self, thread: str | None = None, *, metadata: dict[str, Any] | None = None, forks: bool = False
    ) -> Erased:
        return await _in_thread(self._hf.erase, thread, metadata=metadata, forks=forks)

    async def optimize(self) -> Optimized:
        return await _in_thread(self._hf.optimize)

    async def maintain(self) -> None:
        await _in_thread(self._hf.maintain)

    async def close(self) -> None:
        await _in_thread(self._hf.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def aopen(
    url: str | os.PathLike[str] | None = None,
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
    """`holdfast.open(…).aio`, awaited."""
    hf = await _in_thread(
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
