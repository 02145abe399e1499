"""Waiting: questions and answers, sleep, cancellation. No process is kept for any of them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import Cancelled, Conflict, Holdfast, InvalidArgument, NotDone, NotFound, Retry, Run
from holdfast.errors import EffectMismatch, WaitTimedOut
from holdfast.threads.scan import thread_named
from tests.covers import covers
from tests.runs.conftest import World
from tests.selection import every_store
from tests.waiting import DEADLINE


def status_of(hf: Holdfast, thread: str = "t") -> str:
    [info] = [info for info in hf.threads() if info.name == thread]
    return info.status


# -- questions and answers ------------------------------------------------------------------------------------------


@covers("continuum/AgentState.waiting_tool")
def test_a_question_parks_the_run_and_its_answer_lets_it_go_on(world: World) -> None:
    asked: list[int] = []

    def model() -> str:
        asked.append(1)
        return "pay 10?"

    def step(run: Run) -> Any:
        reply = run.model(model)
        return run.wait("approve", {"what": reply})

    hf = world.open()
    with world.running("t", hf, start={"n": 0}, ends="waiting") as run:
        step(run)
        pytest.fail("it went on without an answer")
    [question] = hf.waiting()
    assert (question.thread, question.name, question.about) == ("t", "approve", "wait")
    assert question.payload == {"what": "pay 10?"}
    assert (question.until, question.step) == (None, 1)
    assert list(hf.waiting("other")) == []
    assert list(hf.waiting("approve")) == [question]
    hf.answer("t", "approve", {"ok": True}, by="boss")
    assert (status_of(hf), list(hf.waiting())) == ("queued", [])
    with world.running("t") as run:
        assert step(run) == {"ok": True}
        assert step_is_open(run)
    assert len(asked) == 1
    [_, answered] = hf.effects("t")
    assert (answered.status, answered.result, answered.by) == ("done", {"ok": True}, "boss")


def step_is_open(run: Run) -> bool:
    return run.step == 1


def test_a_run_that_is_taken_up_without_an_answer_waits_again(world: World) -> None:
    hf = world.open()
    for _ in range(3):
        with world.running("t", hf, start={}, ends="waiting") as run:
            run.wait("approve", 1)
    assert len(list(hf.waiting())) == len(hf.effects("t")) == 1
    hf.answer("t", "approve", True)
    with world.running("t") as run:
        assert run.wait("approve", 1) is True
        assert run.attempt == 1, "who waits does not fail"


def test_an_answer_may_come_before_its_question(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}) as run:
        hf.answer("t", "approve", "early", early=True)
        assert run.wait("approve") == "early"
    with world.running("t", hf) as run:
        assert run.wait("approve") == "early"
        run.save()
    with world.running("u", hf, start={}):
        pass
    hf.answer("u", "approve", "earlier still", early=True)
    with world.running("u", hf) as run:
        assert run.wait("approve") == "earlier still"


def test_the_first_answer_holds(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve")
    hf.answer("t", "approve", True)
    hf.answer("t", "approve", True)
    with pytest.raises(Conflict, match="already has another answer"):
        hf.answer("t", "approve", False)
    with pytest.raises(Conflict, match="already has another answer"):
        hf.answer("t", "approve", 1)
    with world.running("t", hf) as run:
        assert run.wait("approve") is True
        hf.answer("t", "approve", True)
        with pytest.raises(Conflict, match="already has another answer"):
            hf.answer("t", "approve", False)
        run.save()
    with pytest.raises(Conflict, match="already has another answer"):
        hf.answer("t", "approve", False)


def test_an_early_answer_holds_too(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}):
        pass
    hf.answer("t", "approve", True, early=True)
    hf.answer("t", "approve", True, early=True)
    with pytest.raises(Conflict, match="already has another answer"):
        hf.answer("t", "approve", False, early=True)


def test_a_name_can_be_asked_again_in_another_step_and_needs_another_answer(world: World) -> None:
    """An answer that is sent twice must not answer two questions."""
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve", 1)
    hf.answer("t", "approve", True)
    with world.running("t", hf, ends="waiting") as run:
        assert run.wait("approve", 1) is True
        hf.answer("t", "approve", True)  # sent twice
        run.save()
        run.wait("approve", 2)
    [question] = hf.waiting()
    assert question.payload == 2
    hf.answer("t", "approve", False)
    with world.running("t", hf) as run:
        assert run.wait("approve", 1) is True
        run.save()
        assert run.wait("approve", 2) is False


def test_a_rewound_thread_asks_again(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.save()
        run.wait("approve", 1)
    hf.answer("t", "approve", True)
    with world.running("t", hf) as run:
        assert run.wait("approve", 1) is True
        run.save()
    hf.thread("t").rewind("@1")
    with world.running("t", hf, ends="waiting") as run:
        run.wait("approve", 1)
    hf.answer("t", "approve", False)
    with world.running("t", hf) as run:
        assert run.wait("approve", 1) is False


def test_a_worker_goes_on_with_what_was_answered(world: World) -> None:
    hf = world.open()
    seen: list[Any] = []

    def handler(run: Run) -> str:
        seen.append(run.wait("approve"))
        return "done"

    hf.submit("h", "t", start={})
    hf.worker({"h": handler}).run(until_idle=True)
    assert (status_of(hf), seen) == ("waiting", [])
    hf.worker({"h": handler}).run(until_idle=True)
    hf.answer("t", "approve", "yes")
    hf.worker({"h": handler}).run(until_idle=True)
    assert (status_of(hf), seen) == ("completed", ["yes"])


@every_store("two writers meet in the store")
def test_an_answer_that_races_with_the_parking_is_not_lost(world: World) -> None:
    """Between the run's look for an answer and its going to wait, one is given."""
    hf = world.open()
    hf.submit("h", "t", start={})
    seen: list[Any] = []
    store: Any = hf.context.store
    journal = store.journal

    def answered_first(*args: Any, **options: Any) -> Any:
        if not seen and options["run"].status == "waiting":
            seen.append("parking")
            hf.answer("t", "approve", "just now", early=True)
        return journal(*args, **options)

    def handler(run: Run) -> None:
        seen.append(run.wait("approve"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "journal", answered_first)
        hf.worker({"h": handler}).run(until_idle=True)
    assert (seen, status_of(hf)) == (["parking", "just now"], "completed")


@every_store("two writers meet in the store")
def test_answers_from_many_at_once_are_one(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve")
    outcomes: list[str] = []

    def answer(n: int) -> None:
        try:
            world.open().answer("t", "approve", n)
            outcomes.append(f"{n}")
        except Conflict:
            outcomes.append("conflict")

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [won] = [outcome for outcome in outcomes if outcome != "conflict"]
    with world.running("t", hf) as run:
        assert run.wait("approve") == int(won)


def test_a_wait_beside_calls_that_are_under_way_is_refused(world: World) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert go_on.wait(DEADLINE)

    with world.running("t", start={}) as run:
        thread = threading.Thread(target=lambda: run.tool(slow, {}, key="k"))
        thread.start()
        assert inside.wait(DEADLINE)
        for wait in (lambda: run.wait("approve"), lambda: run.sleep(1)):
            with pytest.raises(InvalidArgument, match="under way"):
                wait()
        go_on.set()
        thread.join()


def test_what_cannot_be_asked_or_answered(world: World) -> None:
    hf = world.open()
    with pytest.raises(NotFound):
        hf.answer("nobody", "approve", True)
    hf.thread("plain").save({})
    with pytest.raises(NotFound, match="no run"):
        hf.answer("plain", "approve", True)
    with pytest.raises(NotFound, match="no run"):
        hf.cancel("plain", "why not")
    wrong: Any
    with world.running("t", hf, start={}, ends="completed") as run:
        for wrong in ("", None, 5):
            with pytest.raises(InvalidArgument):
                run.wait(wrong)
            with pytest.raises(InvalidArgument):
                hf.answer("t", wrong, True)
            with pytest.raises(InvalidArgument):
                hf.cancel("t", wrong)
        for wrong in ("", 5):
            with pytest.raises(InvalidArgument):
                hf.waiting(wrong)  # at once, before a question is read
        for wrong in (-1, float("nan"), float("inf"), "1", True):
            with pytest.raises(InvalidArgument):
                run.wait("approve", timeout=wrong)
            with pytest.raises(InvalidArgument):
                run.sleep(wrong)
        with pytest.raises(holdfast.Unsupported):
            run.wait("approve", object())
        with pytest.raises(holdfast.Unsupported):
            hf.answer("t", "approve", object())
        with pytest.raises(InvalidArgument):
            hf.answer("t", "approve", True, by="")
        run.finish()
    with pytest.raises(Conflict, match="completed"):
        hf.answer("t", "approve", True)


# -- time -----------------------------------------------------------------------------------------------------------


def test_a_question_that_nobody_answers_in_time_fails(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    ended: list[str] = []

    def handler(run: Run) -> None:
        try:
            run.wait("approve", timeout=60)
        except TimeoutError:
            ended.append("nobody")
        run.save()

    hf.worker({"h": handler}).run(until_idle=True)
    [question] = hf.waiting()
    assert question.until is not None
    world.pass_time(59)
    hf.worker({"h": handler}).run(until_idle=True)
    assert (ended, status_of(hf)) == ([], "waiting")
    world.pass_time(2)
    hf.worker({"h": handler}).run(until_idle=True)
    assert (ended, status_of(hf)) == (["nobody"], "completed")


def test_an_answer_after_the_time_comes_too_late(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve", timeout=60)
    world.pass_time(61)
    with world.running("t", hf) as run, pytest.raises(WaitTimedOut):
        run.wait("approve", timeout=60)
    with pytest.raises(Conflict, match="in time"):
        hf.answer("t", "approve", True)
    with world.running("t", hf) as run, pytest.raises(WaitTimedOut):
        run.wait("approve", timeout=60)


def test_an_answer_in_time_counts_although_the_run_looks_late(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve", timeout=60)
    hf.answer("t", "approve", True)
    world.pass_time(3600)
    with world.running("t", hf) as run:
        assert run.wait("approve", timeout=60) is True


@covers("cortex/DurableConfig.retry_delay")
@every_store("each store keeps leases and their clock")
def test_sleep_takes_no_process_and_ends_in_time(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    steps: list[str] = []

    def handler(run: Run) -> None:
        steps.append("before")
        run.sleep(3600)
        run.sleep(0)
        steps.append("after")

    hf.worker({"h": handler}).run(until_idle=True)
    assert (steps, status_of(hf), list(hf.waiting())) == (["before"], "waiting", [])
    world.pass_time(3599)
    hf.worker({"h": handler}).run(until_idle=True)
    assert steps == ["before"]
    world.pass_time(2)
    hf.worker({"h": handler}).run(until_idle=True)
    assert (steps[-1], status_of(hf)) == ("after", "completed")


@every_store("each store keeps leases and their clock")
def test_a_sleep_survives_a_reboot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of leases begins anew with the machine; a sleep of three days does not."""
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.sleep(3600)
    world.boot = "boot-2"
    with world.running("t", hf, ends="waiting") as run:
        run.sleep(3600)
    later = time.time_ns() // 1000 + 3601 * 1_000_000
    monkeypatch.setattr("holdfast.runs.lease.now", lambda: later)
    with world.running("t", hf) as run:
        run.sleep(3600)


@pytest.mark.parametrize("way", ["sleep", "wait", "retry", "probe"])
def test_a_run_that_waits_again_after_a_reboot_wakes_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The time was counted by the clock before the reboot. The run is woken by the clock after it."""
    calls: list[str] = []

    @holdfast.tool(effect="idempotent", name="retried", retry=Retry(1, first=3600, limit=3600, on=ConnectionError))
    def retried() -> None:
        calls.append("retried")
        if len(calls) == 1:
            raise ConnectionError

    @holdfast.tool(name="probed", probe=NotDone, probe_after=3600)
    def probed() -> None:
        calls.append("probed")
        raise ConnectionError

    def agent(run: Run) -> None:
        if way == "sleep":
            run.sleep(3600)
        elif way == "wait":
            with suppress(WaitTimedOut):
                run.wait("approval", timeout=3600)
        elif way == "retry":
            run.tool(retried, {})
        else:
            with suppress(ConnectionError):
                run.tool(probed, {})
        run.finish("awake")

    world.pass_time(1_000_000)
    hf = world.open(retried, probed)
    hf.submit("h", "t", start={})
    worker = hf.worker({"h": agent})
    worker.run(until_idle=True)
    assert status_of(hf) == "waiting"
    world.boot = "boot-2"
    world.pass_time(-1_000_000)  # the new clock counts from the start of the machine
    with world.running("t", hf, ends="waiting") as run:
        agent(run)
    world.pass_time(3601)
    later = time.time_ns() // 1000 + 3601 * 1_000_000
    monkeypatch.setattr("holdfast.runs.lease.now", lambda: later)
    worker.run(until_idle=True)
    assert status_of(hf) == "completed"


# -- cancelling -----------------------------------------------------------------------------------------------------


@covers("ares/EmergencyStop", "cortex/DurableExecution.pause", "cortex/ExecutionStatus.Paused")
@pytest.mark.parametrize("call", ["model", "tool", "wait", "save", "finish", "halt", "steps", "stream", "sleep"])
def test_a_run_that_is_cancelled_hears_of_it_at_its_next_call(world: World, call: str) -> None:
    acted: list[str] = []

    def act() -> str:
        acted.append("acted")
        return "done"

    def make(run: Run) -> None:
        calls: dict[str, Any] = {
            "model": lambda: run.model(act),
            "tool": lambda: run.tool(act, {}),
            "wait": lambda: run.wait("approve"),
            "save": run.save,
            "finish": run.finish,
            "halt": lambda: run.halt("why"),
            "steps": lambda: list(zip(range(2), run.steps(), strict=False)),
            "stream": lambda: list(run.stream(lambda: iter([act()]))),
            "sleep": lambda: run.sleep(1),
        }
        calls[call]()

    hf = world.open()
    with world.failing("t", Cancelled, hf, start={"n": 0}) as run:
        hf.cancel("t", "no money left")
        hf.cancel("t", "said twice")
        assert status_of(hf) != "halted"
        make(run)
    assert (run.status, status_of(hf), acted) == ("halted", "halted", [])
    with world.running("t", hf, ends="completed") as run:
        assert run.state == {"n": 0}
        run.model(act)
        run.finish()


def test_what_was_under_way_when_it_was_cancelled_is_recorded(world: World) -> None:
    hf = world.open()

    def act() -> str:
        hf.cancel("t", "stop")
        return "done"

    with world.failing("t", Cancelled, hf, start={}) as run:
        assert run.tool(act, {}) == "done"
        run.save()
    assert [(effect.name, effect.status) for effect in hf.effects("t")] == [("act", "done"), ("cancel", "done")]


def test_a_run_that_swallows_it_is_halted_all_the_same(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="halted") as run:
        hf.cancel("t", "stop")
        for _ in range(3):
            with pytest.raises(Cancelled):
                run.save()


@covers("E7", "ares/EmergencyStop", "continuum/RecoveryAction.abort", "continuum/CrashRecovery.mark_session_terminated")
def test_a_run_that_nobody_holds_is_halted_at_once(world: World) -> None:
    hf = world.open()
    hf.submit("h", "queued", start={})
    with world.running("waiting", hf, start={}, ends="waiting") as run:
        run.wait("approve")
    with world.running("idle", hf, start={}):
        pass
    with world.dying("interrupted", hf, start={}):
        pass
    for name in ("queued", "waiting", "idle", "interrupted"):
        hf.cancel(name, "stop")
        hf.cancel(name, "stop")
        assert status_of(hf, name) == "halted"
    assert list(hf.waiting()) == []
    with pytest.raises(Conflict, match="halted"):
        hf.answer("waiting", "approve", True)


def test_a_cancellation_outlives_the_process_it_was_meant_for(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})
    with world.dying("t", hf, start={}) as run:
        hf.cancel("t", "stop")
        assert run.status == "running"
    hf.worker({"h": lambda run: run.save()}).run(until_idle=True)
    assert status_of(hf) == "halted"


@covers("E7")
def test_a_completed_run_cannot_be_cancelled(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="completed") as run:
        run.finish()
    with pytest.raises(Conflict, match="completed"):
        hf.cancel("t", "too late")


def test_a_cancellation_is_for_what_was_being_done(world: World) -> None:
    """It came between the last look of a turn and its end: the next turn is another one."""
    hf = world.open()
    store: Any = hf.context.store
    commit = store.commit

    def cancelled_first(given: Any) -> Any:
        if given.summary.status == "completed":
            hf.cancel("t", "too slow")
        return commit(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "commit", cancelled_first)
        with world.running("t", hf, start={}, turn="one", ends="completed") as run:
            run.finish("done")
    with world.running("t", hf, turn="two", ends="completed") as run:
        run.finish("done too")


def test_a_cancellation_that_was_heeded_by_the_record_is_done_with(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="idle"):
        hf.cancel("t", "stop")
    hf.cancel("t", "stop")
    assert status_of(hf) == "halted"
    with world.running("t", hf) as run:
        run.save()


def test_an_answer_is_for_the_question_that_is_asked_now(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting", turn="one") as run:
        run.wait("approve", 1)
    hf.cancel("t", "never mind")
    with pytest.raises(Conflict, match="halted"):
        hf.answer("t", "approve", "too late")
    with world.running("t", hf, ends="waiting", turn="two") as run:
        with pytest.raises(Conflict, match="no longer asked"):
            hf.answer("t", "approve", "too late")
        run.wait("approve", 2)
    hf.answer("t", "approve", "yes")
    assert status_of(hf) == "queued"
    with world.running("t", hf, turn="two") as run:
        assert run.wait("approve", 2) == "yes"


def test_an_early_answer_is_for_its_own_turn(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, turn="one"):
        hf.answer("t", "approve", "yes", early=True)
    hf.cancel("t", "never mind")
    with world.running("t", hf, turn="two", ends="waiting") as run:
        run.wait("approve", "something else")


def test_one_answer_does_not_answer_two_questions_of_a_step(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve", {"amount": 5})
    hf.answer("t", "approve", True)
    for _ in range(2):
        with world.running("t", hf) as run:
            assert run.wait("approve", {"amount": 5}) is True
            with pytest.raises(EffectMismatch, match="another name"):
                run.wait("approve", {"amount": 5000})


@every_store("two writers meet in the store")
def test_an_answer_that_races_with_the_end_of_the_time_is_taken_or_refused(world: World) -> None:
    hf = world.open()
    with world.running("t", hf, start={}, ends="waiting") as run:
        run.wait("approve", timeout=60)
    world.pass_time(61)
    store: Any = hf.context.store
    journal = store.journal
    answered: list[str] = []

    def answered_first(*args: Any, **options: Any) -> Any:
        if not answered:
            answered.append("just in time")
            hf.answer("t", "approve", "just in time")
        return journal(*args, **options)

    with pytest.MonkeyPatch.context() as patch, world.running("t", hf) as run:
        patch.setattr(store, "journal", answered_first)
        assert run.wait("approve", timeout=60) == "just in time"
    assert answered


def test_a_time_beyond_all_calendars_is_refused(world: World) -> None:
    with world.running("t", start={}) as run:
        for wait in (lambda: run.sleep(1e16), lambda: run.wait("x", timeout=1e12)):
            with pytest.raises(InvalidArgument, match="100 years"):
                wait()


def test_a_run_that_sleeps_on_its_last_attempt_is_not_buried(world: World) -> None:
    hf = world.open()
    hf.submit("h", "t", start={})

    def handler(run: Run) -> None:
        run.sleep(60)

    for _ in range(2):
        hf.worker({"h": handler}, attempts=1).run(until_idle=True)
        world.pass_time(61)
    assert status_of(hf) == "completed"


def test_runs_that_wake_again_and_again_do_not_keep_others_out(world: World) -> None:
    hf = world.open()
    polls: list[int] = []

    def poller(run: Run) -> None:
        while True:
            polls.append(1)
            if len(polls) > 50:
                return
            run.sleep(0.5)
            run.save()

    hf.submit("poll", "poller", start={})
    hf.submit("job", "job", start={})
    done: list[int] = []
    store: Any = hf.context.store
    woken = store.due

    def later(**given: Any) -> Any:
        world.pass_time(1)
        return woken(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "due", later)
        hf.worker({"poll": poller, "job": lambda run: done.append(len(polls))}).run(until_idle=True)
    assert (len(polls) > 50, done[0] < 10) == (True, True)


@every_store("each store finds what is due")
def test_a_clock_that_is_behind_does_not_claim_a_sleeping_run_again_and_again(world: World) -> None:
    world.skew = 3.0
    hf = world.open()

    def handler(run: Run) -> str:
        run.sleep(1)
        return "done"

    hf.submit("h", "t", start={})
    worker = hf.worker({"h": handler})
    worker.run(until_idle=True)
    world.pass_time(2)  # on the clock of the store; the other has not reached it
    worker.run(until_idle=True)
    row = hf.context.store.run(thread_number(hf, "t"))
    assert row is not None
    assert (row.status, row.resumed) == ("waiting", 0)
    world.pass_time(3)
    worker.run(until_idle=True)
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "completed"


def thread_number(hf: Holdfast, name: str) -> int:
    found = thread_named(hf.context.store, name)
    assert found is not None
    return found.position.thread


@every_store("the place to resume from is in the record of the run")
def test_a_sleep_after_a_step_without_a_checkpoint_is_found_in_its_step(world: World) -> None:
    """A save in the step before was its checkpoint, and the end of that step wrote none."""
    woken: list[int] = []

    def handler(run: Run) -> None:
        for _ in run.steps():
            run.sleep(60)
            woken.append(run.state["n"])
            run.state["n"] += 1
            run.save()

    hf = world.open()
    hf.submit("h", "t", start={"n": 0})
    worker = hf.worker({"h": handler})
    for expected in range(5):
        worker.run(until_idle=True)
        assert woken == list(range(expected))
        world.pass_time(61)
