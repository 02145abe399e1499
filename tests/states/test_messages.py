"""Messages."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.states import File, Image, Message, Text, ToolCall, estimated_tokens
from tests.covers import covers


@covers("ares/CheckpointMessage.role", "ares/CheckpointMessage.content", "smooth/Message.role")
@covers("smooth/Message.content", "smooth/Message.tool_call_id", "smooth/Message.tool_name")
@covers("smooth/Message.tool_calls", "smooth/Message.system", "smooth/Message.user", "smooth/Message.assistant")
@covers("smooth/Message.tool_result")
def test_each_role_is_made_by_one_call() -> None:
    call = ToolCall("read", {"path": "a"}, id="call_1")
    made = [
        Message.system("Be kind."),
        Message.user("Hello"),
        Message.assistant("Hi", tool_calls=[call]),
        Message.tool(call, "contents"),
    ]
    assert [each.role for each in made] == ["system", "user", "assistant", "tool"]
    assert [each.text for each in made] == ["Be kind.", "Hello", "Hi", "contents"]
    assert made[2].tool_calls == [call]
    assert (made[3].tool_call_id, made[3].tool_name, made[3].is_error) == ("call_1", "read", False)


@covers("smooth/Message.tool_call_id", "smooth/Message.tool_name", "smooth/Message.tool_result_named")
def test_a_result_can_be_given_for_an_id() -> None:
    answer = Message.tool("call_1", "no such file", tool_name="read", is_error=True)
    assert (answer.tool_call_id, answer.tool_name, answer.is_error) == ("call_1", "read", True)


@covers("smooth/Message.id", "smooth/Message.timestamp")
def test_each_message_has_an_id_and_a_time() -> None:
    before = datetime.now(UTC)
    one, other = Message.user("a"), Message.user("a")
    assert one.id != other.id
    assert one.at is not None
    assert before <= one.at <= datetime.now(UTC)


@covers("smooth/Message.images", "smooth/ImageContent.new")
def test_parts() -> None:
    message = Message.user([Text("Look: "), Image("https://x/y.png"), Text("nice"), File(b"%PDF", "application/pdf")])
    assert message.text == "Look: nice"
    assert message.images == [Image("https://x/y.png")]
    assert Message.user("no parts").images == []


@covers("smooth/Message.user_with_images")
def test_images_stand_behind_the_text() -> None:
    image = Image("data:image/png;base64,QQ", "low")
    assert Message.user("caption", images=[image]).content == [Text("caption"), image]
    assert Message.user("", images=[image]).content == [image]
    assert Message.user([Text("a")], images=[image]).content == [Text("a"), image]


@covers("smooth/Message.serialization", "smooth/Message.images.serialization", "smooth/Message.reasoning_content")
def test_a_message_goes_to_json_and_back() -> None:
    call = ToolCall("read", {"path": "a"}).done("x")
    for message in (
        Message.user("caption", images=[Image("data:image/png;base64,QQ", "low")]),
        Message.assistant("", tool_calls=[call], reasoning="hm", data={"mine": [1, None]}),
        Message.tool(call, [File(b"\x00\xff", "image/png", "a.png")]),
    ):
        assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


@covers("smooth/Message.serialization")
def test_what_is_not_there_is_not_stored() -> None:
    assert set(msgspec.to_builtins(Message.user("Hello"))) == {"role", "content", "id", "at"}


@covers("smooth/Role.serialization")
def test_an_unknown_role_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$.role"):
        msgspec.convert({"role": "narrator", "content": "once"}, Message)


@covers("smooth/Message.estimated_tokens", "smooth/PromptCache.cached_tokens")
def test_the_estimate_counts_all_that_is_sent() -> None:
    assert estimated_tokens(Message.user("")) == 1
    assert estimated_tokens(Message.user("x" * 40)) == 11
    assert estimated_tokens(Message.assistant("x" * 40, reasoning="y" * 40)) == 21
    assert estimated_tokens(Message.assistant("", tool_calls=[ToolCall("read", "z" * 36)])) == 11
    assert estimated_tokens(Message.user("x" * 40, images=[Image("https://a")])) == 1011
