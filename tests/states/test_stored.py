"""Ready-made states in a store: as any type of a user's own."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

import holdfast
from holdfast import Holdfast, Unsupported, Usage, states
from holdfast.states import AgentState, Conversation, File, Image, Message, Prompt, Text, ToolCall
from tests.covers import covers


def a_work() -> AgentState:
    call = ToolCall("read", {"path": "a", "depth": 2})
    work = AgentState(budget=1000, prompt=Prompt("rules", "today"), usage=Usage(input=3, cost=0.5), iteration=4)
    work.push(Message.system("S"), Message.user("look", images=[Image("data:image/png;base64,QQ", "low")]))
    work.push(Message.assistant("", tool_calls=[call], reasoning="hm"), Message.tool(call, [File(b"\x00", "x/y")]))
    work.push(Message.assistant([Text("done")], data={"mine": (1, 2.5, None)}))
    work.record(call.done({"size": 3}), ToolCall("pay", "as text").started(), ToolCall("mail").in_doubt())
    work.partial_results += ["chunk", {"n": 1}]
    return work


@covers("ares/Checkpoint.messages", "ares/Checkpoint.tool_calls", "ares/Checkpoint.partial_results")
@covers("ares/CheckpointMessage.role", "ares/CheckpointMessage.content", "ares/ToolCallRecord.tool_name")
@covers("ares/ToolCallRecord.arguments", "ares/ToolCallRecord.result", "ares/test_save_and_load")
@covers("ares/create_checkpoint", "smooth/Message.tool_calls", "smooth/Message.reasoning_content")
@covers("smooth/Message.images", "smooth/Message.timestamp", "smooth/Message.images.serialization")
@covers("smooth/Conversation.messages", "smooth/Conversation.serialization")
@covers("smooth/Conversation.with_cached_system_prompt", "smooth/ToolCall", "continuum/CheckpointData.messages")
@covers("continuum/CheckpointData.tool_results", "continuum/CheckpointData.iteration", "continuum/Message")
@covers("continuum/MessageRole")
def test_a_state_comes_back_as_it_was(hf: Holdfast) -> None:
    work = a_work()
    hf.thread("agent", type=AgentState).save(work)
    assert hf.thread("agent", type=AgentState).latest() is not None
    loaded = hf.thread("agent", type=AgentState).load("@-1").state
    assert loaded == work
    assert type(loaded) is AgentState
    assert type(loaded.messages[1].content[1]) is Image


@covers("smooth/Role.serialization")
def test_without_a_type_it_is_plain_data(hf: Holdfast) -> None:
    hf.thread("agent", type=Conversation).save(Conversation(messages=[Message.user("Hello")], id="talk"))
    state = hf.thread("agent").load("@-1").state
    assert state["messages"][0]["role"] == "user"
    assert state["messages"][0]["content"] == "Hello"


@covers("smooth/Conversation.len")
def test_a_message_more_costs_a_message_more(hf: Holdfast) -> None:
    thread, talk = hf.thread("agent", type=Conversation), Conversation()
    talk.push(*(Message.user(f"message {n} " * 50) for n in range(200)))
    thread.save(talk)
    talk.push(Message.assistant("one more"))
    thread.save(talk)
    change = thread.diff("@-2", "@-1").changes
    assert [(each.kind, each.path) for each in change] == [("added", "$.messages[200]")]


@covers("smooth/Checkpoint.conversation")
def test_a_run_holds_one(hf: Holdfast) -> None:
    def answer() -> str:
        return "Tides are two a day."

    with hf.run("talk", start=Conversation(prompt="P"), type=Conversation) as run:
        run.state.push(Message.user("tides?"))
        run.state.push(Message.assistant(run.model(answer)))
        run.finish()
    assert hf.thread("talk", type=Conversation).load("@-1").state.last_answer() == "Tides are two a day."


class Strict(Conversation):
    """One that is saved only where it can be resumed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_resumable()


@covers("smooth/python.refuses_unanswered")
def test_a_conversation_can_refuse_to_be_saved_in_the_middle_of_a_turn(hf: Holdfast) -> None:
    thread, talk, call = hf.thread("agent", type=Strict), Strict(), ToolCall("read")
    talk.push(Message.user("go"))
    thread.save(talk)
    talk.push(Message.assistant(tool_calls=[call]))
    with pytest.raises(Unsupported) as refused:
        thread.save(talk)
    assert "message 1 has calls without results" in str(refused.value.__cause__)
    assert thread.count() == 1
    talk.push(Message.tool(call, "text"))
    assert thread.save(talk).seq == 2


class Booked(AgentState):
    """A work with a field of its own."""

    customer: str = ""


def test_a_subclass_is_stored_by_its_own_name(hf: Holdfast) -> None:
    hf.thread("agent", type=Booked).save(Booked(customer="ann", messages=[Message.user("hi")]))
    assert hf.thread("agent", type=Booked).load("@-1").state.customer == "ann"
    with pytest.raises(Unsupported):
        hf.thread("agent", type=AgentState).save(Booked(customer="bob"))


def test_a_state_can_hold_one() -> None:
    class Desk(msgspec.Struct):
        talk: Conversation
        open: bool = True

    with holdfast.open("memory:") as hf:
        desk = Desk(Conversation(messages=[Message.user("hi")]))
        hf.thread("desk", type=Desk).save(desk)
        assert hf.thread("desk", type=Desk).load("@-1").state == desk


def test_nothing_of_it_is_among_the_names_of_the_package() -> None:
    own = {name for name, value in vars(states).items() if getattr(value, "__module__", "") == "holdfast.states"}
    assert "Conversation" in own
    assert not own & set(holdfast.__all__)
    code = "import sys, holdfast; sys.exit('holdfast.states' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
