"""Several questions at the same time; answers to questions that were not asked; questions whose payload changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Conflict, Holdfast
from holdfast.errors import EffectMismatch
from tests.runs.conftest import World


def in_threads(hf: Holdfast, names: str, **options: Any) -> list[Any]:
    with hf.run("t", start={}) as run:
        with ThreadPoolExecutor(len(names)) as pool:
            asked = [pool.submit(run.wait, name, {"for": name}, **options) for name in names]
        answers = [each.result() for each in asked]
        run.finish(answers)
        return answers
    return []


def in_gather(hf: Holdfast, names: str, **options: Any) -> list[Any]:
    async def program() -> list[Any]:
        async with hf.aio.run("t", start={}) as run:
            answers = await asyncio.gather(*(run.wait(name, {"for": name}, **options) for name in names))
            await run.finish(list(answers))
            return list(answers)
        return []

    return asyncio.run(program())


def in_group(hf: Holdfast, names: str, **options: Any) -> list[Any]:
    async def program() -> list[Any]:
        async with hf.aio.run("t", start={}) as run:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(run.wait(name, {"for": name}, **options)) for name in names]
            answers = [task.result() for task in asked]
            await run.finish(answers)
            return answers
        return []

    return asyncio.run(program())


Program = Callable[..., list[Any]]
together = pytest.mark.parametrize("program", [in_threads, in_gather, in_group], ids=lambda each: each.__name__)


def open_questions(hf: Holdfast) -> list[tuple[str, Any]]:
    return sorted((each.name, each.payload) for each in hf.waiting())


@together
def test_all_questions_are_asked_before_the_run_waits(world: World, program: Program) -> None:
    hf = world.open()
    program(hf, "abc")
    assert open_questions(hf) == [(name, {"for": name}) for name in "abc"]
    hf.answer("t", "b", 2)
    program(hf, "abc")
    assert open_questions(hf) == [("a", {"for": "a"}), ("c", {"for": "c"})]
    hf.answer("t", "a", 1)
    hf.answer("t", "c", 3)  # the run is queued, and not resumed yet
    assert program(hf, "abc") == [1, 2, 3]
    assert hf.verify().ok


@together
def test_the_run_wakes_for_the_first_time_that_passes(world: World, program: Program) -> None:
    hf = world.open()
    program(hf, "ab", timeout=60)
    assert len(open_questions(hf)) == 2
    world.pass_time(61)
    with pytest.raises((TimeoutError, BaseExceptionGroup)):
        program(hf, "ab", timeout=60)


@together
def test_an_answer_that_comes_while_the_others_are_asked_is_not_lost(world: World, program: Program) -> None:
    hf = world.open()
    store: Any = hf.context.store
    journal, is_due = store.journal, [True]

    def answering(*args: Any, **options: Any) -> Any:
        if options.get("run") is not None and options["run"].status == "waiting" and is_due:
            is_due.clear()
            hf.answer("t", "a", 1, early=True)
        return journal(*args, **options)

    store.journal = answering
    program(hf, "ab")
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "queued"
    program(hf, "ab")
    assert open_questions(hf) == [("b", {"for": "b"})]
    hf.answer("t", "b", 2)
    assert program(hf, "ab") == [1, 2]


def test_a_cancelled_run_waits_for_none_of_them(world: World) -> None:
    hf = world.open()
    in_threads(hf, "ab")
    hf.cancel("t", "enough")
    assert open_questions(hf) == []
    assert hf.verify().ok


# -- answers to what was not asked ------------------------------------------------------------------------------------


def test_an_answer_that_was_not_asked_for_is_refused(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}) as run:
        with pytest.raises(Conflict, match="no open question"):
            hf.answer("t", "approve", True)
        run.model(lambda: "reply")
    with world.running("t", hf, ends="waiting") as run:
        run.wait("approve")
    with pytest.raises(Conflict, match=r"not asked 'aprove'.*asked 'approve'.*early=True"):
        hf.answer("t", "aprove", True)
    assert [each.name for each in hf.waiting()] == ["approve"]


def test_an_early_answer_is_kept_for_its_question(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        hf.answer("t", "approve", True, early=True)
    with world.running("t", hf) as run:
        assert run.wait("approve") is True


def test_async_answers_are_refused_too(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        pass
    with pytest.raises(Conflict, match="early"):
        asyncio.run(hf.aio.answer("t", "approve", True))
    asyncio.run(hf.aio.answer("t", "approve", True, early=True))
    with world.running("t", hf) as run:
        assert run.wait("approve") is True


# -- another payload --------------------------------------------------------------------------------------------------


def asks(world: World, hf: Holdfast, amount: int, ends: str) -> None:
    with world.running("t", hf, start={}, ends=ends) as run:
        run.wait("approve", {"amount": amount, "currency": "EUR"})


def test_an_answer_is_for_one_payload(world: World) -> None:
    hf = world.open()
    asks(world, hf, 5, "waiting")
    hf.answer("t", "approve", True)
    with world.failing("t", EffectMismatch, hf) as run:
        run.wait("approve", {"amount": 5000, "currency": "EUR"})
    with world.running("t", hf) as run:
        assert run.wait("approve", {"currency": "EUR", "amount": 5}) is True  # in any order


def test_a_question_without_an_answer_is_asked_anew(world: World) -> None:
    hf = world.open()
    asks(world, hf, 5, "waiting")
    asks(world, hf, 7, "waiting")
    assert [each.payload["amount"] for each in hf.waiting()] == [7]
    hf.answer("t", "approve", True)
    asks(world, hf, 7, "idle")


def test_an_answer_that_comes_before_the_question_is_asked_anew_is_for_the_old_one(world: World) -> None:
    hf = world.open()
    asks(world, hf, 5, "waiting")
    with world.failing("t", EffectMismatch, hf) as run:
        hf.answer("t", "approve", True)
        run.wait("approve", {"amount": 7, "currency": "EUR"})
