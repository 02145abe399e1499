"""Budgets count the calls that are in flight: calls made at the same time do not exceed them together."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Budget, Halted

REPLY = {"text": "yes", "usage": {"input_tokens": 400, "output_tokens": 100}}


class Model:
    def __init__(self) -> None:
        self.calls = 0
        self.at_once = 0
        self.most = 0
        self._lock = threading.Lock()

    def ask(self) -> dict[str, Any]:
        with self._lock:
            self.calls += 1
        time.sleep(0.1)  # for so long that all threads meet
        return REPLY

    async def ask_async(self) -> dict[str, Any]:
        self.calls += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        return REPLY


LIMITS: list[dict[str, Any]] = [
    {"tokens": 1200},
    {"cost": 0.0024, "prices": {"input": 2, "output": 2}},
]


@pytest.mark.parametrize("limits", LIMITS)
def test_calls_in_threads_stay_in_the_budget(tmp_path: Path, limits: dict[str, Any]) -> None:
    model = Model()

    def ask_often(hf: holdfast.Holdfast) -> None:
        with hf.run("t", start={}, guards=[Budget(**limits)]) as run, ThreadPoolExecutor(20) as pool:
            for each in [pool.submit(run.model, model.ask, key=f"k{n}") for n in range(20)]:
                each.result()

    with holdfast.open(tmp_path / "agent.db") as hf, pytest.raises(Halted):
        ask_often(hf)
    assert model.calls == 3, "the third call reaches the limit"


@pytest.mark.parametrize("limits", LIMITS)
def test_calls_in_tasks_stay_in_the_budget(tmp_path: Path, limits: dict[str, Any]) -> None:
    model = Model()

    async def main(hf: holdfast.Holdfast) -> None:
        async with hf.aio.run("t", start={}, guards=[Budget(**limits)]) as run:
            await asyncio.gather(*(run.model(model.ask_async, key=f"k{n}") for n in range(50)), return_exceptions=True)
            await run.model(model.ask_async, key="one more")

    with holdfast.open(tmp_path / "agent.db") as hf, pytest.raises(Halted):
        asyncio.run(main(hf))
    assert model.calls == 3


def test_calls_are_made_at_the_same_time_while_the_budget_allows_it(tmp_path: Path) -> None:
    model = Model()

    async def main(hf: holdfast.Holdfast) -> None:
        async with hf.aio.run("t", start={}, guards=[Budget(tokens=1_000_000)]) as run:
            await asyncio.gather(*(run.model(model.ask_async, key=f"k{n}") for n in range(20)))

    with holdfast.open(tmp_path / "agent.db") as hf:
        asyncio.run(main(hf))
    assert model.calls == 20
    assert model.most > 5


def test_a_failed_call_is_not_in_flight(tmp_path: Path) -> None:
    model = Model()

    def fail() -> None:
        raise ConnectionError

    with holdfast.open(tmp_path / "agent.db") as hf, hf.run("t", start={}, guards=[Budget(tokens=1200)]) as run:
        with pytest.raises(ConnectionError):
            run.model(fail, key="a")
        with pytest.raises(ConnectionError):
            for _ in run.stream(fail, key="b"):
                pass
        assert run.model(model.ask, key="c") == REPLY


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_inside_another_does_not_wait_for_it(tmp_path: Path, is_async: bool) -> None:
    model = Model()

    async def main(hf: holdfast.Holdfast) -> None:
        async with hf.aio.run("t", start={}, guards=[Budget(tokens=10_000)]) as run:

            async def outer() -> Any:
                return await run.model(model.ask_async, key="inner")

            assert await run.model(outer, key="outer") == REPLY

    with holdfast.open(tmp_path / "agent.db") as hf:
        if is_async:
            asyncio.run(main(hf))
        else:
            with hf.run("t", start={}, guards=[Budget(tokens=10_000)]) as run:
                assert run.model(lambda: run.model(model.ask, key="inner"), key="outer") == REPLY
    assert model.calls == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_inside_a_stream_does_not_wait_for_it(tmp_path: Path, is_async: bool) -> None:
    def parts() -> Any:
        yield {"text": "a"}
        yield {"text": "b"}

    budget = Budget(tokens=600, usage=lambda _: holdfast.Usage(input=200, output=50))
    seen: list[Any] = []

    async def in_a_stream() -> None:
        async with hf.aio.run("t", start={}, guards=[budget]) as run:
            stream = run.stream(parts)
            seen.extend([(part, await run.model(lambda: "fine", key=part["text"])) async for part in stream])

    with holdfast.open(tmp_path / "a.db") as hf:
        if is_async:
            asyncio.run(asyncio.wait_for(in_a_stream(), 60))
        else:
            with hf.run("t", start={}, guards=[budget]) as run:
                seen.extend((part, run.model(lambda: "fine", key=part["text"])) for part in run.stream(parts))
    assert seen == [({"text": "a"}, "fine"), ({"text": "b"}, "fine")]


def test_calls_gathered_inside_a_call_do_not_wait_for_it(tmp_path: Path) -> None:
    model = Model()

    async def main(hf: holdfast.Holdfast) -> None:
        async with hf.aio.run("t", start={}, guards=[Budget(tokens=1200)]) as run:

            async def outer() -> Any:
                inner = [run.model(model.ask_async, key=f"inner {number}") for number in range(5)]
                return await asyncio.gather(*inner, return_exceptions=True)

            await run.model(outer, key="outer")

    with holdfast.open(tmp_path / "agent.db") as hf, suppress(Exception):  # the halted calls are among the replies
        asyncio.run(asyncio.wait_for(main(hf), 60))
    assert model.calls == 3, "they wait for each other"


def test_calls_inside_calls_at_the_same_time_do_not_wait_for_one_another_for_ever(tmp_path: Path) -> None:
    """Each call inside the first outer call waits for the second outer call, and the other way round."""
    budget = Budget(tokens=5000, usage=lambda reply: holdfast.Usage(input=reply["tokens"], output=0))

    replies: list[Any] = []

    async def main(hf: holdfast.Holdfast) -> None:
        async with hf.aio.run("t", start={}, guards=[budget]) as run:
            both_in = asyncio.Barrier(2)

            async def reply(tokens: int) -> dict[str, int]:
                return {"tokens": tokens}

            async def outer(name: str) -> dict[str, int]:
                await both_in.wait()
                await run.model(reply, 2000, key=f"{name} inside")
                await asyncio.gather(*(run.model(reply, 200, key=f"{name} {number}") for number in range(2)))
                return {"tokens": 0}

            await run.model(reply, 1, key="the budget is not tight")
            replies.extend(await asyncio.gather(*(run.model(outer, name, key=name) for name in "ab")))

    with holdfast.open(tmp_path / "agent.db") as hf:
        asyncio.run(asyncio.wait_for(main(hf), 60))
    assert replies == [{"tokens": 0}] * 2


def test_calls_of_threads_inside_a_call_do_not_wait_for_it(tmp_path: Path) -> None:
    model = Model()
    done: list[Any] = []

    def main() -> None:
        with (
            holdfast.open(tmp_path / "agent.db") as hf,
            hf.run("t", start={}, guards=[Budget(tokens=1200)]) as run,
            ThreadPoolExecutor(5) as pool,
        ):

            def outer() -> Any:
                inner = [pool.submit(run.model, model.ask, key=f"inner {number}") for number in range(5)]
                done.extend([each.exception() for each in inner])
                return REPLY

            run.model(outer, key="outer")

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert model.calls == 3
    assert len(done) == 5


def test_a_thread_with_the_context_of_a_call_is_inside_it(tmp_path: Path) -> None:
    """Only the context tells which call of a pool's thread another pool's thread works for."""
    model = Model()

    def main() -> None:
        with (
            holdfast.open(tmp_path / "agent.db") as hf,
            hf.run("t", start={}, guards=[Budget(tokens=9000)]) as run,
            ThreadPoolExecutor(1) as outer_pool,
            ThreadPoolExecutor(1) as inner_pool,
        ):

            def outer() -> Any:
                call = functools.partial(run.model, model.ask, key="inner")
                return inner_pool.submit(contextvars.copy_context().run, call).result()

            assert outer_pool.submit(run.model, outer, key="outer").result() == REPLY

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert model.calls == 1
