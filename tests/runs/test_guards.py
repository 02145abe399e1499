"""Guards: a run is halted before the call that would be too many, and what it spent is known after a crash."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import Budget, Halted, InvalidArgument, LeaseLost, LoopGuard, NotDone, Run, Usage
from holdfast.policy import AfterModel
from holdfast.runs import claim, lease
from holdfast.runs.guards import budget
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from holdfast.threads.scan import thread_named
from tests.cases import for_each
from tests.covers import covers
from tests.runs.conftest import LEASE, World, stop_renewing

Reply = dict[str, Any]


class Model:
    """Counts how often it is paid."""

    def __init__(self, tokens: int = 100, **more: Any) -> None:
        self.calls = 0
        self._tokens = tokens
        self._more = more

    def __call__(self) -> Reply:
        self.calls += 1
        usage = {"input_tokens": self._tokens - 10, "output_tokens": 10}
        return {"content": f"thought {chr(96 + self.calls)}", "usage": usage, **self._more}


def work(run: Run, model: Callable[[], Any], steps: int) -> None:
    for step in run.steps():
        run.model(model)
        if step >= steps:
            run.finish("done")


def halted(world: World, model: Callable[[], Any], *guards: Any, steps: int = 99, **options: Any) -> str:
    """Why a guard halted a run; it says so to the caller and on the record."""
    with pytest.raises(Halted) as refused, world.open().run("t", start={}, guards=guards, **options) as run:
        work(run, model, steps)
    assert run.status == "halted"
    reason = reason_of(world)
    assert reason is not None
    assert str(refused.value).startswith(reason)
    return reason


def reason_of(world: World) -> str | None:
    store = world.open().context.store
    run = store.run(number_of(store))
    assert run is not None
    return run.reason


def entries_of(world: World) -> list[Entry]:
    store = world.open().context.store
    return store.entries(number_of(store), after=0, limit=99)


def number_of(store: Store) -> int:
    """Each kind of store numbers its threads in its own way."""
    thread = thread_named(store, "t")
    assert thread is not None
    return thread.position.thread


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass while the run is held."""
    time = [1000.0]

    def later(more: float) -> None:
        time[0] += more

    for module in (claim, lease, budget):
        monkeypatch.setattr(module, "local_seconds", lambda: time[0])
    return later


def hold(world: World, run: Run, seconds: float) -> None:
    """Let a run be held for so long, with its lease renewed."""
    world.pass_time(seconds)
    held = run.core._lease
    assert held is not None
    held._renew()


# -- budgets --------------------------------------------------------------------------------------------------------


@covers("ares/LoopConfig.max_iterations")
def test_without_guards_nothing_is_halted_and_nothing_is_stored_for_them(world: World) -> None:
    model = Model()
    with world.running("t", start={}, ends="completed") as run:
        work(run, model, 30)
    rows = entries_of(world)
    assert len(rows) == 30
    assert {(row.usage, row.held) for row in rows} == {(None, 0)}


@covers("ares/LoopConfig.max_iterations", "cortex/GraphConfig.max_iterations", "cortex/graph test_max_iterations_limit")
def test_a_budget_of_steps(world: World) -> None:
    model = Model()
    reason = halted(world, model, Budget(steps=3))
    assert model.calls == 3
    assert reason == "the budget of 3 steps is spent: calls were made in 3 steps, and the next call is in another one"


def test_steps_without_a_call_are_not_in_the_budget(world: World) -> None:
    model = Model()
    with world.failing("t", Halted, start={}, guards=[Budget(steps=1)]) as run:
        for step in run.steps():
            if step in (1, 5):
                run.model(model)
    only = "calls were made in 1 step, and the next call is in another one"
    assert reason_of(world) == f"the budget of 1 step is spent: {only}"


def test_a_step_may_hold_any_number_of_calls(world: World) -> None:
    model = Model()
    with world.running("t", start={}, guards=[Budget(steps=1)], ends="completed") as run:
        for _ in run.steps():
            for _ in range(9):
                run.model(model)
            run.finish()
    assert model.calls == 9


def test_a_budget_of_tokens_is_checked_before_the_next_call(world: World) -> None:
    model = Model(tokens=100)
    reason = halted(world, model, Budget(tokens=250))
    assert model.calls == 3, "the third goes over it, the fourth is not made"
    assert reason == "the budget of 250 tokens is spent: 300 tokens used"


