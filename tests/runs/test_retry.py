"""Retries with pauses: recorded, so that a resume continues them; and only where they are safe."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Budget, NotDone, Retry, Run, ToolNotDone
from holdfast.errors import Cancelled, InvalidArgument
from holdfast.runs import drivers
from holdfast.runs import retry as retry_module
from holdfast.stores.contract_runs import RunRow
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.runs.conftest import World

SLOW = Retry(3, first=100, factor=3, limit=500)


class Flaky:
    """A function that fails so many times."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("busy")
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return "done"

    def tool(self, **options: Any) -> Callable[[], str]:
        def act() -> str:
            return self()

        return holdfast.tool(**options)(act)


Make = Callable[[Run, Flaky, Retry], Any]


def read(run: Run, flaky: Flaky, retry: Retry) -> Any:
    return run.tool(flaky.tool(effect="read", retry=retry), {}, key="k")


def idempotent(run: Run, flaky: Flaky, retry: Retry) -> Any:
    return run.tool(flaky.tool(effect="idempotent", retry=retry), {}, key="k")


def irreversible(run: Run, flaky: Flaky, retry: Retry) -> Any:
    return run.tool(flaky.tool(retry=retry, not_done=(ConnectionError,)), {}, key="k")


def model(run: Run, flaky: Flaky, retry: Retry) -> Any:
    return run.model(flaky, key="k", retry=retry)


KINDS = pytest.mark.parametrize("make", [read, idempotent, irreversible, model])


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses in the block, which take no time."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


def row_of(world: World, name: str) -> RunRow:
    store = world.open().context.store
    thread = thread_named(store, name)
    row = None if thread is None else store.run(thread.position.thread)
    assert row is not None
    return row


