"""Handlers that declare what their runs are held to."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import holdfast
from holdfast import AsyncRun, Budget, Holdfast, InvalidArgument, LoopGuard, Run
from holdfast.runs.handlers import options_of
from tests.runs.conftest import World

FEW = Budget(steps=2)
MANY = Budget(steps=3)
LOOP = LoopGuard()


def steps(world: World, handler: Any, **options: Any) -> tuple[str, int]:
    """How a run of the handler ends in a worker, and after how many calls."""
    hf = world.open()
    hf.submit("h", "t", start={})
    hf.worker({"h": handler}, **options).run(until_idle=True)
    [info] = hf.threads()
    return info.status, len(hf.effects("t"))


@holdfast.handler(guards=[FEW])
def thinker(run: Run) -> None:
    for step in run.steps():
        run.model(str, step)


@holdfast.handler(guards=[FEW])
async def async_thinker(run: AsyncRun) -> None:
    async for step in run.steps():
        await run.model(str, step)


@pytest.mark.parametrize("handler", [thinker, async_thinker])
def test_a_handler_s_runs_are_held_to_its_guards(world: World, handler: Any) -> None:
    assert steps(world, handler) == ("halted", 2)


@pytest.mark.parametrize("handler", [thinker, functools.partial(thinker)])
def test_its_own_guards_stand_in_for_those_of_the_worker(world: World, handler: Any) -> None:
    assert steps(world, handler, guards=[MANY]) == ("halted", 2)


def test_what_it_does_not_declare_is_the_worker_s() -> None:
    def plain(run: Run) -> None: ...

    assert options_of(thinker, (LOOP, MANY)).guards == (FEW, LOOP)
    assert options_of(plain, (LOOP, MANY)).guards == (LOOP, MANY)


@pytest.mark.parametrize("wrong", [FEW, [FEW, MANY], ["few"], None])
def test_guards_are_checked_where_they_are_declared(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        holdfast.handler(guards=wrong)


@pytest.mark.parametrize("wrong", ["text", len, "".join])
def test_what_nothing_can_be_declared_about(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        holdfast.handler(guards=[FEW])(wrong)


def test_the_function_stays_what_it_is(hf: Holdfast) -> None:
    @holdfast.handler(guards=[FEW])
    def own(run: Run) -> str:
        return run.thread

    with hf.run("t", start={}) as run:
        assert own(run) == "t"
