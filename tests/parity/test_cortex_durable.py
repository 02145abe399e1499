"""rust-ai-agents' durable execution: named steps with retries and time limits, resumed where they stopped, by runs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast import CallTimedOut, EveryN, Holdfast, Never, NotFound, Policy, Run, Unsupported
from tests.parity.covering import covers
from tests.runs.conftest import World

Steps = Mapping[str, Callable[[], Any]]


def step(name: str, gives: Any = "done", *, failures: int = 0, **declared: Any) -> tuple[Callable[[], Any], list[int]]:
    """A step that may be done again, and a list with an entry for each time it was."""
    tries: list[int] = []

    def do() -> Any:
        tries.append(len(tries) + 1)
        if len(tries) <= failures:
            raise ConnectionError(f"try {len(tries)} failed")
        return gives

    return holdfast.tool(effect="idempotent", name=name, **declared)(do), tries


def execute(run: Run, steps: Steps) -> None:
    """The steps that are not done yet, one after the other; each is a step of the run."""
    for _ in run.steps():
        left = [name for name in steps if name not in run.state["outputs"]]
        run.progress(len(steps) - len(left), total=len(steps), note=left[0] if left else "all")
        if not left:
            run.finish(run.state["outputs"])
            return
        run.state["outputs"][left[0]] = run.tool(steps[left[0]], key=left[0])


def executed(hf: Holdfast, name: str, steps: Steps, policy: Policy | None = None) -> Run:
    with hf.run(name, start={"outputs": {}}, policy=policy or EveryN(1)) as run:
        execute(run, steps)
    return run


@covers(
    "cortex",
    "DurableExecution",
    "DurableExecution.new",
    "DurableExecution.add_step",
    "DurableExecution.run",
    "ExecutionId",
    "StepId",
    "ExecutionStep.new",
    "ExecutionResult.state",
    "ExecutionResult.success",
    "ExecutionResult.outputs",
    "ExecutionResult.get_output",
    "test_simple_execution",
)
def test_two_steps_are_done_and_both_outputs_are_there(hf: Holdfast) -> None:
    steps = {name: step(name, f"result of {name}")[0] for name in ("step1", "step2")}
    run = executed(hf, "workflow_1", steps)
    assert run.status == "completed"
    assert run.result == {"step1": "result of step1", "step2": "result of step2"}
    assert run.result["step2"] == "result of step2"
    assert run.state == {"outputs": run.result}
    assert all(effect.status == "done" for effect in hf.effects("workflow_1"))


@covers("cortex", "DurableExecution.in_memory", "MemoryExecutionStore")
def test_an_execution_in_memory_needs_no_file() -> None:
    with holdfast.open("memory:") as hf:
        assert executed(hf, "t", {"a": step("a", 1)[0]}).result == {"a": 1}


@covers(
    "cortex",
    "DurableError.StepFailed",
    "ExecutionState.is_failed",
    "ExecutionStatus.Failed",
    "StepStatus.Failed",
    "StepResult.is_failed",
    "StepResult.error",
    "test_execution_with_failure",
)
def test_the_error_of_the_second_step_is_raised_and_said_to_be_of_the_second(hf: Holdfast) -> None:
    steps = {"step1": step("step1")[0], "step2": step("step2", failures=1)[0]}
    with pytest.raises(ConnectionError, match="try 1 failed"):
        executed(hf, "t", steps)
    assert [info.status for info in hf.threads()] == ["failed"]
    assert [(effect.name, effect.status) for effect in hf.effects("t")] == [("step1", "done"), ("step2", "failed")]
    [found] = hf.stuck(older_than=0)
    assert "ConnectionError: try 1 failed" in found.why


@covers("cortex", "test_execution_resume", "ExecutionState.is_complete")
def test_run_again_after_a_failure_it_does_what_is_left_and_succeeds(hf: Holdfast) -> None:
    one, tries_of_one = step("step1")
    two, tries_of_two = step("step2", failures=1)
    with pytest.raises(ConnectionError):
        executed(hf, "t", {"step1": one, "step2": two})
    assert [info.status for info in hf.threads()] == ["failed"]  # which is not completed: it can be resumed
    assert executed(hf, "t", {"step1": one, "step2": two}).status == "completed"
    assert (len(tries_of_one), len(tries_of_two)) == (1, 2)


@covers("cortex", "DurableExecution.run", "StepStatus.Running", "DurableConfig.persist_per_step")
@pytest.mark.parametrize("policy", [EveryN(1), Never()])
def test_a_process_that_dies_costs_no_step_that_was_done_however_often_checkpoints_are_written(
    world: World, policy: Policy
) -> None:
    counts: dict[str, list[int]] = {}
    steps = {}
    for name in ("a", "b", "c", "d"):
        steps[name], counts[name] = step(name)
    hf = world.open()

    def dies() -> None:
        assert [(effect.name, effect.status) for effect in hf.effects("t")][-1] == ("c", "begun")
        world.kill(run)

    dying = {**steps, "c": holdfast.tool(effect="idempotent", name="c")(dies)}
    with world.dying("t", hf, start={"outputs": {}}, policy=policy) as run:
        execute(run, dying)
    assert hf.thread("t").count() == (3 if policy == EveryN(1) else 1)
    with world.running("t", ends="completed", policy=policy) as run:
        execute(run, steps)
    assert {name: len(tries) for name, tries in counts.items()} == {"a": 1, "b": 1, "c": 1, "d": 1}


@covers(
    "cortex",
    "DurableExecution.with_config",
    "DurableExecution.add_step_config",
    "DurableConfig.max_retries",
    "DurableError.MaxRetriesExceeded",
    "ExecutionStep.with_max_retries",
    "StepResult.retry_count",
    "test_step_with_retries",
)
def test_a_step_is_tried_as_often_as_it_says(hf: Holdfast) -> None:
    flaky, tries = step("flaky", "finally worked", failures=2, retry=2)
    assert executed(hf, "t", {"flaky": flaky}).result == {"flaky": "finally worked"}
    assert tries == [1, 2, 3]
    assert [effect.status for effect in hf.effects("t")] == ["failed", "failed", "done"]
    hopeless, tries = step("hopeless", failures=99, retry=2)
    with pytest.raises(ConnectionError, match="try 3 failed"):
        executed(hf, "u", {"hopeless": hopeless})
    assert tries == [1, 2, 3]


@covers("cortex", "DurableConfig.retry_delay")
def test_between_two_tries_a_run_waits_without_a_process(world: World) -> None:
    flaky, tries = step("flaky", "finally worked", failures=1)

    def handler(run: Run) -> Any:
        try:
            return run.tool(flaky, key="k")
        except ConnectionError:
            run.sleep(10)
            return run.tool(flaky, key="k")

    def drain() -> None:
        world.open().worker({"h": handler}).run(until_idle=True)

    hf = world.open()
    hf.submit("h", "t", start={})
    drain()
    world.pass_time(9)
    drain()
    assert (tries, [info.status for info in hf.threads()]) == ([1], ["waiting"])
    world.pass_time(2)
    drain()
    assert (tries, [info.status for info in hf.threads()]) == ([1, 2], ["completed"])


@covers("cortex", "DurableError.StepTimeout", "StepStatus.TimedOut", "ExecutionStep.with_timeout")
@covers("cortex", "DurableConfig.default_timeout", "StepResult.is_failed")
def test_a_step_that_takes_too_long_has_an_error_of_its_own_and_is_in_doubt(hf: Holdfast) -> None:
    ended = threading.Event()

    # One declaration for every step of an execution.
    limited = {
        name: holdfast.tool(effect="idempotent", name=name, timeout=0.05)(lambda: ended.wait(20)) for name in ("a", "b")
    }
    with pytest.raises(CallTimedOut, match=r"no answer after 0.05 seconds") as caught:
        executed(hf, "t", limited)
    assert not isinstance(caught.value, TimeoutError)  # so that no tool can declare that it means "not done"
    assert caught.value.is_running is not None
    assert caught.value.is_running()
    ended.set()
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own error, as a process pool sends it
    assert (type(again), str(again)) == (CallTimedOut, str(caught.value))
    [effect] = hf.effects("t")
    assert (effect.name, effect.status) == ("a", "in_doubt")
    assert effect.error is not None
    assert "no answer" in effect.error
    assert [info.status for info in hf.threads()] == ["failed"]


@covers("cortex", "DurableConfig.continue_on_failure", "StepStatus.Skipped", "StepResult.is_complete")
@covers("cortex", "test_continue_on_failure", "test_step_result_states")
def test_a_program_may_go_on_after_a_failed_step_and_leave_steps_out(hf: Holdfast) -> None:
    steps = {"step1": step("step1", "ok")[0], "step2": step("step2", failures=9)[0], "step3": step("step3", "also")[0]}
    stands: dict[str, str] = {}
    with hf.run("t", start={"outputs": {}, "skipped": []}) as run:
        for name in [*steps, "step4"]:
            if name == "step4":
                run.state["skipped"].append(name)
                continue
            stands[name] = "pending" if not any(effect.key.endswith(name) for effect in hf.effects("t")) else "known"
            try:
                run.state["outputs"][name] = run.tool(steps[name], key=name)
            except ConnectionError:
                continue
        run.finish(run.state)
    assert stands == {"step1": "pending", "step2": "pending", "step3": "pending"}
    assert run.status == "completed"
    assert run.result == {"outputs": {"step1": "ok", "step3": "also"}, "skipped": ["step4"]}
    statuses = {effect.name: effect.status for effect in hf.effects("t")}
    assert statuses == {"step1": "done", "step2": "failed", "step3": "done"}  # so it was no success


@covers(
    "cortex",
    "DurableExecution.state",
    "ExecutionState.execution_id",
    "ExecutionState.current_step",
    "ExecutionState.total_steps",
    "ExecutionState.step_results",
    "ExecutionState.started_at",
    "ExecutionState.updated_at",
    "ExecutionState.completed_at",
    "ExecutionState.status",
    "ExecutionState.metadata",
    "ExecutionStatus.Completed",
    "StepStatus.Completed",
    "test_execution_state",
)
def test_what_is_stored_of_a_completed_one_says_so_of_its_steps_too(hf: Holdfast) -> None:
    before = datetime.now(UTC)
    with hf.run("t", start={"outputs": {}, "metadata": {"for": "ann"}}, agent="clerk", policy=EveryN(1)) as run:
        execute(run, {"step1": step("step1")[0], "step2": step("step2")[0]})
    [info] = hf.threads()
    assert (info.name, info.status, info.agent) == ("t", "completed", "clerk")
    progress = hf.progress("t")
    assert progress is not None
    assert (progress.done, progress.total) == (2, 2)
    history = list(hf.thread("t").history())
    first, last = history[-1], history[0]
    assert (last.status, last.step) == ("completed", 3)
    assert before <= first.created_at <= last.created_at <= info.updated_at <= datetime.now(UTC)
    assert [(effect.step, effect.name, effect.status) for effect in hf.effects("t")] == [
        (1, "step1", "done"),
        (2, "step2", "done"),
    ]
    assert hf.thread("t").load(last).state["metadata"] == {"for": "ann"}


@covers(
    "cortex",
    "StepResult.step_id",
    "StepResult.status",
    "StepResult.output",
    "StepResult.started_at",
    "StepResult.completed_at",
    "StepResult.duration_ms",
    "ExecutionResult.total_duration_ms",
    "ExecutionStep.with_name",
)
def test_of_each_step_it_is_known_what_it_gave_and_how_long_it_took(hf: Holdfast) -> None:
    during: list[datetime] = []

    def look() -> dict[str, int]:
        during.append(datetime.now(UTC))
        return {"found": 3}

    named = holdfast.tool(effect="idempotent", name="Look for books")(look)
    executed(hf, "t", {"step1": named, "step2": step("step2")[0]})
    one, two = hf.effects("t")
    assert (one.name, one.status, one.result) == ("Look for books", "done", {"found": 3})
    assert one.ended_at is not None
    assert two.ended_at is not None
    assert one.begun_at <= during[0] <= one.ended_at <= two.begun_at <= two.ended_at
    assert two.ended_at - one.begun_at >= (one.ended_at - one.begun_at) + (two.ended_at - two.begun_at)


@covers("cortex", "StepStatus.Pending", "StepResult.pending", "ExecutionStatus.Pending")
def test_of_what_was_not_begun_nothing_is_known(hf: Holdfast) -> None:
    hf.submit("handler", "t", start={"outputs": {}})
    assert [info.status for info in hf.threads()] == ["queued"]
    assert hf.effects("t") == []


@covers("cortex", "ExecutionState.progress", "ExecutionStatus.Running", "test_progress")
def test_progress_goes_from_nothing_to_a_third_to_all(hf: Holdfast) -> None:
    seen: list[tuple[float, str]] = []

    def look(name: str) -> None:
        progress = hf.progress("t")
        seen.append((0.0 if progress is None else progress.done / (progress.total or 1), name))
        assert [info.status for info in hf.threads()] == ["running"]

    steps = {
        name: holdfast.tool(effect="idempotent", name=name)(lambda name=name: look(name)) for name in ("a", "b", "c")
    }
    executed(hf, "t", steps)
    assert [name for _, name in seen] == ["a", "b", "c"]
    # What was said is stored with the next checkpoint: the one that closes a step.
    assert [round(part, 2) for part, _ in seen] == [0.0, 0.0, 0.33]
    progress = hf.progress("t")
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (3, 3, "all")


@covers("cortex", "DurableExecution.pause", "ExecutionStatus.Paused")
def test_paused_from_outside_it_stops_before_its_next_call_and_goes_on_when_it_is_run_again(world: World) -> None:
    one, tries_of_one = step("a")
    two, tries_of_two = step("b")
    hf = world.open()

    def pausing() -> str:
        hf.cancel("t", "paused for the night")
        return "done"

    paused = {"a": one, "pause": holdfast.tool(effect="idempotent", name="pause")(pausing), "b": two}
    with pytest.raises(holdfast.Cancelled), hf.run("t", start={"outputs": {}}, policy=EveryN(1)) as run:
        execute(run, paused)
    assert [info.status for info in hf.threads()] == ["halted"]
    assert (tries_of_one, tries_of_two) == ([1], [])
    with world.running("t", ends="completed") as run:
        execute(run, paused)
    assert (tries_of_one, tries_of_two) == ([1], [1])


@covers("cortex", "DurableExecution.run of a completed one", "DurableError.AlreadyCompleted")
def test_one_that_is_done_says_so_gives_what_it_gave_and_does_nothing(hf: Holdfast) -> None:
    one, tries = step("a", "result")
    executed(hf, "t", {"a": one})
    with hf.run("t", start={"outputs": {}}) as run:
        assert (run.resumed, run.status, run.result) == (True, "completed", {"a": "result"})
        assert list(run.steps()) == []
    assert tries == [1]


@covers("cortex", "DurableExecution.reset", "test_execution_reset")
def test_after_a_reset_nothing_is_known_and_it_begins_anew(hf: Holdfast) -> None:
    one, tries = step("a")
    executed(hf, "t", {"a": one})
    assert hf.thread("t").latest() is not None
    hf.thread("t").drop()
    assert hf.thread("t").latest() is None
    with pytest.raises(NotFound):
        hf.effects("t")
    assert executed(hf, "t", {"a": one}).status == "completed"
    assert tries == [1, 2]


@covers("cortex", "DurableError.ExecutionNotFound", "DurableError.StepNotFound")
def test_what_is_not_there_is_told(hf: Holdfast) -> None:
    with pytest.raises(NotFound, match="unknown"), hf.run("unknown"):
        pytest.fail("there is nothing to resume")
    with pytest.raises(NotFound, match="no tool 'unknown'"), hf.run("t", start={}) as run:
        run.tool("unknown")


@covers("cortex", "DurableError.SerializationError")
def test_what_a_step_gives_has_to_be_something_that_can_be_stored(hf: Holdfast) -> None:
    wrong, _ = step("a", object())
    with pytest.raises(Unsupported, match="cannot be recorded"):
        executed(hf, "t", {"a": wrong})
    assert [effect.status for effect in hf.effects("t")] == ["unstored"]


@covers("cortex", "ExecutionStore", "test_memory_store")
def test_executions_are_stored_loaded_listed_and_deleted(hf: Holdfast) -> None:
    for name in ("exec1", "exec2"):
        executed(hf, name, {"a": step("a")[0]})
    assert hf.thread("exec1").load("@-1").thread == "exec1"
    assert [info.name for info in hf.threads()] == ["exec1", "exec2"]
    hf.thread("exec1").drop()
    assert hf.thread("exec1").latest() is None
    assert [info.name for info in hf.threads()] == ["exec2"]


@covers("cortex", "DurableStats")
def test_how_much_was_done_and_tried_can_be_counted(hf: Holdfast) -> None:
    executed(hf, "good", {"a": step("a")[0], "b": step("b", failures=2, retry=2)[0]})
    with pytest.raises(ConnectionError):
        executed(hf, "bad", {"a": step("a", failures=9)[0]})
    statuses = [info.status for info in hf.threads()]
    assert (len(statuses), statuses.count("completed"), statuses.count("failed")) == (2, 1, 1)
    effects = [effect.status for name in ("good", "bad") for effect in hf.effects(name)]
    assert (effects.count("done"), effects.count("failed")) == (2, 3)
