"""What a call returns is what was recorded, and what was recorded is returned, never made again."""

from __future__ import annotations

import dataclasses
import enum
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import holdfast
from holdfast import (
    AfterModel,
    AfterToolCall,
    Conflict,
    EveryN,
    EverySeconds,
    Holdfast,
    HoldfastError,
    Never,
    NotFound,
    Unsupported,
)
from tests.codec.strategies import identical
from tests.covers import covers
from tests.runs.conftest import Crash, World


class Counted:
    """A function that counts its calls; each returns something else."""

    def __init__(self, *results: Any) -> None:
        self.calls: list[Any] = []
        self._results = results

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(kwargs or args)
        return self._results[len(self.calls) - 1] if self._results else {"number": len(self.calls)}


class Mood(enum.Enum):
    CALM = "calm"


@dataclasses.dataclass
class Reply:
    text: str
    mood: Mood
    parts: tuple[int, ...] = ()


# -- what is returned -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"tokens": (1, 2), "at": datetime(2024, 5, 1, tzinfo=UTC), "cost": Decimal("0.10")},
        [1, True, 1.0, -0.0, None, b"x", {1: "one"}, frozenset({2})],
        "text",
        None,
    ],
)
def test_a_model_call_returns_live_what_its_replay_returns(world: World, value: Any) -> None:
    model = Counted(value)
    with world.dying("t", start={}) as run:
        live = run.model(model)
    with world.open().run("t") as run:
        replayed = run.model(model)
    assert identical(live, value)
    assert identical(replayed, value)
    assert len(model.calls) == 1


def test_a_stream_whose_chunk_is_nested_as_deeply_as_a_value_may_be_is_recorded(world: World) -> None:
    chunk: Any = 1
    for _ in range(200):
        chunk = (chunk,)
    ask = Counted([chunk])
    for _ in range(2):
        with world.dying("t", start={}) as run:
            assert list(run.stream(ask)) == [chunk]
    assert len(ask.calls) == 1


def test_a_typed_reply_comes_back_in_its_type(world: World) -> None:
    model = Counted(Reply("hello", Mood.CALM, (1, 2)))
    with world.dying("t", start={}) as run:
        live = run.model(model, type=Reply)
    with world.open().run("t") as run:
        replayed = run.model(model, type=Reply)
    assert live == replayed == Reply("hello", Mood.CALM, (1, 2))
    assert type(live) is type(replayed) is Reply
    assert type(replayed.parts) is tuple


def test_the_value_returned_is_not_the_callers_own_object(world: World) -> None:
    reply = {"tool_calls": [1]}
    with world.open().run("t", start={}) as run:
        got = run.model(lambda: reply)
        assert got == reply
        assert got is not reply  # what the function keeps and changes later was never recorded


@covers("cortex/ExecutionResult.get_output", "cortex/DurableExecution.run", "cortex/StepResult.output")
def test_a_tool_returns_live_what_its_replay_returns(world: World) -> None:
    tool = Counted((1, {"a": {2, 3}}))
    with world.dying("t", start={}) as run:
        live = run.tool(tool, {})
    with world.open().run("t") as run:
        replayed = run.tool(tool, {})
    assert identical(live, (1, {"a": {2, 3}}))
    assert identical(replayed, live)
    assert len(tool.calls) == 1


def test_keyword_only_clients_work(world: World) -> None:
    def create(*, model: str, messages: list[Any]) -> dict[str, Any]:
        return {"model": model, "count": len(messages)}

    with world.open().run("t", start={}) as run:
        assert run.model(create, model="m", messages=[1, 2]) == {"model": "m", "count": 2}


# -- what cannot be recorded ------------------------------------------------------------------------------------------


@covers("cortex/DurableError.SerializationError")
@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
def test_a_tools_result_that_cannot_be_recorded_is_an_error_that_names_the_path(world: World, effect: Any) -> None:
    calls: list[int] = []

    @holdfast.tool(effect=effect)
    def act() -> Any:
        calls.append(1)
        return {"data": [1, object()]}

    with pytest.raises(Unsupported) as refused, world.open(act).run("t", start={}) as run:
        run.tool("act", {})
    assert refused.value.path == "$.data[1]"
    hf = world.open(act)
    assert [effect.status for effect in hf.effects("t")] == ["unstored"]
    assert [(question.about, question.effect) for question in hf.waiting()] == [("in doubt", 1)]
    with pytest.raises(HoldfastError, match="settle"), hf.run("t") as run:
        run.tool("act", {})
    assert len(calls) == 1

    hf.settle("t", 1, holdfast.Happened({"data": "by hand"}))
    assert list(hf.waiting()) == []
    with hf.run("t") as run:
        assert run.tool("act", {}) == {"data": "by hand"}
    assert len(calls) == 1


