"""Acts whose call may still act, or whose outcome is known elsewhere: releases, settling, giving up."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import GiveUp, Happened, Holdfast, HoldfastError, NotDone, Run
from holdfast.errors import ActUnderWay, Conflict
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.runs import acts
from holdfast.runs.acts import ClaimedAct, claim_of
from tests.runs.conftest import World
from tests.runs.test_acts import Bank, left_in_doubt, pay, pay_once


def statuses(hf: Holdfast) -> list[tuple[str | None, str]]:
    return [(act.thread, act.status) for act in hf.acts()]


class Slow(Bank):
    """Its first call takes longer than its timeout, until `leave` is set."""

    def __init__(self, **declared: Any) -> None:
        super().__init__(timeout=0.05, **declared)
        self.leave = threading.Event()
        self.before = self._hold

    def _hold(self) -> None:
        self.before = lambda: None
        self.leave.wait(60)

    def end(self, hf: Holdfast) -> None:
        """Let the first call end, and wait until that is recorded."""
        self.leave.set()
        until = time.monotonic() + 60
        while time.monotonic() < until and [status for _, status in statuses(hf)] != ["done"]:
            time.sleep(0.01)


def test_an_act_is_not_released_while_its_function_runs(world: World) -> None:
    bank = Slow()
    hf = world.open(bank.pay)
    with world.running("a", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run)
    [act] = hf.acts()
    world.pass_time(60)
    with pytest.raises(Conflict, match="may still act"):
        hf.release(act, by="anna", reason="impatient")
    with pytest.raises(Conflict, match="may still act"):
        hf.settle("a", 1, GiveUp())
    assert statuses(hf) == [("a", "in_doubt")]
    bank.end(hf)
    assert pay(world, hf, "b") == "receipt 1"
    assert len(bank.paid) == 1


def test_a_release_can_be_forced(world: World) -> None:
    bank = Slow()
    hf = world.open(bank.pay)
    with world.running("a", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run)
    [act] = hf.acts()
    hf.release(act, by="anna", reason="its machine is gone", force=True)
    assert pay(world, hf, "b") == "receipt 1"
    bank.leave.set()


def test_a_call_that_was_given_up_is_under_way_while_its_function_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Slow(in_doubt="give_up")
    hf = world.open(bank.pay)
    assert pay(world, hf, "a")["outcome"] == "unknown"
    world.pass_time(60)
    assert statuses(hf) == [("a", "under_way")]
    with pytest.raises(ActUnderWay), world.running("b", hf, start={"n": 0}) as run:
        pay_once(run)
    bank.end(hf)
    assert statuses(hf) == [("a", "done")], "its function has ended, and its result is known"
    with world.running("b", hf) as run:
        assert pay_once(run) == "receipt 1"
    assert [each.status for each in hf.effects("a")] == ["given_up", "late"]
    assert len(bank.paid) == 1
    assert hf.verify().ok


def test_a_release_does_not_race_with_a_resume(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    [act] = hf.acts()
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        leave.wait(60)

    def resume() -> None:
        with world.running("a", hf) as run:
            pay_once(run, "first")

    first = threading.Thread(target=resume)

    def read_then_resume(*given: Any) -> ClaimedAct | None:
        monkeypatch.setattr(acts, "claim_of", claim_of)
        held = claim_of(*given)
        bank.before = hold
        first.start()
        assert inside.wait(60)
        return held

    monkeypatch.setattr(acts, "claim_of", read_then_resume)
    with pytest.raises(Conflict):
        hf.release(act, by="anna", reason="nothing there")
    assert statuses(hf) == [("a", "under_way")]
    leave.set()
    first.join(60)
    assert statuses(hf) == [("a", "done")]


def test_a_release_of_an_older_call_is_refused(world: World) -> None:
    bank = Bank()
    hf = world.open(bank.pay)
    pay(world, hf, "a")
    [act] = hf.acts()
    hf.release(act, by="anna", reason="it bounced")
    pay(world, hf, "b")
    with pytest.raises(Conflict, match="call 1 of thread 'b'"):
        hf.release(act, by="anna", reason="it bounced")
    assert statuses(hf) == [("b", "done")]


# -- another call has done it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [NotDone(), GiveUp()])
def test_an_act_that_is_done_is_not_settled_as_not_done(world: World, outcome: Any) -> None:
    bank = Bank()
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run)
    hf.settle("a", 1, Happened("the bank says yes"))
    with pytest.raises(Conflict, match="call 1 of thread 'a' has done the same act"):
        hf.settle("b", 1, outcome)
    assert statuses(hf) == [("a", "done")]
    with world.running("b", hf) as run:
        assert pay_once(run) == "the bank says yes"
    assert len(bank.paid) == 1


def test_an_act_that_happened_after_all_is_claimed(world: World) -> None:
    bank = Bank()
    hf = world.open(bank.pay)
    left_in_doubt(world, hf, bank)
    with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run)
    hf.settle("b", 1, NotDone())
    assert statuses(hf) == [("b", "not_done")]
    hf.settle("a", 1, Happened("the bank says yes"))
    assert statuses(hf) == [("a", "done")]
    with world.running("b", hf) as run:
        assert pay_once(run) == "the bank says yes"
    assert hf.verify().ok


def settled_twice(world: World, hf: Holdfast, bank: Bank) -> None:
    """Thread "b" waits for the outcome of the call of thread "a". A person settles both."""
    left_in_doubt(world, hf, bank)
    with world.running("b", hf, start={"n": 0}, ends="waiting") as run:
        pay_once(run)
    hf.settle("b", 1, Happened("receipt 1"))
    hf.settle("a", 1, Happened("receipt 1"))
    assert statuses(hf) == [("b", "done")]


def test_an_act_that_is_undone_where_it_was_done_is_free(world: World) -> None:
    bank = Bank(undo=lambda invoice, note="": "refunded")
    hf = world.open(bank.pay)
    settled_twice(world, hf, bank)
    assert len(hf.undo("a", to="@0")) == 1
    assert statuses(hf) == [("b", "undone")]
    assert pay(world, hf, "c") == "receipt 2"
    assert hf.verify().ok


def test_a_release_counts_for_every_earlier_call_of_the_act(world: World, tmp_path: Path) -> None:
    bank = Bank()
    hf = world.open(bank.pay)
    settled_twice(world, hf, bank)
    [act] = hf.acts()
    hf.release(act, by="anna", reason="it bounced")
    assert hf.verify().ok
    assert export_jsonl(hf, tmp_path / "threads.jsonl").ok
    with holdfast.open("memory:", tools=[bank.pay]) as copy:
        assert import_from(copy, "jsonl", str(tmp_path / "threads.jsonl")).ok
        assert statuses(copy) == [("b", "released")]
        assert copy.verify().ok


def test_an_act_whose_result_was_not_recorded_is_done(world: World) -> None:
    class Strange:
        pass

    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    bank.receipt = Strange()
    for thread in ("a", "b"):
        with world.failing(thread, HoldfastError, hf, start={"n": 0}) as run:
            pay_once(run)
        assert statuses(hf) == [("a", "done")]
    assert len(bank.paid) == 1
    hf.settle("a", 1, Happened("receipt 1"))
    with world.running("b", hf) as run:
        assert pay_once(run) == "receipt 1"


# -- a run that continues after an error ------------------------------------------------------------------------------


def test_an_act_in_doubt_of_the_own_run_follows_the_policy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "WAIT_SECONDS", 0.1)
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    bank.fault = OSError("connection reset")
    with world.running("a", hf, start={"n": 0}) as run:
        failed_then(run, bank, lambda: run.tool("pay", {"invoice": "A-17", "note": "again"}, key="2"))
    assert [note for _, note in bank.paid] == ["", "again"]


def test_an_act_in_doubt_of_a_run_that_continues_is_not_under_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "WAIT_SECONDS", 0.1)
    bank = Bank(in_doubt="rerun")
    hf = world.open(bank.pay)
    bank.fault = OSError("connection reset")
    with world.running("a", hf, start={"n": 0}) as run:
        failed_then(run, bank, lambda: pay(world, hf, "b"))
    assert statuses(hf) == [("b", "done")]


def failed_then(run: Run, bank: Bank, then: Any) -> None:
    for _ in run.steps():
        with pytest.raises(OSError, match="connection reset"):
            run.tool("pay", {"invoice": "A-17"}, key="1")
        bank.fault = None
        assert then() == "receipt 2"
        break