@covers("cortex/graph test_cycle_with_limit")
def test_a_run_that_ends_in_time_is_not_halted(world: World) -> None:
    model = Model(tokens=100)
    with world.running("t", start={}, guards=(Budget(tokens=300, steps=3),), ends="completed") as run:
        work(run, model, 3)
    assert model.calls == 3


def test_tools_are_not_called_either_once_the_budget_is_spent(world: World) -> None:
    sent: list[int] = []

    def send() -> None:
        sent.append(1)

    with world.failing("t", Halted, start={}, guards=[Budget(tokens=100)]) as run:
        run.model(Model(tokens=100))
        run.tool(send)
    assert (sent, world.open().effects("t")[-1].effect) == ([], "model")


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ({"input": 10.0, "output": 100.0}, 90 * 10 + 10 * 100),
        ({"input": 10.0, "output": 100.0, "cached": 1.0}, 30 * 10 + 60 * 1 + 10 * 100),
        ({"input": 10.0, "output": 100.0, "cached": 1.0, "cache_write": 12.5}, 10 * 10 + 60 + 20 * 12.5 + 10 * 100),
        ({"input": 10.0, "output": 100.0, "cache_write": 12.5}, 70 * 10 + 20 * 12.5 + 10 * 100),
        ({"m": {"input": 1.0, "output": 2.0}, "m-2": {"input": 3.0, "output": 0}}, 90 * 3),
    ],
)
def test_a_budget_of_money_by_prices_per_million_tokens(world: World, prices: Any, cost: float) -> None:
    def model() -> Reply:
        details = {"cached_tokens": 60, "cache_write_tokens": 20}
        usage = {"prompt_tokens": 90, "completion_tokens": 10, "prompt_tokens_details": details}
        return {"model": "m-2-0131", "usage": usage}

    limit = cost * 1.5 / 1e6
    reason = halted(world, model, Budget(cost=limit, prices=prices))
    assert len(world.open().effects("t")) == 2
    assert reason == f"the budget for cost, {limit}, is spent: the calls cost {round(cost * 2 / 1e6, 9)}"


REMEDY = "add it to prices=, or let usage= return a cost"


def test_a_model_without_a_price_cannot_be_kept_to_a_budget(world: World) -> None:
    model = Model(model="other")
    reason = halted(world, model, Budget(cost=1, prices={"m": {"input": 1, "output": 1}}))
    assert (model.calls, reason) == (
        1,
        f"the budget cannot be checked: there is no price for model 'other' of Model; {REMEDY}",
    )


@for_each(
    ("name", "priced"),
    [
        ("big-4", "big-4"),
        ("big-4-2024-08-06", "big-4"),
        ("big-4-turbo", "big-4"),
        ("big-4o", None),
        ("big-4.1", None),
        ("big-40", None),
        ("small", None),
        ("tiny-3:0", "tiny-"),
    ],
)
def test_a_model_has_the_price_of_the_longest_name_that_its_own_begins_with(name: str, priced: str | None) -> None:
    names = {"big": 7, "big-4": 1, "tiny-": 2}
    if priced is None:
        del names["big"]
    budget = Budget(cost=1, prices={each: {"input": price, "output": 0} for each, price in names.items()})
    assert budget.cost_of(Usage(input=1_000_000), name) == (None if priced is None else names[priced])


def test_a_price_for_every_model_has_no_name() -> None:
    budget = Budget(cost=1, prices={"": {"input": 5, "output": 0}, "m": {"input": 1, "output": 0}})
    assert [budget.cost_of(Usage(input=1_000_000), name) for name in ("m-1", "other")] == [1, 5]


def test_a_total_alone_has_no_price() -> None:
    budget = Budget(cost=1, prices={"input": 1, "output": 1})
    assert budget.cost_of(Usage(total=100), "m") is None


def test_a_reply_that_names_no_model_cannot_be_priced_by_model(world: World) -> None:
    reason = halted(world, Model(), Budget(cost=1, prices={"m": {"input": 1, "output": 1}}))
    assert (
        reason
        == f"the budget cannot be checked: there is no price for the reply of Model, which names no model; {REMEDY}"
    )


def only_tokens(reply: Any) -> Usage:
    return Usage(input=90, output=10)


