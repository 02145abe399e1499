"""Async runs: the same guarantees, with what users wrote awaited, and cancellation at every await."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun, Happened, Holdfast, InvalidArgument, NotDone, ToolNotDone
from holdfast.aio import executor, run
from holdfast.runs.claim import ClaimRequest
from tests.covers import covers
from tests.waiting import DEADLINE, until


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db", durability="off") as opened:
        yield opened


class World:
    """What the agent asks and does, counted."""

    def __init__(self) -> None:
        self.asked = 0
        self.ledger: list[str] = []
        self.looked_up = 0

    async def model(self, *, prompt: str) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)
        return {"text": f"reply to {prompt}", "calls": ["a", "b"]}

    async def charge(self, item: str) -> str:
        await asyncio.sleep(0)
        self.ledger.append(item)
        await asyncio.sleep(0)
        return f"charged {item}"

    def look_up(self, item: str) -> str:
        self.looked_up += 1
        return f"{item} costs 1"


async def agent(run: AsyncRun, world: World) -> None:
    look_up = holdfast.tool(effect="read")(world.look_up)
    charge = holdfast.tool(effect="irreversible", probe=_probe(world), probe_after=0.01)(world.charge)
    async for step in run.steps():
        reply = await run.model(world.model, prompt=str(step))
        run.state["log"].append(reply["text"])
        await run.tool(look_up, {"item": "a"})
        results = await asyncio.gather(
            *(run.tool(charge, {"item": f"{name}{step}"}, key=name) for name in reply["calls"])
        )
        run.state["log"] += results
        if step == 2:
            await run.finish("done")


def _probe(world: World) -> Callable[..., object]:
    async def probe(item: str) -> object:
        await asyncio.sleep(0)
        return Happened(f"charged {item}") if item in world.ledger else NotDone()

    return probe


LOG = ["reply to 1", "charged a1", "charged b1", "reply to 2", "charged a2", "charged b2"]


def test_a_run_from_beginning_to_end(hf: Holdfast) -> None:
    world = World()

    async def main() -> AsyncRun:
        async with hf.aio.run("t", start={"log": []}) as run:
            await agent(run, world)
        return run

    run = asyncio.run(main())
    assert (run.status, run.result) == ("completed", "done")
    latest = hf.thread("t").latest()
    assert latest is not None
    assert latest.state == {"log": LOG}
    assert (world.asked, sorted(world.ledger)) == (2, ["a1", "a2", "b1", "b2"])


class Cancelling:
    """Cancels the task that runs the agent when a place is reached for the n-th time: the next await there raises."""

    def __init__(self, countdown: int) -> None:
        self.countdown = countdown
        self.task: asyncio.Task[Any] | None = None

    def reach(self) -> None:
        self.countdown -= 1
        if self.countdown == 0 and self.task is not None:
            self.task.cancel()


@covers("A16")
@pytest.mark.parametrize("when", ["before", "after"])
def test_cancelled_at_every_await_it_goes_on_to_the_same_end(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """At the first await, the second, the third …: each run is resumed and ends as if nothing had been."""
    done, sleep = executor.done, asyncio.sleep
    points = 0
    was_cancelled = True
    while was_cancelled:
        points += 1
        world, cancelling, name = World(), Cancelling(points), f"t{points}"

        async def counted(work: asyncio.Future[Any], cancelling: Cancelling = cancelling) -> Any:
            if when == "before":
                cancelling.reach()
            result = await done(work)
            if when == "after":
                cancelling.reach()
            return result

        async def counted_sleep(seconds: float, cancelling: Cancelling = cancelling) -> None:
            cancelling.reach()
            await sleep(seconds)

        async def once(name: str = name, world: World = world) -> str:
            async with hf.aio.run(name, start={"log": []}) as run:
                await agent(run, world)
            return run.status

        async def cut(cancelling: Cancelling = cancelling, once: Callable[[], Any] = once) -> bool:
            cancelling.task = asyncio.ensure_future(once())
            await asyncio.wait([cancelling.task])
            return cancelling.task.cancelled()

        with monkeypatch.context() as patch:
            patch.setattr(executor, "done", counted)
            patch.setattr(run, "done", counted)
            patch.setattr(asyncio, "sleep", counted_sleep)
            was_cancelled = asyncio.run(cut())
        statuses = {info.status for info in hf.threads(prefix=name) if info.name == name}
        assert statuses <= {"released", "completed"}, points
        while asyncio.run(once()) == "waiting":  # until the answer of the probe counts
            time.sleep(0.1)
        latest = hf.thread(name).latest()
        assert latest is not None
        assert latest.state == {"log": LOG}, points
        assert sorted(world.ledger) == ["a1", "a2", "b1", "b2"], points
        assert world.asked <= 3, points
    assert points > 20


def test_a_sync_run_refuses_async_functions(hf: Holdfast) -> None:
    world = World()
    with hf.run("t", start={}) as run:
        with pytest.raises(InvalidArgument, match=r"hf\.aio\.run"):
            run.model(world.model, prompt="x")
        with pytest.raises(InvalidArgument, match=r"hf\.aio\.run"):
            run.tool(holdfast.tool(effect="read", name="charge")(world.charge), {"item": "x"})
        with pytest.raises(ToolNotDone, match=r"hf\.aio\.run"):
            run.model(lambda: world.model(prompt="x"))
    assert world.asked == 0


def test_calls_beside_each_other_need_keys(hf: Holdfast) -> None:
    async def slow() -> int:
        await asyncio.sleep(0.01)
        return 1

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            with pytest.raises(InvalidArgument, match="key="):
                await asyncio.gather(run.model(slow), run.model(slow))

    asyncio.run(main())


def test_calls_of_the_task_that_entered_the_block_need_no_keys(hf: Holdfast) -> None:
    async def one() -> int:
        return 1

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            for _ in range(3):
                async with asyncio.timeout(60):
                    assert await run.model(one) == 1
            await asyncio.create_task(run.model(one, key="other task"))

    asyncio.run(main())


@pytest.mark.parametrize("call", ["model", "tool", "stream"])
def test_an_equal_call_of_another_task_needs_a_key(hf: Holdfast, call: str) -> None:
    made: list[int] = []

    async def one() -> int:
        made.append(1)
        return 1

    async def several() -> AsyncIterator[int]:
        made.append(1)
        yield 1

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:

            async def here() -> None:
                if call == "stream":
                    async for _ in run.stream(several):
                        pass
                else:
                    await getattr(run, call)(one)

            await here()
            await here()
            with pytest.raises(InvalidArgument, match="key="):
                await asyncio.create_task(here())
            assert len(made) == 2

    asyncio.run(main())


def test_a_boundary_stores_the_state_as_it_is_when_it_is_reached(hf: Holdfast) -> None:
    async def main() -> None:
        async with hf.aio.run("t", start={"n": 0}) as run:
            run.state["n"] = 1
            saving = asyncio.ensure_future(run.save())
            await asyncio.sleep(0)
            run.state["n"] = 2
            await saving

    asyncio.run(main())
    latest = hf.thread("t").latest()
    assert latest is not None
    assert latest.state == {"n": 1}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync run", "async run"])
def test_a_tool_that_still_runs_after_its_timeout_is_not_called_again(hf: Holdfast, is_async: bool) -> None:
    """Its probe finds nothing yet, because the first call has not acted yet. A second call would act, too."""
    acted = threading.Event()
    may_act = threading.Event()
    started: list[int] = []

    def probe(n: int) -> Happened | NotDone:
        return Happened("paid") if acted.is_set() else NotDone()

    def pay(n: int) -> str:
        started.append(n)
        assert may_act.wait(DEADLINE)
        acted.set()
        return "paid"

    tool = holdfast.tool(effect="irreversible", timeout=0.05, retry=holdfast.Retry(1, first=0), probe=probe)(pay)

    async def run_async() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(tool, {"n": 1})

    try:
        if is_async:
            asyncio.run(run_async())
        else:
            with hf.run("t", start={}) as run:
                run.tool(tool, {"n": 1})
        assert started == [1]
        info = hf.run_info("t")
        assert info is not None
        assert info.status == "waiting"
        [effect] = hf.effects("t")
        assert effect.status == "in_doubt"
    finally:
        may_act.set()


def test_an_async_tool_that_takes_too_long_is_in_doubt(hf: Holdfast) -> None:
    async def charge() -> None:
        await asyncio.sleep(60)

    tool = holdfast.tool(effect="irreversible", timeout=0.01)(charge)

    async def main() -> str:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(tool, {})
        return run.status

    assert asyncio.run(main()) == "waiting"
    assert [effect.status for effect in hf.effects("t")] == ["in_doubt"]


def test_a_tool_that_is_not_async_is_not_cut_short_by_cancellation(hf: Holdfast) -> None:
    started, go_on, ledger = threading.Event(), threading.Event(), []

    def charge() -> str:
        started.set()
        assert go_on.wait(DEADLINE)
        ledger.append("charged")
        return "charged"

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(charge, {}, key="k")

    async def cancel() -> None:
        task = asyncio.ensure_future(main())
        assert await asyncio.to_thread(started.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(cancel())
    assert [(effect.status, effect.result) for effect in hf.effects("t")] == [("done", "charged")]
    asyncio.run(main())
    assert ledger == ["charged"]


def test_cancelled_before_it_was_called_a_tool_is_not_in_doubt(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its intent is written, and then its caller is gone: nothing happened, and nobody need be asked."""
    writing, go_on = threading.Event(), threading.Event()
    store: Any = hf.context.store
    journal = store.journal

    def slow_journal(*args: Any, **options: Any) -> Any:
        writing.set()
        assert go_on.wait(DEADLINE)
        return journal(*args, **options)

    ledger: list[str] = []

    async def charge() -> None:
        ledger.append("charged")

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(charge, {}, key="k")

    async def cancel() -> None:
        task = asyncio.ensure_future(main())
        assert await asyncio.to_thread(writing.wait, 10)
        task.cancel()
        go_on.set()
        await asyncio.wait([task])
        assert task.cancelled()

    with monkeypatch.context() as patch:
        patch.setattr(store, "journal", slow_journal)
        asyncio.run(cancel())
    assert ([effect.status for effect in hf.effects("t")], ledger) == (["not_done"], [])


