"""Replies as plain data: what is kept, what is refused, and what they say of tokens."""

from __future__ import annotations

import asyncio
import doctest
import enum
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pydantic
import pytest

from holdfast import Unsupported, Usage
from holdfast.adapters import generic
from holdfast.adapters.generic import plain, recorded, usage_of
from tests.cases import for_each


class Part(pydantic.BaseModel):
    kind: str = "text"
    text: str | None = None


class Reply(pydantic.BaseModel):
    """As clients make them: fields the provider may leave out, names of its own, room for what it adds."""

    model_config = pydantic.ConfigDict(extra="allow")

    content: str | None
    refusal: str | None = None
    stop: str | None = pydantic.Field(default=None, alias="stopReason")
    parts: list[Part] = []


class Colour(enum.StrEnum):
    RED = "red"


def test_the_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(generic)
    assert result.attempted > 0
    assert result.failed == 0


# -- plain -------------------------------------------------------------------------------------------------------------


def test_a_reply_keeps_what_the_provider_sent_and_nothing_else() -> None:
    sent = {"content": None, "stopReason": "end", "parts": [{"kind": "text"}, {"text": "a"}], "added later": [1, None]}
    assert plain(Reply.model_validate(sent)) == sent


def test_a_reply_that_is_not_of_the_declared_types_is_taken_as_it_is() -> None:
    # Clients construct replies without validation; warnings are errors here.
    assert plain(Reply.model_construct(content=7, parts="none")) == {"content": 7, "parts": "none"}


def test_what_a_client_adds_to_a_reply_is_not_sent_back() -> None:
    class Parsed(Reply):
        __api_exclude__ = {"parsed"}

        parsed: Any = None

    assert plain(Parsed(content="7", parsed=7)) == {"content": "7"}


@for_each("value", [None, True, 7, 2.5, "text", [], {}, {"a": [{"b": None}]}])
def test_plain_data_stays_as_it_is(value: Any) -> None:
    assert plain(value) == value
    assert type(plain(value)) is type(value)


def test_replies_are_found_inside_plain_data() -> None:
    assert plain({"all": (Reply(content="a"), [Reply(content="b")])}) == {"all": [{"content": "a"}, [{"content": "b"}]]}