def priced(reply: Any) -> Usage:
    return Usage(input=1, output=1, cost=0.4)


def test_tokens_without_a_price_cannot_be_kept_to_a_budget_of_money(world: World) -> None:
    model = Model(model="m")
    reason = halted(world, model, Budget(cost=1, usage=only_tokens))
    assert (model.calls, reason) == (
        1,
        f"the budget cannot be checked: there is no price for model 'm' of Model; {REMEDY}",
    )
    assert halted(world, model, Budget(cost=1, usage=only_tokens)) == reason
    assert model.calls == 1


@pytest.mark.parametrize(
    "mended",
    [
        Budget(cost=1, usage=only_tokens, prices={"input": 3000, "output": 13000}),
        Budget(cost=1, prices={"m": {"input": 3000, "output": 13000}}),
        Budget(cost=1, usage=priced),
    ],
    ids=["prices", "prices by model", "usage"],
)
def test_a_run_goes_on_once_the_cost_of_what_it_paid_is_known(world: World, mended: Budget) -> None:
    model = Model(model="m")
    halted(world, model, Budget(cost=1, usage=only_tokens))
    reason = halted(world, model, mended)
    assert reason == "the budget for cost, 1, is spent: the calls cost 1.2", "0.4 each, that which was not known too"
    assert model.calls == 3


def test_tokens_that_were_counted_stay_so_when_the_cost_becomes_known(world: World) -> None:
    model = Model(model="m")
    halted(world, model, Budget(cost=1, usage=only_tokens))
    assert halted(world, model, Budget(cost=9, tokens=102, usage=priced)).endswith("is spent: 102 tokens used")


def test_a_budget_of_tokens_needs_no_price(world: World) -> None:
    assert halted(world, Model(), Budget(tokens=100, usage=only_tokens)).startswith("the budget of 100 tokens")


@pytest.mark.parametrize(
    "free",
    [
        Budget(cost=0.1, prices={"input": 0, "output": 0}),
        Budget(cost=0.1, usage=lambda reply: None),
        Budget(cost=0.1, usage=lambda reply: Usage()),
    ],
    ids=["prices", "none", "no tokens"],
)
def test_what_costs_nothing_is_never_over_a_budget_of_money(world: World, free: Budget) -> None:
    model = Model()
    with world.running("t", start={}, guards=[free], ends="completed") as run:
        work(run, model, 5)
    assert model.calls == 5


def free(reply: Any) -> None:
    """What a reply costs where it costs nothing."""


def broken(reply: Any) -> Usage:
    raise ZeroDivisionError


def wrong(reply: Any) -> Any:
    return {"input": 1}


def test_a_reply_that_does_not_say_its_tokens_cannot_be_kept_to_a_budget(world: World) -> None:
    calls: list[int] = []

    def model() -> str:
        calls.append(1)
        return f"{len(calls)}"

    assert "reports no tokens; pass usage=" in halted(world, model, Budget(tokens=1000))
    assert len(calls) == 1
    with world.running("t", guards=[Budget(tokens=1000, usage=free)], ends="completed") as run:
        work(run, model, 5)
    assert len(calls) == 5, "nothing is spent, its user says"


def test_a_function_of_the_users_says_what_a_reply_cost(world: World) -> None:
    seen: list[Any] = []

    def usage(reply: Any) -> Usage:
        seen.append(reply)
        return Usage(input=1, output=2, cost=0.4)

    reason = halted(world, said({"n": 1}, {"n": 2}, {"n": 3}), Budget(cost=0.8, usage=usage))
    assert reason == "the budget for cost, 0.8, is spent: the calls cost 0.8"
    assert seen == [{"n": 1}, {"n": 2}]
    assert [row.usage for row in entries_of(world)] == [Usage(input=1, output=2, cost=0.4)] * 2


@pytest.mark.parametrize("bad", [broken, wrong])
def test_a_reply_is_kept_when_the_users_function_fails(world: World, bad: Callable[[Any], Any]) -> None:
    model = Model()
    with world.failing("t", InvalidArgument, start={}, guards=[Budget(tokens=1000, usage=bad)]) as run:
        assert run.model(model)["content"] == "thought a"
        run.model(model)
    assert run.status == "failed"
    with world.running("t", guards=[Budget(tokens=1000)], ends="completed") as run:
        work(run, model, 1)
    assert model.calls == 1