def test_a_reply_that_cannot_be_recorded_is_asked_for_again(world: World) -> None:
    """Nothing was done. No person has to settle anything."""
    model = Counted({"client": object()}, "second")
    with pytest.raises(Unsupported) as refused, world.open().run("t", start={}) as run:
        run.model(model)
    assert refused.value.path == "$.client"
    with world.open().run("t") as run:
        assert run.model(model) == "second"
    assert len(model.calls) == 2


def test_a_read_that_cannot_be_recorded_is_made_again(world: World) -> None:
    found: list[Any] = [{"data": [1, object()]}, "fine"]
    read = holdfast.tool(effect="read", name="read")(lambda: found.pop(0))
    with pytest.raises(Unsupported, match=r"^\$\.data\[1\]"), world.open().run("t", start={}) as run:
        run.tool(read)
    with world.open().run("t") as run:
        assert run.tool(read) == "fine"


def test_a_reply_of_another_type_is_asked_for_again(world: World) -> None:
    replies: list[Any] = [{"text": 5}, Reply("hi", Mood.CALM)]
    with pytest.raises(Unsupported), world.open().run("t", start={}) as run:
        run.model(lambda: replies.pop(0), type=Reply, key="a")
    with world.open().run("t") as run:
        assert run.model(lambda: replies.pop(0), type=Reply, key="a") == Reply("hi", Mood.CALM)


def test_a_type_that_is_none_is_refused_before_the_model_is_paid(world: World) -> None:
    model = Counted("reply")
    with pytest.raises(holdfast.InvalidArgument), world.open().run("t", start={}) as run:
        run.model(model, type=5)
    assert model.calls == []


@covers("cortex/StepResult.pending")
def test_arguments_that_cannot_be_recorded_are_refused_before_the_tool_runs(world: World) -> None:
    tool = Counted("done")
    with pytest.raises(Unsupported) as refused, world.open().run("t", start={}) as run:
        run.tool(tool, {"where": {"at": object()}})
    assert refused.value.path == "$.where.at"
    assert tool.calls == []
    assert world.open().effects("t") == []


# -- prompts that change, models that invent --------------------------------------------------------------------------


def test_a_prompt_with_the_time_in_it_still_gets_the_recorded_reply(world: World) -> None:
    model = Counted("first", "second")
    with world.dying("t", start={}) as run:
        assert run.model(model, now=time.time_ns()) == "first"
        assert run.changed == ()
    with world.open().run("t") as run:
        assert run.model(model, now=time.time_ns()) == "first"
        assert [effect.number for effect in run.changed] == [1]
    assert len(model.calls) == 1


def test_a_prompt_that_did_not_change_is_not_flagged(world: World) -> None:
    with world.dying("t", start={}) as run:
        run.model(lambda **_: "a", prompt="p")
    with world.open().run("t") as run:
        run.model(lambda **_: "a", prompt="p")
        assert run.changed == ()


def test_rerun_on_change_is_a_choice(world: World) -> None:
    model = Counted("first", "second")
    with world.dying("t", start={}) as run:
        run.model(model, prompt="a", on_change="rerun")
    with world.dying("t") as run:
        assert run.model(model, prompt="b", on_change="rerun") == "second"
    with world.open().run("t") as run:
        assert run.model(model, prompt="b", on_change="rerun") == "second"
    assert len(model.calls) == 2


@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
def test_rerun_on_change_is_refused_once_the_step_acted(world: World, effect: Any) -> None:
    @holdfast.tool(effect=effect)
    def act() -> str:
        return "acted"

    model = Counted("first", "second")
    with world.dying("t", start={}) as run:
        run.model(model, prompt="a")
        run.tool(act, {})
    with pytest.raises(Conflict), world.open().run("t") as run:
        run.model(model, prompt="b", on_change="rerun")
    assert len(model.calls) == 1


def test_rerun_on_change_is_allowed_after_a_read(world: World) -> None:
    @holdfast.tool(effect="read")
    def look() -> str:
        return "seen"

    model = Counted("first", "next", "second")
    with world.dying("t", start={}) as run:
        run.model(model, prompt="a")
        run.tool(look, {})
        run.model(model, prompt="again")  # the read's result rides with this
    with world.open().run("t") as run:
        assert run.model(model, prompt="b", on_change="rerun") == "second"


