"""How a run begins, ends and goes on: claims, attempts, questions from outside, keys of calls made at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast import AfterModel, Conflict, Holdfast, HoldfastError, InvalidArgument, LeaseHeld, Never, NotFound, Run
from holdfast.runs import lease
from tests.cases import for_each
from tests.covers import covers
from tests.runs.conftest import World
from tests.selection import every_store
from tests.waiting import DEADLINE, until

# -- beginning and ending ---------------------------------------------------------------------------------------------


@covers("smooth/Agent.resume_or_new", "cortex/SessionManager.get_or_create_session")
def test_a_run_starts_once_and_resumes_after(world: World) -> None:
    with world.running("t", start={"n": 0}, agent="a", version="2") as run:
        assert (run.state, run.resumed, run.attempt, run.status, run.result) == ({"n": 0}, False, 1, "running", None)
        assert 0 <= run.age < 60
        run.state["n"] = 1
        run.save()
        run.state["n"] = 99  # of no checkpoint
    with world.running("t", start={"n": 0}) as run:
        assert (run.state, run.resumed, run.attempt, run.status) == ({"n": 1}, True, 1, "running")


@covers("cortex/DurableError.ExecutionNotFound")
def test_without_start_there_must_be_something_to_resume(hf: Holdfast) -> None:
    with pytest.raises(NotFound, match="start="), hf.run("t"):
        pytest.fail("there was nothing to run")
    assert list(hf.threads()) == []


@covers("E2")
def test_a_thread_that_was_saved_by_hand_can_be_run(hf: Holdfast) -> None:
    hf.thread("t").save({"n": 5}, step=7)
    with hf.run("t") as run:
        assert (run.state, run.resumed, run.step) == ({"n": 5}, False, 8)


def test_typed_states_come_back_in_their_type(hf: Holdfast) -> None:
    from tests.runs.test_recording import Mood, Reply

    with hf.run("t", start=Reply("a", Mood.CALM), type=Reply) as run:
        run.state.text = "b"
        run.save()
    with hf.run("t", type=Reply) as run:
        assert run.state == Reply("b", Mood.CALM)


@covers("E8", "E11", "continuum/AgentState.completed", "cortex/DurableExecution.run of a completed one")
@covers("cortex/DurableError.AlreadyCompleted", "cortex/ExecutionStatus.Completed", "cortex/ExecutionState.is_complete")
@covers("cortex/ExecutionResult.state", "cortex/ExecutionResult.success", "cortex/ExecutionResult.outputs")
@covers("cortex/test_execution_state")
def test_a_completed_run_gives_its_result_and_no_steps(world: World) -> None:
    with world.running("t", ends="completed", start={"n": 0}) as run:
        for _ in run.steps():
            run.state["n"] = 1
            run.finish({"answer": (1, 2)})
        assert run.result == {"answer": (1, 2)}
    with world.running("t", ends="completed", start={"n": 0}) as run:
        assert run.state == {"n": 1}
        assert run.result == {"answer": (1, 2)}
        assert list(run.steps()) == []
        for act in (run.save, run.finish, lambda: run.halt("x"), lambda: run.model(dict), lambda: run.tool(dict)):
            with pytest.raises(HoldfastError, match="completed"):
                act()
    assert [info.status for info in world.open().threads()] == ["completed"]


def test_a_result_that_cannot_be_recorded_does_not_complete_the_run(world: World) -> None:
    with world.running("t", start={}) as run:
        with pytest.raises(holdfast.Unsupported):
            run.finish({"a": object()})
        assert run.status == "running"


def test_a_halted_run_keeps_its_last_checkpoint_and_can_be_run_again(world: World) -> None:
    with world.running("t", ends="halted", start={"n": 0}) as run:
        run.model(lambda: "paid for")
        run.state["n"] = 1
        run.halt("over budget")
        assert list(run.steps()) == []
    with world.running("t") as run:
        assert run.state == {"n": 0}
        assert run.model(lambda: pytest.fail("paid for twice")) == "paid for"


def test_a_block_that_ends_without_an_end_leaves_the_run_idle(world: World) -> None:
    with world.running("t", ends="idle", start={}):
        pass
    assert list(world.open().interrupted()) == []
    worker = world.open().worker({"h": lambda run: pytest.fail("an idle run was claimed")})
    worker.run(until_idle=True)


@covers("E12", "cortex/test_execution_resume", "cortex/ExecutionState.is_failed", "cortex/ExecutionState.is_complete")
@covers("cortex/ExecutionStatus.Failed")
def test_an_exception_keeps_all_progress(world: World) -> None:
    with world.failing("t", ZeroDivisionError, start={"n": 0}) as run:
        for step in run.steps():
            run.state["n"] = step
            run.model(lambda: "reply")
            run.tool(dict, {})
            if step == 2:
                raise ZeroDivisionError
    assert run.status == "failed"
    with world.running("t") as run:
        assert (run.state, run.step, run.attempt) == ({"n": 1}, 2, 2)
        for _ in run.steps():
            assert run.model(lambda: pytest.fail("paid for twice")) == "reply"
            break


@covers("continuum/ErrorCategory.UserInterrupt", "continuum/AgentState.idle")
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_gives_the_run_back(world: World, stop: type[BaseException]) -> None:
    with world.failing("t", stop, start={}) as run:
        run.model(lambda: "reply")
        raise stop
    assert run.status == "released"
    with world.running("t") as run:  # at once
        assert run.model(lambda: pytest.fail("paid for twice")) == "reply"


def test_a_block_is_entered_once(hf: Holdfast) -> None:
    block = hf.run("t", start={})
    with block, pytest.raises(InvalidArgument), block:
        pytest.fail("entered twice")


def test_a_run_that_cannot_be_read_is_given_back(world: World) -> None:
    from tests.runs.test_recording import Reply

    with world.running("t", start={"n": 0}):
        pass
    with pytest.raises(InvalidArgument), world.open().run("t", type=Reply):
        pytest.fail("the state is no Reply")
    with world.running("t"):  # at once, not when a lease ends
        pass


def test_the_handle_may_be_closed_in_a_run(world: World) -> None:
    hf = world.open()
    with world.failing("t", holdfast.LeaseLost, hf, start={}, lease=0.1) as run:
        hf.close()
        held = run.core._lease
        assert held is not None
        until(lambda: not held._thread.is_alive(), "renewing has ended, and quietly")
        run.model(dict)


# -- attempts ---------------------------------------------------------------------------------------------------------


@covers("ares/LoopConfig.halt_on_consecutive_failures")
def test_attempts_count_at_the_claim_and_begin_anew_at_a_checkpoint(world: World) -> None:
    for attempt in (1, 2, 3):
        with world.dying("t", start={"n": 0}) as run:
            assert run.attempt == attempt
    with world.dying("t") as run:
        assert run.attempt == 4
        run.save()
    with world.dying("t") as run:
        assert run.attempt == 2
    for _ in range(3):
        with world.running("t") as run:  # a clean end is no progress, and no failure either
            assert run.attempt == 3


# -- leases -----------------------------------------------------------------------------------------------------------


@covers("D3", "continuum/CrashRecovery.mark_session_active")
@every_store("each store keeps leases and their clock")
def test_a_second_claimer_hears_that_the_run_is_held(world: World) -> None:
    with world.running("t", start={}), pytest.raises(LeaseHeld, match="another process"), world.open().run("t"):
        pytest.fail("two workers hold one run")
    with world.running("t"):
        pass


@every_store("each store keeps leases and their clock")
def test_a_second_claimer_may_wait(world: World) -> None:
    holding, free = threading.Event(), threading.Event()

    def hold() -> None:
        with world.open().run("t", start={}):
            holding.set()
            free.wait(DEADLINE)

    with ThreadPoolExecutor() as pool:
        held = pool.submit(hold)
        assert holding.wait(DEADLINE)
        with pytest.raises(LeaseHeld), world.open().run("t", wait=0.1):
            pytest.fail("two workers hold one run")
        threading.Timer(0.1, free.set).start()
        with world.running("t", wait=DEADLINE) as run:
            assert run.attempt == 1
        held.result()


@every_store("each store keeps leases and their clock")
def test_a_thread_cannot_be_moved_under_a_lease(world: World) -> None:
    hf = world.open()
    hf.thread("t").save({"n": 0})
    with world.running("t", hf) as run:
        run.save()
        for handle in (hf, world.open()):
            thread = handle.thread("t")
            with pytest.raises(LeaseHeld):
                thread.save({"n": 9}, expect=holdfast.ANY)
            with pytest.raises(LeaseHeld):
                thread.rewind("@1")
            with pytest.raises(LeaseHeld):
                thread.drop()
        run.state["n"] = 1
        run.save()
    thread = world.open().thread("t")
    thread.latest()
    thread.save({"n": 2})
    thread.rewind("@1")


def test_steps_of_a_thread_with_a_run_only_grow(world: World) -> None:
    """In a step that came again, calls would be answered with what they gave before."""
    hf = world.open()
    asked: list[int] = []

    def model() -> int:
        asked.append(1)
        return len(asked)

    with world.running("t", hf, start={}) as run:
        run.model(model)
        run.save()
    thread = hf.thread("t")
    thread.latest()
    for step in (0, 1):
        with pytest.raises(InvalidArgument, match="only grow"):
            thread.save({}, step=step)
    thread.save({}, step=7)
    with world.running("t", hf) as run:
        assert (run.step, run.model(model)) == (8, 2)
    plain = hf.thread("plain")
    plain.save({}, step=5)
    plain.save({}, step=1)


def test_a_resume_reads_only_the_end_of_a_long_journal(world: World) -> None:
    hf = world.open()
    with world.dying("t", hf, start={}, policy=AfterModel()) as run:
        for step in run.steps():
            if step > 700:
                break
            run.model(lambda: "reply")
        assert run.model(lambda: "open") == "open"
    store: Any = hf.context.store
    read: list[int] = []
    effects = store.entries

    def counted(thread: int, *, after: int, limit: int, topic: str | None = None) -> Any:
        page = effects(thread, after=after, limit=limit, topic=topic)
        read.append(len(page))
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "entries", counted)
        with world.running("t", hf) as run:
            assert run.model(lambda: "again") == "open"
    assert len(hf.effects("t")) == 701
    assert sum(read) <= 500 + 10


@every_store("each store keeps leases and their clock")
def test_a_lease_on_another_boot_has_ended(world: World) -> None:
    run = world.open().run("t", start={}).__enter__()
    assert run.core._lease is not None
    run.core._lease.stop()
    world.boot = "boot-2"
    with world.running("t") as run:
        assert run.attempt == 2


@covers("B3")
@every_store("each store keeps leases and their clock")
def test_setting_the_wall_clock_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, real_ns = time.time, time.time_ns
    with world.running("t", start={"n": 0}) as run:
        for hours in (-1, 1):
            monkeypatch.setattr(time, "time", lambda hours=hours: real() + hours * 3600)
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: real_ns() + hours * 3600 * 10**9)
            assert list(world.open().interrupted()) == []
            with pytest.raises(LeaseHeld), world.open().run("t"):
                pytest.fail("two workers hold one run")
            run.tool(dict, {})
            run.save()
            assert run.age >= 0
    with world.running("t") as run:
        assert run.state == {"n": 0}


@every_store("each store keeps leases and their clock")
def test_a_stale_worker_is_refused_before_it_acts(world: World) -> None:
    calls: list[str] = []

    def act(who: str) -> str:
        calls.append(who)
        return who

    stale = world.open().run("t", start={"n": 0}).__enter__()
    assert stale.core._lease is not None
    stale.core._lease._done.set()  # stopped by somebody: it renews no more, and does not know
    world.pass_time(31)
    with world.running("t") as run:
        with pytest.raises(holdfast.LeaseLost):
            stale.tool(act, {"who": "stale"}, key="k")
        with pytest.raises(holdfast.LeaseLost):
            stale.save()
        with pytest.raises(holdfast.LeaseLost):
            stale.finish("stale")
        with pytest.raises(holdfast.LeaseLost):
            stale.halt("stale")
        assert run.tool(act, {"who": "new"}, key="k") == "new"
        with pytest.raises(holdfast.LeaseLost):
            stale.core.leave(None)
    assert calls == ["new"]
    with world.running("t") as run:
        assert run.state == {"n": 0}


@every_store("each store keeps leases and their clock")
def test_a_late_result_is_kept_as_evidence_and_changes_nothing(world: World) -> None:
    def act() -> str:
        world.pass_time(31)
        with world.failing("t", RuntimeError) as other:
            assert other.resumed
            raise RuntimeError
        return "happened"

    stale = world.open().run("t", start={}).__enter__()
    assert stale.core._lease is not None
    stale.core._lease._done.set()
    with pytest.raises(holdfast.LeaseLost):
        stale.tool(act, {}, key="k")
    intent, evidence = world.open().effects("t")
    assert (intent.status, evidence.status, evidence.result) == ("started", "late", "happened")
    with world.running("t", ends="waiting") as run:  # evidence is for people: nothing is decided by it
        run.tool(act, {}, key="k")
    assert [effect.status for effect in world.open().effects("t")] == ["in_doubt", "late"]


def skipped_time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds by which the local clock of leases is ahead; the test adds to them."""
    real, ahead = lease.local_seconds, [0.0]
    monkeypatch.setattr(lease, "local_seconds", lambda: real() + ahead[0])
    return ahead