COUNTS = {"input_tokens": 90, "output_tokens": 10}


@pytest.mark.parametrize(
    "streamed",
    [
        [{"delta": "a"}, {"usage": COUNTS}],
        [
            {"type": "message_start", "message": {"usage": {**COUNTS, "output_tokens": 1}}},
            {"type": "message_delta", "usage": {"output_tokens": 10}},
        ],
        [
            {"choices": [], "usage": None},
            {"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 10}},
        ],
        [
            {"type": "response.created", "response": {"usage": None}},
            {"type": "response.completed", "response": {"usage": COUNTS}},
        ],
    ],
    ids=["chunks", "message", "completion", "response"],
)
def test_streams_are_paid_for_too(world: World, streamed: list[Any]) -> None:
    def chunks() -> Any:
        yield from streamed

    with world.failing("t", Halted, start={}, guards=[Budget(tokens=100)]) as run:
        assert len(list(run.stream(chunks))) == 2
        list(run.stream(chunks))
    assert run.status == "halted"


# -- known again ----------------------------------------------------------------------------------------------------


@covers("E2", "E12")
def test_what_was_spent_is_known_after_a_crash_and_replays_add_nothing(world: World) -> None:
    model = Model(tokens=100)
    guards = [Budget(tokens=350)]
    with world.dying("t", start={}, guards=guards) as run:
        run.model(model)
        run.save()
        run.model(model)
    with world.dying("t", guards=guards) as run:
        run.model(model)
        assert model.calls == 2, "a replay"
    reason = halted(world, model, *guards)
    assert model.calls == 4
    assert reason == "the budget of 350 tokens is spent: 400 tokens used"


def test_what_was_paid_is_known_after_a_crash_and_replays_cost_nothing(world: World) -> None:
    model = Model()
    budget = Budget(cost=1.2, prices={"input": 3000, "output": 13000})
    for _ in range(3):
        with world.dying("t", start={}, guards=[budget]) as run:
            for _ in range(2):
                run.model(model)
    assert model.calls == 2
    assert halted(world, model, budget) == "the budget for cost, 1.2, is spent: the calls cost 1.2"
    assert model.calls == 3


def test_with_the_same_budget_it_halts_again_at_once_and_with_more_it_goes_on(world: World) -> None:
    model = Model(tokens=100)
    first = halted(world, model, Budget(tokens=200, steps=9))
    assert halted(world, model, Budget(tokens=200, steps=9)) == first
    assert model.calls == 2
    assert halted(world, model, Budget(tokens=400)) == "the budget of 400 tokens is spent: 400 tokens used"
    assert model.calls == 4
    assert halted(world, model, Budget(steps=5)).startswith("the budget of 5 steps")
    with world.running("t", guards=[Budget(tokens=600)], ends="completed") as run:
        work(run, model, 6)
    assert model.calls == 6


def test_what_an_unguarded_claim_spent_counts_when_a_guard_comes_later(world: World) -> None:
    model = Model(tokens=100)
    with world.dying("t", start={}) as run:
        run.model(model)
        run.save()
        run.model(model)
    assert halted(world, model, Budget(tokens=300)) == "the budget of 300 tokens is spent: 300 tokens used"


def test_what_a_reply_was_said_to_cost_when_it_came_stays_so(world: World) -> None:
    def dear(reply: Any) -> Usage:
        return Usage(total=100)

    def cheap(reply: Any) -> Usage:
        return Usage(total=1)

    model = Model()
    with world.dying("t", start={}, guards=[Budget(tokens=900, usage=dear)]) as run:
        run.model(model)
        run.save()
    assert halted(world, model, Budget(tokens=102, usage=cheap)).endswith("is spent: 102 tokens used")
    assert model.calls == 3


def test_a_retry_is_not_made_either_once_the_budget_is_spent(world: World, seconds: Callable[[float], None]) -> None:
    tries: list[int] = []

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(5, first=0))
    def send() -> None:
        tries.append(1)
        seconds(20)
        raise OSError

    with world.failing("t", Halted, start={}, guards=[Budget(seconds=10)]) as run:
        run.tool(send)
    assert (tries, run.status) == ([1], "halted")


