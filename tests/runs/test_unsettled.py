"""What nobody knows of is not left behind: not by a step, another key, a save from outside, or a cancellation."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast
from holdfast import Conflict, Happened, InvalidArgument, NotDone, Run
from tests.runs.conftest import Crash, World
from tests.waiting import DEADLINE, until


class Bank:
    """Charges, and can be asked about them."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.fault: BaseException | None = None
        self.probes: list[int] = []

    def charge(self, amount: int) -> str:
        if self.fault is not None:
            raise self.fault
        self.charged.append(amount)
        return f"charged {amount}"


@pytest.fixture
def bank() -> Bank:
    return Bank()


# -- steps and keys ---------------------------------------------------------------------------------------------------


def test_a_step_does_not_close_over_a_call_in_doubt(world: World, bank: Bank) -> None:
    """The process died inside a tool; the next one comes another way and never asks for it again."""
    hf = world.open()
    bank.fault = Crash()
    with world.dying("t", hf, start={}) as run:
        run.tool(bank.charge, {"amount": 5}, key="a")
    for close in ("save", "finish", "steps"):
        with world.running("t", hf, ends="waiting", policy=holdfast.EveryN(1)) as run:
            if close == "steps":
                for _ in zip(range(2), run.steps(), strict=False):
                    pass
            else:
                getattr(run, close)()
    [question] = hf.waiting()
    assert question.payload == {"amount": 5}
    hf.settle("t", question.effect, NotDone())
    with world.running("t", hf, ends="completed") as run:
        run.finish()


def test_the_same_call_under_another_key_is_that_call(world: World, bank: Bank) -> None:
    """Models give their calls new ids after a restart."""
    hf = world.open()
    bank.fault = Crash()
    with world.dying("t", hf, start={}) as run:
        run.tool(bank.charge, {"amount": 5}, key="call_1")
    bank.fault = None
    with world.running("t", hf, ends="waiting") as run:
        run.tool(bank.charge, {"amount": 5}, key="call_2")
    assert bank.charged == []
    with world.running("t", hf, ends="waiting") as run:
        assert run.tool(bank.charge, {"amount": 6}, key="call_3") == "charged 6"
        run.save()


def test_a_probe_that_cannot_be_asked_does_not_let_the_call_be_forgotten(world: World, bank: Bank) -> None:
    def probe(amount: int) -> None:
        raise ConnectionError("the bank is closed")

    charge = holdfast.tool(effect="irreversible", probe=probe)(bank.charge)
    bank.fault = TimeoutError()
    with world.running("t", start={}, ends="waiting") as run:
        with pytest.raises(ConnectionError):
            run.tool(charge, {"amount": 5}, key="call_1")
        bank.fault = None
        run.save()
    assert bank.charged == []


def test_a_key_is_one_call_also_after_a_crash(world: World, bank: Bank) -> None:
    def both(run: Run) -> None:
        run.tool(bank.charge, {"amount": 1}, key="k")
        with pytest.raises(InvalidArgument, match="its own key"):
            run.tool(bank.charge, {"amount": 2}, key="k")

    with world.dying("t", start={}) as run:
        both(run)
    with world.running("t") as run:
        both(run)
    assert bank.charged == [1]


def test_not_done_is_not_believed_of_a_call_that_is_still_running(world: World) -> None:
    """It took too long and cannot be stopped: not done yet is no "not done"."""
    go_on, ended, ledger = threading.Event(), threading.Event(), []

    def slow() -> str:
        assert go_on.wait(DEADLINE)
        ledger.append("charged")
        ended.set()
        return "charged"

    charge = holdfast.tool(effect="irreversible", timeout=0.01, retry=holdfast.Retry(3, first=0), probe=NotDone)(slow)
    hf = world.open(charge)
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.tool(charge, {}, key="k")
    with world.running("t", hf, ends="waiting") as run:
        run.tool(charge, {}, key="k")
    with pytest.raises(Conflict, match="still running its function"):
        hf.settle("t", 1, NotDone())
    go_on.set()
    assert ended.wait(DEADLINE)
    until(lambda: hf.effects("t")[0].status == "done")
    with world.running("t", hf) as run:
        assert run.tool(charge, {}, key="k") == "charged"
    assert ledger == ["charged"]


