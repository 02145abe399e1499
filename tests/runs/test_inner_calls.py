"""Calls that the function of a tool makes: a resume that does not call the function again does not ask about them."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import Happened, Holdfast, InvalidArgument, Never, NotDone, Retry, Run, ToolNotDone
from tests.runs.conftest import Crash, World

ENDS = ["done", "not done", "probed", "given up"]


class Office:
    """A clerk, a tool that pays by other tools of the run."""

    def __init__(self, end: str, *, is_async: bool = False) -> None:
        self.paid: list[str] = []
        self._end = end
        self._is_dead = False
        options: dict[str, Any] = {"effect": "irreversible", "name": "clerk"}
        if end == "probed":
            options["probe"] = self._probe
        if end == "given up":
            options["in_doubt"] = "give_up"
        self.clerk = holdfast.tool(**options)(self._work_async if is_async else self._work)
        self.desk = holdfast.tool(effect="idempotent", name="desk")(self._send)
        self.pay = holdfast.tool(effect="irreversible", name="pay")(self._pay)
        self.what = ""
        self.buyer = holdfast.tool(effect="idempotent", name="buyer")(self._buy)

    def _pay(self, what: str) -> None:
        self.paid.append(what)

    def _probe(self) -> Happened:
        return Happened("paid")

    def _send(self, what: str) -> None:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(self.pay, {"what": what})

    def _buy(self) -> None:
        self._send(self.what)
        if self.what == "crash":
            raise Crash

    def _work(self) -> str:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(self.pay, {"what": "paper"})
        run.tool(self.desk, {"what": "ink"})
        return self._ended()

    async def _work_async(self) -> str:
        run = holdfast.current_run()
        assert run is not None
        assert not isinstance(run, Run)
        await run.tool(self.pay, {"what": "paper"})
        await run.tool(self.pay, {"what": "ink"})
        return self._ended()

    def _ended(self) -> str:
        if self._end == "not done":
            raise ToolNotDone("closed")
        if self._end != "done":
            raise Crash
        return "paid"


@pytest.mark.parametrize("end", ENDS)
def test_they_are_repeated_if_their_tool_is(world: World, end: str) -> None:
    office = Office(end)

    def program(run: Run, *, dies: bool) -> None:
        for step in run.steps():
            if step == 2:
                break
            try:
                run.tool(office.clerk, {})
            except ToolNotDone:
                run.tool(office.pay, {"what": "glue"}, key="other")
            if dies:
                raise Crash
        run.finish()

    with world.dying("t", start={}) as run:
        program(run, dies=True)
    with world.running("t", ends="completed") as run:
        program(run, dies=False)
    assert office.paid == ["paper", "ink", *(["glue"] if end == "not done" else [])]


def test_those_of_an_async_tool(world: World) -> None:
    office = Office("done", is_async=True)

    async def program(*, dies: bool) -> str:
        async with world.open().aio.run("t", start={}) as run:
            await run.tool(office.clerk, {})
            if dies:
                raise ConnectionError("lost")
            await run.finish()
        return run.status

    with pytest.raises(ConnectionError):
        asyncio.run(program(dies=True))
    assert asyncio.run(program(dies=False)) == "completed"
    assert office.paid == ["paper", "ink"]


def test_other_calls_of_the_step_still_count(world: World) -> None:
    office = Office("done")
    with world.dying("t", start={}) as run:
        run.tool(office.clerk, {})
        run.tool(office.pay, {"what": "glue"}, key="other")
    with world.running("t", ends="waiting") as run:
        run.tool(office.clerk, {})
        run.finish()
    assert "did not repeat pay (call" in str(world.open().run_info("t"))


def test_those_of_a_tool_whose_probe_finds_later_that_it_was_not_done(world: World) -> None:
    office = Office("done")

    def work() -> None:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(office.desk, {"what": "paper"})
        raise ConnectionError("lost")

    clerk = holdfast.tool(effect="irreversible", name="clerk", probe=NotDone, timeout=60)(work)

    def program(run: Run) -> None:
        for step in run.steps():
            if step == 2:
                break
            with suppress(ConnectionError):
                run.tool(clerk)
        run.finish()

    with world.running("t", ends="waiting", start={}) as run:
        program(run)
    world.pass_time(100)
    with world.running("t", ends="completed") as run:
        program(run)
    assert office.paid == ["paper"]


def test_those_of_a_tool_whose_act_another_run_has_done(world: World) -> None:
    office, ends = Office("done"), [Crash("died"), None]

    def work(invoice: int) -> str:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(office.desk, {"what": f"ink for {run.thread}"})
        if (error := ends.pop(0)) is not None:
            raise error
        return "paid"

    clerk = holdfast.tool(effect="irreversible", name="clerk", identity=("invoice",))(work)
    hf = world.open(clerk)
    with world.dying("t", hf, start={}) as run:
        run.tool(clerk, {"invoice": 1})
    hf.settle("t", 1, NotDone())
    with world.running("other", hf, start={}, ends="completed") as run:
        run.finish(run.tool(clerk, {"invoice": 1}, key="again"))
    with world.running("t", hf, ends="completed") as run:
        run.finish(run.tool(clerk, {"invoice": 1}))
    assert hf.result("t") == "paid"
    assert office.paid == ["ink for t", "ink for other"]


class Agents:
    """An agent that is called as a tool and asks a model. Each end is an error that it raises, or None."""

    def __init__(self, *ends: Exception | None) -> None:
        self._ends = list(ends)
        self.agent = holdfast.tool(effect="idempotent", name="agent")(self._work)

    def ask(self, prompt: str) -> str:
        return f"answer to {prompt}"

    def _work(self) -> str:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        reply: str = run.model(self.ask, "work")
        if (error := self._ends.pop(0)) is not None:
            raise error
        return reply


def test_a_tool_of_an_earlier_step_does_not_count_those_of_a_later_one(world: World) -> None:
    office = Office("done")

    def program(run: Run, what: list[str]) -> None:
        for step in run.steps():
            if step == 3:
                break
            office.what = what[step - 1]
            run.tool(office.buyer)
        run.finish()

    with world.dying("t", start={}, policy=Never()) as run:
        program(run, ["paper", "crash"])
    with world.running("t", ends="waiting", policy=Never()) as run:
        program(run, ["paper", "glue"])
    assert "did not repeat pay (call" in str(world.open().run_info("t"))


@pytest.mark.parametrize("where", ["in a step", "before the steps"])
@pytest.mark.parametrize("ends", [[None], [ToolNotDone("busy"), None]], ids=["done", "failed once"])
def test_their_replies_do_not_answer_calls_of_the_program(
    world: World, where: str, ends: list[Exception | None]
) -> None:
    agents = Agents(*ends)

    def calls(run: Run, *, dies: bool) -> str:
        for end in ends:
            with suppress(ToolNotDone):
                run.tool(agents.agent)
                assert end is None
        if dies:
            raise Crash
        reply: str = run.model(agents.ask, "summarize")
        return reply

    def program(run: Run, *, dies: bool) -> None:
        summary = ""
        if where == "before the steps":
            summary = calls(run, dies=dies)
        for _ in run.steps():
            if where == "in a step":
                summary = calls(run, dies=dies)
            break
        run.finish(summary)

    with world.dying("t", start={}) as run:
        program(run, dies=True)
    with world.running("t", ends="completed") as run:
        program(run, dies=False)
    assert world.open().result("t") == "answer to summarize"


def test_their_replies_do_not_answer_calls_before_the_steps(world: World) -> None:
    agents = Agents(None)

    def program(run: Run, *, time: str, dies: bool) -> None:
        run.tool(agents.agent)
        summary = run.model(agents.ask, f"summarize at {time}")
        for step in run.steps():
            if step == 2:
                break
        if dies:
            raise Crash
        run.finish(summary)

    with world.dying("t", start={}) as run:
        program(run, time="10:00", dies=True)
    with world.running("t", ends="completed") as run:
        program(run, time="10:05", dies=False)
    assert world.open().result("t") == "answer to summarize at 10:00"


def test_calls_of_a_run_in_another_store_are_not_inside_the_tool() -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return prompt

    def program(hf: Holdfast, prompt: str, *, dies: bool) -> None:
        with hf.run("t", start={}) as run:
            run.model(ask, prompt)
            if dies:
                raise ConnectionError("lost")
            run.finish()

    with holdfast.open("memory:") as one, holdfast.open("memory:") as other:
        with suppress(ConnectionError), one.run("t", start={}) as run:
            run.tool(holdfast.tool(effect="idempotent", name="agent")(lambda: program(other, "at 10:00", dies=True)))
        program(other, "at 10:05", dies=False)
    assert asked == ["at 10:00"]


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("is_model", [False, True])
def test_an_equal_call_of_the_program_is_another_call(world: World, is_model: bool, dies: str) -> None:
    made: list[str] = []

    def reply(what: str) -> str:
        made.append(what)
        return f"reply {len(made)}"

    desk = holdfast.tool(effect="idempotent", name="desk")(reply)

    def call() -> Any:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        return run.model(reply, "ink") if is_model else run.tool(desk, {"what": "ink"})

    clerk = holdfast.tool(effect="irreversible", name="clerk")(call)

    def program(run: Run, dies: str) -> None:
        for step in run.steps():
            if step == 2:
                break
            run.tool(clerk)
            if dies == "before":
                raise Crash
            run.state["reply"] = call()
            if dies == "after":
                raise Crash
        run.finish(run.state["reply"])

    with world.dying("t", start={}) as run:
        program(run, dies)
    with world.running("t", ends="completed") as run:
        program(run, "")
    assert world.open().result("t") == "reply 2"
    assert made == ["ink", "ink"]


@pytest.mark.parametrize("outer", ["idempotent", "read"])
@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
def test_they_are_not_made_again_if_the_arguments_of_their_tool_changed(world: World, effect: Any, outer: Any) -> None:
    paid: list[str] = []

    @holdfast.tool(effect=effect)
    def pay(what: str) -> None:
        paid.append(what)

    def work(time: str) -> None:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(pay, {"what": "ink"})
        if time == "10:00":
            raise Crash

    def program(run: Run, time: str) -> None:
        for step in run.steps():
            if step == 2:
                break
            run.tool(holdfast.tool(effect=outer, name="clerk")(work), {"time": time})
        run.finish()

    with world.dying("t", start={}) as run:
        program(run, "10:00")
    with world.running("t", ends="waiting") as run:
        program(run, "10:05")
    assert "pay may be call 1 of an earlier process" in str(world.open().run_info("t"))
    assert paid == ["ink"]


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_second_try_of_their_tool_makes_them_again(world: World, timeout: float | None) -> None:
    """With timeout=, each try runs in a Python thread of its own."""
    paid: list[str] = []

    @holdfast.tool(effect="idempotent", timeout=timeout)
    def pay(what: str) -> None:
        paid.append(what)
        if len(paid) == 1:
            raise Crash

    @holdfast.tool(effect="idempotent", timeout=timeout, retry=Retry(1, first=0.001))
    def clerk() -> None:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(desk, {"what": "paper"})
        if len(paid) < 3:
            raise ConnectionError("lost")

    @holdfast.tool(effect="idempotent", timeout=timeout)
    def desk(what: str) -> None:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(pay, {"what": what})

    with world.dying("t", start={}) as run:
        run.tool(clerk)
    with world.running("t", ends="completed") as run:
        run.tool(clerk)
        run.finish()
    assert paid == ["paper"] * 3


def test_calls_in_several_python_threads_of_a_tool_are_told_apart(world: World) -> None:
    pay = holdfast.tool(effect="idempotent", name="pay")(lambda: None)

    @holdfast.tool(effect="idempotent", timeout=60)
    def clerk() -> None:
        run = holdfast.current_run()
        assert isinstance(run, Run)
        run.tool(pay)
        with pytest.raises(InvalidArgument, match="several Python threads"), ThreadPoolExecutor(1) as pool:
            pool.submit(contextvars.copy_context().run, run.tool, pay).result()

    with world.running("t", start={}, ends="completed") as run:
        run.tool(clerk)
        run.finish()
