"""What the models of a thread have cost together: told by the newest reply, however long the journal is."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import Budget, Usage
from holdfast.inspect import threads
from holdfast.runs.guards import spent, sum_of_usage
from holdfast.threads.scan import thread_named
from tests.runs.conftest import World


def reply(tokens: int) -> dict[str, Any]:
    return {"model": "m", "usage": {"prompt_tokens": tokens, "completion_tokens": 1}}


def number_of(hf: holdfast.Holdfast, thread: str) -> int:
    row = thread_named(hf.context.store, thread)
    assert row is not None
    return row.position.thread


def test_the_sum_goes_on_over_crashes_and_resumes(world: World) -> None:
    with world.dying("t", start={"n": 0}) as run:
        for step in run.steps():
            run.model(reply, 10)
            if step == 3:
                break
    hf = world.open()
    with hf.run("t") as run:
        for step in run.steps():
            run.model(reply, 10)
            if step == 5:
                run.finish()
                break
    found = spent(hf.context.store, number_of(hf, "t"))
    assert found is not None
    assert (found.input, found.output, found.total) == (50, 5, 55)


def test_a_long_run_shows_its_tokens_in_a_list() -> None:
    with holdfast.open("memory:") as hf:
        with hf.run("t", start={"n": 0}) as run:
            for step in run.steps():
                run.model(reply, 1)
                if step == 150:
                    run.finish()
                    break
        [line] = threads(hf).threads
        assert line.tokens == 300


def test_prices_are_in_the_sum() -> None:
    budget = Budget(cost=100, prices={"m": {"input": 1, "output": 1}})
    with holdfast.open("memory:") as hf:
        with hf.run("t", start={"n": 0}, guards=[budget]) as run:
            for step in run.steps():
                run.model(reply, 999_999)
                if step == 2:
                    run.finish()
                    break
        [line] = threads(hf).threads
        assert line.cost == pytest.approx(2.0)


def test_replies_that_say_nothing_cost_nothing(world: World) -> None:
    hf = world.open()
    with hf.run("t", start={"n": 0}) as run:
        for _ in run.steps():
            run.model(lambda: "hello")
            run.finish()
            break
    assert spent(hf.context.store, number_of(hf, "t")) is None


def test_other_money_is_not_added() -> None:
    euros = Usage(input=1, cost=1.0, currency="EUR")
    assert sum_of_usage(euros, Usage(input=2, cost=5.0)) == Usage(input=3, total=3, cost=1.0, currency="EUR")
    assert sum_of_usage(Usage(input=2), euros) == Usage(input=3, total=3, cost=1.0, currency="EUR")