def test_plain_data_is_a_copy() -> None:
    given: dict[str, Any] = {"messages": [{"content": "a"}]}
    plain(given)["messages"][0]["content"] = "b"
    assert given == {"messages": [{"content": "a"}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"^\$: builtins\.object cannot"),
        ({"a": [0, b"x"]}, r"^\$\.a\[1\]: builtins\.bytes cannot"),
        ({"a": Reply}, r"^\$\.a: pydantic\..*ModelMetaclass cannot"),
        ([Colour.RED], r"^\$\[0\]: tests\.adapters\.test_generic\.Colour cannot"),
        ({"a": {1: "x"}}, r"^\$\.a: a dict with keys that are not strings"),
    ],
)
def test_anything_else_is_refused_with_its_place_and_type(value: Any, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        plain(value)


# -- recorded ----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream as clients have them: both an iterator and something to be closed."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = iter(replies)
        self.closed = 0

    def __iter__(self) -> Iterator[Reply]:
        return self

    def __next__(self) -> Reply:
        return next(self._replies)

    def close(self) -> None:
        self.closed += 1


class AsyncStream:
    def __init__(self, *replies: Reply) -> None:
        self._replies = iter(replies)
        self.closed = 0

    def __aiter__(self) -> AsyncIterator[Reply]:
        return self

    async def __anext__(self) -> Reply:
        try:
            return next(self._replies)
        except StopIteration:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        self.closed += 1


def create(content: str, *, model: str) -> Reply:
    return Reply(content=f"{model}: {content}")


def test_a_recorded_function_takes_the_same_arguments_and_keeps_its_name() -> None:
    wrapped = recorded(create)
    assert wrapped("hello", model="m") == {"content": "m: hello"}
    assert wrapped.__qualname__ == "create"


def test_an_async_function_is_awaited() -> None:
    async def acreate(content: str) -> Reply:
        return Reply(content=content)

    def looks_sync(content: str) -> Any:  # as both clients wrap theirs
        return acreate(content)

    assert asyncio.run(recorded(acreate)("a")) == {"content": "a"}
    assert asyncio.run(recorded(looks_sync)("a")) == {"content": "a"}


def test_each_chunk_of_a_stream_is_plain_and_the_stream_is_closed() -> None:
    stream = Stream(Reply(content="a"), Reply(content="b"))
    assert list(recorded(lambda: stream)()) == [{"content": "a"}, {"content": "b"}]
    assert stream.closed == 1


def test_a_stream_that_nobody_reads_to_its_end_is_closed_too() -> None:
    stream = Stream(Reply(content="a"), Reply(content="b"))
    chunks = recorded(lambda: stream)()
    assert next(chunks) == {"content": "a"}
    assert stream.closed == 0
    chunks.close()
    assert stream.closed == 1


def test_each_chunk_of_an_async_stream_is_plain_and_the_stream_is_closed() -> None:
    stream = AsyncStream(Reply(content="a"), Reply(content="b"))

    async def acreate() -> AsyncStream:
        return stream

    async def read() -> list[Any]:
        return [chunk async for chunk in await recorded(acreate)()]

    assert asyncio.run(read()) == [{"content": "a"}, {"content": "b"}]
    assert stream.closed == 1


def test_an_async_generator_is_a_stream() -> None:
    ended: list[str] = []

    async def generate() -> AsyncIterator[Reply]:
        try:
            yield Reply(content="a")
            yield Reply(content="b")
        finally:
            ended.append("closed")

    async def read_one() -> Any:
        source = generate()  # held, so that nobody but the one who closes it ends it
        chunks = recorded(lambda: source)()
        first = await anext(chunks)
        await chunks.aclose()
        ended.append("left")
        return first

    assert asyncio.run(read_one()) == {"content": "a"}
    assert ended == ["closed", "left"]


def test_what_a_function_returns_must_be_known() -> None:
    with pytest.raises(Unsupported, match=r"builtins\.object cannot be converted to plain data"):
        recorded(object)()


# -- usage -------------------------------------------------------------------------------------------------------------

ANTHROPIC = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20}
OPENAI = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "total_tokens": 105,
    "prompt_tokens_details": {"cached_tokens": 70},
}
RESPONSES = {
    "input_tokens": 100,
    "output_tokens": 5,
    "total_tokens": 105,
    "input_tokens_details": {"cached_tokens": 70},
}


@pytest.mark.parametrize("counts", [OPENAI, RESPONSES, ANTHROPIC], ids=["openai", "responses", "anthropic"])
def test_all_shapes_of_usage_mean_the_same(counts: dict[str, Any]) -> None:
    spent = Usage(input=100, output=5, cached=70, total=105)
    assert usage_of({"usage": counts}) == spent
    assert usage_of(counts) == spent
    assert usage_of(Reply.model_validate({"content": None, "usage": counts})) == spent


@pytest.mark.parametrize(
    "counts",
    [
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None},
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}},
        {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": None, "cache_creation_input_tokens": None},
        {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": None},
    ],
)
def test_what_is_not_counted_is_zero(counts: dict[str, Any]) -> None:
    assert usage_of(counts) == Usage(input=9, output=2, total=11)


def test_the_usage_of_a_stream_is_what_its_chunks_came_to() -> None:
    openai = [{"choices": [], "usage": None}, {"choices": [], "usage": OPENAI}]
    anthropic = [
        {"type": "message_start", "message": {"usage": {**ANTHROPIC, "output_tokens": 1}}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3, "input_tokens": None}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}},
    ]
    assert usage_of(openai) == usage_of(anthropic) == Usage(input=100, output=5, cached=70, total=105)


@for_each(
    "reply",
    [
        None,
        "text",
        [],
        ["text", 7],
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": {"seconds": 3}},
        {"usage": {"prompt_tokens": "9"}},
        {"usage": {"prompt_tokens": True}},
        {"usage": {"input_tokens": -1}},
        {"usage": {"input_tokens": 2**64}},
    ],
)
def test_a_reply_that_does_not_say_has_no_usage(reply: Any) -> None:
    assert usage_of(reply) is None