def test_what_a_worker_paid_that_had_lost_the_run_counts_too(world: World) -> None:
    model = Model(tokens=100)
    stale = world.open().run("t", start={}, guards=[Budget(tokens=900)]).__enter__()

    def slow() -> Reply:
        stop_renewing(stale)
        world.pass_time(LEASE + 1)
        with world.dying("t"):
            pass
        return model()

    stale.model(slow)
    with pytest.raises(LeaseLost):
        stale.model(model)  # the reply is written before the next call
    assert [effect.status for effect in world.open().effects("t")] == ["late"]
    assert halted(world, model, Budget(tokens=200)).endswith("is spent: 200 tokens used")
    assert model.calls == 2


def test_each_turn_has_its_own_budget(world: World) -> None:
    model = Model(tokens=100)
    hf = world.open()
    for turn in ("r1", "r2"):
        with hf.run("t", start={}, turn=turn, guards=[Budget(tokens=200, steps=2)]) as run:
            for _ in run.steps():
                run.model(model)
                if run.step % 2 == 0:
                    run.finish()
        assert run.status == "completed"
    assert model.calls == 4


def test_a_rewind_gives_no_money_back(world: World) -> None:
    model = Model(tokens=100)
    halted(world, model, Budget(tokens=300), policy=holdfast.EveryN(1))
    world.open().thread("t").rewind("@1")
    assert halted(world, model, Budget(tokens=400)) == "the budget of 400 tokens is spent: 400 tokens used"


def test_seconds_are_those_in_which_the_run_was_held(world: World, seconds: Callable[[float], None]) -> None:
    model = Model()
    guards = [Budget(seconds=10)]
    with world.running("t", start={}, guards=guards, ends="waiting") as run:
        seconds(4)
        run.model(model)
        run.wait("go on")
    seconds(1000)  # nobody holds it
    world.open().answer("t", "go on", value=True)
    with world.dying("t", guards=guards) as run:
        run.model(model)
        run.wait("go on")
        seconds(5)
        run.model(model)
    seconds(1000)
    with world.failing("t", Halted, guards=guards) as run:
        for _ in range(2):
            run.model(model)
        seconds(2)
        run.model(model)
    assert reason_of(world) == "the budget of 10 seconds is spent: the run was held for 11.0 seconds"
    assert model.calls == 2


def test_a_call_settled_long_after_does_not_count_the_time_between(
    world: World, seconds: Callable[[float], None]
) -> None:
    def act() -> None:
        seconds(3)
        raise OSError

    guards = [Budget(seconds=10)]
    with world.running("t", start={}, guards=guards, ends="waiting") as run:
        run.tool(act)
    seconds(1000)
    hf = world.open()
    hf.settle("t", hf.effects("t")[0], holdfast.Happened(1))
    with world.running("t", guards=guards) as run:
        run.tool(act)
        run.model(Model())


@pytest.mark.usefixtures("seconds")  # none pass but those of the store's clock
def test_the_seconds_of_a_process_that_died_inside_a_call_count_as_far_as_its_lease_was_renewed(world: World) -> None:
    guards = [Budget(seconds=60)]
    for _ in range(3):
        with world.dying("t", start={}, guards=guards) as run:
            hold(world, run, 8)
            hold(world, run, 12)
            world.kill(run)  # inside its first call, each time
    model = Model()
    with world.failing("t", Halted, guards=guards) as run:
        run.model(model)
    spent = "the budget of 60 seconds is spent: the run was held for 60.0"
    assert (model.calls, str(reason_of(world))[: len(spent)]) == (0, spent)
    with world.running("t", guards=[Budget(seconds=90)], ends="completed") as run:
        work(run, model, 1)


def test_seconds_that_are_known_from_the_journal_and_from_the_lease_count_once(
    world: World, seconds: Callable[[float], None]
) -> None:
    model = Model()
    guards = [Budget(seconds=50)]
    with world.dying("t", start={}, guards=guards) as run:
        seconds(20)
        hold(world, run, 20)
        run.model(model)
        seconds(5)
        hold(world, run, 5)
        world.kill(run)
    with world.dying("t", guards=guards) as run:
        seconds(20)
        run.model(model)  # a replay
        run.model(model)

    def slow() -> Reply:
        seconds(6)
        return model()

    reason = halted(world, slow, *guards)
    assert reason == "the budget of 50 seconds is spent: the run was held for 51.0 seconds"


