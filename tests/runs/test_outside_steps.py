"""Calls outside of run.steps(): they are answered for the whole turn, whichever steps were closed since."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

import holdfast
from holdfast import AfterToolCall, Holdfast, Never, Policy, Run
from holdfast.aio.run import AsyncRun
from holdfast.errors import EffectMismatch, InvalidArgument
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from tests.runs.conftest import Crash, World
from tests.runs.test_saves import Shop
from tests.selection import tries

MESSAGES = "messages"


def rounds(shop: Shop, run: Run, until: int) -> Iterator[None]:
    """Steps with a model call and a payment each. The keys are the same in each step."""
    for _ in run.steps():
        if run.state["n"] >= until:
            break
        shop.point(run)
        run.state[MESSAGES].append(run.model(shop.model, messages=run.state[MESSAGES]))
        run.state[MESSAGES].append(run.tool("pay", {"what": "again"}, key="call_0"))
        shop.point(run)
        run.state["n"] += 1
        yield


def before(shop: Shop, run: Run) -> None:
    """A ticket and a plan before the loop."""
    shop.point(run)
    ticket = run.tool("pay", {"what": "ticket"})
    shop.point(run)
    plan = run.model(shop.model, messages=["plan"])
    note = run.tool("note", {"what": "opened"}, key="call_0")
    for _ in rounds(shop, run, 3):
        shop.point(run)
    run.finish([ticket, plan, note, *run.state[MESSAGES]])


def changing(shop: Shop, run: Run) -> None:
    """A plan before the loop, whose arguments change with every step."""
    plan = run.model(shop.model, messages=run.state[MESSAGES])
    shop.point(run)
    for _ in rounds(shop, run, 2):
        shop.point(run)
    run.finish([plan, *run.state[MESSAGES]])


def between(shop: Shop, run: Run) -> None:
    """Calls before, between and after two loops."""
    first = run.tool("pay", {"what": "first"})
    for _ in rounds(shop, run, 2):
        shop.point(run)
    second = run.tool("pay", {"what": "second"})
    shop.point(run)
    for _ in rounds(shop, run, 4):
        shop.point(run)
    third = run.tool("pay", {"what": "third"})
    shop.point(run)
    run.finish([first, second, third, *run.state[MESSAGES]])


def saved(shop: Shop, run: Run) -> None:
    """Calls with the same keys and saves between them, before the loop."""
    receipts = []
    for _ in range(3):
        receipts.append(run.tool("pay", {"what": "part"}, key="call_0"))
        shop.point(run)
        run.save()
    for _ in rounds(shop, run, 2):
        shop.point(run)
    run.finish([*receipts, *run.state[MESSAGES]])


def guarded(shop: Shop, run: Run) -> None:
    """A call before the loop whose result is kept in the state."""
    if "ticket" not in run.state:
        run.state["ticket"] = run.tool("pay", {"what": "ticket"})
    shop.point(run)
    for _ in rounds(shop, run, 2):
        shop.point(run)
    summary = run.model(shop.model, messages=["summary"])
    shop.point(run)
    run.finish([run.state["ticket"], summary])


def nested(shop: Shop, run: Run) -> None:
    """Loops in a loop written by hand, which keeps its place in the state."""
    while (day := run.state["n"] // 2) < 3:
        run.state[f"day {day}"] = run.tool("pay", {"what": f"day {day}"})
        shop.point(run)
        for _ in rounds(shop, run, 2 * day + 2):
            shop.point(run)
        run.save()
        shop.point(run)
    run.finish(run.state)


PROGRAMS = [before, changing, between, saved, guarded, nested]


def check_every_death(world: World, run: Callable[[Shop, int], bool], policy: str) -> None:
    """Let the program die at each point, once and twice: each call is made once, and the result is the same."""
    calm = Shop(world)
    assert not run(calm, -1)
    result = result_of(world)
    for first in range(60):
        died = False
        for second in (0, 1, 4)[: tries(3, 2)]:
            shop = Shop(world)
            died = run(shop, first)
            if died and run(shop, second):
                assert not run(shop, -1)
            assert (made(shop), shop.asked) == (made(calm), calm.asked), (policy, first, second)
            assert result_of(world) == result, (policy, first, second)
        if not died:
            return
    pytest.fail("the program has more points than were tried")


def made(shop: Shop) -> dict[str, int]:
    """How often each thing was done. Notes are counted by their idempotency keys, which differ between threads."""
    return {what if len(what) < 32 else "note": count for what, count in shop.done.items()}


def result_of(world: World) -> Any:
    hf = world.open()
    with hf.run("t") as run:
        result = run.result
    hf.thread("t").drop()
    return result


@pytest.mark.parametrize("policy", [AfterToolCall(), Never()][: tries(2, 1)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_call_is_made_once(world: World, program: Callable[[Shop, Run], None], policy: Policy) -> None:
    check_every_death(world, lambda shop, at: shop.run(program, at, policy), str(policy))


# -- async ----------------------------------------------------------------------------------------------------------


async def around(shop: Shop, run: AsyncRun) -> None:
    """Calls before, between and after two loops."""
    plan = await run.model(shop.model, messages=run.state[MESSAGES])
    receipts = [await run.tool("pay", {"what": "first"})]
    for until in (2, 4):
        shop.point(run)
        async for _ in run.steps():
            if run.state["n"] >= until:
                break
            shop.point(run)
            run.state[MESSAGES].append(await run.model(shop.model, messages=run.state[MESSAGES]))
            run.state[MESSAGES].append(await run.tool("pay", {"what": "again"}, key="call_0"))
            run.state["n"] += 1
            shop.point(run)
        receipts.append(await run.tool("pay", {"what": f"after {until}"}))
    shop.point(run)
    await run.finish([plan, *receipts, *run.state[MESSAGES]])


async def at_once(shop: Shop, run: AsyncRun) -> None:
    """Calls at the same time before a loop."""
    receipts = await asyncio.gather(*(run.tool("pay", {"what": what}) for what in "abc"))
    shop.point(run)
    async for _ in run.steps():
        if run.state["n"] == 2:
            await run.finish(sorted(receipts))
            break
        await run.tool("pay", {"what": "again"}, key="call_0")
        shop.point(run)
        run.state["n"] += 1


@pytest.mark.parametrize("program", [around, at_once], ids=lambda program: program.__name__)
def test_each_async_call_is_made_once(world: World, program: Callable[[Shop, AsyncRun], Awaitable[None]]) -> None:
    def run(shop: Shop, dies_at: int) -> bool:
        return asyncio.run(shop.run_async(program, dies_at))

    check_every_death(world, run, "AfterToolCall")


# -- all kinds of calls ---------------------------------------------------------------------------------------------


def test_reads_streams_children_and_questions_are_answered_too(world: World) -> None:
    shop, calls = Shop(world), list[str]()

    @holdfast.tool(effect="read")
    def price() -> int:
        calls.append("price")
        return len(calls)

    def words() -> Iterator[str]:
        calls.append("words")
        yield "a"

    def program(hf: Holdfast, ends: str, dies: bool) -> list[Any]:
        with world.running("t", hf, start={"n": 0}, ends=ends) as run:
            found: list[Any] = [run.tool(price), list(run.stream(words))]
            with run.child("c", start={}) as child:
                for _ in child.steps():
                    child.finish(child.tool("pay", {"what": "of the child"}))
            found += [child.result, run.wait("approve", {"price": found[0]})]
            run.tool("pay", {"what": f"for {found[0]}"})
            for _ in run.steps():
                if run.state["n"] == 2 and dies:
                    world.kill(run)
                if run.state["n"] == 3:
                    run.finish(found)
                    break
                run.state["n"] += 1
                run.tool("pay", {"what": "step"})
        return found

    hf = world.open(shop.pay, price)
    program(hf, "waiting", False)
    hf.answer("t", "approve", "yes")
    with pytest.raises(Crash):
        program(hf, "", True)
    world.pass_time(100)
    assert program(hf, "completed", False)[3] == "yes"
    assert calls == ["price", "words"]
    assert shop.done == {"of the child": 1, "for 1": 1, "step": 3}


def test_a_failure_before_the_loop_is_raised_again(world: World) -> None:
    tries: list[int] = []

    @holdfast.tool(effect="idempotent")
    def book(idempotency_key: str) -> str:
        tries.append(1)
        raise ConnectionError("down")

    def program(hf: Holdfast, dies: bool) -> str:
        with hf.run("t", start={"n": 0}) as run:
            try:
                way = run.tool(book)
            except ConnectionError:
                way = "walk"
            for _ in run.steps():
                if run.state["n"] == 2:
                    if dies:
                        world.kill(run)
                    run.finish(way)
                    break
                run.state["n"] += 1
                run.tool(shop.pay, {"what": "step"})
        return str(run.result)

    shop = Shop(world)
    hf = world.open(book, shop.pay)
    with pytest.raises(Crash):
        program(hf, True)
    world.pass_time(100)
    assert program(hf, False) == "walk"
    assert len(tries) == 1


def steps(run: Run, count: int) -> None:
    """Close so many steps."""
    for _ in run.steps():
        if not count:
            break
        count -= 1
        run.model(lambda: "reply")


def test_other_arguments_under_a_recorded_key_are_refused(world: World) -> None:
    shop = Shop(world)
    with world.dying("t", world.open(shop.pay), start={}, policy=holdfast.EveryN(1)) as run:
        run.tool("pay", {"what": "a"}, key="first")
        steps(run, 2)
    with world.running("t", world.open(shop.pay)) as run, pytest.raises(EffectMismatch):
        run.tool("pay", {"what": "b"}, key="first")
    assert shop.done == {"a": 1}


@pytest.mark.parametrize("key", [None, "call_0"])
def test_calls_that_a_resume_could_not_tell_apart_are_refused(world: World, key: str | None) -> None:
    shop = Shop(world)
    with world.running("t", world.open(shop.pay), start={}) as run:
        run.tool("pay", {"what": "a"}, key)
        steps(run, 1)
        with pytest.raises(InvalidArgument, match="key="):
            run.tool("pay", {"what": "a"}, key)
        run.tool("pay", {"what": "a"}, "another")
    assert shop.done == {"a": 2}


def test_a_model_call_in_each_round_needs_keys(world: World) -> None:
    with world.running("t", start={}) as run:
        run.model(len, "a")
        steps(run, 1)
        run.model(len, "ab")  # the last one is not answered for another
        with pytest.raises(InvalidArgument, match="key="):
            steps(run, 1)


def test_a_new_turn_makes_its_calls(world: World) -> None:
    shop = Shop(world)
    for turn in "12":
        with world.running("t", world.open(shop.pay), start={}, turn=turn, ends="completed") as run:
            run.tool("pay", {"what": "a"})
            steps(run, 2)
            run.finish()
    assert shop.done == {"a": 2}


def test_a_block_that_was_left_after_a_save_is_over(world: World) -> None:
    shop = Shop(world)
    for n in (1, 2):
        with world.running("t", world.open(shop.pay), start={}, policy=holdfast.EveryN(1)) as run:
            run.tool("pay", {"what": "a"})
            steps(run, 2)
            run.save()
        assert shop.done == {"a": n}


def test_a_save_from_outside_keeps_them(world: World) -> None:
    shop = Shop(world)
    hf = world.open(shop.pay)
    with world.dying("t", hf, start={}, policy=holdfast.EveryN(1)) as run:
        run.tool("pay", {"what": "a"})
        steps(run, 2)
    hf.thread("t").save({"edited": True})
    with world.running("t", hf) as run:
        assert run.state == {"edited": True}
        assert run.tool("pay", {"what": "a"}) == "receipt 1"
    assert shop.done == {"a": 1}


def test_a_rewind_to_after_them_keeps_them(world: World) -> None:
    shop = Shop(world)
    hf = world.open(shop.pay)
    with world.dying("t", hf, start={}, policy=holdfast.EveryN(1)) as run:
        run.tool("pay", {"what": "a"})
        steps(run, 2)
        run.tool("pay", {"what": "b"})
        steps(run, 2)
    hf.thread("t").rewind("@2", past_effects=True)
    for _ in range(2):
        with world.dying("t", hf, policy=holdfast.EveryN(1)) as run:
            assert run.tool("pay", {"what": "a"}) == "receipt 1"
            steps(run, 2)
            assert run.tool("pay", {"what": "b"}) == "receipt 2"  # as every call of an abandoned branch
            steps(run, 1)
    assert shop.done == {"a": 1, "b": 1}


def test_an_undone_call_is_made_again(world: World) -> None:
    made, undone = list[str](), list[str]()

    def give_up(x: str) -> None:
        undone.append(x)

    @holdfast.tool(undo=give_up)
    def rent(x: str) -> str:
        made.append(x)
        return "rented"

    hf = world.open(rent)
    with world.dying("t", hf, start={}, policy=holdfast.EveryN(1)) as run:
        for x in "ab":
            run.tool(rent, {"x": x})
        steps(run, 2)
    hf.undo("t", to="@0")
    with world.running("t", hf) as run:
        run.tool(rent, {"x": "a"})
    assert (made, undone) == (["a", "b", "a"], ["b", "a"])


def test_a_hook_calls_again_at_every_resume(world: World) -> None:
    shop = Shop(world)

    def greet(run: Run) -> None:
        run.tool("pay", {"what": "greeting"}, key="greet")

    for _ in range(3):
        with world.dying("t", world.open(shop.pay), start={}, on_resume=greet, policy=holdfast.EveryN(1)) as run:
            steps(run, 2)
    assert shop.done == {"greeting": 2}


def test_a_long_history_is_not_read(world: World) -> None:
    hf = world.open()
    with world.dying("t", hf, start={}, policy=holdfast.EveryN(1)) as run:
        run.model(len, "plan")
        steps(run, 700)
    read: list[int] = []

    class Counting:
        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def entries(self, *args: Any, **options: Any) -> list[Entry]:
            rows = self._store.entries(*args, **options)
            read.append(len(rows))
            return rows

    with world.running("t", world.open(store=lambda store: cast(Store, Counting(store)))) as run:
        assert run.model(len, "plan") == 4
    assert sum(read) <= 502  # a page from the end, and the call before the loop
