"""Replies put together from chunks: whole, or refused."""

from __future__ import annotations

import copy
import doctest
from typing import Any

import pytest

from holdfast import InvalidArgument
from holdfast.adapters import streams
from holdfast.adapters.streams import joined
from tests.cases import for_each

Json = dict[str, Any]


def chunk(delta: Json, index: int = 0, reason: str | None = None) -> Json:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], "usage": None}


def call(index: int, **parts: Any) -> Json:
    return {"tool_calls": [{"index": index, **parts}]}


def start(index: int, **block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **parts: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **parts}}


BEGIN: Json = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "stop_reason": None}}
END: list[Json] = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]


def test_the_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(streams)
    assert result.attempted > 0
    assert result.failed == 0


def test_tool_calls_of_a_completion_come_together_by_their_index() -> None:
    reply = joined(
        [
            chunk({"role": "assistant", "content": None}),
            chunk(call(0, id="a", type="function", function={"name": "buy", "arguments": ""})),
            chunk(call(1, id="b", type="function", function={"name": "sell", "arguments": '{"x"'})),
            chunk(call(0, function={"arguments": "{}"})),
            chunk(call(1, function={"arguments": ": 1}"})),
            chunk({}, reason="tool_calls"),
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 3}},
        ]
    )
    calls = [
        {"id": "a", "type": "function", "function": {"name": "buy", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "sell", "arguments": '{"x": 1}'}},
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    assert reply["choices"] == [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    assert (reply["object"], reply["usage"]) == ("chat.completion", {"prompt_tokens": 3})


def test_names_that_a_provider_repeats_in_every_chunk_are_not_repeated() -> None:
    piece = {"id": "a", "type": "function", "function": {"name": "buy", "arguments": "{"}}
    more = {"id": "a", "type": "function", "function": {"name": "buy", "arguments": "}"}}
    reply = joined(
        [
            chunk({"role": "assistant", **call(0, **piece)}),
            chunk({"role": "assistant", **call(0, **more)}, reason="tool_calls"),
        ]
    )
    message = reply["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["tool_calls"] == [{"id": "a", "type": "function", "function": {"name": "buy", "arguments": "{}"}}]


def test_choices_of_a_completion_are_kept_apart() -> None:
    reply = joined(
        [
            chunk({"content": "B"}, index=1),
            chunk({"content": "A"}),
            chunk({"content": "b"}, index=1, reason="stop"),
            chunk({"content": "a"}, reason="stop"),
        ]
    )
    assert [choice["message"]["content"] for choice in reply["choices"]] == ["Aa", "Bb"]


def test_what_is_listed_beside_a_text_grows_with_it() -> None:
    pieces = [chunk({"content": "a"}), chunk({"content": "b"}, reason="stop")]
    for number, piece in enumerate(pieces):
        piece["choices"][0]["logprobs"] = {"content": [{"logprob": number}]}
    assert joined(pieces)["choices"][0]["logprobs"] == {"content": [{"logprob": 0}, {"logprob": 1}]}


def test_blocks_of_a_message_come_together_by_their_index() -> None:
    reply = joined(
        [
            BEGIN,
            {"type": "ping"},
            start(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="hm"),
            delta(0, "thinking_delta", thinking="m"),
            delta(0, "signature_delta", signature="s"),
            start(1, type="text", text="", citations=None),
            delta(1, "text_delta", text="He"),
            delta(1, "citations_delta", citation={"cited_text": "x"}),
            delta(1, "text_delta", text="llo"),
            start(2, type="tool_use", id="a", name="buy", input={}),
            delta(2, "input_json_delta", partial_json=""),
            delta(2, "input_json_delta", partial_json='{"x": '),
            delta(2, "input_json_delta", partial_json="1}"),
            start(3, type="tool_use", id="b", name="stop", input={}),
            delta(3, "input_json_delta", partial_json=""),
            {"type": "announced later"},
            *END,
        ]
    )
    assert reply["content"] == [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        {"type": "text", "text": "Hello", "citations": [{"cited_text": "x"}]},
        {"type": "tool_use", "id": "a", "name": "buy", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "stop", "input": {}},
    ]
    assert (reply["id"], reply["role"], reply["stop_reason"]) == ("m", "assistant", "tool_use")


def test_counts_of_a_message_are_totals_and_what_is_not_counted_anew_stays() -> None:
    counted = {**BEGIN["message"], "usage": {"input_tokens": 7, "output_tokens": 1}}
    more = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": None, "output_tokens": 5}}
    reply = joined([{"type": "message_start", "message": counted}, more, *END])
    assert reply["usage"] == {"input_tokens": 7, "output_tokens": 5}


@pytest.mark.parametrize("end", ["completed", "incomplete", "failed"])
def test_a_response_is_what_the_last_of_its_events_holds(end: str) -> None:
    reply = {"id": "r", "object": "response", "status": end, "output": [{"type": "message"}], "usage": {}}
    started = {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}}
    text = {"type": "response.output_text.delta", "delta": "Hello"}
    assert joined([started, text, {"type": f"response.{end}", "response": reply}]) == reply


def test_chunks_are_left_as_they_were() -> None:
    completion = [chunk(call(0, id="a", function={"arguments": "{"})), chunk({}, reason="stop")]
    message = [BEGIN, start(0, type="text", text=""), delta(0, "text_delta", text="a"), *END]
    for chunks in (completion, message):
        before = copy.deepcopy(chunks)
        assert joined(chunks) == joined(chunks)
        assert chunks == before


@for_each(
    ("chunks", "problem"),
    [
        ([], "the chunks are not those of"),
        ([{"text": "Hello"}], "the chunks are not those of"),
        ([chunk({"content": "Hel"})], "ended before the reply was complete"),
        (
            [chunk({"content": "A"}, reason="stop"), chunk({"content": "B"}, index=1)],
            "ended before the reply was complete",
        ),
        ([BEGIN, start(0, type="text", text="")], "ended before the reply was complete"),
        ([{"type": "response.created", "response": {}}, {"type": "response.output_text.delta"}], "ended before the"),
        ([BEGIN, start(0, type="text", text=""), delta(0, "song_delta", song="la"), *END], "unknown type 'song_delta'"),
        (
            [BEGIN, start(0, type="tool_use", input={}), delta(0, "input_json_delta", partial_json='{"x": "se'), *END],
            "incomplete; the reply ended with 'tool_use'",
        ),
    ],
)
def test_half_a_reply_is_refused(chunks: list[Json], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        joined(chunks)
