"""A conversation that goes on with another provider."""

from __future__ import annotations

from copy import deepcopy

from holdfast.states import AgentState, Conversation, Image, Message, Text, ToolCall, hand_over
from tests.covers import covers


def talk_of(*messages: Message) -> Conversation:
    return Conversation(messages=list(messages), prompt="P")


@covers("smooth/ContextHandoff.to_text", "smooth/ContextHandoff.from_text")
def test_thoughts_are_put_into_the_text_and_taken_out_again() -> None:
    talk = talk_of(Message.assistant("42", reasoning="six by nine"), Message.user("<thinking>mine</thinking>"))
    there = hand_over(talk, reasoning="inline")
    assert [each.content for each in there.messages] == [
        "<thinking>six by nine</thinking>42",
        "<thinking>mine</thinking>",
    ]
    assert there.messages[0].reasoning is None
    assert hand_over(there, reasoning="extract") == talk


@covers("smooth/ContextHandoff.same_provider")
def test_thoughts_can_be_kept_or_left_away() -> None:
    talk = talk_of(Message.assistant("42", reasoning="hm"), Message.assistant("43"))
    assert hand_over(talk) == talk
    assert [each.reasoning for each in hand_over(talk, reasoning="drop").messages] == [None, None]
    assert hand_over(talk, reasoning="extract") == talk


def test_thoughts_stand_ahead_of_parts() -> None:
    image = Image("https://a")
    there = hand_over(talk_of(Message.assistant([image], reasoning="hm")), reasoning="inline")
    assert there.messages[0].content == [Text("<thinking>hm</thinking>"), image]


def test_thoughts_ahead_of_parts_are_taken_out_again() -> None:
    talk = talk_of(Message.assistant([Image("https://a")], reasoning="hm"), Message.assistant([Text("x")]))
    assert hand_over(hand_over(talk, reasoning="inline"), reasoning="extract") == talk


def test_no_thought_is_lost_when_they_are_taken_out() -> None:
    said = "<thinking>one</thinking>Four<thinking>two</thinking>two"
    there = hand_over(talk_of(Message.assistant(said, reasoning="before")), reasoning="extract")
    assert (there.messages[0].content, there.messages[0].reasoning) == ("Fourtwo", "before\none\ntwo")
    parts = hand_over(talk_of(Message.assistant([Text(said), Image("https://a")])), reasoning="extract")
    assert parts.messages[0].content == [Text("Fourtwo"), Image("https://a")]
    assert parts.messages[0].reasoning == "one\ntwo"


@covers("smooth/ContextHandoff.strip_provider_metadata")
def test_ids_of_calls_are_new_and_still_pair() -> None:
    call, other = ToolCall("read", id="toolu_A"), ToolCall("read", id="toolu_B")
    work = AgentState(messages=[Message.assistant(tool_calls=[call, other]), Message.tool(other, "b")])
    work.push(Message.tool(call, "a"))
    work.record(call.started(), ToolCall("elsewhere", id="x"))
    there = hand_over(work)
    assert [each.id for each in there.messages[0].tool_calls] == ["call_1", "call_2"]
    assert [each.tool_call_id for each in there.messages[1:]] == ["call_2", "call_1"]
    assert [each.id for each in there.tool_calls] == ["call_1", "call_3"]
    assert there.is_resumable()
    assert hand_over(work, new_ids=False) == work


def test_no_two_calls_come_to_have_one_id() -> None:
    asked, done = ToolCall("read", id="toolu_A"), ToolCall("write", id="call_1")
    work = AgentState(messages=[Message.assistant(tool_calls=[asked]), Message.tool(asked, "a")])
    work.record(done.started().done("written"))
    there = hand_over(work)
    assert there.messages[0].tool_calls[0].id == there.messages[1].tool_call_id == "call_1"
    assert [each.id for each in there.tool_calls] == ["call_2"]
    there.record(*there.messages[0].tool_calls)
    assert [(each.name, each.status) for each in there.tool_calls] == [("write", "done"), ("read", "pending")]


def test_an_answer_to_nothing_does_not_become_one_to_something() -> None:
    call = ToolCall("read", id="toolu_A")
    talk = talk_of(Message.tool("call_1", "of long ago"), Message.assistant(tool_calls=[call]))
    there = hand_over(talk)
    assert there.messages[0].tool_call_id == "call_1"
    assert there.messages[1].tool_calls[0].id == "call_2"


@covers("smooth/ContextHandoff.placeholder")
def test_an_empty_answer_gets_a_text_unless_it_asks_for_tools() -> None:
    call = ToolCall("read", id="call_1")
    talk = talk_of(Message.assistant("  "), Message.assistant("", tool_calls=[call]), Message.tool(call, ""))
    assert [each.text for each in hand_over(talk).messages] == ["(continued)", "", ""]
    assert hand_over(talk, placeholder="…").messages[0].text == "…"
    parts = talk_of(Message.assistant([]), Message.assistant([Text(" ")]), Message.assistant([Image("https://a")]))
    told = hand_over(parts, reasoning="drop").messages
    assert [each.content for each in told] == ["(continued)", "(continued)", [Image("https://a")]]


@covers("smooth/ContextHandoff.prepare")
def test_the_old_conversation_stays_as_it_is() -> None:
    work = AgentState(messages=[Message.assistant("", reasoning="hm"), Message.tool("9", "x")], data={"a": [1]})
    before = deepcopy(work)
    there = hand_over(work, reasoning="inline")
    there.push(Message.user("more"))
    there.data["a"].append(2)
    there.partial_results.append("r")
    assert work == before