@pytest.mark.parametrize("is_guarded", [True, False])
def test_the_seconds_of_a_claim_that_recorded_nothing_count(
    world: World, seconds: Callable[[float], None], is_guarded: bool
) -> None:
    guards = [Budget(seconds=20)]

    def fails() -> Reply:
        seconds(7)
        raise OSError

    for _ in range(3):
        with world.failing("t", OSError, start={}, guards=guards if is_guarded else ()) as run:
            run.model(fails)
        seconds(1000)  # nobody holds it
    with world.failing("t", Halted, guards=guards) as run:
        run.model(fails)
    assert reason_of(world) == "the budget of 20 seconds is spent: the run was held for 21.0 seconds"


def test_each_turn_has_its_own_seconds(world: World, seconds: Callable[[float], None]) -> None:
    hf = world.open()
    for turn in ("r1", "r2"):
        with suppress(OSError), hf.run("t", start={}, turn=turn, guards=[Budget(seconds=10)]) as run:
            seconds(7)
            run.model(Model())
            raise OSError
        with hf.run("t", turn=turn, guards=[Budget(seconds=10)]) as run:
            run.model(Model())
            seconds(7)
            run.finish()
        assert run.status == "completed"


# -- loops ----------------------------------------------------------------------------------------------------------


PAGE_ONE = {"name": "read", "arguments": '{"page": 1}'}


def said(*texts: Any) -> Callable[[], Any]:
    replies = iter(texts)
    return lambda: next(replies)


@covers("ares/LoopDetector.repeat_threshold", "ares/LoopAction.HaltAgent", "ares/LoopDetector.normalised")
def test_the_same_answer_again_and_again_is_a_loop(world: World) -> None:
    model = said("I am looking.", "  i am\nLOOKING. ", "else", "I am looking.", "never asked for")
    reason = halted(world, model, LoopGuard(window=10, repeats=3))
    assert reason == "a loop: the model gave the same reply 3 times within the last 10 calls"
    assert len(world.open().effects("t")) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("See call_aB3dE6gH9jK2", "See call_Zz9Yy8Xx7Ww6"),
        ({"id": "a", "content": "x", "created": 1}, {"id": "b", "content": "X", "created": 2}),
        (
            {"choices": [{"message": {"content": None, "tool_calls": [{"id": "call_a", "function": PAGE_ONE}]}}]},
            {"choices": [{"message": {"content": None, "tool_calls": [{"id": "call_b", "function": PAGE_ONE}]}}]},
        ),
        ([{"delta": "Hel"}, {"delta": "lo"}], [{"delta": "H"}, {"delta": "ello"}]),
    ],
)
def test_what_differs_each_time_makes_no_other_answer(world: World, one: Any, other: Any) -> None:
    assert "the same reply 3 times" in halted(world, said(one, other, one, "too many"), LoopGuard())


@covers("ares/LoopDetector.no_loop")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I am looking.", "I am reading."),
        ("12", "77"),
        (
            {"content": "Next page.", "calls": [{"id": "1", "name": "read", "args": {"page": 1}}]},
            {"content": "Next page.", "calls": [{"id": "1", "name": "read", "args": {"page": 2}}]},
        ),
        (
            {"content": [{"type": "tool_use", "id": "t", "name": "f1", "input": {}}]},
            {"content": [{"type": "tool_use", "id": "t", "name": "f2", "input": {}}]},
        ),
    ],
)
def test_another_answer_is_none(world: World, one: Any, other: Any) -> None:
    with world.running("t", start={}, guards=[LoopGuard(window=4, repeats=3)], ends="completed") as run:
        work(run, said(one, other, one, other), 4)


def test_saying_nothing_is_no_answer(world: World) -> None:
    nothing = {"role": "assistant", "content": "", "usage": {"input_tokens": 1, "output_tokens": 0}}
    with world.running("t", start={}, guards=[LoopGuard()], ends="completed") as run:
        work(run, said(*[nothing] * 9), 9)


@pytest.mark.parametrize("effect", ["read", "idempotent", "irreversible"])
def test_the_same_call_again_and_again_is_a_loop(world: World, effect: Any) -> None:
    looked: list[str] = []

    @holdfast.tool(effect=effect)
    def look(at: str) -> str:
        looked.append(at)
        return at

    with world.failing("t", Halted, start={}, guards=[LoopGuard(window=6, repeats=3)]) as run:
        for n, at in enumerate("abcacaX"):
            run.tool(look, {"at": at}, key=str(n))
    assert "".join(looked) == "abcaca"
    assert reason_of(world) == "a loop: look was called with the same arguments 3 times within the last 6 calls"


