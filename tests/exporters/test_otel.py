"""OpenTelemetry's form: what is written follows the conventions, whichever framework wrote the messages."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, InvalidArgument, NotFound, Usage
from holdfast.exporters import export_otel
from holdfast.states import Conversation, File, Image, Message, Prompt, ToolCall
from tests.cli.looked import HOSTILE
from tests.cli.looked import fill as fill_looked
from tests.exporters import scene
from tests.exporters.otel_rules import problems
from tests.exporters.scene import THREAD, exported, fill, golden, hidden
from tests.inspect.test_chat import ANTHROPIC, GOOGLE, LANGGRAPH, OPENAI, PLAIN, PYDANTIC_AI, RESPONSES
from tests.threads.wholes import change_blob, flip
from tests.threads.wholes import fill as fill_wholes

still = scene.still  # fixtures are found by where they stand


@pytest.fixture
def memory() -> Any:
    with holdfast.open("memory:") as hf:
        yield hf


def events(hf: Holdfast, *threads: str, **options: Any) -> list[Any]:
    """What is written of threads, each line held to the rules."""
    text = exported(export_otel, hf, threads=threads or None, **options)
    found = [json.loads(line) for line in text.splitlines()]
    assert [(event["attributes"], why) for event in found for why in problems(event)] == []
    return found


def told(hf: Holdfast, state: Any, **details: Any) -> Any:
    """The attributes of a thread with this state."""
    hf.thread("t").save(state, **details)
    return events(hf, "t")[0]["attributes"]


def said(message: Any) -> list[Any]:
    """A message as its role and its parts, without their types."""
    return [
        message["role"],
        *(part.get("content", part.get("response", part.get("name"))) for part in message["parts"]),
    ]


# -- the form ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("still")
def test_a_thread_and_its_model_calls(memory: Holdfast) -> None:
    fill(memory)
    assert len(events(memory, THREAD)) == 2
    golden("invoice.otel.jsonl", exported(export_otel, memory, threads=[THREAD]))


def test_the_rules_refuse_what_is_wrong() -> None:
    part: dict[str, Any] = {"type": "tool_call", "id": None}
    message = {"role": "assistant", "parts": [part, {"type": "blob", "content": "?"}, {"type": "uri", "uri": "data:,"}]}
    attributes = {"gen_ai.operation.name": "x", "gen_ai.output.messages": [message], "gen_ai.usage.input_tokens": "3"}
    assert len(problems({"event_name": "other", "attributes": attributes})) == 11


@pytest.mark.parametrize(
    "messages",
    [OPENAI, ANTHROPIC, PLAIN, PYDANTIC_AI, GOOGLE, RESPONSES, LANGGRAPH["messages"]],
    ids=["openai", "anthropic", "plain", "pydantic", "google", "responses", "langgraph"],
)
def test_every_framework_is_told_alike(memory: Holdfast, messages: list[Any]) -> None:
    attributes = told(memory, {"messages": messages})
    asked, called, answered = attributes["gen_ai.input.messages"]
    assert said(asked) == ["user", "How much is ink?"]
    assert said(called) == ["assistant", "Let me see.", "look_up"]
    assert called["parts"][1]["arguments"] == {"item": "ink"}
    # Google gives its calls no ids.
    assert called["parts"][1].get("id") == answered["parts"][0].get("id") in ("c1", None)
    assert answered["role"] in ("tool", "user")  # as the framework has it
    assert answered["parts"][0]["type"] == "tool_call_response"
    assert answered["parts"][0]["response"] in ("11", 11)
    (reply,) = attributes["gen_ai.output.messages"]
    assert said(reply) == ["assistant", "Eleven."]
    assert "name" not in called


def test_the_name_of_a_tool_is_not_that_of_who_speaks(memory: Holdfast) -> None:
    attributes = told(memory, {"messages": [RESPONSES[0], RESPONSES[2], RESPONSES[3]]})
    assert [message.get("name") for message in attributes["gen_ai.input.messages"]] == [None, None, None]


def test_what_stands_last_is_output_only_if_a_model_said_it(memory: Holdfast) -> None:
    attributes = told(memory, {"messages": OPENAI[:3]})
    assert len(attributes["gen_ai.input.messages"]) == 3
    assert "gen_ai.output.messages" not in attributes
    attributes = told(memory, {"messages": OPENAI[:2]})
    assert attributes["gen_ai.output.messages"][0]["finish_reason"] == "tool_call"
    assert "gen_ai.response.finish_reasons" not in attributes, "nobody recorded it"


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({"stop_reason": "end_turn"}, "stop"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"finish_reason": "tool_calls"}, "tool_call"),
        ({"finishReason": "SAFETY"}, "content_filter"),
        ({"response_metadata": {"finish_reason": "length"}}, "length"),
        ({"stop_reason": "pause_turn"}, "pause_turn"),
        ({}, None),
    ],
    ids=str,
)
def test_why_a_model_ended(memory: Holdfast, recorded: dict[str, Any], reason: str | None) -> None:
    attributes = told(memory, {"messages": [{"role": "assistant", "content": "Well.", **recorded}]})
    assert attributes["gen_ai.output.messages"][0]["finish_reason"] == (reason or "unknown")
    assert attributes.get("gen_ai.response.finish_reasons") == (None if reason is None else [reason])


def test_thoughts_errors_and_what_has_no_form(memory: Holdfast) -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "ink"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "Ink"}]},
        {"type": "compaction", "content": "All before."},
        {"type": "odd", "n": b"\x00"},
    ]
    failed = {"type": "tool_result", "tool_use_id": "c9", "is_error": True, "content": [{"type": "text", "text": "no"}]}
    messages = [{"role": "user", "name": "ann", "content": [failed]}, {"role": "assistant", "content": blocks}, 7]
    (results, *rest) = told(memory, {"messages": messages})["gen_ai.input.messages"]
    assert results["name"] == "ann"
    assert results["parts"][0]["holdfast.is_error"] is True
    assert [part["type"] for part in rest[0]["parts"]] == [
        "reasoning",
        "server_tool_call",
        "server_tool_call_response",
        "compaction",
        "data",
    ]
    assert rest[0]["parts"][-1]["content"] == {"type": "odd", "n": {"$bytes": "AA=="}}
    assert rest[1] == {"role": "unknown", "parts": [{"type": "data", "content": 7}]}


def test_what_stands_beside_the_messages(memory: Holdfast) -> None:
    schema = {"type": "object", "properties": {"item": {"type": "string"}}}
    tools = [
        {"type": "function", "function": {"name": "a", "description": "A.", "parameters": schema}},
        {"type": "function", "name": "b", "parameters": schema},
        {"name": "c", "input_schema": schema},
        {"functionDeclarations": [{"name": "d"}]},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "code_interpreter"},
        "e",
        3,
    ]
    system = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be short."}]
    attributes = told(memory, {"messages": OPENAI, "system": system, "tools": tools, "model": "m-1"})
    assert attributes["gen_ai.request.model"] == "m-1"
    assert [part["content"] for part in attributes["gen_ai.system_instructions"]] == ["Be kind.", "Be short."]
    found = attributes["gen_ai.tool.definitions"]
    assert [tool["name"] for tool in found] == ["a", "b", "c", "d", "web_search", "code_interpreter", "e"]
    assert found[0] == {"type": "function", "name": "a", "description": "A.", "parameters": schema}
    assert [tool.get("parameters") == schema for tool in found[:4]] == [True, True, True, False]
    google = {"contents": GOOGLE, "system_instruction": {"parts": [{"text": "Be kind."}]}}
    assert told(memory, google)["gen_ai.system_instructions"] == [{"type": "text", "content": "Be kind."}]
    # Of a system message among the others the conventions say that it stays there.
    among = told(memory, {"messages": [{"role": "system", "content": "Be kind."}, *OPENAI]})
    assert "gen_ai.system_instructions" not in among
    assert said(among["gen_ai.input.messages"][0]) == ["system", "Be kind."]


def test_typed_states(memory: Holdfast) -> None:
    call = ToolCall(id="c1", name="look_up", arguments={"item": "ink"})
    messages = [
        Message.user("Hello", images=[Image("data:image/png;base64,AAAA"), Image("https://example.com/a.png")]),
        Message.assistant(tool_calls=[call]),
        Message.tool(call, [File(b"bytes", "text/csv")]),
    ]
    state = Conversation(prompt=Prompt("You are kind. ", "It is Monday."), messages=messages)
    memory.thread("t", type=Conversation).save(state)
    attributes = events(memory, "t")[0]["attributes"]
    assert [part["content"] for part in attributes["gen_ai.system_instructions"]] == ["You are kind. ", "It is Monday."]
    asked, called, answered = attributes["gen_ai.input.messages"]
    assert [part["type"] for part in asked["parts"]] == ["text", "blob", "uri"]
    assert called["parts"][0]["arguments"] == {"item": "ink"}
    assert answered["parts"][0]["response"]["media_type"] == "text/csv"


def test_what_a_checkpoint_tells(memory: Holdfast) -> None:
    usage = Usage(input=10, output=5, cached=4, cost=0.25, currency="EUR")
    metadata = {"gen_ai.request.model": "m-2"}
    attributes = told(memory, {"n": 1}, usage=usage, label="good", tags=["x"], agent="clerk", metadata=metadata)
    checkpoint = memory.thread("t").load("@good")
    assert attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "t",
        "gen_ai.agent.name": "clerk",
        "gen_ai.request.model": "m-2",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "holdfast.usage.cost": 0.25,
        "holdfast.usage.currency": "EUR",
        "holdfast.checkpoint.id": checkpoint.id,
        "holdfast.checkpoint.seq": 1,
        "holdfast.step": 1,
        "holdfast.branch": 0,
        "holdfast.head": True,
        "holdfast.status": "running",
        "holdfast.label": "good",
        "holdfast.tags": ["x"],
    }


# -- model calls -------------------------------------------------------------------------------------------------------

CHAT = {
    "id": "chatcmpl-1",
    "model": "gpt-x",
    "choices": [{"message": OPENAI[1], "finish_reason": "tool_calls"}, {"message": OPENAI[3], "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
}
ITEMS = {
    "id": "resp_1",
    "model": "gpt-y",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, RESPONSES[1], RESPONSES[2]],
}
WHOLE = {"role": "assistant", "content": [{"type": "text", "text": "Eleven."}], "stop_reason": "end_turn"}
CANDIDATES = {
    "responseId": "g1",
    "modelVersion": "gemini-x",
    "candidates": [{"content": GOOGLE[1], "finishReason": "STOP"}],
}


@pytest.mark.parametrize(
    ("reply", "messages", "model", "id", "reasons"),
    [
        (
            CHAT,
            [["assistant", "Let me see.", "look_up"], ["assistant", "Eleven."]],
            "gpt-x",
            "chatcmpl-1",
            ["tool_call", "stop"],
        ),
        (ITEMS, [["assistant", "Hm.", "Let me see.", "look_up"]], "gpt-y", "resp_1", ["length"]),
        (CANDIDATES, [["assistant", "Let me see.", "look_up"]], "gemini-x", "g1", ["stop"]),
        (WHOLE, [["assistant", "Eleven."]], None, None, ["stop"]),
        ({"message": OPENAI[3], "done_reason": "stop"}, [["assistant", "Eleven."]], None, None, ["stop"]),
        (PYDANTIC_AI[3], [["assistant", "Eleven."]], None, None, None),
        ("Eleven.", [["assistant", "Eleven."]], None, None, None),
        ([{"model": "m", "delta": "El"}, {"delta": "even."}], [], "m", None, None),
        (11, [], None, None, None),
        (None, [], None, None, None),
    ],
    ids=["chat", "responses", "google", "anthropic", "ollama", "pydantic", "text", "chunks", "number", "none"],
)
def test_replies(
    memory: Holdfast, reply: Any, messages: list[Any], model: str | None, id: str | None, reasons: list[str] | None
) -> None:
    with memory.run("t", start={"n": 0}) as run:
        run.model(lambda: reply)
    _, call = events(memory, "t")
    assert call["event_name"] == "gen_ai.client.inference.operation.details"
    attributes = call["attributes"]
    assert [said(message) for message in attributes.get("gen_ai.output.messages", [])] == messages
    assert attributes.get("gen_ai.response.model") == model
    assert attributes.get("gen_ai.response.id") == id
    assert attributes.get("gen_ai.response.finish_reasons") == reasons
    assert (attributes["holdfast.step"], attributes["holdfast.effect"]) == (1, 1)


def test_what_model_calls_cost(memory: Holdfast) -> None:
    with memory.run("t", start={"n": 0}) as run:
        run.model(lambda: CHAT)
        run.model(lambda: {"usage": {"input_tokens": 5, "output_tokens": 1, "cache_creation_input_tokens": 2}})
    thread, *calls = [event["attributes"] for event in events(memory, "t")]
    tokens = [(each["gen_ai.usage.input_tokens"], each["gen_ai.usage.output_tokens"]) for each in (thread, *calls)]
    assert tokens == [(16, 4), (9, 3), (7, 1)]
    assert calls[0]["gen_ai.usage.cache_read.input_tokens"] == 2
    assert calls[1]["gen_ai.usage.cache_creation.input_tokens"] == 2


def test_calls_that_failed_tell_the_class_of_the_error_and_no_more(memory: Holdfast) -> None:
    def ask() -> None:
        raise ConnectionError("with a secret in it")

    with memory.run("t", start={"n": 0}) as run:
        with contextlib.suppress(ConnectionError):
            run.model(ask)
        run.model(lambda: 1)
    _, failed, _ = events(memory, "t")
    assert failed["attributes"]["error.type"] == "ConnectionError"
    assert failed["attributes"]["holdfast.status"] == "failed"
    assert "secret" not in json.dumps(failed)


def test_only_what_led_to_a_checkpoint(memory: Holdfast) -> None:
    fill(memory)
    assert [event["attributes"].get("gen_ai.response.id") for event in events(memory, THREAD)] == [None, "msg_1"]
    # What a rewind left has a checkpoint of its own, which its calls led to.
    left, call = [event["attributes"] for event in events(memory, f"{THREAD}@00000002")]
    assert said(call["gen_ai.output.messages"][0]) == ["assistant", "Never mind."]
    assert (left["holdfast.head"], left["holdfast.branch"], call["holdfast.branch"]) == (False, 0, 0)
    assert len(events(memory, f"{THREAD}@0")) == 1


def test_a_call_in_doubt_is_marked(memory: Holdfast) -> None:
    fill(memory)
    attributes = events(memory, THREAD)[0]["attributes"]
    (call,) = [part for part in attributes["gen_ai.output.messages"][0]["parts"] if part["type"] == "tool_call"]
    assert call["holdfast.status"] == "in doubt"
    assert attributes["holdfast.in_doubt"] == [3]


# -- which, and where to -----------------------------------------------------------------------------------------------


def test_all_of_a_store_is_as_the_rules_have_it(memory: Holdfast) -> None:
    for fills in (fill, fill_looked, fill_wholes):
        fills(memory)
    threads = [event for event in events(memory) if event["event_name"] == "holdfast.thread"]
    assert [each["attributes"]["gen_ai.conversation.id"] for each in threads] == [
        info.name.encode("utf-8", "backslashreplace").decode() for info in memory.threads()
    ]
    assert [each["attributes"]["gen_ai.conversation.id"] for each in events(memory, prefix="notes")] == [
        "notes",
        "notes-fork",
    ]


def test_hostile_texts_stay_texts_in_lines_of_ascii(memory: Holdfast) -> None:
    text = f"{HOSTILE}\u2028\ud800</script>"
    memory.thread("t").save({"messages": [{"role": "user", "content": text}]})
    line = exported(export_otel, memory, threads=["t"])
    assert line.isascii()
    assert line.count("\n") == 1
    (message,) = json.loads(line)["attributes"]["gen_ai.input.messages"]
    assert message["parts"][0]["content"] == text.replace("\ud800", "\\ud800")


def test_redacted_texts_are_in_no_line(memory: Holdfast) -> None:
    fill(memory)
    redacted = exported(export_otel, memory, redact=hidden)
    assert "[iban]" in redacted
    assert "[p] this, please." in redacted
    assert "DE02" not in redacted
    with pytest.raises(holdfast.Unsupported):
        export_otel(memory, io.BytesIO(), redact=lambda text: 1 / 0)  # type: ignore[arg-type, return-value]  # it fails


def test_mistakes(memory: Holdfast, tmp_path: Path) -> None:
    memory.thread("notes").save({"n": 1})
    for threads in (["nots"], ["notes", "notes@9"]):
        with pytest.raises(NotFound):
            export_otel(memory, tmp_path / "out", threads=threads)
        assert not (tmp_path / "out").exists()
    with pytest.raises(InvalidArgument, match="not both"):
        export_otel(memory, io.BytesIO(), threads=["notes"], prefix="n")
    export_otel(memory, tmp_path / "out")
    with pytest.raises(InvalidArgument, match="already exists; nothing was written"):
        export_otel(memory, tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_damage_is_told_and_what_can_be_read_is_there(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store.db", durability="off") as hf:
        fill_wholes(hf)
    change_blob(tmp_path / "store.db", "checkpoint", "skeleton", "row_key & 4294967295 = 3", flip)
    with holdfast.open(tmp_path / "store.db", durability="off") as hf:
        out = io.BytesIO()
        done = export_otel(hf, out)
    assert not done.ok
    assert {each.thread for each in done.left_out} == {"t"}
    names = [json.loads(line)["attributes"]["gen_ai.conversation.id"] for line in out.getvalue().splitlines()]
    assert {"fork", "orphan", "run"} <= set(names)
