"""Features of earlier systems that no other test shows: see docs/internals/parity.md for all of them."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

import holdfast
from holdfast import (
    AfterModel,
    Budget,
    Checkpoint,
    EveryN,
    Halted,
    Holdfast,
    LoopGuard,
    Never,
    NotFound,
    Policy,
    Run,
    ToolNotDone,
    Usage,
    tool,
)
from holdfast.errors import CallTimedOut
from holdfast.states import Conversation, SnipResults
from holdfast.telemetry import instrument
from holdfast.types import Status
from tests.covers import covers
from tests.runs.conftest import World

in_sqlite = pytest.mark.parametrize("world", ["sqlite"], indirect=True)


# -- checkpoints and stores --------------------------------------------------------------------------------------------


@covers("ares/Checkpoint.status", "ares/CheckpointStatus.InProgress", "ares/CheckpointStatus.Completed")
@covers("ares/CheckpointStatus.Failed", "ares/CheckpointStatus.Halted", "ares/CheckpointStatus.eq")
@covers("ares/test_checkpoint_status_serialization", "ares/test_completed_and_halted_round_trip")
def test_every_status_is_loaded_with_its_reason(hf: Holdfast) -> None:
    thread = hf.thread("t")
    assert {"running", "completed", "failed", "halted"} <= set(get_args(Status))
    for status in get_args(Status):
        for reason in ("OOM", None):
            saved = thread.save({}, status=status, reason=reason)
            loaded = thread.load(saved.id)
            assert (loaded.status, loaded.reason) == (status, reason)
            assert thread.find(status=status) == saved


@covers("ares/Checkpoint.clone", "ares/Checkpoint.display", "ares/Checkpoint.debug", "ares/CheckpointMetadata.display")
@covers("ares/CheckpointMetadata.serde", "ares/CheckpointMetadata.from", "cortex/CheckpointMetadata.state_size")
@covers("cortex/CheckpointMetadata.new", "cortex/Checkpoint.new", "continuum/CheckpointData.resume_hint")
@covers("continuum/CheckpointData.cost_estimate", "continuum/CheckpointData.tokens_used")
def test_a_checkpoint_is_a_value(hf: Holdfast) -> None:
    saved = hf.thread("disp").save({"text": "x" * 1_000}, step=4, agent="clerk", status="failed", reason="OOM")
    for part in ("Checkpoint(", "'disp'", "'clerk'", "step=4", "'failed'", "'OOM'"):
        assert part in str(saved)
    assert copy.copy(saved) == copy.deepcopy(saved) == saved
    fields = msgspec.structs.asdict(saved)
    del fields["state"]
    assert msgspec.json.decode(msgspec.json.encode(fields), type=Checkpoint) == saved
    assert (saved.parent, saved.label, saved.tags, saved.metadata) == (None, None, (), {})
    assert (saved.resume_hint, saved.usage) == (None, None)
    assert 1_000 < saved.size < 1_020
    usage = Usage(total=100, cost=0.1 + 0.2)
    assert hf.thread("disp").load(hf.thread("disp").save({}, usage=usage)).usage == usage


@covers("ares/LoopConfig", "smooth/CheckpointStrategy.clone", "smooth/CompactionStrategy.clone")
@pytest.mark.parametrize("value", [LoopGuard(window=5, repeats=2), EveryN(3), SnipResults(keep=9)])
def test_settings_are_values(value: LoopGuard | EveryN | SnipResults) -> None:
    kind = type(value)
    assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == copy.copy(value) == value
    assert value != (LoopGuard() if kind is LoopGuard else EveryN(4) if kind is EveryN else SnipResults())


@covers("smooth/Conversation.id")
def test_each_conversation_has_its_own_id() -> None:
    assert Conversation().id != Conversation().id


@covers("ares/compact_json", "ares/CheckpointManager.save.readable", "H2")
def test_the_lines_of_a_directory_have_no_white_space(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path}/agents", durability="off") as hf:
        hf.thread("t").save({"messages": [{"role": "user", "content": f"Hi there {n}"} for n in range(40)]})
    lines = [line for path in tmp_path.rglob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert any("Hi there" in line for line in lines)
    for line in lines:
        assert json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False) == line


@covers("smooth/MemoryCheckpointStore.new", "smooth/MemoryCheckpointStore.default", "cortex/MemoryCheckpointStore.new")
@covers("smooth/SqliteCheckpointStore.in_memory", "cortex/MemoryCheckpointStore", "cortex/SledBackend.temporary")
@covers("cortex/MemoryCheckpointManager.in_memory", "cortex/InMemoryBackend", "cortex/MemoryBackend.backend_name")
@covers("cortex/DurableExecution.in_memory", "cortex/MemoryExecutionStore")
def test_a_store_in_memory_starts_empty_and_ends_with_its_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with holdfast.open("memory:") as hf:
            assert list(hf.threads()) == []
            with hf.run("t", start={}) as run:
                run.finish(run.model(lambda: "result"))
            assert (run.result, hf.thread("t").count()) == ("result", 2)
            assert "memory" in repr(hf).lower()
    assert list(tmp_path.iterdir()) == []
    with holdfast.open("agent.db") as hf:
        assert "sqlite" in repr(hf).lower()
    with holdfast.open("dir:agents") as hf:
        assert "directory" in repr(hf).lower()


class Hooks(SpanProcessor):
    """Calls a function of the caller before each save and after it."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._before = before
        self._after = after

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.name == "holdfast.save":
            self._before()

    def on_end(self, span: ReadableSpan) -> None:
        if span.name == "holdfast.save":
            self._after()


