"""Threads of async code: what is done in which, and what comes back from them."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.aio import executor
from tests.covers import covers
from tests.waiting import DEADLINE

BRIDGES = 40  # more than asyncio's pool has threads, or Holdfast's


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db", durability="off") as opened:
        yield opened


class Noting:
    """A store that notes in which threads it is called."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.threads: dict[str, set[int]] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if callable(attribute):
            self.threads.setdefault(name, set()).add(threading.get_ident())
        return attribute


@covers("D6")
def test_the_store_is_never_called_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.journal._POLL_SECONDS", 0.0)  # so that it looks before every call
    with holdfast.open(tmp_path / "agent.db", durability="off") as opened:
        noting: Any = Noting(opened.context.store)
        hf = Holdfast(noting)

        async def one() -> int:
            return 1

        async def main() -> int:
            async with hf.aio.run("t", start={}) as run:
                noting.threads.clear()
                async for step in run.steps():
                    await run.model(one)
                    await run.save()
                    if step == 3:
                        await run.finish()
            return threading.get_ident()

        loop = asyncio.run(main())
        assert {"commit", "entries"} <= noting.threads.keys()
        assert [name for name, threads in noting.threads.items() if loop in threads] == []


def test_a_plain_function_that_gives_a_stream_is_called_in_a_thread(hf: Holdfast) -> None:
    called: list[int] = []

    def model() -> Iterator[int]:
        called.append(threading.get_ident())
        return iter([1, 2])

    async def main() -> int:
        async with hf.aio.run("t", start={}) as run:
            assert [chunk async for chunk in run.stream(model)] == [1, 2]
        return threading.get_ident()

    loop = asyncio.run(main())
    assert len(called) == 1
    assert called != [loop]


def test_plain_tools_may_wait_for_the_loop_as_many_as_there_are(hf: Holdfast) -> None:
    """Whatever they keep busy, Holdfast's own work goes on."""
    meet = threading.Barrier(BRIDGES)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        @holdfast.tool(effect="read")
        def bridge(n: int) -> int:
            meet.wait(DEADLINE)
            asyncio.run_coroutine_threadsafe(hf.aio.effects("t"), loop).result(DEADLINE)
            return n

        async with hf.aio.run("t", start={}) as run:
            results = await asyncio.gather(*(run.tool(bridge, {"n": n}, key=str(n)) for n in range(BRIDGES)))
            assert results == list(range(BRIDGES))
            await run.finish()

    asyncio.run(main())


def empty() -> Any:
    return next(iter([]))


class Emptied:
    """A source whose iterator ends at once, in the wrong place."""

    def __iter__(self) -> Iterator[int]:
        raise StopIteration


def test_a_plain_function_may_raise_stop_iteration(hf: Holdfast) -> None:
    tool = holdfast.tool(effect="idempotent")(empty)

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            async with asyncio.timeout(DEADLINE):
                with pytest.raises(RuntimeError, match="StopIteration"):
                    await run.model(empty)
                with pytest.raises(RuntimeError, match="StopIteration"):
                    await run.tool(tool, {})
                with pytest.raises(RuntimeError, match="StopIteration"):
                    await anext(run.stream(empty))
                with pytest.raises(RuntimeError, match="StopIteration"):
                    await anext(run.stream(Emptied))
            await run.finish()

    asyncio.run(main())


@pytest.mark.parametrize("limit", [None, 10.0])
def test_what_is_called_sees_the_context_of_its_caller(hf: Holdfast, limit: float | None) -> None:
    request = contextvars.ContextVar("request", default="none")

    @holdfast.tool(effect="read", timeout=limit)
    def look() -> str:
        return request.get()

    async def main() -> None:
        async with hf.aio.run("async", start={}) as run:
            assert await run.tool(look, {}) == "r1"

    request.set("r1")
    asyncio.run(main())
    with hf.run("sync", start={}) as run:
        assert run.tool(look, {}) == "r1"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    meet = threading.Barrier(32)  # as many as there are: a pool that has all its threads begins no more

    async def fill() -> None:
        for each in [executor.start(lambda: meet.wait(DEADLINE)) for _ in range(32)]:
            (await each).given()

    async def work() -> None:
        assert await asyncio.wait_for(executor.to_the_end(lambda: 1), DEADLINE / 2) == 1

    asyncio.run(fill())
    _require_done_in_child(work)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_a_queue_of_its_parent() -> None:
    queue, go_on = executor.Queue(), threading.Event()

    async def begin() -> None:
        queue.start(lambda: go_on.wait(DEADLINE))

    async def work() -> None:
        assert (await asyncio.wait_for(queue.start(lambda: 1), DEADLINE / 2)).given() == 1

    asyncio.run(begin())
    assert not queue.is_idle
    try:
        _require_done_in_child(work)
    finally:
        go_on.set()


def _require_done_in_child(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    child = os.fork()
    if not child:
        signal.alarm(int(DEADLINE))  # work that nobody does is waited for, whoever is cancelled
        code = 1
        try:
            asyncio.run(work())
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
