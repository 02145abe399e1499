"""Async handlers of a worker: on one event loop, and otherwise run, drained, failed and taken over as sync ones are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import AsyncRun, Run, Worker
from holdfast.runs import worker as worker_module
from tests.runs.conftest import World
from tests.runs.test_health import ANY_PORT, ask
from tests.runs.test_worker import status_of
from tests.selection import every_store
from tests.waiting import DEADLINE


def drain(world: World, handler: Callable[..., Any], **options: Any) -> None:
    world.open().worker({"h": handler}, **options).run(until_idle=True)


def result_of(world: World, thread: str) -> Any:
    with world.running(thread, ends="completed") as run:
        return run.result


def test_what_is_submitted_is_run_as_an_async_run(world: World) -> None:
    seen: list[Any] = []

    async def ask_model() -> str:
        await asyncio.sleep(0)
        return "reply"

    async def handler(run: AsyncRun) -> Any:
        seen.append((type(run), run.state, run.resumed))
        async for _ in run.steps():
            return await run.model(ask_model)
        return None

    world.open().submit("h", "t", start={"n": 1})
    drain(world, handler)
    drain(world, handler)
    assert seen == [(AsyncRun, {"n": 1}, False)]
    assert result_of(world, "t") == "reply"


def test_all_async_handlers_share_one_loop_beside_sync_ones(world: World) -> None:
    loops: set[int] = set()

    async def later(run: AsyncRun) -> None:
        loops.add(id(asyncio.get_running_loop()))

    def now(run: Run) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    hf = world.open()
    for n in range(4):
        hf.submit("later", f"a{n}", start={})
        hf.submit("now", f"s{n}", start={})
    hf.worker({"later": later, "now": now}, concurrency=2).run(until_idle=True)
    assert len(loops) == 1
    assert {info.status for info in hf.threads()} == {"completed"}


@every_store("threads use one store at once")
def test_they_are_run_beside_each_other(world: World) -> None:
    hf = world.open()
    for n in range(3):
        hf.submit("h", f"t{n}", start=n)
    inside: list[Any] = []
    together = asyncio.Event()

    async def handler(run: AsyncRun) -> None:
        inside.append(run.state)
        if len(inside) == 3:
            together.set()
        await asyncio.wait_for(together.wait(), DEADLINE)

    drain(world, handler, concurrency=3)
    assert [status_of(world, f"t{n}") for n in range(3)] == ["completed"] * 3


def test_an_interrupted_run_is_taken_over(world: World) -> None:
    replies = ["reply"]

    def model() -> str:
        return replies[-1]

    hf = world.open()
    hf.submit("h", "t", start={})
    with world.dying("t", hf, start={}) as run:
        run.model(model)
    done: list[Any] = []

    async def handler(run: AsyncRun) -> None:
        replies.append("paid for twice")
        done.append((run.resumed, run.attempt, await run.model(model)))

    drain(world, handler)
    assert done == [(True, 2, "reply")]


def test_a_worker_that_is_stopped_gives_its_runs_back_at_the_end_of_a_step(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={"n": 0})
    hf.submit("h", "u", start={"n": 0})
    steps: list[int] = []

    async def handler(run: AsyncRun) -> None:
        async for step in run.steps():
            steps.append(step)
            await run.tool(dict, {})
            run.state["n"] = step
            if step == 3:
                worker.stop()

    worker: Worker = hf.worker({"h": handler})
    worker.run()
    assert steps == [1, 2, 3]
    assert (status_of(world, "t"), status_of(world, "u")) == ("queued", "queued")
    with world.running("t", start={"n": 0}) as run:
        assert (run.state, run.attempt) == ({"n": 3}, 1)


def test_a_run_that_waits_goes_on_when_it_is_answered(world: World) -> None:
    async def handler(run: AsyncRun) -> Any:
        return await run.wait("approve")

    hf = world.open()
    hf.submit("h", "t", start={})
    drain(world, handler)
    assert status_of(world, "t") == "waiting"
    hf.answer("t", "approve", "yes")
    drain(world, handler)
    assert result_of(world, "t") == "yes"


async def _fail() -> None:
    raise ValueError("broken")


async def _exit() -> None:
    raise SystemExit(3)


async def _exit_beside() -> None:
    await asyncio.gather(asyncio.create_task(_exit()), asyncio.sleep(DEADLINE))


async def _cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(DEADLINE)


@pytest.mark.parametrize("fail", [_fail, _exit, _exit_beside, _cancel_itself])
def test_a_handler_that_fails_is_tried_again_and_given_up_and_the_others_go_on(
    world: World, fail: Callable[[], Any]
) -> None:
    attempts: list[int] = []

    async def handler(run: AsyncRun) -> None:
        if run.state == "poison":
            attempts.append(run.attempt)
            await fail()

    hf = world.open()
    hf.submit("h", "poison", start="poison")
    hf.submit("h", "t", start={})
    drain(world, handler, attempts=2)
    assert (attempts, status_of(world, "poison"), status_of(world, "t")) == ([1], "queued", "completed")
    world.pass_time(150)
    drain(world, handler, attempts=2)
    assert (attempts, status_of(world, "poison")) == ([1, 2], "dead")


def test_a_handler_may_take_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started, end = threading.Event(), threading.Event()

    async def handler(run: AsyncRun) -> None:
        started.set()
        assert await asyncio.to_thread(end.wait, DEADLINE)

    hf = world.open()
    hf.submit("h", "t", start={})
    worker = hf.worker({"h": handler}, health=ANY_PORT)
    working = threading.Thread(target=worker.run, kwargs={"until_idle": True})
    working.start()
    assert started.wait(DEADLINE)
    monkeypatch.setattr(worker_module, "STALE_SECONDS", 0.0)
    status, live = ask(worker.health, "/live")
    assert (status, live["running"]) == (200, 1)
    monkeypatch.setattr(worker_module, "STALE_SECONDS", 60.0)
    end.set()
    working.join(DEADLINE)
    assert status_of(world, "t") == "completed"


def test_what_a_handler_left_running_ends_with_the_worker_which_may_run_again(world: World) -> None:
    ended: list[str] = []
    kept: list[asyncio.Task[None]] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(DEADLINE)
        finally:
            ended.append("cancelled")

    async def handler(run: AsyncRun) -> None:
        kept.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    hf = world.open()
    worker = hf.worker({"h": handler})
    for count, thread in enumerate(("a", "b"), 1):
        hf.submit("h", thread, start={})
        worker.run(until_idle=True)
        assert ended == ["cancelled"] * count
        assert status_of(world, thread) == "completed"
    assert not [thread.name for thread in threading.enumerate() if thread.name == "holdfast-worker-loop"]


def test_what_is_called_may_be_async_without_being_a_function(world: World) -> None:
    class Agent:
        async def __call__(self, run: AsyncRun) -> str:
            return "of an object"

    world.open().submit("h", "t", start={})
    drain(world, Agent())
    assert result_of(world, "t") == "of an object"


def test_a_sync_function_that_gives_a_coroutine_is_told(world: World) -> None:
    async def agent(run: AsyncRun, how: str) -> None: ...

    hf = world.open()
    hf.submit("h", "t", start={})
    drain(world, lambda run: agent(run, "fast"), attempts=1)
    [dead] = hf.stuck(older_than=0)
    assert "the handler returned a coroutine, which was not awaited; declare it with async def" in dead.why