def test_a_worker_that_cannot_renew_stops_itself_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unrenewable:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def renew(self, thread: int, fence: int, until: int, progress: object = None) -> None:
            raise holdfast.errors.Busy("locked")

    calls: list[float] = []
    passed = skipped_time(monkeypatch)
    hf = world.open(store=Unrenewable)
    with world.failing("t", holdfast.LeaseLost, hf, start={}, lease=1000) as run:
        while passed[0] < 5000:
            run.tool(lambda: calls.append(passed[0]), {})
            passed[0] += 50
    assert 500 < max(calls) < 1000
    assert [effect.status for effect in hf.effects("t") if effect.status == "started"] == []


@every_store("each store keeps leases and their clock")
def test_a_worker_that_renews_keeps_its_run(world: World) -> None:
    started = time.monotonic()
    with world.running("t", start={}, lease=1.0) as run:
        while time.monotonic() < started + 1.2:
            run.tool(dict, {})
            time.sleep(0.05)


# -- seen from outside ------------------------------------------------------------------------------------------------


@covers("E5", "E8", "continuum/CrashInfo.session_id", "continuum/CrashInfo.last_activity")
@covers("continuum/CrashInfo.last_iteration", "continuum/InterruptedSession.session_id")
@covers("continuum/InterruptedSession.last_iteration", "continuum/InterruptedSession.last_activity")
@covers("continuum/InterruptedSession.task_description", "continuum/CheckpointData.tool_calls_pending")
def test_interrupted_says_what_was_left_and_what_a_resume_would_do(world: World) -> None:
    @holdfast.tool(effect="idempotent")
    def pay(amount: int) -> str:
        raise KeyboardInterrupt

    def post(text: str) -> str:
        raise KeyboardInterrupt

    hf = world.open(pay, post)
    assert list(hf.interrupted()) == []
    before = datetime.now(UTC)
    with world.dying("t", hf, start={}) as run:
        assert list(hf.interrupted()) == []
        run.save()
        run.model(lambda: "reply")
        for tool, args in ((pay, {"amount": 5}), (post, {"text": "hi"})):
            with pytest.raises(KeyboardInterrupt):
                run.tool(tool, args, key="k")
    with world.running("idle", start={}):
        pass
    [found] = hf.interrupted()
    assert (found.thread, found.step, found.attempt) == ("t", 1, 1)
    assert [(effect.name, effect.status, effect.arguments) for effect in found.in_doubt] == [
        ("pay", "started", {"amount": 5}),
        ("post", "started", {"text": "hi"}),
    ]
    assert abs((found.since - before).total_seconds()) < 60
    for part in (
        "step 1",
        "1 call from",
        "pay (call 2) is in doubt: in_doubt='rerun'",
        "post (call 3) is in doubt: in_doubt='ask'",
    ):
        assert part in found.plan
    assert [effect.arguments for effect in hf.effects("t")][1:] == [{"amount": 5}, {"text": "hi"}]


