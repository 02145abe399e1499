"""What Smooth's checkpoints, strategies and agent loop do, done by Holdfast: an agent is a thread."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import (
    AfterModel,
    AfterToolCall,
    EveryN,
    Holdfast,
    InvalidArgument,
    Never,
    Policy,
    Run,
    Unsupported,
    tool,
)
from holdfast.exporters import export_jsonl
from holdfast.importers import import_from
from holdfast.states import Conversation, Message, ToolCall
from holdfast.telemetry import instrument
from tests.parity.covering import covers


def talk() -> Conversation:
    return Conversation(prompt="test", budget=100_000)


@covers("smooth", "Checkpoint.id", "Checkpoint.agent_id", "Checkpoint.iteration", "Checkpoint.created_at")
def test_a_checkpoint_has_an_id_an_agent_an_iteration_and_a_time(hf: Holdfast) -> None:
    made = hf.thread("agent-1", type=Conversation).save(talk(), step=5)
    assert made.id
    assert (made.thread, made.step) == ("agent-1", 5)
    assert made.created_at.utcoffset() == timedelta(0)
    assert abs((datetime.now(UTC) - made.created_at).total_seconds()) < 60


@covers("smooth", "Checkpoint.new", "Checkpoint.conversation")
def test_a_checkpoint_holds_the_conversation_as_it_was(hf: Holdfast) -> None:
    conversation = talk()
    conversation.push(Message.user("Hello"))
    thread = hf.thread("agent-1", type=Conversation)
    made = thread.save(conversation)
    conversation.push(Message.assistant("later"))
    loaded = thread.load(made.id).state
    assert [each.text for each in loaded.messages] == ["Hello"]
    assert (loaded.prompt, loaded.budget, loaded.id) == ("test", 100_000, conversation.id)


@covers("smooth", "Checkpoint.metadata", "Checkpoint.with_metadata")
def test_data_is_added_name_by_name_and_all_of_it_is_kept(hf: Holdfast) -> None:
    metadata: dict[str, Any] = {}
    metadata["phase"] = "execute"
    metadata["bead_id"] = "smooth-abc"
    made = hf.thread("agent-1").save({}, metadata=metadata)
    assert made.metadata == {"phase": "execute", "bead_id": "smooth-abc"}
    assert hf.thread("agent-1").load(made.id).metadata == made.metadata


@covers("smooth", "Checkpoint.to_bytes", "Checkpoint.from_bytes", "Conversation.serialization")
def test_a_checkpoint_goes_to_bytes_and_back(hf: Holdfast, tmp_path: Path) -> None:
    made = hf.thread("agent-1", type=Conversation).save(talk(), step=3, metadata={"phase": "execute"})
    export_jsonl(hf, tmp_path / "agent.jsonl")
    with holdfast.open("memory:") as there:
        assert import_from(there, "jsonl", str(tmp_path / "agent.jsonl")).ok
        restored = there.thread("agent-1", type=Conversation).load(made.id)
    assert restored == hf.thread("agent-1", type=Conversation).load(made.id)
    assert (restored.thread, restored.step, restored.state.prompt) == ("agent-1", 3, "test")
    as_json = msgspec.json.encode(restored.state)
    assert msgspec.json.decode(as_json, type=Conversation) == restored.state


@covers("smooth", "CheckpointStrategy.EveryN", "CheckpointEvent.Iteration", "CheckpointStrategy.should_checkpoint")
def test_every_nth_iteration() -> None:
    policy, saved, last = EveryN(3), list[int](), 0
    for iteration in range(1, 8):
        if policy.should_save("step", iteration, saved_step=last):
            saved.append(iteration)
            last = iteration
    assert saved == [3, 6]
    assert not policy.should_save("tool", 3)  # an iteration is saved once, not once for each event in it
    with pytest.raises(InvalidArgument):
        EveryN(0)


@covers("smooth", "CheckpointStrategy.AfterToolCall", "CheckpointStrategy.AfterLlmResponse", "CheckpointStrategy.Never")
@covers("smooth", "CheckpointEvent.ToolCallComplete", "CheckpointEvent.LlmResponse")
@covers("smooth", "CheckpointStrategy.should_checkpoint")
@pytest.mark.parametrize(
    ("policy", "tool_call", "model", "step"),
    [
        (AfterToolCall(), True, False, False),
        (AfterModel(), False, True, False),
        (Never(), False, False, False),
        (AfterToolCall() | AfterModel(), True, True, False),
    ],
)
def test_a_strategy_says_at_which_event_to_save(policy: Policy, tool_call: bool, model: bool, step: bool) -> None:
    answers = [policy.should_save(event, 1) for event in ("tool", "model", "step")]
    assert answers == [tool_call, model, step]


@covers("smooth", "CheckpointStrategy.clone")
def test_a_strategy_is_a_value() -> None:
    assert copy.copy(EveryN(3)) == EveryN(3) != EveryN(4)
    assert msgspec.json.decode(msgspec.json.encode(EveryN(3)), type=EveryN) == EveryN(3)


@tool(effect="read")
def search(query: str) -> str:
    return f"about {query}"


def answer() -> str:
    return "an answer"


def saved_after(hf: Holdfast, thread: str, work: Callable[[Run], object], policy: Policy | None) -> int:
    """How many checkpoints three steps of that work bring, beside those of the beginning and the end."""
    with hf.run(thread, start={}, policy=policy, tools=[search]) as run:
        for step in run.steps():
            if step > 3:
                break
            work(run)
        run.finish()
    return hf.thread(thread).count() - 2


@covers("smooth", "CheckpointStrategy.default", "Agent.maybe_checkpoint", "CheckpointStrategy.Never")
def test_a_run_asks_its_strategy_after_answers_and_tool_results(hf: Holdfast) -> None:
    def by_model(run: Run) -> object:
        return run.model(answer)

    def by_tool(run: Run) -> object:
        return run.tool(search, {"query": "tides"})

    assert saved_after(hf, "default, tool", by_tool, None) == 3
    assert saved_after(hf, "default, model", by_model, None) == 0
    assert saved_after(hf, "model, model", by_model, AfterModel()) == 3
    assert saved_after(hf, "model, tool", by_tool, AfterModel()) == 0
    assert saved_after(hf, "never, tool", by_tool, Never()) == 0
    assert saved_after(hf, "every other", by_tool, EveryN(2)) == 1


@covers("smooth", "Agent.resume_or_new")
def test_an_agent_goes_on_where_it_was_or_begins(hf: Holdfast) -> None:
    def turn() -> tuple[bool, int, int]:
        with hf.run("agent-1", start=talk(), type=Conversation, agent="librarian") as run:
            for step in run.steps():
                run.state.push(Message.assistant(run.model(answer)))
                run.save()
                return run.resumed, step, len(run.state.messages)
        raise AssertionError("no step")

    # Not the conversation alone: the step goes on, too, and under the name that the caller gave.
    assert [turn(), turn(), turn()] == [(False, 1, 1), (True, 2, 2), (True, 3, 3)]
    assert hf.thread("agent-1").step() == 3


@covers("smooth", "Agent.save_error")
def test_a_save_that_fails_is_told_and_what_was_saved_before_stays(hf: Holdfast) -> None:
    thread = hf.thread("agent-1")
    made = thread.save({"messages": ["one"]})
    with pytest.raises(Unsupported, match=r"\$.messages\[1\]"):
        thread.save({"messages": ["one", object()]})
    latest = thread.latest()
    assert latest is not None
    assert latest.id == made.id


@covers("smooth", "AgentEvent.CheckpointSaved")
def test_others_are_told_that_a_checkpoint_was_saved(hf: Holdfast) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(hf, tracer_provider=provider)
    hf.thread("agent-1").save({}, step=4)
    attributes = [span.attributes or {} for span in exporter.get_finished_spans() if span.name == "holdfast.save"]
    assert [(each["gen_ai.conversation.id"], each["holdfast.step"]) for each in attributes] == [("agent-1", 4)]


@covers("smooth", "python.one_slot")
def test_each_conversation_has_one_newest_state(hf: Holdfast) -> None:
    for name in ("a", "b"):
        for n in range(3):
            hf.thread(f"conversation/{name}").save({"n": n}, expect=holdfast.ANY)
    newest = {info.name: hf.thread(info.name).load("@-1").state["n"] for info in hf.threads()}
    assert newest == {"conversation/a": 2, "conversation/b": 2}


class Answered(Conversation):
    """A conversation that is stored only where a provider would go on with it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_resumable()


