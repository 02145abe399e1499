"""Clients of providers, wrapped once: sync, async, streamed, and after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anthropic
import openai
import pytest

from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.generic import plain
from holdfast.adapters.providers import durable
from holdfast.adapters.streams import joined, unjoined
from tests.examples.serving import Server, serving

TASK = {"role": "user", "content": "Order three packs of paper and one bottle of ink."}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


class Stop(Exception):
    """Ends a block, so that the next one resumes its run."""


class Provider:
    """A provider's client, sync or async."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._where: dict[str, Any] = {"api_key": "none", "max_retries": 0}
        self._where["base_url"] = f"{address}/v1" if name == "openai" else address

    def client(self, *, is_async: bool = False) -> Any:
        if self.name == "openai":
            return openai.AsyncOpenAI(**self._where) if is_async else openai.OpenAI(**self._where)
        return anthropic.AsyncAnthropic(**self._where) if is_async else anthropic.Anthropic(**self._where)

    def create(self, client: Any, **options: Any) -> Any:
        if self.name == "openai":
            return client.chat.completions.create(model="m", messages=[TASK], **options)
        return client.messages.create(model="m", max_tokens=99, messages=[TASK], **options)


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest, server: Server) -> Provider:
    return Provider(request.param, server.address)


def test_outside_a_run_the_client_is_as_before(provider: Provider, server: Server) -> None:
    before = len(server.requests)
    with durable(provider.client()) as client:
        reply = provider.create(client)
        assert type(reply).__name__ in ("ChatCompletion", "Message")
        assert client.max_retries == 0
        assert len(list(provider.create(client, stream=True))) > 5
    assert len(server.requests) == before + 2


def test_a_reply_is_recorded_and_has_its_class(hf: Holdfast, provider: Provider, server: Server) -> None:
    before, replies = len(server.requests), []
    with durable(provider.client()) as client:
        for _ in range(2):
            with suppress(Stop), hf.run("t", start={}):
                replies.append(provider.create(client))
                raise Stop
    assert replies[0] == replies[1]
    assert type(replies[0]) is type(replies[1])
    assert len(server.requests) == before + 1


def test_only_the_whole_reply_of_a_stream_is_recorded(hf: Holdfast, provider: Provider, server: Server) -> None:
    before, replies, kinds = len(server.requests), [], []
    with durable(provider.client()) as client:
        for _ in range(2):
            with suppress(Stop), hf.run("t", start={}):
                with provider.create(client, stream=True) as stream:
                    chunks = list(stream)
                replies.append(joined([plain(chunk) for chunk in chunks]))
                kinds.append({type(chunk).__name__ for chunk in chunks})
                raise Stop
        whole = plain(provider.create(client))
    assert len(server.requests) == before + 2
    [effect] = hf.effects("t")
    assert effect.result == replies[0]
    for reply in replies:
        said = reply["choices"][0]["message"] if provider.name == "openai" else reply["content"]
        expected = whole["choices"][0]["message"] if provider.name == "openai" else whole["content"]
        expected = {k: v for k, v in expected.items() if k != "annotations"} if provider.name == "openai" else expected
        assert said == expected
    assert kinds[1] <= kinds[0]


def test_async_clients(hf: Holdfast, provider: Provider, server: Server) -> None:
    async def once() -> Any:
        async with durable(provider.client(is_async=True)) as client, hf.aio.run("t", start={}):
            reply = await provider.create(client)
            chunks = [chunk async for chunk in await provider.create(client, stream=True)]
            replies.append((plain(reply), joined([plain(chunk) for chunk in chunks])))
            raise Stop

    before, replies = len(server.requests), []  # type: ignore[var-annotated]
    for _ in range(2):
        with pytest.raises(Stop):
            asyncio.run(once())
    assert len(server.requests) == before + 2
    assert replies[0][0] == replies[1][0]


def test_helpers_that_would_not_be_recorded_are_refused(hf: Holdfast, provider: Provider) -> None:
    with durable(provider.client()) as client, hf.run("t", start={}):
        with pytest.raises(InvalidArgument, match="stream=True"):
            client.chat.completions.stream if provider.name == "openai" else client.messages.stream  # noqa: B018
        assert client.models is not None
    with pytest.raises(InvalidArgument, match="openai or anthropic"):
        durable(object())


def test_a_reply_is_divided_into_chunks_and_joined() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "buy", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    blocks = [
        {"type": "thinking", "thinking": "so", "signature": "s"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "t1", "name": "buy", "input": {"item": "ink"}},
    ]
    for reply in (
        {
            "id": "x",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        },
        {"id": "r", "object": "response", "status": "completed", "output": []},
        {
            "id": "m",
            "role": "assistant",
            "content": blocks,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 7},
        },
    ):
        assert joined(unjoined(reply)) == reply


def test_requests_that_would_not_be_recorded_are_refused(hf: Holdfast, provider: Provider) -> None:
    paths = {
        "openai": ["completions.create", "beta.chat.completions.parse", "chat.completions.with_raw_response"],
        "anthropic": ["beta.messages.create", "messages.parse", "with_streaming_response"],
    }[provider.name]
    with durable(provider.client()) as client, client.copy() as copied:
        for path in paths:
            assert _found(client, path) is not None  # outside a run
            with hf.run("t", start={}), pytest.raises(InvalidArgument, match="cannot be recorded"):
                _found(copied, path)


def _found(client: Any, path: str) -> Any:
    for name in path.split("."):
        client = getattr(client, name)
    return client