def test_interrupted_does_not_list_what_another_branch_left(world: World) -> None:
    def post() -> str:
        raise KeyboardInterrupt

    hf = world.open()
    with world.dying("t", hf, start={}) as run, pytest.raises(KeyboardInterrupt):
        run.tool(post, {}, key="k")
    hf.thread("t").rewind("@0", past_effects=True)
    [found] = hf.interrupted()
    assert found.in_doubt == ()


# -- calls at the same time -------------------------------------------------------------------------------------------


def _together(run: Run, world: World, order: list[int], ledger: list[str]) -> list[str]:
    """Four tools in threads, which end in the order given."""
    ended = [threading.Event() for _ in order]

    def act(n: int) -> str:
        ledger.append(f"tool {n}")
        place = order.index(n)
        if place:
            assert ended[order[place - 1]].wait(DEADLINE)
        ended[n].set()
        return f"result {n}"

    with ThreadPoolExecutor(len(order)) as pool:
        calls = [pool.submit(run.tool, act, {"n": n}, key=f"call_{n}") for n in range(len(order))]
        return [call.result() for call in calls]


@covers("E11")
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_calls_with_keys_may_end_in_any_order(world: World, order: list[int]) -> None:
    ledger: list[str] = []
    expected = [f"result {n}" for n in range(4)]
    with world.dying("t", start={}) as run:
        assert _together(run, world, order, ledger) == expected
    with world.running("t") as run:
        assert _together(run, world, order[::-1], ledger) == expected
    assert sorted(ledger) == [f"tool {n}" for n in range(4)]