def test_cancelled_while_the_function_that_gives_its_coroutine_acts_a_tool_is_in_doubt(hf: Holdfast) -> None:
    acting, go_on = threading.Event(), threading.Event()
    ledger: list[str] = []

    async def notify() -> None:
        """Awaited after the payment."""

    @holdfast.tool(effect="irreversible", in_doubt="ask")
    def pay() -> Any:
        ledger.append("paid")
        acting.set()
        assert go_on.wait(DEADLINE)
        return notify()

    async def main() -> str:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(pay, {}, key="k")
        return run.status

    async def cancel() -> None:
        task = asyncio.ensure_future(main())
        assert await asyncio.to_thread(acting.wait, DEADLINE)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(cancel())
    assert asyncio.run(main()) == "waiting"
    assert ([effect.status for effect in hf.effects("t")], ledger) == (["in_doubt"], ["paid"])


def _collected(hf: Holdfast) -> list[str]:
    """The status of each interrupted run, after the tasks of closed loops are collected."""
    gc.collect()
    return [run.status for run in hf.interrupted()]


def test_a_run_whose_loop_was_closed_is_released(hf: Holdfast) -> None:
    async def main(entered: asyncio.Event) -> None:
        async with hf.aio.run("t", start={}) as run, run.child("c", start={}):
            entered.set()
            await asyncio.sleep(DEADLINE)

    async def begin() -> asyncio.Task[None]:
        entered = asyncio.Event()
        task = asyncio.ensure_future(main(entered))
        await entered.wait()
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(begin())
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop was closed on purpose
    del task
    until(lambda: _collected(hf) == ["released"])
    child = hf.run_info("t/c")
    assert child is not None
    assert child.status == "released"
    with hf.run("t", start={}) as run:
        run.finish()


