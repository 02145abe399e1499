"""The tokens of replies and streams as the real clients give them, as a run records them."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message, RawContentBlockDeltaEvent, RawMessageDeltaEvent, RawMessageStartEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFailedEvent,
    ResponseIncompleteEvent,
    ResponseTextDeltaEvent,
)

from holdfast import Usage
from holdfast.adapters.generic import plain
from holdfast.runs.guards.usage import cache_written, model_named, usage_of_reply
from tests.cases import for_each

Json = dict[str, Any]
SPENT = Usage(input=100, output=5, cached=70, total=105)

COMPLETION: Json = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "total_tokens": 105,
    "prompt_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 20, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
RESPONSE: Json = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 20},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 105,
}
MESSAGE: Json = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_read_input_tokens": 70,
    "cache_creation_input_tokens": 20,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
}


def completion(usage: Json | None) -> ChatCompletion:
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    sent = {"id": "c", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice], "usage": usage}
    return ChatCompletion.model_validate(sent)


def chunk(usage: Json | None, *choices: Json) -> ChatCompletionChunk:
    return ChatCompletionChunk.model_validate(
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m-1",
            "choices": list(choices),
            "usage": usage,
        }
    )


def response(usage: Json | None, status: str = "completed") -> Json:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m-1",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "usage": usage,
    }


def message(usage: Json) -> Json:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def words(text: str) -> Json:
    return {"index": 0, "delta": {"content": text}, "finish_reason": None}


def completion_chunks() -> list[Any]:
    return [chunk(None, words("Hel")), chunk(None, words("lo")), chunk(COMPLETION)]


def response_events(last: type[Any] = ResponseCompletedEvent, kind: str = "response.completed") -> list[Any]:
    started = {"type": "response.created", "sequence_number": 0, "response": response(None, "in_progress")}
    text = {
        "type": "response.output_text.delta",
        "sequence_number": 1,
        "delta": "Hello",
        "item_id": "i",
        "output_index": 0,
        "content_index": 0,
        "logprobs": [],
    }
    done = {"type": kind, "sequence_number": 2, "response": response(RESPONSE, kind.removeprefix("response."))}
    return [
        ResponseCreatedEvent.model_validate(started),
        ResponseTextDeltaEvent.model_validate(text),
        last.model_validate(done),
    ]


def message_events() -> list[Any]:
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}
    started = {"type": "message_start", "message": message({**MESSAGE, "output_tokens": 1})}
    return [
        RawMessageStartEvent.model_validate(started),
        RawContentBlockDeltaEvent.model_validate(text),
        *(
            RawMessageDeltaEvent.model_validate(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                    "usage": {"output_tokens": so_far},
                }
            )
            for so_far in (3, 5)
        ),
    ]


@for_each(
    "reply",
    [
        completion(COMPLETION),
        Response.model_validate(response(RESPONSE)),
        Message.model_validate(message(MESSAGE)),
        completion_chunks(),
        response_events(),
        response_events(ResponseIncompleteEvent, "response.incomplete"),
        response_events(ResponseFailedEvent, "response.failed"),
        message_events(),
    ],
)
def test_replies_and_streams_of_both_providers_say_their_tokens_and_model(reply: Any) -> None:
    recorded = plain(reply)
    assert usage_of_reply(recorded) == SPENT
    assert model_named(recorded) == "m-1"
    assert cache_written(recorded) == 20


def test_counts_of_a_message_are_totals_so_far_also_where_all_are_counted_anew() -> None:
    events = plain(message_events())
    events[-1]["usage"] = {**MESSAGE, "input_tokens": 12, "output_tokens": 7}
    assert usage_of_reply(events) == Usage(input=102, output=7, cached=70, total=109)


@pytest.mark.parametrize(
    "reply",
    [
        completion(None),
        Response.model_validate(response(None)),
        completion_chunks()[:-1],
        response_events()[:-1],
    ],
    ids=["completion", "response", "completion chunks", "response events"],
)
def test_one_that_does_not_say_its_tokens_has_none(reply: Any) -> None:
    assert usage_of_reply(plain(reply)) is None
    assert cache_written(plain(reply)) == 0


@pytest.mark.parametrize(
    "counts",
    [
        {**COMPLETION, "prompt_tokens_details": None},
        {**RESPONSE, "input_tokens_details": {"cached_tokens": 0}},
        {**MESSAGE, "cache_creation_input_tokens": None},
        {**MESSAGE, "cache_creation_input_tokens": -1},
        {**MESSAGE, "cache_creation_input_tokens": "20"},
    ],
)
def test_what_is_not_said_to_be_written_to_a_cache_is_not(counts: Json) -> None:
    assert cache_written({"usage": counts}) == 0
