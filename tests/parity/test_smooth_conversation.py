"""What Smooth's messages, conversations and prompts do, done by `holdfast.states`, in a store and out of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.states import (
    Conversation,
    Image,
    Message,
    Prompt,
    Role,
    Text,
    ToolCall,
    estimated_tokens,
    hand_over,
)
from tests.parity.covering import covers

MARK = "<<what follows changes>>"


def stored(hf: Holdfast, conversation: Conversation) -> Conversation:
    """The conversation, saved and loaded."""
    thread = hf.thread(conversation.id, type=Conversation)
    thread.save(conversation)
    loaded: Conversation = thread.load("@-1").state
    return loaded


@covers("smooth", "Message.system", "Message.user", "Message.assistant", "Message.tool_result", "Message.role")
@covers("smooth", "Message.content", "Message.tool_call_id", "Message.tool_name", "Message.tool_result_named")
def test_messages_are_made_by_one_call_each() -> None:
    made = [
        Message.system("You are helpful"),
        Message.user("Hello"),
        Message.assistant("Hi there"),
        Message.tool("call-123", "result data"),
        Message.tool("call-124", "more", tool_name="read_file"),
    ]
    assert [each.role for each in made] == ["system", "user", "assistant", "tool", "tool"]
    assert [each.content for each in made] == ["You are helpful", "Hello", "Hi there", "result data", "more"]
    assert [(each.tool_call_id, each.tool_name) for each in made[3:]] == [
        ("call-123", None),
        ("call-124", "read_file"),
    ]


@covers("smooth", "Message.id", "Message.timestamp", "Message.tool_calls", "Message.reasoning_content", "ToolCall")
def test_all_of_a_message_comes_back_from_a_store(hf: Holdfast) -> None:
    call = ToolCall("read_file", {"path": "a.txt"}, id="tc1")
    conversation = Conversation()
    conversation.push(Message.assistant("", tool_calls=[call], reasoning="I should look."), Message.tool(call, "x"))
    back = stored(hf, conversation).messages
    assert back == conversation.messages
    assert (back[0].id, back[0].at) == (conversation.messages[0].id, conversation.messages[0].at)
    assert back[0].id != back[1].id
    assert back[0].at is not None
    assert abs((datetime.now(UTC) - back[0].at).total_seconds()) < 60
    assert back[0].reasoning == "I should look."
    asked = back[0].tool_calls[0]
    assert (asked.id, asked.name, asked.arguments) == ("tc1", "read_file", {"path": "a.txt"})


@covers("smooth", "Message.images", "Message.user_with_images", "Message.images.serialization", "ImageContent.new")
def test_images_come_back_with_url_and_detail(hf: Holdfast) -> None:
    images = [Image("data:image/png;base64,QQ", "low"), Image("https://example.org/a.png")]
    conversation = Conversation(messages=[Message.user("caption", images=images), Message.user("", images=images[:1])])
    back = stored(hf, conversation).messages
    assert (back[0].text, back[0].images, back[1].text) == ("caption", images, "")
    as_json = msgspec.json.encode(conversation.messages[0])
    assert msgspec.json.decode(as_json, type=Message).images == images
    assert images[1].detail is None


@covers("smooth", "Message.serialization", "Role.serialization")
def test_a_text_message_goes_to_json_and_carries_nothing_it_has_not() -> None:
    as_json = msgspec.json.encode(Message.user("Hello"))
    assert b'"role":"user"' in as_json
    for field in (b"image", b"tool", b"reasoning"):
        assert field not in as_json
    back = msgspec.json.decode(as_json, type=Message)
    assert (back.role, back.content) == ("user", "Hello")
    assert get_args(Role) == ("system", "user", "assistant", "tool")


@covers("smooth", "Message.estimated_tokens")
def test_tokens_are_estimated() -> None:
    assert estimated_tokens(Message.user("Hello world!")) == 12 // 4 + 1
    assert estimated_tokens(Message.user("")) > 0


@covers("smooth", "Conversation.new", "Conversation.max_context_tokens", "Conversation.is_empty", "Conversation.id")
def test_a_new_conversation_is_empty() -> None:
    conversation = Conversation(budget=100_000)
    assert conversation.messages == []
    assert (conversation.tokens(), conversation.last_answer(), conversation.answers()) == (0, None, 0)
    assert conversation.budget == 100_000
    assert conversation.id != Conversation().id


@covers("smooth", "Conversation.with_system_prompt", "Conversation.push", "Conversation.messages", "Conversation.len")
@covers("smooth", "Conversation.last_assistant_content", "Conversation.assistant_turn_count")
def test_messages_are_added_at_the_end() -> None:
    conversation = Conversation(prompt="Be helpful")
    assert [each.text for each in conversation.window()] == ["Be helpful"]
    conversation.push(Message.user("Hello"))
    conversation.push(Message.assistant("Hi!"))
    assert len(conversation.messages) == 2
    assert (conversation.last_answer(), conversation.answers()) == ("Hi!", 1)


@covers("smooth", "Conversation.context_window", "Conversation.context_window.trims", "Conversation.total_tokens")
def test_the_window_is_the_prompt_and_the_newest_that_fit() -> None:
    conversation = Conversation(budget=50, prompt="System")
    conversation.push(*(Message.user(f"msg {n}") for n in range(100)))
    window = conversation.window()
    assert (window[0].role, window[0].text) == ("system", "System")
    assert 2 < len(window) < 100
    assert [each.text for each in window[1:]] == [f"msg {n}" for n in range(101 - len(window), 100)]
    tokens = sum(estimated_tokens(each) for each in window)
    assert tokens <= 50 < tokens + estimated_tokens(conversation.messages[0])
    assert conversation.tokens() == sum(map(estimated_tokens, [window[0], *conversation.messages]))


@covers("smooth", "Conversation.context_window.small")
def test_the_prompt_is_in_the_smallest_window() -> None:
    conversation = Conversation(budget=6, prompt="S")
    conversation.push(Message.user("A short message"), Message.user("Another message"))
    assert [each.text for each in conversation.window()] == ["S", "Another message"]


@covers("smooth", "Conversation.context_window.pairs")
@pytest.mark.parametrize("budget", range(7, 40))
def test_where_the_window_is_cut_calls_and_results_stay_together(budget: int) -> None:
    conversation = Conversation(budget=budget)
    for n in range(6):
        calls = [ToolCall("read", id=f"{n}{letter}") for letter in "ab"]
        conversation.push(Message.assistant(tool_calls=calls), *(Message.tool(call, "result") for call in calls))
    window = Conversation(messages=conversation.window())
    assert window.messages
    assert window.is_resumable()


@covers("smooth", "Conversation.serialization")
def test_a_conversation_comes_back_from_a_store(hf: Holdfast) -> None:
    conversation = Conversation(budget=100_000, prompt="Test", messages=[Message.user("Hello")])
    assert stored(hf, conversation) == conversation


@covers("smooth", "PromptCache.from_system_prompt", "PromptCache.no_marker", "PromptCache.full_prompt")
def test_a_prompt_has_a_part_that_stays_and_one_that_changes() -> None:
    prompt = Prompt.split(f"static rules here{MARK}dynamic context here", MARK)
    assert (prompt.static, prompt.dynamic) == ("static rules here", "dynamic context here")
    assert prompt.text == "static rules heredynamic context here"
    plain = Prompt.split("no marker in this prompt", MARK)
    assert (plain.static, plain.dynamic) == ("", "no marker in this prompt")


@covers("smooth", "PromptCache.update_dynamic", "PromptCache.static_hash")
def test_what_changes_does_not_change_the_digest_of_what_stays() -> None:
    prompt = Prompt("static", "old dynamic")
    newer = prompt.with_dynamic("new dynamic")
    assert newer == Prompt("static", "new dynamic")
    assert newer.digest == prompt.digest == Prompt("static", "x").digest
    assert Prompt("static B", "old dynamic").digest != prompt.digest


@covers("smooth", "PromptCache.cached_tokens")
def test_what_stays_of_a_prompt_is_counted_as_the_conversation_counts() -> None:
    class Words(Conversation):
        def tokens_of(self, message: Message) -> int:
            return len(message.text.split())

    static = Message.system(Prompt("static text", "dynamic").static)
    assert estimated_tokens(static) == Conversation().tokens_of(static) == 11 // 4 + 1
    assert Words().tokens_of(static) == 2
    assert Prompt("", "all dynamic").static == ""


@covers("smooth", "Conversation.with_cached_system_prompt")
def test_a_prompt_in_two_parts_replaces_the_prompt_and_nothing_else(hf: Holdfast) -> None:
    conversation = Conversation(prompt="old system prompt")
    conversation.push(Message.user("hello"), Message.assistant("hi"))
    conversation.prompt = Prompt("new static. ", "new dynamic")
    window = stored(hf, conversation).window()
    assert [each.role for each in window] == ["system", "user", "assistant"]
    assert window[0].content == [Text("new static. "), Text("new dynamic")]


@covers("smooth", "ContextHandoff.to_text", "ContextHandoff.from_text", "ContextHandoff.same_provider")
def test_thoughts_are_handed_over_as_text_and_back() -> None:
    conversation = Conversation(messages=[Message.assistant("The answer is 42", reasoning="I need to reason")])
    there = hand_over(conversation, reasoning="inline")
    assert there.messages[0].content == "<thinking>I need to reason</thinking>The answer is 42"
    back = hand_over(there, reasoning="extract")
    assert (back.messages[0].content, back.messages[0].reasoning) == ("The answer is 42", "I need to reason")
    assert hand_over(conversation) == conversation


@covers("smooth", "ContextHandoff.strip_provider_metadata", "ContextHandoff.placeholder", "ContextHandoff.prepare")
def test_a_conversation_is_handed_over_without_what_is_of_one_provider() -> None:
    call = ToolCall("read_file", {}, id="toolu_456")
    conversation = Conversation(
        messages=[
            *(Message.assistant(""), Message.assistant("   "), Message.assistant("real content")),
            Message.assistant("used a tool", tool_calls=[call]),
            Message.tool(call, "data"),
        ]
    )
    before = msgspec.json.encode(conversation)
    there = hand_over(conversation)
    assert [each.content for each in there.messages[:3]] == ["(continued)", "(continued)", "real content"]
    assert b"toolu_456" not in msgspec.json.encode(there)
    assert there.is_resumable()
    assert msgspec.json.encode(conversation) == before