def test_a_run_whose_loop_is_closed_while_it_is_claimed_is_released(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with hf.aio.run("t", start={}):
            pass

    async def begin() -> asyncio.Task[None]:
        task = asyncio.ensure_future(main())
        assert await asyncio.to_thread(claimed.wait, DEADLINE)
        return task

    claimed, go_on = threading.Event(), threading.Event()
    enter = ClaimRequest.enter

    def slow_enter(*args: Any, **options: Any) -> Any:
        core = enter(*args, **options)
        claimed.set()
        assert go_on.wait(DEADLINE)
        return core

    with monkeypatch.context() as patch:
        patch.setattr(ClaimRequest, "enter", slow_enter)
        loop = asyncio.new_event_loop()
        task = loop.run_until_complete(begin())
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # its loop was closed on purpose
        del task
        go_on.set()
        until(lambda: _collected(hf) == ["released"])


def test_another_worker_holds_the_run(hf: Holdfast) -> None:
    async def main() -> None:
        async with hf.aio.run("t", start={}):
            with pytest.raises(holdfast.LeaseHeld):
                await hf.aio.run("t").__aenter__()
            waiting = asyncio.ensure_future(hf.aio.run("t", wait=10).__aenter__())
            await asyncio.sleep(0.01)
        run = await waiting
        assert run.status == "running"

    asyncio.run(main())


async def words(text: str) -> AsyncIterator[dict[str, str]]:
    for word in text.split():
        await asyncio.sleep(0)
        yield {"word": word}


def test_a_stream_is_recorded_when_it_is_exhausted(hf: Holdfast) -> None:
    opened: list[str] = []

    async def model(text: str) -> AsyncIterator[dict[str, str]]:
        opened.append(text)
        return words(text)

    async def take(run: AsyncRun) -> list[Any]:
        return [chunk["word"] async for chunk in run.stream(model, "a b c")]

    async def main() -> None:
        for _ in range(2):
            async with hf.aio.run("t", start={}) as run:
                assert await take(run) == ["a", "b", "c"]
        assert opened == ["a b c"]

    asyncio.run(main())


def test_a_stream_that_was_left_was_in_flight(hf: Holdfast) -> None:
    opened: list[str] = []

    def model(text: str) -> AsyncIterator[dict[str, str]]:
        opened.append(text)
        return words(text)

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            async for chunk in run.stream(model, "a b c"):
                assert chunk == {"word": "a"}
                break
            assert [chunk async for chunk in run.stream(model, "d")] == [{"word": "d"}]
            await run.save()

    asyncio.run(main())
    assert opened == ["a b c", "d"]
    assert [effect.name for effect in hf.effects("t")] == [model.__qualname__]


def test_the_loop_is_free_while_a_plain_function_works(hf: Holdfast) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.ensure_future(tick())
        async with hf.aio.run("t", start={}) as run:
            await run.model(lambda: until(lambda: ticks > 5, "the loop has ticked"))
        ticking.cancel()

    asyncio.run(main())


def test_a_function_that_does_not_say_that_it_is_async_is_awaited_too(hf: Holdfast) -> None:
    """The clients of providers are such: their methods are wrapped, and what they give has to be awaited."""
    world = World()

    async def slow() -> None:
        await asyncio.sleep(60)

    def wrapped(item: str) -> Any:
        return world.charge(item)

    late = holdfast.tool(effect="irreversible", timeout=0.01, name="late")(lambda: slow())  # noqa: PLW0108 - not async

    async def main() -> str:
        async with hf.aio.run("t", start={}) as run:
            assert await run.model(wrapped, "a") == "charged a"
            await run.tool(late, {})
        return run.status

    assert asyncio.run(main()) == "waiting"