async def soon(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    for _ in range(6_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


# -- pauses -----------------------------------------------------------------------------------------------------------


@covers("continuum/RetryPolicy delays", "cortex/DurableConfig.retry_delay")
def test_pauses_grow_to_the_limit() -> None:
    assert Retry(5, first=1, factor=3, limit=10).pauses() == [1, 3, 9, 10, 10]
    assert Retry(2, first=0).pauses() == [0, 0]
    assert Retry(1_000, first=1, factor=10, limit=60).pauses()[-1] == 60


@covers("continuum/RetryPolicy jitter")
def test_up_to_half_of_a_pause_is_left_out_by_the_identity_of_the_call(world: World) -> None:
    """So runs that failed together do not retry together. No pause is longer than declared."""
    lengths: set[int] = set()
    for number in range(20):
        with world.running(f"t{number}", start={}, ends="waiting") as run:
            read(run, Flaky(9), SLOW)
        row = row_of(world, f"t{number}")
        lengths.add(row.wake_at - world.clock().now)
    assert all(50_000 <= length <= 100_000 for length in lengths)
    assert len(lengths) > 5


# -- a resume continues -----------------------------------------------------------------------------------------------


@KINDS
def test_a_long_pause_suspends_the_run_and_a_resume_continues(world: World, make: Make) -> None:
    flaky = Flaky(2)
    with world.running("t", start={}, ends="waiting") as run:
        make(run, flaky, SLOW)
    assert flaky.calls == 1
    info = world.open().run_info("t")
    assert info is not None
    assert "failed once and is called again at" in (info.reason or "")
    [failed] = [each for each in world.open().effects("t") if each.error]
    assert failed.again_at is not None
    with world.running("t", ends="waiting") as run:  # resumed too early, by hand
        make(run, flaky, SLOW)
    assert flaky.calls == 1
    world.pass_time(100)
    with world.running("t", ends="waiting") as run:
        make(run, flaky, SLOW)
    assert flaky.calls == 2
    world.pass_time(140)
    with world.running("t", ends="waiting") as run:
        make(run, flaky, SLOW)
    assert flaky.calls == 2, "the second pause is three times as long, and at least half of that"
    world.pass_time(160)
    with world.running("t") as run:
        assert make(run, flaky, SLOW) == "done"
    assert flaky.calls == 3


@KINDS
def test_a_worker_makes_all_tries_and_then_raises(world: World, make: Make) -> None:
    flaky = Flaky(99)
    raised: list[str] = []
    hf = world.open()
    hf.submit("h", "t", start={})

    def handler(run: Run) -> str:
        try:
            make(run, flaky, SLOW)
        except ConnectionError as error:
            raised.append(str(error))
        return "gave up"

    for _ in range(6):
        hf.worker({"h": handler}).run(until_idle=True)
        world.pass_time(500)
    assert (flaky.calls, raised) == (4, ["busy"])
    assert hf.result("t") == "gave up"


@KINDS
def test_a_process_that_dies_in_a_short_pause_does_not_start_the_tries_again(
    world: World, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky = Flaky(99)
    retry = Retry(3, first=1.5, factor=1)
    pauses: list[float] = []

    class Died(BaseException):
        pass

    def die(seconds: float) -> None:
        pauses.append(seconds)
        raise Died

    monkeypatch.setattr(drivers, "pause", die)
    monkeypatch.setattr(retry_module, "pause", die)
    for expected in (1, 2, 3):
        with world.dying("t", start={}) as run, pytest.raises(Died):
            make(run, flaky, retry)
        assert flaky.calls == expected
    with world.failing("t", ConnectionError) as run:
        make(run, flaky, retry)
    assert flaky.calls == 4
    assert all(0.7 <= each <= 1.5 for each in pauses), pauses


@KINDS
def test_the_rest_of_a_pause_is_waited_for(world: World, make: Make, paused: list[float]) -> None:
    flaky = Flaky(1)
    retry = Retry(3, first=20, limit=20)
    with world.running("t", start={}, ends="waiting") as run:
        make(run, flaky, retry)
    row = row_of(world, "t")
    world.pass_time((row.wake_at - world.clock().now) / 1000 - 1.5)

    def pass_time(seconds: float) -> None:
        paused.append(seconds)
        world.pass_time(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", pass_time)
        with world.running("t") as run:
            assert make(run, flaky, retry) == "done"
    assert paused == [pytest.approx(1.5, abs=0.01)]


def test_an_error_that_the_program_received_ends_the_series(world: World) -> None:
    flaky = Flaky(4)
    retry = Retry(1, first=0)

    def body(run: Run) -> Any:
        try:
            return read(run, flaky, retry)
        except ConnectionError:
            run.model(lambda: "thinks", key="m")
            return read(run, flaky, retry)

    with world.dying("t", start={}) as run:
        with pytest.raises(ConnectionError):
            body(run)
        run.tool(holdfast.tool(effect="idempotent")(lambda: None), {}, key="after")
    assert flaky.calls == 4
    with world.running("t") as run:
        try:
            body(run)
        except ConnectionError:
            assert read(run, flaky, retry) == "done"
    assert flaky.calls == 5


# -- only where it is safe --------------------------------------------------------------------------------------------


def test_an_irreversible_call_with_an_unknown_outcome_is_not_made_again(world: World) -> None:
    flaky = Flaky(1)
    with world.running("t", start={}, ends="waiting") as run:
        run.tool(flaky.tool(retry=Retry(5, first=0)), {})
    assert flaky.calls == 1
    [effect] = world.open().effects("t")
    assert effect.status == "in_doubt"


def test_an_irreversible_call_is_made_again_after_tool_not_done(world: World) -> None:
    flaky = Flaky(2, ToolNotDone("refused"))
    with world.running("t", start={}) as run:
        assert run.tool(flaky.tool(retry=Retry(5, first=0)), {}) == "done"
    assert [each.status for each in world.open().effects("t")] == ["not_done", "not_done", "done"]


def test_an_irreversible_call_is_made_again_if_the_probe_found_nothing(world: World) -> None:
    flaky = Flaky(1)
    tool = flaky.tool(probe=NotDone, probe_after=1, retry=SLOW)
    with world.running("t", start={}, ends="waiting") as run:
        run.tool(tool, {})
    assert flaky.calls == 1
    world.pass_time(2)
    with world.running("t", ends="waiting") as run:
        run.tool(tool, {})
    assert flaky.calls == 1
    world.pass_time(100)
    with world.running("t") as run:
        assert run.tool(tool, {}) == "done"


def test_an_idempotent_call_is_made_again_with_the_same_key(world: World) -> None:
    keys: list[str] = []

    @holdfast.tool(effect="idempotent", retry=SLOW)
    def charge(idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError
        return "paid"

    for _ in range(2):
        with world.running("t", start={}, ends="waiting") as run:
            run.tool(charge, {})
        world.pass_time(500)
    with world.running("t") as run:
        assert run.tool(charge, {}) == "paid"
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_an_idempotent_call_that_took_too_long_is_made_again_after_the_pause(world: World) -> None:
    release = threading.Event()
    calls: list[int] = []

    @holdfast.tool(effect="idempotent", timeout=0.05, retry=SLOW)
    def slow() -> str:
        calls.append(1)
        if len(calls) == 1:
            release.wait(30)
        return "done"

    with world.running("t", start={}, ends="waiting") as run:
        run.tool(slow, {})
    release.set()
    world.pass_time(100)
    with world.running("t") as run:
        assert run.tool(slow, {}) == "done"
    assert len(calls) == 2


@KINDS
def test_other_errors_are_raised_at_once(world: World, make: Make) -> None:
    flaky = Flaky(1, ToolNotDone("a bug"))
    with world.failing("t", ToolNotDone, start={}) as run:
        make(run, flaky, Retry(3, first=0, on=(ConnectionError, TimeoutError)))
    assert flaky.calls == 1


@KINDS
def test_a_cancelled_run_is_not_retried(world: World, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky(9)
    hf = world.open()
    monkeypatch.setattr(time, "sleep", lambda _seconds: hf.cancel("t", "enough"))
    with hf.run("t", start={}) as run, pytest.raises(Cancelled):
        make(run, flaky, Retry(3, first=1))
    assert flaky.calls == 1


def test_nothing_of_a_budget_is_held_during_a_pause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run with a budget, model calls wait for each other, but not for one that pauses."""
    monkeypatch.setattr(retry_module, "SHORT_SECONDS", 60.0)
    hf = world.open()
    flaky = Flaky(1)

    async def ask() -> str:
        return flaky()

    async def main() -> None:
        async with hf.aio.run("t", start={}, guards=[Budget(tokens=1_000)]) as run:
            paused = asyncio.create_task(run.model(ask, key="a", retry=Retry(1, first=50)))
            await soon(lambda: any(each.again_at for each in hf.effects("t")))
            assert await run.model(lambda: "other", key="b") == "other"
            assert not paused.done()
            paused.cancel()

    asyncio.run(main())


# -- async, and interrupts --------------------------------------------------------------------------------------------


def test_async_tools_and_models_are_retried(world: World) -> None:
    hf = world.open()
    flaky, asked = Flaky(1), Flaky(2)

    @holdfast.tool(effect="idempotent", retry=Retry(2, first=0.02))
    async def act() -> str:
        return flaky()

    async def ask() -> str:
        return asked()

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            retry = Retry(2, first=0.02, factor=1)
            assert [*await asyncio.gather(run.tool(act, {}), run.model(ask, retry=retry))] == ["done", "done"]

    asyncio.run(main())
    assert (flaky.calls, asked.calls) == (2, 3)


def test_an_async_long_pause_suspends(world: World) -> None:
    hf = world.open()
    flaky = Flaky(1)

    async def ask() -> str:
        return flaky()

    async def main() -> Any:
        async with hf.aio.run("t", start={}) as run:
            await run.finish(await run.model(ask, retry=SLOW))
        return run.status

    assert asyncio.run(main()) == "waiting"
    world.pass_time(100)
    assert asyncio.run(main()) == "completed"


def test_a_cancelled_task_leaves_nothing_held_in_a_pause(world: World) -> None:
    hf = world.open()
    flaky = Flaky(1)

    @holdfast.tool(effect="idempotent", retry=Retry(2, first=1.9))
    async def act() -> str:
        return flaky()

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            await run.tool(act, {}, key="k")

    async def cancelled() -> None:
        task = asyncio.create_task(main())
        await soon(lambda: flaky.calls > 0)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "released"
    world.pass_time(2)
    asyncio.run(main())
    assert flaky.calls == 2


@pytest.mark.parametrize("kind", [read, model])
def test_control_c_in_a_pause_leaves_nothing_held(world: World, kind: Make) -> None:
    hf = world.open()
    flaky = Flaky(1)
    timer = threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), hf.run("t", start={}) as run:
        kind(run, flaky, Retry(2, first=1.9))
    timer.join()
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "released"
    world.pass_time(2)
    with world.running("t") as run:
        assert kind(run, flaky, Retry(2, first=1.9)) == "done"


# -- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"times": 0}, "times must be a whole number from 1"),
        ({"times": 1.5}, "times must be a whole number from 1"),
        ({"times": True}, "times must be a whole number from 1"),
        ({"times": 3, "first": -1}, "first must be a number of seconds"),
        ({"times": 3, "first": "1"}, "first must be a number of seconds"),
        ({"times": 3, "factor": 0.5}, "factor must be a number, 1 or more"),
        ({"times": 3, "factor": float("inf")}, "factor must be a number, 1 or more"),
        ({"times": 3, "limit": 0.5}, r"first \(1\) is above limit \(0.5\); pass a larger limit="),
        ({"times": 3, "first": 120}, r"first \(120\) is above limit \(60\); pass a larger limit="),
        ({"times": 3, "limit": float("nan")}, "limit must be a number of seconds, from 0 to 30 days"),
        ({"times": 3, "on": "ConnectionError"}, "on must be an exception class"),
        ({"times": 3, "on": ()}, "on must be an exception class"),
        ({"times": 3, "on": (ConnectionError, int)}, "on must be an exception class"),
        ({"times": 3, "on": KeyboardInterrupt}, "on must be an exception class"),
    ],
)
def test_wrong_values_are_refused_when_they_are_declared(options: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Retry(**options)


@pytest.mark.parametrize("retry", [3, "3", True, Retry])
def test_a_retry_is_a_policy(world: World, retry: Any) -> None:
    with pytest.raises(InvalidArgument, match="retry must be a holdfast"):
        holdfast.tool(effect="read", retry=retry)(lambda: None)
    with world.failing("t", InvalidArgument, start={}) as run:
        run.model(lambda: "x", retry=retry)