@covers("ares/LoopDetector.window")
def test_only_the_last_calls_count(world: World) -> None:
    @holdfast.tool(effect="read")
    def look(at: str) -> str:
        return at

    with world.running("t", start={}, guards=[LoopGuard(window=4, repeats=2)]) as run:
        for n, at in enumerate("abcdabcdabcd"):
            run.tool(look, {"at": at}, key=str(n))


def test_a_call_that_is_retried_is_one_call(world: World) -> None:
    tries: list[int] = []

    @holdfast.tool(effect="idempotent", retry=holdfast.Retry(5, first=0))
    def send() -> str:
        tries.append(1)
        if len(tries) < 5:
            raise OSError
        return "sent"

    with world.running("t", start={}, guards=[LoopGuard()]) as run:
        assert run.tool(send) == "sent"
        run.tool(send)


@covers("ares/LoopState")
def test_a_loop_is_seen_across_a_crash_and_stays_one(world: World) -> None:
    guards = [LoopGuard()]

    def talk(run: Run, text: str) -> Any:
        for _ in range(2):
            run.model(said("again"))
            run.save()
        return run.model(said(text))

    with world.dying("t", start={}, guards=guards) as run:
        talk(run, "Again")
    for _ in range(2):
        with world.failing("t", Halted, guards=guards) as run:
            assert talk(run, "not asked") == "Again"
            run.model(said("not asked"))
    with world.running("t", guards=[LoopGuard(repeats=4)]) as run:
        talk(run, "not asked")
        assert run.model(said("new")) == "new"


def test_reads_that_made_a_loop_are_kept(world: World) -> None:
    looked: list[int] = []

    @holdfast.tool(effect="read")
    def look() -> int:
        looked.append(1)
        return 1

    for _ in range(2):
        with world.failing("t", Halted, start={}, guards=[LoopGuard()]) as run:
            for _ in range(4):
                run.tool(look)
    assert len(looked) == 3


def test_what_an_abandoned_branch_did_is_no_loop(world: World) -> None:
    guards = [LoopGuard(repeats=2)]
    for n in range(3):
        with world.running("t", start={}, guards=guards) as run:
            run.model(said("the same"), key=f"{n}")
            run.save()
        world.open().thread("t").rewind("@0")


# -- the end --------------------------------------------------------------------------------------------------------


@covers("cortex/GraphConfig.max_iterations")
def test_all_progress_is_kept(world: World) -> None:
    model = Model()
    with world.failing("t", Halted, start={"done": 0}, guards=[Budget(tokens=200)], policy=AfterModel()) as run:
        for step in run.steps():
            run.model(model)
            run.state["done"] = step
            if step == 2:
                run.model(model)
    with world.running("t") as run:
        assert (run.step, run.resumed, run.state) == (2, True, {"done": 1})
        for _ in run.steps():
            assert run.model(model)["content"] == "thought b"
            break
    assert model.calls == 2


def test_who_catches_it_may_finish_with_what_there_is(world: World) -> None:
    with world.running("t", start={}, guards=[Budget(tokens=100)], ends="completed") as run:
        run.model(Model())
        with pytest.raises(Halted):
            run.model(Model())
        run.finish("half of it")
    assert run.result == "half of it"


def test_who_catches_it_and_goes_on_meets_it_again_and_is_halted(world: World) -> None:
    with world.running("t", start={}, guards=[Budget(tokens=100)], ends="halted") as run:
        run.model(Model())
        for _ in range(3):
            with pytest.raises(Halted):
                run.model(Model())


def test_an_error_of_its_own_after_that_is_a_failure(world: World) -> None:
    with world.failing("t", KeyError, start={}, guards=[Budget(tokens=100)]) as run:
        run.model(Model())
        with suppress(Halted):
            run.model(Model())
        raise KeyError
    assert run.status == "failed"
    with world.failing("t", RuntimeError, guards=[Budget(tokens=100)]) as run:
        run.model(Model())
        try:
            run.model(Model())
        except Halted as error:
            raise RuntimeError("wrapped") from error
    assert run.status == "halted"