def test_equal_calls_at_the_same_time_need_keys(world: World) -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow() -> str:
        inside.set()
        assert leave.wait(DEADLINE)
        return "slow"

    with world.running("t", start={}) as run, ThreadPoolExecutor() as pool:
        first = pool.submit(run.tool, slow, {})
        assert inside.wait(DEADLINE)
        try:
            with pytest.raises(InvalidArgument, match="key="):
                run.tool(slow, {})
            assert run.model(dict) == {}
            assert run.tool(dict, {}) == {}
            assert run.tool(dict, {}, key="k") == {}
        finally:
            leave.set()
        assert first.result() == "slow"
        with pytest.raises(InvalidArgument, match="key="):
            run.tool(slow, {})  # not at the same time, but in an order that a replay need not keep
        run.save()
        assert run.tool(slow, {}) == "slow"


@pytest.mark.parametrize("effect", ["read", "idempotent", "irreversible"])
def test_one_key_names_one_call_at_a_time(world: World, effect: Any) -> None:
    inside, leave = threading.Event(), threading.Event()
    calls: list[int] = []

    @holdfast.tool(effect=effect)
    def slow() -> str:
        calls.append(1)
        inside.set()
        assert leave.wait(DEADLINE)
        return "slow"

    with world.running("t", start={}) as run, ThreadPoolExecutor() as pool:
        first = pool.submit(run.tool, slow, {}, key="k")
        assert inside.wait(DEADLINE)
        try:
            with pytest.raises(InvalidArgument, match="same key"):
                run.tool(slow, {}, key="k")
        finally:
            leave.set()
        assert first.result() == run.tool(slow, {}, key="k") == "slow"
    assert len(calls) == 1