@covers("continuum/HookEvent.BeforeCheckpoint", "continuum/HookEvent.AfterCheckpoint")
def test_a_span_starts_before_a_save_and_ends_after_it(hf: Holdfast) -> None:
    seen: list[tuple[str, int]] = []
    tracers = TracerProvider()
    tracers.add_span_processor(
        Hooks(
            lambda: seen.append(("before", hf.thread("t").count())),
            lambda: seen.append(("after", hf.thread("t").count())),
        )
    )
    instrument(hf, tracer_provider=tracers)
    for n in (1, 2):
        hf.thread("t").save({"n": n}, expect=holdfast.ANY)
    assert seen == [("before", 0), ("after", 1), ("before", 1), ("after", 2)]


# -- runs --------------------------------------------------------------------------------------------------------------


@tool(effect="read")
def search(query: str) -> str:
    return f"about {query}"


def answer() -> str:
    return "an answer"


@covers("E9", "smooth/CheckpointStrategy.default", "smooth/Agent.maybe_checkpoint", "smooth/CheckpointStrategy.Never")
@covers("cortex/CheckpointConfig.auto_checkpoint_interval", "cortex/GraphConfig.checkpoint_interval")
@covers("cortex/graph test_checkpointing", "cortex/graph checkpointing")
@covers("cortex/GraphMetadata.iterations", "cortex/GraphMetadata.visited_nodes")
@pytest.mark.parametrize(
    ("policy", "by_tool", "by_model"),
    [
        (None, [4, 3, 2, 1, 0], [4, 0]),
        (AfterModel(), [4, 0], [4, 3, 2, 1, 0]),
        (EveryN(1), [4, 3, 2, 1, 0], [4, 3, 2, 1, 0]),
        (EveryN(2), [4, 2, 0], [4, 2, 0]),
        (Never(), [4, 0], [4, 0]),
    ],
)
def test_a_policy_decides_after_which_steps_a_run_saves(
    hf: Holdfast, policy: Policy | None, by_tool: list[int], by_model: list[int]
) -> None:
    calls: dict[str, Callable[[Run], object]] = {
        "tool": lambda run: [run.tool(search, {"query": each}) for each in "ab"],
        "model": lambda run: [run.model(answer) for _ in "ab"],
    }
    for name, call in calls.items():
        with hf.run(name, start={"visited": []}, policy=policy) as run:
            for step in run.steps():
                if step == 4:
                    run.finish()
                    break
                call(run)
                run.state["visited"].append(step)
        assert [each.step for each in hf.thread(name).history()] == (by_tool if name == "tool" else by_model)
        assert hf.thread(name).load("@-1").state == {"visited": [1, 2, 3]}


@covers("ares/LoopConfig.count_failed_iterations")
def test_steps_that_fail_count(hf: Holdfast) -> None:
    tried: list[int] = []

    def fetch(page: int) -> None:
        tried.append(page)
        raise ToolNotDone("no network")

    def agent() -> None:
        with hf.run("t", start={}, guards=[Budget(steps=2)]) as run:
            for step in run.steps():
                with contextlib.suppress(ToolNotDone):
                    run.tool(fetch, {"page": step})

    with pytest.raises(Halted):
        agent()
    assert tried == [1, 2]


class Flaky:
    """Fails a number of times, then returns something."""

    def __init__(self, failures: int) -> None:
        self.tries = 0
        self._failures = failures

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self._failures:
            raise TimeoutError(f"no answer {self.tries}")
        return "at last"


