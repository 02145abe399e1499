"""When two answers of a model are the same to a `LoopGuard`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from anthropic.types import RawContentBlockDeltaEvent, RawContentBlockStartEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseCompletedEvent, ResponseFunctionCallArgumentsDeltaEvent

from holdfast.adapters.generic import plain
from holdfast.runs.guards.loops import reply_text
from tests.cases import for_each

Json = dict[str, Any]

ONE = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
OTHER = "9B2A6F0E-77C4-4E7D-8F11-AA0B5D2F9C11"


def is_same(one: Any, other: Any) -> bool:
    answers = reply_text(one), reply_text(other)
    assert None not in answers, "both say something"
    return answers[0] == answers[1]


# -- what a model says -------------------------------------------------------------------------------------------------


@for_each(
    ("one", "other"),
    [
        ("I am looking.", "  i am\nLOOKING. "),
        (f"See request {ONE}.", f"See request {OTHER}."),
        (f"See {ONE.replace('-', '')}", f"See {OTHER.replace('-', '')}"),
        ("Commit 1f0e9d8c7b6a5f4e failed", "Commit 99aa88bb77cc66dd failed"),
        ("The result of call_aB3dE6gH9jK2 is missing", "The result of call_Zz9Yy8Xx7Ww6 is missing"),
        ("(toolu_01A09q90qw90lq917835lq9)", "(toolu_01T1x1fJ34qAmk2tNTrN7Up6)"),
        ("No chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG", "No chatcmpl-Xk2MHDbslfkBeAs8l4bebGdFOJ6P1"),
        ("At 2024-03-01T10:11:12Z nothing", "At 2025-12-31T23:59:59.123456+02:00 nothing"),
        ("At 2024-03-01 10:11 nothing", "At 2024-03-01 10:12 nothing"),
        ("It is 1709287872 now", "It is 1709287999 now"),
        ("It is 1709287872123 now", "It is 1709287999.25 now"),
    ],
)
def test_what_differs_each_time_and_means_nothing_makes_no_other_answer(one: str, other: str) -> None:
    assert is_same(one, other)
    assert is_same({"content": one}, {"content": other})


@for_each(
    ("one", "other"),
    [
        ("12", "77"),
        ("The sum is 12.", "The sum is 77."),
        ("Trying again (attempt 1)", "Trying again (attempt 22)"),
        ("Page 3 of 9", "Page 4 of 9"),
        ("That is 1,250,000.50 in all", "That is 1,250,000.75 in all"),
        ("Booked for 2024-03-01", "Booked for 2024-03-02"),
        ("Booked for 10:15", "Booked for 10:30"),
        ("Call 5551234567", "Call 5551234568"),
        ("Order A-10233 is shipped", "Order A-10234 is shipped"),
        ("SKU-AB1234 is out", "SKU-AB1235 is out"),
        ("Now call_customer", "Now call_supplier"),
        ("python3.11", "python3.12"),
        ("defaced", "facaded"),
        ({"decision": "buy", "amount": 12}, {"decision": "buy", "amount": 77}),
        ({"decision": "buy", "urgent": True}, {"decision": "buy", "urgent": False}),
        ({"buy": "ACME", "sell": ""}, {"buy": "", "sell": "ACME"}),
        ({"content": "I am looking."}, {"content": "I am reading."}),
    ],
)
def test_what_means_something_makes_another_answer(one: Any, other: Any) -> None:
    assert not is_same(one, other)


def test_what_a_reply_carries_beside_what_it_says_does_not_count() -> None:
    def reply(number: int) -> Json:
        return {
            "id": f"c{number}",
            "created": number,
            "created_at": f"{number}",
            "model": f"m{number}",
            "total_duration": number,
            "usage": {"prompt_tokens": number},
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Hello"}}],
        }

    assert is_same(reply(1), reply(2))


@for_each(
    "nothing",
    [
        None,
        "",
        " \n",
        [],
        {},
        {"role": "assistant", "content": "", "usage": {"output_tokens": 3}},
        {"done": True, "message": {"content": ""}},
        [{"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]}],
        {
            "object": "response",
            "output": [{"type": "reasoning", "summary": []}],
            "tools": [{"name": "f", "parameters": {}}],
        },
    ],
)
def test_saying_nothing_is_no_answer(nothing: Any) -> None:
    assert reply_text(nothing) is None


# -- what it asks for --------------------------------------------------------------------------------------------------


def test_what_tools_are_asked_with_is_compared_as_it_is() -> None:
    def asking(tool: str, **given: Any) -> Json:
        return {"content": [{"type": "text", "text": "Next."}, {"type": "tool_use", "name": tool, "input": given}]}

    assert is_same(asking("read", page=1), asking("read", page=1))
    assert not is_same(asking("read", page=1), asking("read", page=2))
    assert not is_same(asking("read", id=ONE), asking("read", id=OTHER))
    assert not is_same(asking("read", text="A"), asking("read", text="a"))
    assert not is_same(asking("read", page=1), asking("skim", page=1))
    assert reply_text({"content": [{"type": "tool_use", "name": "stop", "input": {}}]}) is not None


def test_the_ids_of_calls_do_not_count() -> None:
    def asking(number: str) -> Json:
        call = {"id": number, "function": {"name": "read", "arguments": '{"page": 1}'}}
        return {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}

    assert is_same(asking("call_a"), asking("call_b"))


# -- streams -----------------------------------------------------------------------------------------------------------


def cut(text: str, *at: int) -> list[str]:
    bounds = [0, *at, len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def completion_chunks(pieces: list[str], *, name: str = "read", repeats_name: bool = False) -> list[Json]:
    """A call of a tool, streamed by OpenAI's chat completions."""
    chunks: list[Json] = []
    for number, piece in enumerate(pieces):
        function: Json = {"arguments": piece}
        if number == 0 or repeats_name:
            function["name"] = name
        call = {"index": 0, "id": f"call_{len(pieces)}", "type": "function", "function": function}
        chunks.append(chunk({"tool_calls": [call]}))
    return [chunk({"role": "assistant", "content": None}), *chunks, chunk({}, "tool_calls")]


