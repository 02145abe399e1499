"""Interrupted runs: each run that was left unfinished is listed, and a program resumes those it has handlers for."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, InvalidArgument, LeaseHeld, Run, Unsupported
from holdfast.types import RunInfo
from tests.runs.conftest import Crash, World
from tests.selection import every_store
from tests.waiting import DEADLINE


class Cancelled(BaseException):
    """Ends a block as Ctrl-C, SIGTERM or a cancelled task does."""


def leave(world: World, thread: str, error: type[BaseException], agent: str | None = "shopper") -> None:
    """Start a run, save once, and leave its block by an error."""
    with world.failing(thread, error, start={"n": 0}, agent=agent) as run:
        run.state["n"] = 1
        run.save()
        raise error("because")


def crash(world: World, thread: str) -> None:
    with world.dying(thread, start={"n": 0}, agent="shopper") as run:
        run.save()


def listed(hf: Holdfast) -> list[tuple[str, str, str | None]]:
    return sorted((each.thread, each.status, each.reason) for each in hf.interrupted())


def finish(run: Run) -> Any:
    return run.state["n"]


# -- what is listed ---------------------------------------------------------------------------------------------------


@every_store("the status is stored and searched by")
def test_every_run_that_was_left_unfinished_is_listed_with_its_cause(world: World) -> None:
    leave(world, "a cancelled", Cancelled)
    leave(world, "a failed", ValueError)
    crash(world, "a killed")
    with world.running("idle between turns", start={}):
        pass
    hf = world.open()
    assert listed(hf) == [
        ("a cancelled", "released", None),
        ("a failed", "failed", "ValueError: because"),
        ("a killed", "running", None),
    ]
    info = hf.run_info("a cancelled")
    assert info is not None
    assert (info.status, info.interrupted, info.attempt) == ("released", True, 0)


def test_a_released_run_is_stuck_and_says_who_resumes_it(world: World) -> None:
    leave(world, "a", Cancelled)
    leave(world, "b", Cancelled, agent=None)
    found = {each.thread: (each.status, each.why) for each in world.open().stuck(older_than=0)}
    worker = "no worker claims it (is a worker with handler 'shopper' running?)"
    assert found == {
        "a": ("released", f"its block was left unfinished, and {worker}"),
        "b": ("released", "its block was left unfinished, and it has no handler (hf.run resumes it)"),
    }


def test_a_run_that_is_resumed_is_on_no_list(world: World) -> None:
    leave(world, "t", Cancelled)
    with world.running("t", ends="completed") as run:
        run.finish()
    assert listed(world.open()) == []


def test_the_child_of_a_released_run_is_resumed_through_its_parent(world: World) -> None:
    with (
        world.failing("p", Cancelled, start={}, agent="parent") as run,
        run.child("c", start={}, agent="shopper"),
    ):
        raise Cancelled
    seen: list[str] = []
    world.open().worker({"shopper": lambda run: seen.append(run.thread)}).run(until_idle=True)
    assert seen == []


def test_the_plan_of_a_run_with_a_child_says_that_the_child_is_resumed(world: World) -> None:
    hf = world.open()
    with world.failing("p", Cancelled, hf, start={}) as run:
        run.model(lambda: 1)
        with run.child("c", start={}):
            raise Cancelled
    [found] = hf.interrupted()
    assert found.in_doubt == ()
    assert found.plan == "resume after step 0; answer 1 call from the journal; resume the child 'p/c'"


def test_the_plan_names_calls_whose_result_could_not_be_stored_or_whose_tool_is_unknown(world: World) -> None:
    @holdfast.tool(effect="irreversible", in_doubt="give_up")
    def act() -> Any:
        return object()

    @holdfast.tool(effect="irreversible")
    def order() -> None:
        raise KeyboardInterrupt

    with world.failing("t", Unsupported, world.open(act), start={}) as run:
        run.tool(act)
    with world.failing("u", KeyboardInterrupt, world.open(order), start={}) as run:
        run.tool(order)
    hf = world.open(act)
    start = "resume after step 0; answer 0 calls from the journal; "
    assert {found.thread: found.plan.removeprefix(start) for found in hf.interrupted()} == {
        "t": "act (call 1) was made and its result could not be stored: settle it with hf.settle",
        "u": "order (call 1) is in doubt, and its tool is not registered here",
    }


# -- workers ----------------------------------------------------------------------------------------------------------


@every_store("the worker searches by status")
@pytest.mark.parametrize("how", ["released", "failed", "killed"])
def test_a_worker_resumes_a_run_of_hf_run_by_the_name_of_its_agent(world: World, how: str) -> None:
    crash(world, "t") if how == "killed" else leave(world, "t", Cancelled if how == "released" else ValueError)
    world.open().worker({"another": finish}).run(until_idle=True)
    assert len(listed(world.open())) == 1
    world.open().worker({"shopper": finish}).run(until_idle=True)
    assert world.open().result("t") == (0 if how == "killed" else 1)


def test_a_worker_gives_up_a_run_that_keeps_failing(world: World) -> None:
    leave(world, "t", ValueError)

    def fail(run: Run) -> None:
        raise ValueError("again")

    for _ in range(9):
        world.open().worker({"shopper": fail}, attempts=3).run(until_idle=True)
        world.pass_time(600)
    info = world.open().run_info("t")
    assert info is not None
    assert (info.status, info.reason) == ("dead", "ValueError: again")


# -- recover ----------------------------------------------------------------------------------------------------------


@every_store("the runs are searched by status")
def test_a_program_resumes_what_it_has_handlers_for(world: World) -> None:
    leave(world, "a", Cancelled)
    leave(world, "b", ValueError)
    crash(world, "c")
    leave(world, "another", Cancelled, agent="another")
    hf = world.open()
    hf.submit("shopper", "queued", start={})
    resumed = hf.recover({"shopper": finish})
    assert sorted((info.thread, info.status, info.result) for info in resumed) == [
        ("a", "completed", 1),
        ("b", "completed", 1),
        ("c", "completed", 0),
    ]
    assert listed(hf) == [("another", "released", None)]
    assert hf.recover({"shopper": finish}) == []


def test_a_run_that_fails_again_is_tried_once_and_stays_listed(world: World) -> None:
    leave(world, "a", Cancelled)
    leave(world, "b", Cancelled)
    tried: list[str] = []

    def fail(run: Run) -> None:
        tried.append(run.thread)
        raise ValueError("still")

    resumed = world.open().recover({"shopper": fail})
    assert [info.status for info in resumed] == ["failed", "failed"]
    assert sorted(tried) == ["a", "b"]
    assert listed(world.open()) == [("a", "failed", "ValueError: still"), ("b", "failed", "ValueError: still")]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_that_fails_because_of_another_thread_is_listed(world: World, is_async: bool) -> None:
    leave(world, "t", Cancelled)

    def fail(run: Any) -> None:
        raise LeaseHeld("of another thread")

    async def fail_async(run: Any) -> None:
        fail(run)

    hf = world.open()
    resumed = asyncio.run(hf.aio.recover({"shopper": fail_async})) if is_async else hf.recover({"shopper": fail})
    assert [info.status for info in resumed] == ["failed"]


def test_a_run_that_failed_too_often_is_left_to_a_person(world: World) -> None:
    leave(world, "t", ValueError)

    def fail(run: Run) -> None:
        raise ValueError("again")

    for _ in range(5):
        world.open().recover({"shopper": fail}, attempts=3)
    info = world.open().run_info("t")
    assert info is not None
    assert (info.status, info.attempt) == ("failed", 3)


def test_a_run_that_another_process_holds_is_left_alone(world: World) -> None:
    hf = world.open()
    with world.running("t", start={}, agent="shopper"):
        assert hf.recover({"shopper": finish}) == []


def test_runs_of_other_versions_are_left_alone(world: World) -> None:
    with world.failing("t", Cancelled, start={"n": 5}, agent="shopper", version="1"):
        raise Cancelled
    hf = world.open()
    assert hf.recover({"shopper": finish}, versions=["2"]) == []
    assert [info.result for info in hf.recover({"shopper": finish}, versions=["1"])] == [5]


def test_a_handler_that_returns_a_coroutine_fails_with_the_reason(world: World) -> None:
    leave(world, "t", Cancelled)

    async def agent(run: Any, how: str) -> None: ...

    [info] = world.open().recover({"shopper": lambda run: agent(run, "fast")})
    error = "the handler returned a coroutine, which was not awaited; declare it with async def"
    assert (info.status, info.reason) == ("failed", f"holdfast.errors.HoldfastError: {error}")


def test_a_program_that_exits_while_it_recovers_exits_and_releases_the_run(world: World) -> None:
    """As a signal handler of the program that calls sys.exit: the process must end, and no run has failed."""
    leave(world, "t", Cancelled)
    with pytest.raises(SystemExit):
        world.open().recover({"shopper": lambda run: sys.exit(3)})
    assert listed(world.open()) == [("t", "released", None)]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_async_handlers_run_in_the_loop_that_awaits_them(world: World, concurrency: int) -> None:
    for name in ("a", "b"):
        leave(world, name, Cancelled)
    leave(world, "c", Cancelled, agent="sync")
    loops: list[object] = []

    async def handler(run: Any) -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return int(run.state["n"])

    async def main() -> tuple[object, list[Any]]:
        aio = world.open().aio
        resumed = await aio.recover({"shopper": handler, "sync": finish}, concurrency=concurrency)
        return asyncio.get_running_loop(), [(info.thread, info.result) for info in resumed]

    loop, resumed = asyncio.run(main())
    assert sorted(resumed) == [("a", 1), ("b", 1), ("c", 1)]
    assert loops == [loop, loop]


def test_sync_handlers_of_a_recovery_do_not_hold_up_saves(world: World) -> None:
    names = [f"t{number:02}" for number in range(40)]  # more than Holdfast's pool has threads
    for name in names:
        leave(world, name, Cancelled, agent="sync")
    meet, saved = threading.Barrier(41), threading.Event()

    def handler(run: Any) -> int:
        meet.wait(DEADLINE)
        assert saved.wait(DEADLINE)
        return int(run.state["n"])

    async def main() -> list[str]:
        aio = world.open().aio
        task = asyncio.create_task(aio.recover({"sync": handler}, concurrency=40))
        await asyncio.to_thread(meet.wait, DEADLINE)
        async with asyncio.timeout(DEADLINE):
            await aio.thread("other").save({})
        saved.set()
        return [info.status for info in await task]

    assert asyncio.run(main()) == ["completed"] * 40


def test_a_handler_that_ends_with_a_cancellation_of_its_own_fails_alone(world: World) -> None:
    for name in ("a", "b", "c"):
        leave(world, name, Cancelled)

    async def handler(run: Any) -> int:
        if run.thread == "b":
            raise asyncio.CancelledError  # as from a task that it awaits and that was cancelled
        await asyncio.sleep(0.01)
        return int(run.state["n"])

    async def main() -> dict[str, str]:
        return {info.thread: info.status for info in await world.open().aio.recover({"shopper": handler})}

    assert asyncio.run(main()) == {"a": "completed", "b": "failed", "c": "completed"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_sync_handler_that_ends_with_a_cancellation_fails_alone(world: World, is_async: bool) -> None:
    for name in ("a", "b", "c"):
        leave(world, name, Cancelled)

    def handler(run: Run) -> int:
        if run.thread == "b":
            raise asyncio.CancelledError  # as from a task that it awaits in a loop of its own
        return int(run.state["n"])

    async def recover() -> list[RunInfo]:
        return await world.open().aio.recover({"shopper": handler})

    found = asyncio.run(recover()) if is_async else world.open().recover({"shopper": handler})
    assert {info.thread: info.status for info in found} == {"a": "completed", "b": "failed", "c": "completed"}


def test_a_cancelled_recovery_releases_the_run_again(world: World) -> None:
    leave(world, "t", Cancelled)

    async def handler(run: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(world.open().aio.recover({"shopper": handler}))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    entered = asyncio.Event()
    asyncio.run(main())
    assert listed(world.open()) == [("t", "released", None)]


@pytest.mark.parametrize(
    ("handlers", "options", "message"),
    [
        ({}, {}, "handlers must be a dict"),
        ({"h": finish}, {"attempts": 0}, "attempts must be"),
        ({"h": finish}, {"versions": "1"}, "versions must be"),
        ({"h": asyncio.sleep}, {}, r"use hf\.aio\.recover"),
    ],
)
def test_wrong_arguments_are_refused(
    world: World, handlers: dict[str, Callable[..., Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        world.open().recover(handlers, **options)


def test_a_handler_that_dies_leaves_the_rest_to_the_next_start(world: World) -> None:
    leave(world, "a", Cancelled)
    leave(world, "b", Cancelled)

    def die(run: Run) -> None:
        world.kill(run)

    with pytest.raises(Crash):
        world.open().recover({"shopper": die})
    assert len(listed(world.open())) == 2
