"""run.save() makes the state durable; the program resumes where its calls can be told apart: at the last boundary."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

import holdfast
from holdfast import AfterToolCall, EveryN, Holdfast, NotFound, Policy, Retention, Run
from holdfast.aio.run import AsyncRun
from holdfast.errors import Protected
from holdfast.runs.run import RunBase
from holdfast.stores.contract_runs import RunRow
from tests.runs.conftest import Crash, World
from tests.selection import every_store


class Shop:
    """Counts what was really done, and dies at one of the points of a program."""

    def __init__(self, world: World) -> None:
        self.done: Counter[str] = Counter()
        self.asked = 0
        self._world = world
        self._left = -1
        self.pay = holdfast.tool(effect="irreversible", name="pay")(self._pay)
        self.note = holdfast.tool(effect="idempotent", name="note")(self._note)

    def _pay(self, what: str) -> str:
        self.done[what] += 1
        return f"receipt {self.done.total()}"

    def _note(self, what: str, idempotency_key: str) -> str:
        self.done[idempotency_key] = 1
        return f"noted {what}"

    def model(self, messages: list[str]) -> str:
        self.asked += 1
        return f"reply {self.asked} to {len(messages)}"

    def point(self, run: RunBase) -> None:
        """A point at which the process may die."""
        self._left -= 1
        if self._left == -1:
            self._world.kill(run)

    def run(self, program: Callable[[Shop, Run], None], dies_at: int, policy: Policy | None = None) -> bool:
        """Run the program in a new process that dies at a point; whether it did."""
        self._left = dies_at
        hf = self._world.open(self.pay, self.note)
        try:
            with hf.run("t", start={"messages": [], "n": 0}, policy=policy or AfterToolCall()) as run:
                program(self, run)
        except Crash:
            self._world.pass_time(100)
            return True
        assert run.status == "completed"
        return False

    async def run_async(self, program: Callable[[Shop, AsyncRun], Awaitable[None]], dies_at: int) -> bool:
        """As `run`, with an async program."""
        self._left = dies_at
        hf = self._world.open(self.pay, self.note)
        try:
            async with hf.aio.run("t", start={"messages": [], "n": 0}) as run:
                await program(self, run)
        except Crash:
            self._world.pass_time(100)
            return True
        assert run.status == "completed"
        return False


def straight(shop: Shop, run: Run) -> None:
    """Calls one after the other, with saves in between, as in a script."""
    messages = run.state["messages"]
    shop.point(run)
    messages.append(run.model(shop.model, messages=messages))
    shop.point(run)
    messages.append(run.tool("pay", {"what": f"deposit of {len(messages)}"}))
    shop.point(run)
    run.save()
    shop.point(run)
    messages.append(run.tool("pay", {"what": "rest"}, key="rest"))
    shop.point(run)
    run.save()
    shop.point(run)
    messages.append(run.model(shop.model, messages=messages))
    messages.append(run.tool("note", {"what": "paid"}))
    shop.point(run)
    run.save()
    shop.point(run)
    run.finish(messages)


def by_hand(shop: Shop, run: Run) -> None:
    """A loop written by hand: the same calls in each round, with the same keys."""
    while run.state["n"] < 3:
        shop.point(run)
        run.state["messages"].append(run.model(shop.model, messages=run.state["messages"]))
        shop.point(run)
        run.state["messages"].append(run.tool("pay", {"what": "again"}, key="call_0"))
        run.state["messages"].append(run.tool("pay", {"what": "again"}))
        shop.point(run)
        run.state["n"] += 1
        run.save()
        shop.point(run)
    run.finish(run.state["messages"])


def saving_steps(shop: Shop, run: Run) -> None:
    """A loop of steps that saves in the middle and at the end of its body."""
    for _ in run.steps():
        if run.state["n"] == 3:
            run.finish(run.state["messages"])
            break
        shop.point(run)
        run.state["messages"].append(run.model(shop.model, messages=run.state["messages"]))
        run.save()
        shop.point(run)
        run.state["messages"].append(run.tool("pay", {"what": "again"}, key="call_0"))
        shop.point(run)
        run.state["n"] += 1
        run.save()
        shop.point(run)


def flagged(shop: Shop, run: Run) -> None:
    """A program that keeps its place in the state."""
    if "deposit" not in run.state:
        shop.point(run)
        run.state["deposit"] = run.tool("pay", {"what": "deposit"})
        run.save()
        shop.point(run)
    if "rest" not in run.state:
        run.state["rest"] = run.tool("pay", {"what": "rest"})
        shop.point(run)
        run.save()
    shop.point(run)
    run.finish([run.state["deposit"], run.state["rest"]])


PROGRAMS = [straight, by_hand, saving_steps, flagged]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_wherever_the_process_dies_each_call_is_made_once(world: World, program: Callable[[Shop, Run], None]) -> None:
    calm = Shop(world)
    assert not calm.run(program, -1)
    expected = world.open().run_info("t")
    assert expected is not None
    with world.open().run("t") as run:
        result = run.result
    world.open().thread("t").drop()
    died = True
    for first in range(30):
        for second in (0, 1, 3):
            shop = Shop(world)
            died = shop.run(program, first)
            if died and shop.run(program, second):
                assert not shop.run(program, -1)
            assert (shop.done.total(), shop.asked) == (calm.done.total(), calm.asked), (first, second)
            with world.open().run("t") as run:
                assert run.result == result, (first, second)
            world.open().thread("t").drop()
        if not died:
            return
    pytest.fail("the program has more points than were tried")


def test_a_run_that_waits_after_a_save_is_resumed_with_its_calls_answered(world: World) -> None:
    shop = Shop(world)

    def program(hf: Holdfast, ends: str) -> None:
        with world.running("t", hf, start={}, ends=ends) as run:
            run.state["receipt"] = run.tool("pay", {"what": "deposit"})
            run.save()
            if run.wait("approve"):
                run.tool("pay", {"what": "rest"})
            run.finish(run.state["receipt"])

    hf = world.open(shop.pay)
    program(hf, "waiting")
    hf.answer("t", "approve", True)
    program(hf, "completed")
    assert shop.done == {"deposit": 1, "rest": 1}


def test_a_save_before_any_call_is_a_boundary(world: World) -> None:
    with world.dying("t", start={}) as run:
        run.state["request"] = 7
        run.save()
    with world.running("t") as run:
        assert run.state == {"request": 7}
        assert not run.fresh


def test_a_block_that_is_left_after_a_save_is_a_boundary(world: World) -> None:
    shop = Shop(world)
    for n in (1, 2):
        with world.running("t", world.open(shop.pay), start={}) as run:
            assert len(run.state) == n - 1
            run.state[str(n)] = run.tool("pay", {"what": "a"})
            run.save()
    assert shop.done == {"a": 2}


def test_a_block_that_is_left_with_an_open_call_is_not(world: World) -> None:
    shop = Shop(world)
    for _ in range(2):
        with world.running("t", world.open(shop.pay), start={}) as run:
            run.tool("pay", {"what": "a"})
            run.save()
            run.tool("pay", {"what": "b"})
    assert shop.done == {"a": 1, "b": 1}


def test_a_replayed_save_writes_nothing_and_returns_its_checkpoint(world: World) -> None:
    shop = Shop(world)
    saved: list[str] = []
    for _ in range(2):
        with world.dying("t", world.open(shop.pay), start={}) as run:
            run.tool("pay", {"what": "a"})
            saved.append(run.save().id)
            run.tool("pay", {"what": "b"})
            saved.append(run.save().id)
    assert saved[:2] == saved[2:]
    assert world.open().thread("t").count() == 3


def test_the_last_checkpoint_is_the_head_of_the_thread_all_the_same(world: World) -> None:
    shop = Shop(world)
    hf = world.open(shop.pay)
    with world.dying("t", hf, start={}) as run:
        run.state["receipt"] = run.tool("pay", {"what": "a"})
        run.save()
    latest = hf.thread("t").latest()
    assert latest is not None
    assert latest.state == {"receipt": "receipt 1"}
    [found] = hf.interrupted()
    assert found.plan == "resume after step 0; answer 1 call from the journal"


def test_the_checkpoint_to_resume_from_is_kept(world: World) -> None:
    shop = Shop(world)
    hf = world.open(shop.pay)
    with world.dying("t", hf, start={}) as run:
        for what in "abc":
            run.tool("pay", {"what": what})
            run.save()
    thread = hf.thread("t")
    with pytest.raises(Protected, match="resume"):
        thread.delete("@0")
    assert [each.step for each in thread.prune(Retention(keep_last=1)).removed] == [2, 1]
    with world.running("t", hf, ends="completed") as run:
        for what in "abc":
            run.tool("pay", {"what": what})
            run.save()
        run.finish()
    assert shop.done == {"a": 1, "b": 1, "c": 1}
    assert thread.prune(Retention(keep_last=1)).kept == 1


def test_a_prune_keeps_the_checkpoint_to_resume_from_that_the_run_makes_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(world)
    hf = world.open(shop.pay)
    read, thread = hf.context.store.run, hf.thread("t")

    def reading(number: int) -> RunRow | None:
        monkeypatch.undo()
        found = read(number)
        for step in run.steps():
            run.tool("pay", {"what": str(step)})
            if step == 2:
                run.save()
                break
        return found

    with world.dying("t", hf, start={}, policy=EveryN(1)) as run:
        monkeypatch.setattr(hf.context.store, "run", reading)
        assert not thread.prune(Retention(keep_last=1)).removed
    with world.running("t", hf, ends="completed", policy=EveryN(1)) as run:
        for step in run.steps():
            run.tool("pay", {"what": str(step)})
            break
        run.finish()
    assert shop.done == {"1": 1, "2": 1}


def test_a_program_that_finishes_before_its_saves_are_replayed_is_completed(world: World) -> None:
    shop = Shop(world)
    hf = world.open(shop.pay)
    with world.dying("t", hf, start={}) as run:
        run.model(lambda: "reply")
        run.save()
        run.save()
    with world.running("t", hf, ends="completed") as run:
        run.finish("changed my mind")
    head = hf.thread("t").head()
    assert head is not None
    assert (head.step, head.trigger) == (3, "finish")


def test_a_new_turn_starts_from_what_was_saved(world: World) -> None:
    hf = world.open()
    with world.dying("t", hf, start={}, turn="1") as run:
        run.state["reply"] = run.model(lambda: "reply")
        run.save()
    hf.cancel("t", "enough")
    with world.running("t", hf, turn="2") as run:
        assert run.state == {"reply": "reply"}
        assert run.fresh


def test_a_rewound_run_starts_from_the_checkpoint_it_was_rewound_to(world: World) -> None:
    hf = world.open()
    with world.dying("t", hf, start={}) as run:
        for n in (1, 2, 3):
            run.state[f"reply {n}"] = run.model(lambda n=n: n)
            run.save()
    hf.thread("t").rewind("@2")
    with world.running("t", hf) as run:
        assert run.state == {"reply 1": 1, "reply 2": 2}


def test_children_resume_at_their_own_boundary(world: World) -> None:
    shop = Shop(world)

    def program(hf: Holdfast, dies: bool) -> None:
        with hf.run("t", start={}) as run:
            with run.child("c", start={}) as child:
                child.state["receipt"] = child.tool("pay", {"what": "a"})
                child.save()
                if dies:
                    child.core._calls = None
                    world.kill(run)
                child.finish(child.state["receipt"])
            run.finish(child.result)

    hf = world.open(shop.pay)
    with pytest.raises(Crash):
        program(hf, dies=True)
    world.pass_time(100)
    program(hf, dies=False)
    assert shop.done == {"a": 1}


def test_a_lost_boundary_is_reported(world: World) -> None:
    hf = world.open()
    with world.dying("t", hf, start={}) as run:
        run.model(lambda: "reply")
        run.save()
    row = hf.context.store.head("t")
    assert row is not None
    hf.context.store.delete(row.thread.position.thread, (1,))
    with pytest.raises(NotFound, match="checkpoint to resume from"):
        hf.run("t").__enter__()
    hf.thread("t").rewind("@-1", past_effects=True)
    with world.running("t", hf):
        pass


@every_store("the state of the last save is found by the record of the run")
@pytest.mark.parametrize("has_steps", [False, True])
def test_a_loop_that_saves_its_own_progress_resumes_after_its_last_save(world: World, has_steps: bool) -> None:
    """A program without a recorded call: what a save acknowledged is not done again."""
    done: list[int] = []

    def work(run: Run, dies_at: int) -> None:
        for _ in run.steps() if has_steps else itertools.count():
            if len(run.state["done"]) == 6:
                return
            number = len(run.state["done"])
            if number == dies_at:
                raise Crash
            done.append(number)
            run.state["done"].append(number)
            run.save()

    for dies_at in (2, 2, 5):
        with world.dying("t", start={"done": []}) as run:
            work(run, dies_at)
    with world.running("t") as run:
        work(run, dies_at=7)
    assert done == [0, 1, 2, 3, 4, 5]


def test_a_repeated_save_leaves_a_later_call_in_doubt_to_its_probe(world: World) -> None:
    def program(buy: Callable[..., object]) -> str:
        with world.open(buy).run("t", start={}) as run:
            run.model(len, [])
            run.save()
            runs.append(run)
            assert run.tool(buy) == "bought"
            run.finish()
        return runs[-1].status

    runs: list[Run] = []

    @holdfast.tool(in_doubt="probe", probe=lambda: holdfast.Happened("bought"))
    def buy() -> None:
        assert len(runs) == 1, "it was called again"
        world.kill(runs[0])

    with pytest.raises(Crash):
        program(buy)
    world.pass_time(100)
    assert program(buy) == "completed"