def chunk(delta: Json, reason: str | None = None, index: int = 0) -> Json:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    sent = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    made: Json = plain(ChatCompletionChunk.model_validate(sent))
    return {**made, "obfuscation": f"{id(delta)}"}  # what OpenAI pads chunks with


def message_events(pieces: list[str], *, name: str = "read") -> list[Json]:
    """The same call, streamed by Anthropic's messages."""
    tool = {"type": "tool_use", "id": f"toolu_{len(pieces)}", "name": name, "input": {}}
    started = {"type": "content_block_start", "index": 1, "content_block": tool}
    deltas = [
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}
        for piece in pieces
    ]
    made: list[Json] = plain(
        [
            RawContentBlockStartEvent.model_validate(started),
            *(RawContentBlockDeltaEvent.model_validate(delta) for delta in deltas),
        ]
    )
    return made


def response_events(pieces: list[str], *, name: str = "read") -> list[Json]:
    """The same call, streamed by OpenAI's responses."""
    deltas = [
        {
            "type": "response.function_call_arguments.delta",
            "delta": piece,
            "item_id": f"fc_{len(pieces)}",
            "output_index": 0,
            "sequence_number": number,
        }
        for number, piece in enumerate(pieces)
    ]
    call = {"type": "function_call", "call_id": f"call_{len(pieces)}", "name": name, "arguments": "".join(pieces)}
    response = {
        "id": f"resp_{len(pieces)}",
        "object": "response",
        "created_at": len(pieces),
        "model": "m",
        "output": [call],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    done = {"type": "response.completed", "sequence_number": len(pieces), "response": response}
    made: list[Json] = plain(
        [
            *(ResponseFunctionCallArgumentsDeltaEvent.model_validate(delta) for delta in deltas),
            ResponseCompletedEvent.model_validate(done),
        ]
    )
    return made


@pytest.mark.parametrize("streamed", [completion_chunks, message_events, response_events])
def test_the_same_call_cut_in_other_places_is_the_same_answer(streamed: Any) -> None:
    text = '{"page": 12, "of": "the Book"}'
    whole = streamed([text])
    for cuts in ([9], [10], [1, 2, 3], [0, 10, 10, len(text)]):
        assert is_same(whole, streamed(cut(text, *cuts)))
    assert not is_same(whole, streamed(cut(text.replace("12", "13"), 10)))
    assert not is_same(whole, streamed(cut(text, 10), name="skim"))


def test_a_name_that_is_repeated_in_every_chunk_is_one() -> None:
    text = '{"page": 12}'
    assert is_same(completion_chunks([text]), completion_chunks(cut(text, 3, 8), repeats_name=True))


def test_calls_beside_each_other_are_put_together_each_by_itself() -> None:
    def call(index: int, arguments: str) -> Json:
        return chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    apart = [call(0, '{"a"'), call(0, ": 1}"), call(1, '{"b"'), call(1, ": 2}")]
    mixed = [apart[0], apart[2], apart[1], apart[3]]
    assert is_same(apart, mixed)
    other = [call(1, '{"a"'), call(1, ": 1}"), call(0, '{"b"'), call(0, ": 2}")]
    assert not is_same(apart, other)


def test_a_text_cut_in_other_places_is_the_same_answer() -> None:
    text = f"The sum is 12, see {ONE}."

    def streamed(pieces: list[str]) -> list[Json]:
        return [chunk({"content": piece}) for piece in pieces]

    assert is_same(streamed([text]), streamed(cut(text, 1, 12, 25)))
    assert not is_same(streamed([text]), streamed(cut(text.replace("12", "77"), 12)))


def test_a_streamed_response_is_the_answer_that_it_is_when_not_streamed() -> None:
    events = response_events(cut('{"page": 12}', 4))
    assert is_same(events, events[-1]["response"])