@covers("continuum/ErrorRecovery.with_retry_policy", "continuum/RetryPolicy.max_retries", "continuum/RecoveryLayer")
@covers("continuum/ErrorCategory.Transient", "continuum/RecoveryResult of a call", "continuum/ErrorRecovery.get_stats")
@covers("continuum/RecoveryStats", "cortex/DurableConfig.max_retries", "cortex/DurableError.MaxRetriesExceeded")
@covers("cortex/ExecutionStep.with_max_retries", "cortex/StepResult.retry_count", "cortex/test_step_with_retries")
@covers("cortex/ExecutionStep.with_name", "cortex/StepResult.error", "cortex/DurableStats")
@covers("cortex/DurableExecution.add_step_config")
@in_sqlite
@pytest.mark.parametrize(("failures", "tries"), [(0, 1), (2, 3), (3, 4), (9, 4)])
def test_the_journal_has_every_try_of_a_tool(world: World, failures: int, tries: int) -> None:
    flaky = Flaky(failures)
    fetch = tool(effect="idempotent", retry=holdfast.Retry(3, first=0), name="fetch the page")(flaky)
    hf = world.open()
    if failures < 4:
        with world.running("t", hf, start={}) as run:
            assert run.tool(fetch) == "at last"
    else:
        with world.failing("t", TimeoutError, hf, start={}) as run:
            run.tool(fetch)
        [found] = hf.stuck(older_than=0)
        assert "TimeoutError: no answer 4" in found.why
    assert flaky.tries == tries
    effects = hf.effects("t")
    failed = min(failures, 4)
    assert [effect.status for effect in effects] == ["failed"] * failed + ["done"] * (tries - failed)
    retried = [effect.error for effect in effects[:3] if effect.status == "failed"]
    assert retried == [f"TimeoutError: no answer {n + 1}" for n in range(min(failures, 3))]
    assert {effect.name for effect in effects} == {"fetch the page"}


@covers("continuum/RetryPolicy delays", "cortex/DurableConfig.retry_delay")
@in_sqlite
def test_a_worker_waits_longer_before_each_attempt(world: World) -> None:
    attempts: list[int] = []

    def handler(run: Run) -> None:
        attempts.append(run.attempt)
        raise ConnectionError("down")

    def drain() -> None:
        world.open().worker({"h": handler}, attempts=6).run(until_idle=True)

    world.open().submit("h", "t", start={})
    drain()
    for number, seconds in enumerate((1, 5, 30, 120, 120), start=1):
        world.pass_time(seconds - 0.5)
        drain()
        assert len(attempts) == number
        world.pass_time(1)
        drain()
        assert len(attempts) == number + 1
    assert [info.status for info in world.open().threads()] == ["dead"]


@covers("cortex/DurableError.StepTimeout", "cortex/StepStatus.TimedOut", "cortex/ExecutionStep.with_timeout")
@covers("cortex/DurableConfig.default_timeout", "cortex/GraphConfig.node_timeout_ms", "cortex/StepResult.is_failed")
def test_a_call_that_takes_too_long_raises_and_is_in_doubt(hf: Holdfast) -> None:
    ended = threading.Event()
    slow = tool(effect="idempotent", timeout=0.05, name="slow")(lambda: ended.wait(60))
    with pytest.raises(CallTimedOut, match=r"not return within 0.05 seconds") as caught, hf.run("t", start={}) as run:
        run.tool(slow)
    assert not isinstance(caught.value, TimeoutError)  # so that a tool cannot declare it as "not done"
    ended.set()
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own error, as a process pool sends it
    assert (type(again), str(again)) == (CallTimedOut, str(caught.value))
    [effect] = hf.effects("t")
    assert (effect.name, effect.status) == ("slow", "in_doubt")
    assert "did not return" in (effect.error or "")
    assert [info.status for info in hf.threads()] == ["failed"]


@covers("cortex/DurableExecution.reset", "cortex/test_execution_reset", "cortex/ExecutionStore")
@covers("cortex/test_memory_store")
def test_a_dropped_run_starts_again(hf: Holdfast) -> None:
    asked: list[str] = []

    def model() -> Any:
        asked.append("asked")
        return len(asked)

    for expected in (1, 2):
        with hf.run("t", start={"n": 0}) as run:
            assert not run.resumed
            run.finish(run.model(model))
        assert run.result == expected
        assert [info.name for info in hf.threads()] == ["t"]
        hf.thread("t").drop()
        assert hf.thread("t").latest() is None
        with pytest.raises(NotFound):
            hf.effects("t")
