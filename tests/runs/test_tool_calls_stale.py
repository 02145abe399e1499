"""Staleness: what a resumed run reads again because it is too old, and the hook that a resumed run is given to."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun, Halted, HoldfastError, InvalidArgument, Run, ToolNotDone
from tests.runs.conftest import World

MINUTE = 60.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, world: World) -> Callable[[float], None]:
    """Lets time pass, on the wall and on the clock of leases."""
    ahead = [0]
    wall = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() + ahead[0])

    def pass_time(seconds: float) -> None:
        ahead[0] += round(seconds * 1_000_000_000)
        world.pass_time(seconds)

    return pass_time


class Shop:
    """Prices that change with every look."""

    def __init__(self, max_age: float | None = MINUTE) -> None:
        self.looks = 0
        self.bought: list[int] = []
        self.price = holdfast.tool(effect="read", max_age=max_age)(self._price)
        self.buy = holdfast.tool(effect="irreversible", name="buy")(self._buy)
        self.order = holdfast.tool(effect="idempotent", name="order")(self._buy)

    def _price(self) -> int:
        self.looks += 1
        return self.looks

    def _buy(self, at: int) -> None:
        self.bought.append(at)


def reply() -> str:
    return "reply"


# -- max_age --------------------------------------------------------------------------------------------------------


def test_a_fresh_read_is_given_and_a_stale_one_read_again(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()
    with world.dying("t", start={}) as run:
        assert run.tool(shop.price) == 1
        run.model(reply)
    later(MINUTE / 4)
    with world.dying("t") as run:
        assert run.tool(shop.price) == 1
        run.model(reply)
    later(MINUTE)
    with world.dying("t") as run:
        assert run.tool(shop.price) == 2
        run.model(reply)
        run.model(reply)
    with world.running("t") as run:
        assert run.tool(shop.price) == 2, "what was read again is recorded in its place"
    assert shop.looks == 2


def test_without_max_age_a_recorded_read_is_given_however_old(world: World, later: Callable[[float], None]) -> None:
    shop = Shop(max_age=None)
    with world.dying("t", start={}) as run:
        run.tool(shop.price)
        run.model(reply)
    later(1e9)
    with world.running("t") as run:
        assert run.tool(shop.price) == 1


def test_a_claim_does_not_doubt_what_it_read_itself(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()
    with world.running("t", start={}, lease=86_400) as run:
        assert run.tool(shop.price, key="k") == 1
        later(MINUTE * 2)
        assert run.tool(shop.price, key="k") == 1


@pytest.mark.parametrize("act", ["buy", "order"])
@pytest.mark.parametrize("steps", [1, 2])
def test_what_was_acted_on_is_not_read_again(
    world: World, later: Callable[[float], None], act: str, steps: int
) -> None:
    """Else the run would hold a price that it did not pay."""
    shop = Shop()

    def go(run: Run) -> None:
        for step in run.steps():
            if step == 1:
                assert run.tool(shop.price) == 1
            if step == steps:
                run.tool(getattr(shop, act), {"at": 1})
                return

    with world.dying("t", start={}, policy=holdfast.Never()) as run:
        go(run)
    later(MINUTE * 2)
    with world.running("t", policy=holdfast.Never()) as run:
        go(run)
    assert (shop.looks, shop.bought) == (1, [1])


def test_what_was_started_and_is_in_doubt_was_acted_on(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()

    @holdfast.tool(effect="irreversible", in_doubt="give_up")
    def pay() -> None:
        raise OSError

    with world.dying("t", start={}) as run:
        run.tool(shop.price)
        run.tool(pay)
    later(MINUTE * 2)
    with world.running("t") as run:
        assert run.tool(shop.price) == 1


def test_what_was_surely_not_done_decided_nothing(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()

    def pay() -> None:
        raise ToolNotDone("no")

    with world.dying("t", start={}) as run:
        run.tool(shop.price)
        with pytest.raises(ToolNotDone):
            run.tool(pay)
    later(MINUTE * 2)
    with world.running("t") as run:
        assert run.tool(shop.price) == 2


def test_what_came_before_the_read_does_not_hold_it(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()
    with world.dying("t", start={}) as run:
        run.tool(shop.order, {"at": 7})
        run.tool(shop.price)
        run.model(reply)
    later(MINUTE * 2)
    with world.running("t") as run:
        run.tool(shop.order, {"at": 7})
        assert run.tool(shop.price) == 2
    assert shop.bought == [7]


def test_what_somebody_was_asked_about_is_not_read_again(world: World, later: Callable[[float], None]) -> None:
    """They said yes to that price."""
    shop = Shop()
    with world.running("t", start={}, ends="waiting") as run:
        run.wait("approve", run.tool(shop.price))
    later(MINUTE * 2)
    world.open().answer("t", "approve", value=True)
    with world.running("t") as run:
        assert run.tool(shop.price) == 1
        assert run.wait("approve", 1) is True


def test_what_went_before_a_question_is_recorded_with_it(world: World) -> None:
    shop = Shop(max_age=None)
    fails = [True]

    def model() -> str:
        if fails.pop():
            raise OSError("overloaded")
        return "reply"

    with world.running("t", start={}, ends="waiting") as run:
        run.tool(shop.price)
        with pytest.raises(OSError, match="overloaded"):
            run.model(model)
        run.wait("what now?")
    world.open().answer("t", "what now?", "go on")
    with world.running("t") as run:
        assert run.tool(shop.price) == 1
        with pytest.raises(OSError, match="overloaded"):
            run.model(model)
        assert run.wait("what now?") == "go on"


def test_after_a_sleep_it_is_read_again(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()
    with world.running("t", start={}, ends="waiting") as run:
        run.tool(shop.price)
        run.sleep(MINUTE * 2)
    later(MINUTE * 3)
    with world.running("t") as run:
        assert run.tool(shop.price) == 2
        run.sleep(MINUTE * 2)


def test_a_model_that_was_told_the_old_one_is_seen_to_be(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()
    asked: list[int] = []

    def model(price: int) -> str:
        asked.append(price)
        return f"{price} is fine"

    with world.dying("t", start={}) as run:
        run.model(model, run.tool(shop.price))
    later(MINUTE * 2)
    with world.dying("t") as run:
        assert run.model(model, run.tool(shop.price)) == "1 is fine"
        assert [effect.name for effect in run.changed] == [model.__qualname__]
    with world.running("t") as run:
        assert run.model(model, run.tool(shop.price), on_change="rerun") == "3 is fine"
    assert asked == [1, 3]


def test_reading_again_may_fail(world: World, later: Callable[[float], None]) -> None:
    looks: list[int] = []

    @holdfast.tool(effect="read", max_age=MINUTE)
    def look() -> int:
        looks.append(1)
        if len(looks) == 2:
            raise OSError("no network")
        return len(looks)

    with world.dying("t", start={}) as run:
        run.tool(look)
        run.model(reply)
    later(MINUTE * 2)
    with world.failing("t", OSError) as run:
        run.tool(look)
    with world.running("t") as run:
        assert run.tool(look) == 3


def test_reading_again_is_a_call_that_guards_count(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()

    def paid() -> dict[str, Any]:
        return {"usage": {"input_tokens": 5, "output_tokens": 5}}

    with world.dying("t", start={}) as run:
        run.tool(shop.price)
        run.model(paid)
    later(MINUTE * 2)
    with world.failing("t", Halted, guards=[holdfast.Budget(tokens=10)]) as run:
        run.tool(shop.price)
    assert shop.looks == 1


def test_stale_reads_of_async_runs(world: World, later: Callable[[float], None]) -> None:
    shop = Shop()
    with world.dying("t", start={}) as run:
        run.tool(shop.price)
        run.model(reply)
    later(MINUTE * 2)

    async def main() -> Any:
        async with world.open().aio.run("t") as run:
            return await run.tool(shop.price)

    assert asyncio.run(main()) == 2


@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
def test_only_reads_have_an_age(effect: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_age"):
        holdfast.tool(effect=effect, max_age=1)(reply)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, True, "1"])
def test_max_age_is_seconds(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_age"):
        holdfast.tool(effect="read", max_age=bad)(reply)


# -- on_resume ------------------------------------------------------------------------------------------------------


def test_a_resumed_run_is_given_to_the_hook_first(world: World) -> None:
    given: list[Any] = []

    def hook(run: Run) -> None:
        given.append((run.thread, run.resumed, run.age < MINUTE))
        run.state["seen"] = True

    with world.dying("t", start={}, on_resume=hook):
        assert given == [], "a run that begins is not resumed"
    with world.running("t", on_resume=hook) as run:
        assert given == [("t", True, True)]
        assert run.state == {"seen": True}
    with world.running("t", on_resume=hook, ends="completed") as run:
        run.finish()
    assert len(given) == 2
    with world.running("t", on_resume=hook, ends="completed"):
        pass
    assert len(given) == 2, "what is completed is not resumed"


def test_a_submitted_run_is_not_resumed_when_it_is_started(world: World) -> None:
    given: list[Run] = []
    hf = world.open()
    hf.submit("agent", "t", start={})
    with world.running("t", hf, start={}, on_resume=given.append):
        assert given == []


def test_what_the_hook_raises_ends_the_run_as_the_block_would(world: World) -> None:
    def hook(run: Run) -> None:
        raise ZeroDivisionError("too old")

    with world.dying("t", start={}):
        pass
    hf = world.open()
    with pytest.raises(ZeroDivisionError), hf.run("t", on_resume=hook):
        pytest.fail("the block is not entered")
    assert [thread.status for thread in hf.threads()] == ["failed"]
    with world.running("t") as run:
        assert run.resumed


def test_the_hook_may_halt_the_run(world: World) -> None:
    with world.dying("t", start={}):
        pass

    def hook(run: Run) -> None:
        run.halt("too old")

    with world.running("t", on_resume=hook, ends="halted") as run:
        assert list(run.steps()) == []


def test_a_hook_that_has_to_wait_lets_the_run_wait(world: World) -> None:
    asked: list[Any] = []

    def hook(run: Run) -> None:
        asked.append(run.wait("still wanted?"))

    with world.dying("t", start={}):
        pass
    hf = world.open()
    with pytest.raises(HoldfastError, match="is waiting, because its on_resume"), hf.run("t", on_resume=hook):
        pytest.fail("the block is not entered")
    assert [question.name for question in hf.waiting()] == ["still wanted?"]
    hf.answer("t", "still wanted?", value=True)
    with world.running("t", hf, on_resume=hook):
        assert asked == [True]


def test_calls_of_a_hook_are_told_from_those_of_the_block(world: World) -> None:
    def first() -> str:
        return "of the block"

    def other() -> str:
        return "of the hook"

    def unkeyed(run: Run) -> None:
        run.model(other)

    def keyed(run: Run) -> None:
        assert run.model(other, key="hook") == "of the hook"

    with world.dying("t", start={}) as run:
        run.model(first)
    hf = world.open()
    with pytest.raises(InvalidArgument, match="needs key="), hf.run("t", on_resume=unkeyed):
        pytest.fail("the block is not entered")
    with world.running("t", on_resume=keyed) as run:
        assert run.model(first) == "of the block"


def test_the_hook_of_an_async_run_may_be_async(world: World) -> None:
    given: list[str] = []

    async def hook(run: AsyncRun) -> None:
        await asyncio.sleep(0)
        given.append(await run.model(reply, key="hook"))

    async def failing(run: AsyncRun) -> None:
        raise ZeroDivisionError

    async def main() -> list[str]:
        hf = world.open().aio
        async with hf.run("t", start={}, on_resume=hook):
            assert given == []
        async with hf.run("t", on_resume=hook):
            assert given == ["reply"]
        async with hf.run("t", on_resume=lambda run: given.append(run.thread)):
            assert given == ["reply", "t"]
        with pytest.raises(ZeroDivisionError):
            async with hf.run("t", on_resume=failing):
                pytest.fail("the block is not entered")
        return [thread.status async for thread in hf.threads()]

    assert asyncio.run(main()) == ["failed"]


def test_a_hook_is_a_function_and_that_of_a_sync_run_not_async(world: World) -> None:
    async def hook(run: Run) -> None: ...

    hf = world.open()
    bad: Any
    for bad in ("x", 3):
        with pytest.raises(InvalidArgument):
            hf.run("t", start={}, on_resume=bad)
    with pytest.raises(InvalidArgument, match="await"):
        hf.run("t", start={}, on_resume=hook)