def test_a_guard_does_not_lose_a_call_in_doubt(world: World) -> None:
    def act() -> None:
        raise OSError

    with world.running("t", start={}, ends="waiting") as run:
        run.model(Model())
        run.tool(act)
    hf = world.open()
    hf.settle("t", hf.effects("t")[1], NotDone())
    with world.failing("t", Halted, guards=[Budget(tokens=100)]) as run:
        run.model(Model())
        run.tool(act)
    assert [effect.status for effect in hf.effects("t")] == ["done", "not_done"]


def test_a_worker_keeps_its_runs_to_the_guards_and_leaves_those_that_were_halted(world: World) -> None:
    model = Model()
    hf = world.open()
    hf.submit("agent", "t", start={})
    worker = hf.worker({"agent": lambda run: work(run, model, 99)}, guards=[Budget(steps=4)])
    for _ in range(2):
        worker.run(until_idle=True)
    assert model.calls == 4
    assert [thread.status for thread in hf.threads()] == ["halted"]


def test_async_runs_have_guards_too(world: World) -> None:
    model = Model()

    async def ask() -> Reply:
        return model()

    hf = world.open().aio

    async def main() -> None:
        async with hf.run("t", start={}, guards=[Budget(tokens=250)]) as run:
            async for _ in run.steps():
                await run.model(ask)

    async def stream() -> None:
        async with hf.run("t", guards=[Budget(tokens=300)]) as run:
            async for _ in run.steps():
                [_ async for _ in run.stream(ask, key="another")]

    for verb in (main, stream):
        with pytest.raises(Halted):
            asyncio.run(verb())
        assert [thread.status for thread in hf.sync.threads()] == ["halted"]
    assert model.calls == 3


# -- what is refused ------------------------------------------------------------------------------------------------


@for_each(
    "given",
    [
        {},
        {"usage": free},
        {"steps": -1},
        {"steps": True},
        {"steps": 1.5},
        {"tokens": -1},
        {"tokens": "9"},
        {"cost": -0.1, "prices": {"input": 1, "output": 1}},
        {"cost": math.nan, "prices": {"input": 1, "output": 1}},
        {"cost": math.inf, "prices": {"input": 1, "output": 1}},
        {"cost": True, "prices": {"input": 1, "output": 1}},
        {"cost": 1},
        {"seconds": -1},
        {"seconds": math.nan},
        {"seconds": False},
        {"tokens": 1, "usage": 3},
        {"cost": 1, "prices": {}},
        {"cost": 1, "prices": 3},
        {"cost": 1, "prices": {"input": 1}},
        {"cost": 1, "prices": {"input": 1, "output": -1}},
        {"cost": 1, "prices": {"input": 1, "output": math.nan}},
        {"cost": 1, "prices": {"input": 1, "output": True}},
        {"cost": 1, "prices": {"input": 1, "output": 1, "image": 1}},
        {"cost": 1, "prices": {"m": {"input": 1}}},
        {"cost": 1, "prices": {"m": {"input": 1, "output": 1}, "output": 1}},
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Budget(**given)


@pytest.mark.parametrize(
    "given", [{"repeats": 1}, {"repeats": 4, "window": 3}, {"repeats": True}, {"window": 2.5}, {"repeats": -3}]
)
def test_a_loop_guard_that_means_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        LoopGuard(**given)


@pytest.mark.parametrize("guards", [Budget(steps=1), 3, ["x"], [Budget(steps=1), Budget(tokens=1)], [LoopGuard]])
def test_guards_are_one_of_each_kind(world: World, guards: Any) -> None:
    hf = world.open()
    for refused in (
        lambda: hf.run("t", start={}, guards=guards),
        lambda: hf.aio.run("t", start={}, guards=guards),
        lambda: hf.worker({"a": print}, guards=guards),
    ):
        with pytest.raises(InvalidArgument):
            refused()


@covers("ares/LoopDetector.window", "ares/LoopDetector.repeat_threshold")
def test_guards_are_values() -> None:
    assert LoopGuard() == LoopGuard(window=10, repeats=3)
    assert Budget(steps=3) == Budget(steps=3)
    assert hash(Budget(steps=3)) == hash(Budget(steps=3))
    guard: Any = LoopGuard()
    with pytest.raises(AttributeError):
        guard.window = 3