def test_a_step_is_not_closed_while_calls_are_under_way(world: World) -> None:
    def act() -> str:
        for close in (run.save, run.finish):
            with pytest.raises(InvalidArgument, match="under way"):
                close()
        return "done"

    with world.running("t", start={}, policy=Never()) as run:
        assert run.tool(act, {}) == "done"
        run.save()
    assert world.open().thread("t").count() == 2


# -- tools as they come -----------------------------------------------------------------------------------------------


def test_a_method_can_be_a_tool(hf: Holdfast) -> None:
    class Account:
        def __init__(self) -> None:
            self.balance = 10

        @holdfast.tool(effect="idempotent")
        def pay(self, amount: int) -> int:
            self.balance -= amount
            return self.balance

    account = Account()
    with hf.run("t", start={}, tools=[account.pay]) as run:
        assert run.tool("pay", {"amount": 3}) == 7
        assert run.tool(account.pay, {"amount": 3}) == 4
    assert [effect.effect for effect in hf.effects("t")] == ["idempotent", "idempotent"]


def test_tools_of_a_run_come_before_those_of_the_handle(url: str) -> None:
    def act() -> str:
        return "of the handle"

    def other() -> str:
        return "of the run"

    other.__name__ = "act"
    with holdfast.open(url, tools=[act]) as hf:
        with hf.run("t", start={}) as run:
            assert run.tool("act") == "of the handle"
        with hf.run("u", start={}, tools=[other]) as run:
            assert run.tool("act") == "of the run"