# -- owners that are only presumed dead -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancelled", "buried"])
def test_an_owner_that_may_live_is_not_forgotten_when_its_run_is_ended(world: World, bank: Bank, how: str) -> None:
    def probe(amount: int) -> NotDone:
        bank.probes.append(world.clock().now)
        return NotDone()

    charge = holdfast.tool(effect="irreversible", probe=probe, timeout=100)(bank.charge)
    hf = world.open(charge)
    hf.submit("h", "t", start={})
    bank.fault = Crash()
    with world.dying("t", hf, start={}, is_proven=False) as run:
        run.tool(charge, {"amount": 5}, key="k")
    bank.fault = None
    if how == "cancelled":
        hf.cancel("t", "stop")
    else:
        hf.worker({"h": lambda run: None}, attempts=1).run(until_idle=True)
    for seconds in (0, 60, 3600):
        world.pass_time(seconds)
        with world.running("t", hf, start={}, ends="waiting") as run:
            run.tool(charge, {"amount": 5}, key="k")
    assert bank.charged == []
    assert [question.name for question in hf.waiting()] == ["charge"]


# -- saves from outside -----------------------------------------------------------------------------------------------


def test_after_a_save_from_outside_nothing_is_answered_from_before(world: World) -> None:
    hf = world.open()
    with world.dying("t", hf, start={"about": "cats"}, policy=holdfast.Never()) as run:
        for step in run.steps():
            assert run.model(lambda run=run, step=step: f"reply on {run.state['about']} {step}")
            if step == 3:
                break
    thread = hf.thread("t")
    thread.latest()
    thread.save({"about": "dogs"})
    for _ in range(2):
        with world.dying("t", hf, policy=holdfast.Never()) as run:
            assert (run.state, run.step) == ({"about": "dogs"}, 2)
            assert run.model(lambda: "reply on dogs 2") == "reply on dogs 2"
    assert sum(effect.result == "reply on dogs 2" for effect in hf.effects("t")) == 1


def test_a_save_from_outside_does_not_settle_what_is_in_doubt(world: World, bank: Bank) -> None:
    hf = world.open()
    bank.fault = Crash()
    with world.dying("t", hf, start={}) as run:
        run.tool(bank.charge, {"amount": 5})
    bank.fault = None
    thread = hf.thread("t")
    thread.latest()
    thread.save({"edited": True}, past_effects=True)
    for _ in range(2):  # resumed without an answer, it asks again
        with world.running("t", hf, ends="waiting") as run:
            run.tool(bank.charge, {"amount": 5})
    hf.settle("t", next(iter(hf.waiting())).effect, Happened("charged 5"))
    with world.running("t", hf) as run:
        assert run.state == {"edited": True}
    assert bank.charged == []


def test_a_save_from_outside_hides_no_call_in_doubt(world: World, bank: Bank) -> None:
    hf = world.open(bank.charge)
    bank.fault = Crash()
    with world.dying("t", hf, start={}, turn="1") as run:
        run.tool(bank.charge, {"amount": 5})
    bank.fault = None
    thread = hf.thread("t")
    thread.latest()
    thread.save({"edited": True}, past_effects=True)
    [interrupted] = hf.interrupted()
    assert [call.number for call in interrupted.in_doubt] == [1]
    assert "answer 0 calls" in interrupted.plan
    hf.cancel("t", "enough")
    assert [each.effect for each in hf.waiting()] == [1]
    for amount in (5, 6):
        with world.running("t", hf, turn=f"pay {amount}", ends="waiting") as run:
            run.tool(bank.charge, {"amount": amount})
        hf.cancel("t", "enough")
    assert bank.charged == []


def test_a_save_from_outside_cannot_pass_for_a_checkpoint_of_the_run(world: World, bank: Bank) -> None:
    """A run knows its own checkpoints by their triggers. After any other checkpoint it closes its journal."""
    hf = world.open()
    bank.fault = Crash()
    with world.dying("t", hf, start={}) as run:
        run.tool(bank.charge, {"amount": 5})
    bank.fault = None
    thread = hf.thread("t")
    thread.latest()
    for trigger in ("start", "submit", "step", "save", "finish", "fork"):
        with pytest.raises(InvalidArgument, match="nothing was saved"):
            thread.save({"edited": True}, trigger=trigger)
        with pytest.raises(InvalidArgument, match="nothing was saved"):
            asyncio.run(hf.aio.thread("t").save({"edited": True}, trigger=trigger))
    with world.running("t", hf, ends="waiting") as run:
        run.tool(bank.charge, {"amount": 5})
    assert bank.charged == []
