"""The converters on what the real clients return, from a server that refuses a conversation it did not have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from holdfast import Usage
from holdfast.adapters.generic import plain, recorded, usage_of
from holdfast.adapters.streams import joined
from tests.examples.serving import Server, serving

TASK = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}
RESULTS = [json.dumps({"item": "paper", "price": 4}), json.dumps({"item": "ink", "price": 11})]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


class OpenAI:
    """How one talks to OpenAI: what is asked, what goes back of a reply."""

    def __init__(self, address: str) -> None:
        self._where: dict[str, Any] = {"base_url": f"{address}/v1", "api_key": "none", "max_retries": 0}
        self.refused = openai.BadRequestError

    def ask(self, messages: list[Any], **more: Any) -> Any:
        with openai.OpenAI(**self._where) as client:
            reply = recorded(client.chat.completions.create)(model="m", messages=messages, **more)
            return list(reply) if more else reply

    def ask_for_object(self, messages: list[Any]) -> Any:
        with openai.OpenAI(**self._where) as client:
            return client.chat.completions.create(model="m", messages=messages)

    async def ask_async(self, messages: list[Any], **more: Any) -> Any:
        async with openai.AsyncOpenAI(**self._where) as client:
            reply = await recorded(client.chat.completions.create)(model="m", messages=messages, **more)
            return [chunk async for chunk in reply] if more else reply

    def said(self, reply: Any) -> Any:
        return reply["choices"][0]["message"]

    def results(self, message: Any) -> list[Any]:
        calls = message["tool_calls"]
        return [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, RESULTS, strict=True)
        ]


class Anthropic:
    def __init__(self, address: str) -> None:
        self._where: dict[str, Any] = {"base_url": address, "api_key": "none", "max_retries": 0}
        self.refused = anthropic.BadRequestError

    def ask(self, messages: list[Any], **more: Any) -> Any:
        with anthropic.Anthropic(**self._where) as client:
            reply = recorded(client.messages.create)(model="m", max_tokens=99, messages=messages, **more)
            return list(reply) if more else reply

    def ask_for_object(self, messages: list[Any]) -> Any:
        with anthropic.Anthropic(**self._where) as client:
            return client.messages.create(model="m", max_tokens=99, messages=messages)

    async def ask_async(self, messages: list[Any], **more: Any) -> Any:
        async with anthropic.AsyncAnthropic(**self._where) as client:
            reply = await recorded(client.messages.create)(model="m", max_tokens=99, messages=messages, **more)
            return [chunk async for chunk in reply] if more else reply

    def said(self, reply: Any) -> Any:
        return {"role": "assistant", "content": reply["content"]}

    def results(self, message: Any) -> list[Any]:
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        content = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": result}
            for call, result in zip(calls, RESULTS, strict=True)
        ]
        return [{"role": "user", "content": content}]


@pytest.fixture(params=[OpenAI, Anthropic])
def provider(request: pytest.FixtureRequest, server: Server) -> Any:
    return request.param(server.address)


def test_a_reply_is_what_the_provider_sent(provider: Any) -> None:
    as_object = provider.ask_for_object([TASK])
    assert plain(as_object) == json.loads(as_object.to_json(exclude_unset=True))
    assert provider.ask([TASK]) == plain(as_object)
    assert json.loads(json.dumps(plain(as_object))) == plain(as_object)


def test_a_reply_can_be_sent_back(provider: Any, server: Server) -> None:
    said = provider.said(provider.ask([TASK]))
    provider.ask([TASK, said, *provider.results(said)])
    assert server.turns[-1] == 1


def test_a_conversation_without_a_result_is_refused_by_the_server(provider: Any) -> None:
    said = provider.said(provider.ask([TASK]))
    with pytest.raises(provider.refused, match="calls without a result"):
        provider.ask([TASK, said])
    with pytest.raises(provider.refused, match="differs from the model's reply"):
        provider.ask([TASK, {**said, "content": []}])


def test_a_stream_adds_up_to_the_reply_that_is_not_streamed(provider: Any, server: Server) -> None:
    whole = provider.ask([TASK])
    chunks = provider.ask([TASK], stream=True)
    assert server.requests[-1]["stream"] is True
    assert len(chunks) > 5
    reply = joined(chunks)
    said = provider.said(whole)
    said.pop("annotations", None)  # OpenAI's streams do not have it
    assert provider.said(reply) == said
    assert reply["usage"] == whole["usage"]


def test_async_clients_give_the_same(provider: Any) -> None:
    assert asyncio.run(provider.ask_async([TASK])) == provider.ask([TASK])
    assert asyncio.run(provider.ask_async([TASK], stream=True)) == provider.ask([TASK], stream=True)


def test_both_providers_count_the_same(provider: Any) -> None:
    said = provider.said(provider.ask([TASK]))
    messages = [TASK, said, *provider.results(said)]
    spent = Usage(input=200, output=20, cached=100, total=220)
    assert usage_of(provider.ask_for_object(messages)) == spent
    assert usage_of(provider.ask(messages)) == spent
    assert usage_of(provider.ask(messages, stream=True)) == spent
