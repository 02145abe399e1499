"""What a provider's client returns, as plain data: to be recorded by a run and to be sent back to the provider.

Clients such as `openai` and `anthropic` return objects of their own. A run records plain data. `recorded` stands
between the two:

    reply = run.model(recorded(client.chat.completions.create), model=MODEL, messages=run.state["messages"])
    run.state["messages"].append(reply["choices"][0]["message"])

    reply = run.model(recorded(client.messages.create), model=MODEL, max_tokens=1024, messages=run.state["messages"])
    run.state["messages"].append({"role": "assistant", "content": reply["content"]})

Nothing here imports a client. Whatever has pydantic's `model_dump` is understood.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from holdfast.errors import Unsupported
from holdfast.runs.guards import counted
from holdfast.types import Usage


def plain(reply: object) -> Any:
    """A reply as dicts, lists, texts, numbers, booleans and None, with the names and values that the provider sent.

    What the provider did not send is left out: a client's `None` for a field that never came is refused by some
    providers when it is sent back. Dicts, lists and tuples may hold replies. Unsupported for anything else, with the
    path and the type.

    >>> class Message:  # as clients have them
    ...     def model_dump(self, **how):
    ...         return {"role": "assistant", "content": "Hello"}
    >>> plain([Message(), {"role": "user", "content": "Hi"}])
    [{'role': 'assistant', 'content': 'Hello'}, {'role': 'user', 'content': 'Hi'}]
    >>> plain({"reply": object()})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    holdfast.errors.Unsupported: $.reply: builtins.object cannot be turned into plain data; ...
    """
    return _plain(reply, "$")


def recorded(function: Callable[..., Any], /) -> Callable[..., Any]:
    """A client's method, made to return what a run can record: `run.model(recorded(client.messages.create), …)`.

    Called, it gives `plain` of what the method returns. If that is awaited, awaiting gives plain data; if it is a
    stream, of either kind, its chunks are plain data, and the stream is closed when the last one was taken or nobody
    wants more.

    >>> class Count:
    ...     def model_dump(self, **how):
    ...         return {"input_tokens": 7}
    >>> recorded(lambda text: {"said": text, "usage": Count()})("Hello")
    {'said': 'Hello', 'usage': {'input_tokens': 7}}
    >>> list(recorded(lambda: iter([Count(), Count()]))())
    [{'input_tokens': 7}, {'input_tokens': 7}]
    """

    # What comes back decides: the async methods of both clients are wrapped in functions that do not look async.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _received(function(*args, **kwargs))

    return call


def usage_of(reply: object) -> Usage | None:
    """The tokens that a reply cost; None if it does not say. A reply, plain or not, its `usage`, or a stream's chunks.

    `input` is all that was read, the cached part too, and `cached` that part. OpenAI counts so; Anthropic counts what
    was read from a cache, or written to it, beside `input_tokens`, and it is added here.

    >>> usage_of({"prompt_tokens": 90, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 64}})
    Usage(input=90, output=8, cached=64, total=98, cost=0.0, currency='USD')
    >>> usage_of({"usage": {"input_tokens": 26, "output_tokens": 8, "cache_read_input_tokens": 64}})
    Usage(input=90, output=8, cached=64, total=98, cost=0.0, currency='USD')
    >>> usage_of({"content": "Hello"}) is None
    True
    """
    return counted(plain(reply))


def _received(reply: Any) -> Any:
    if isinstance(reply, Awaitable):
        return _awaited(reply)
    if not hasattr(reply, "model_dump"):
        if isinstance(reply, AsyncIterable):
            return _async_chunks(reply)
        if isinstance(reply, Iterator):
            return _chunks(reply)
    return plain(reply)


async def _awaited(reply: Awaitable[Any]) -> Any:
    return _received(await reply)


def _chunks(stream: Iterator[Any]) -> Iterator[Any]:
    try:
        for chunk in stream:
            yield plain(chunk)
    finally:
        _close(stream)


async def _async_chunks(stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
    try:
        async for chunk in stream:
            yield plain(chunk)
    finally:
        closing = _close(stream)
        if inspect.isawaitable(closing):
            await closing


def _close(stream: object) -> Any:
    """Give the connection back. Clients' streams have `close`, async generators `aclose`, other iterators neither."""
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    return None if close is None else close()


def _plain(value: Any, path: str) -> Any:
    # Exact types: an enum that is a text as well would come back as something else.
    if value is None or type(value) in (bool, int, float, str):
        return value
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return _plain(_dumped(value), path)
    if isinstance(value, Mapping):
        if not all(type(name) is str for name in value):
            raise Unsupported(path, "a dict with keys that are not texts cannot be sent to a provider")
        return {name: _plain(item, f"{path}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{number}]") for number, item in enumerate(value)]
    kind = type(value)
    raise Unsupported(
        path,
        f"{kind.__module__}.{kind.__qualname__} cannot be turned into plain data; "
        "give what a client's create method returns, or make a dict of it first",
    )


def _dumped(reply: Any) -> Any:
    # `warnings`: clients do not validate what a provider sends, and pydantic would complain about each new field.
    # `exclude`: what a client added to a reply and leaves out itself when it sends the reply back.
    return reply.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude=getattr(reply, "__api_exclude__", None),
        warnings=False,
    )