def _agent(run: holdfast.Run, model: Any, ledger: list[Any], die_at: int = -1) -> None:
    """A loop in which the model's ids are the tools' keys; it dies before the call `die_at`."""

    def charge(amount: int, note: str) -> str:
        ledger.append(amount)
        return f"charged {amount}"

    done = 0
    for _ in run.steps():
        reply = run.model(model, messages=run.state["messages"], now=time.time_ns())
        run.state["messages"].append(reply)
        if not reply["tool_calls"]:
            run.finish(reply["content"])
            break
        for call in reply["tool_calls"]:
            if done == die_at:
                raise Crash
            result = run.tool(charge, call["args"], key=call["id"])
            done += 1
            run.state["messages"].append({"role": "tool", "id": call["id"], "content": result})


class Chatty:
    """A model that answers by what it sees, words its arguments anew each time, and names calls as `name` says."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.asked = 0

    def __call__(self, *, messages: list[Any], now: int) -> dict[str, Any]:
        self.asked += 1
        turn = sum("tool_calls" in message for message in messages)
        if turn == 3:
            return {"content": "done", "tool_calls": []}
        calls = [
            {"id": self._name.format(n=n, asked=self.asked), "args": {"amount": turn * 10 + n, "note": f"asked {now}"}}
            for n in range(2)
        ]
        return {"content": "", "tool_calls": calls}


@covers("E4", "E11", "ares/crash recovery", "cortex/DurableExecution", "cortex/DurableExecution.new")
@covers("cortex/DurableExecution.with_config", "cortex/DurableExecution.add_step", "cortex/DurableExecution.run")
@covers("cortex/ExecutionStep.new", "cortex/DurableConfig.persist_per_step", "cortex/test_simple_execution")
@covers("cortex/graph checkpointing", "cortex/Graph.resume", "cortex/graph Checkpoint.next_node")
@pytest.mark.parametrize("name", ["call_{n}", "call_{asked}_{n}"])
@pytest.mark.parametrize("policy", [AfterToolCall(), AfterModel(), EveryN(2), EverySeconds(3600), Never()])
@pytest.mark.parametrize("die_at", range(6))
def test_no_effect_is_repeated_whatever_the_model_calls_its_calls(
    world: World, name: str, policy: holdfast.Policy, die_at: int
) -> None:
    model, ledger = Chatty(name), list[Any]()
    with world.dying("t", start={"messages": []}, policy=policy) as run:
        _agent(run, model, ledger, die_at)
    with world.open().run("t", policy=policy) as run:
        _agent(run, model, ledger)
        assert run.status == "completed"
    assert ledger == [0, 1, 10, 11, 20, 21]
    assert model.asked == 4


@covers("E3")
@pytest.mark.parametrize("policy", [AfterToolCall(), AfterModel(), EveryN(2), EverySeconds(0.001), Never()])
def test_no_checkpoint_holds_a_call_without_its_result(world: World, policy: holdfast.Policy) -> None:
    ledger: list[Any] = []
    for die_at in (*range(6), -1):
        if die_at >= 0:
            with world.dying("t", start={"messages": []}, policy=policy) as run:
                _agent(run, Chatty("call_{n}"), ledger, die_at % 3)
        else:
            with world.open().run("t", policy=policy) as run:
                _agent(run, Chatty("call_{n}"), ledger)
    assert ledger == [0, 1, 10, 11, 20, 21]
    thread = world.open().thread("t")
    for checkpoint in thread.history():
        messages = thread.load(checkpoint).state["messages"]
        asked = sum(len(message["tool_calls"]) for message in messages if "tool_calls" in message)
        answered = sum(message.get("role") == "tool" for message in messages)
        assert asked == answered, f"checkpoint {checkpoint.seq} of {policy}"


def test_reworded_arguments_of_a_read_get_the_recorded_result_and_are_flagged(world: World) -> None:
    tool = Counted("sent", "sent again")
    holdfast.tool(effect="read", name="look")(tool)
    with world.dying("t", start={}) as run:
        run.tool(tool, {"text": "Dear Ada"}, key="mail")
        run.model(dict)
    with world.open().run("t") as run:
        assert run.tool(tool, {"text": "Dear Ada,"}, key="mail") == "sent"
        assert [effect.key for effect in run.changed] == [world.open().effects("t")[0].key]
    assert len(tool.calls) == 1


# -- reads ------------------------------------------------------------------------------------------------------------


def test_results_of_reads_ride_with_the_next_commit(world: World) -> None:
    seen = Counted()

    @holdfast.tool(effect="read")
    def look() -> Any:
        return seen()

    hf = world.open(look)
    with world.dying("t", hf, start={}) as run:
        assert run.tool("look", {}) == {"number": 1}
        assert hf.effects("t") == []  # nothing was written for it
    with world.dying("t") as run:
        assert run.tool(look, {}) == {"number": 2}  # lost with its process, read again
        run.tool(Counted("acted"), {})
        assert [effect.name for effect in world.open().effects("t")] == ["look", "Counted"]
    with world.open().run("t") as run:
        assert run.tool(look, {}) == {"number": 2}
    assert len(seen.calls) == 2


def test_a_read_within_a_run_is_made_once_per_call(world: World) -> None:
    seen = Counted()

    @holdfast.tool(effect="read")
    def look() -> Any:
        return seen()

    with world.open().run("t", start={}) as run:
        assert [run.tool(look, {}, key="a")["number"] for _ in range(3)] == [1, 1, 1]
        assert run.tool(look, {}, key="b") == {"number": 2}


def test_reads_ride_with_a_checkpoint(world: World) -> None:
    @holdfast.tool(effect="read")
    def look() -> str:
        return "seen"

    hf = world.open(look)
    with hf.run("t", start={}) as run:
        run.tool("look", {})
        run.save()
    assert [effect.status for effect in hf.effects("t")] == ["done"]


# -- branches and closed steps ----------------------------------------------------------------------------------------


def test_entries_closed_by_a_checkpoint_never_match_again(world: World) -> None:
    model, tool = Counted(), Counted()
    with world.dying("t", start={}) as run:
        for step in run.steps():
            assert run.model(model)["number"] == step
            assert run.tool(tool, {}, key="call_0")["number"] == step
            if step == 3:
                break
    with world.open().run("t") as run:
        assert run.step == 3
        for _ in run.steps():
            assert run.model(model)["number"] == 3  # of the open step
            assert run.tool(tool, {}, key="call_0")["number"] == 3
            run.save()
            assert run.model(model)["number"] == 4
            assert run.tool(tool, {}, key="call_0")["number"] == 4
            break


def test_a_save_in_the_middle_closes_the_step(world: World) -> None:
    tool = Counted()
    for _ in range(2):
        with world.dying("t", start={"n": 0}, policy=Never()) as run:
            for _ in run.steps():
                assert run.state == {"n": 0}
                run.state["n"] = run.tool(tool, {}, key="k")["number"]
                run.save()
                assert run.tool(tool, {}, key="k") == {"number": 2}
                break
        assert len(tool.calls) == 2


def test_a_rewind_starts_a_branch_that_the_old_journal_does_not_answer(world: World) -> None:
    model = Counted()
    hf = world.open()
    with hf.run("t", start={"n": 0}) as run:
        run.state["n"] = 1
        run.save()
        assert run.model(model) == {"number": 1}
    hf.thread("t").rewind("@0")
    with hf.run("t") as run:
        assert run.state == {"n": 0}
        run.state["n"] = 2
        run.save()
        # The same step and key as in the branch that was left.
        assert run.model(model) == {"number": 2}
    assert [(effect.branch, effect.step) for effect in hf.effects("t")] == [(0, 2), (1, 2)]


@covers("cortex/Graph.resume")
def test_a_rewind_of_a_completed_run_can_be_run_again(world: World) -> None:
    hf = world.open()
    with hf.run("t", start={"n": 0}) as run:
        run.state["n"] = 1
        run.save()
        run.finish("one way")
    hf.thread("t").rewind("@1")
    with hf.run("t") as run:
        assert run.status == "running"
        assert run.state == {"n": 1}
        run.finish("another")
    with hf.run("t") as run:
        assert run.result == "another"


# -- journal ----------------------------------------------------------------------------------------------------------


@covers("E4", "continuum/CheckpointData.tool_results", "continuum/ErrorRecovery.get_stats", "cortex/StepResult.output")
@covers("cortex/StepResult.started_at", "cortex/StepResult.completed_at", "cortex/StepResult.duration_ms")
@covers("cortex/ExecutionResult.total_duration_ms", "cortex/ExecutionState.step_results", "cortex/StepStatus.Completed")
@covers("cortex/StepResult.step_id", "cortex/StepResult.status", "cortex/test_execution_state")
def test_the_journal_says_what_was_called(hf: Holdfast) -> None:
    @holdfast.tool(effect="idempotent")
    def pay(amount: int) -> str:
        return f"paid {amount}"

    before = datetime.now(UTC) - timedelta(seconds=1)
    with hf.run("t", start={}, tools=[pay]) as run:
        run.model(lambda prompt: "reply", prompt="hello")
        run.tool("pay", {"amount": 5}, key="call_0")
    model, tool = hf.effects("t")
    assert (model.number, model.step, model.effect, model.status, model.result) == (1, 1, "model", "done", "reply")
    assert (tool.number, tool.name, tool.effect, tool.status) == (2, "pay", "idempotent", "done")
    assert tool.arguments == {"amount": 5}
    assert tool.result == "paid 5"
    assert "call_0" in tool.key
    assert tool.ended_at is not None
    assert before < tool.started_at <= tool.ended_at
    with pytest.raises(NotFound):
        hf.effects("other")