# -- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    "options",
    [
        {"lease": 0},
        {"lease": -1.0},
        {"lease": float("nan")},
        {"lease": 1e9},
        {"lease": "30"},
        {"lease": None},
        {"wait": -1},
        {"wait": float("inf")},
        {"wait": "1"},
        {"policy": "always"},
        {"policy": Never},
        {"agent": 5},
        {"version": 5},
        {"version": ""},
        {"tools": [5]},
        {"tools": [dict, dict]},
        {"type": 5},
        {"start": {"a": object()}},
    ],
)
def test_what_a_run_cannot_be_given(hf: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument), hf.run("t", **{"start": {}, **options}):
        pytest.fail("accepted")
    assert list(hf.threads()) == []


@pytest.mark.parametrize("name", ["", 5, None, b"t"])
def test_a_thread_is_named_by_a_text(hf: Holdfast, name: Any) -> None:
    for call in (lambda: hf.run(name, start={}), lambda: hf.submit("h", name, start={})):
        with pytest.raises(InvalidArgument):
            call()


@pytest.mark.parametrize("name", [5, None, b"t"])
def test_a_thread_is_looked_up_by_a_text(hf: Holdfast, name: Any) -> None:
    for call in (lambda: hf.effects(name), lambda: hf.settle(name, 1, holdfast.NotDone())):
        with pytest.raises(InvalidArgument):
            call()


@covers("cortex/DurableError.StepNotFound")
def test_what_a_call_cannot_be_given(hf: Holdfast) -> None:
    anything: Any = hf.run("t", start={})

    async def later() -> None: ...

    with anything as run:
        refused: list[Callable[[], Any]] = [
            lambda: run.model("not a function"),
            lambda: run.model(later),
            lambda: run.model(dict, on_change="maybe"),
            lambda: run.model(dict, key=""),
            lambda: run.model(dict, key=5),
            lambda: run.model(dict, type="text"),
            lambda: run.tool(dict, key=""),
            lambda: run.tool(dict, key=5),
            lambda: run.tool(dict, [1]),
            lambda: run.tool(dict, {1: 2}),
            lambda: run.tool(dict, "text"),
            lambda: run.tool(later),
            lambda: run.tool(5),
            lambda: run.tool([]),
            lambda: run.tool(None),
            lambda: run.halt(""),
            lambda: run.halt(None),
        ]
        for wrong in refused:
            with pytest.raises(InvalidArgument):
                wrong()
        with pytest.raises(NotFound, match="registered tools are"):
            run.tool("unknown")
        assert run.status == "running"
    assert hf.effects("t") == []


@covers("continuum/ErrorCategory.Configuration")
@for_each(
    "declaration",
    [
        {"effect": "write"},
        {"effect": None},
        {"in_doubt": "maybe"},
        {"in_doubt": "probe"},
        {"probe": 5},
        {"probe": dict, "in_doubt": "ask"},
        {"not_done": ValueError},
        {"not_done": ("ValueError",)},
        {"not_done": [ValueError]},
        {"retry": -1, "effect": "read"},
        {"retry": 1.5, "effect": "read"},
        {"retry": True, "effect": "read"},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("inf")},
        {"timeout": "1"},
        {"name": ""},
        {"name": 5},
    ],
)
def test_what_a_tool_cannot_be_declared_as(declaration: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        holdfast.tool(**declaration)(lambda: None)


def test_what_is_no_tool() -> None:
    anything: Any = holdfast.tool

    for wrong in (5, "text"):
        with pytest.raises(InvalidArgument):
            anything(wrong)


def test_a_run_cannot_be_submitted_with_another_start(world: World) -> None:
    with world.running("t", start={"n": 1}):
        pass
    with pytest.raises(Conflict):
        world.open().submit("h", "t", start={"n": 3})