@covers("smooth", "python.refuses_unanswered")
def test_a_conversation_with_unanswered_calls_is_not_saved(hf: Holdfast) -> None:
    first, second = ToolCall("read", {"path": "a"}), ToolCall("read", {"path": "b"})
    conversation, thread = Answered(), hf.thread("agent-1", type=Answered)
    conversation.push(Message.user("read both"))
    thread.save(conversation)
    conversation.push(Message.assistant(tool_calls=[first, second]))
    for result in (Message.tool(first, "A"), Message.tool(second, "B")):
        with pytest.raises(Unsupported):
            thread.save(conversation)
        conversation.push(result)
    assert thread.save(conversation).seq == 2


@covers("smooth", "python.refuses_unanswered")
def test_a_run_saves_no_conversation_in_the_middle_of_a_turn(hf: Holdfast) -> None:
    calls = [ToolCall("search", {"query": name}) for name in ("a", "b")]
    with hf.run("agent-1", start=Conversation(), type=Conversation, tools=[search]) as run:
        for step in run.steps():
            if step == 2:
                break
            run.state.push(Message.assistant(tool_calls=calls))
            for call in calls:
                run.state.push(Message.tool(call, run.tool("search", call.arguments, key=call.id)))
    thread = hf.thread("agent-1", type=Conversation)
    assert all(thread.load(each).state.is_resumable() for each in thread.history())
    assert thread.load("@-1").state.answers() == 1
