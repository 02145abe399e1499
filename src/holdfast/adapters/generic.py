"""Convert the replies of model providers' clients to plain data, which a run can record and send back.

Clients such as `openai` and `anthropic` return objects of their own, and a run records plain data. `recorded` converts
them:

    reply = run.model(recorded(client.chat.completions.create), model=MODEL, messages=run.state["messages"])
    run.state["messages"].append(reply["choices"][0]["message"])

    reply = run.model(recorded(client.messages.create), model=MODEL, max_tokens=1024, messages=run.state["messages"])
    run.state["messages"].append({"role": "assistant", "content": reply["content"]})

No client is imported. Any object with pydantic's `model_dump` is supported.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from holdfast.errors import Unsupported
from holdfast.runs.guards import usage_of_reply
from holdfast.types import Usage


def plain(reply: object) -> Any:
    """Convert a reply to dicts, lists, strings, numbers, booleans and None, with the provider's names and values.

    Fields that the provider did not send are left out: some providers reject a `None` that a client filled in when it
    is sent back. Replies may be inside dicts, lists and tuples. Unsupported for anything else, with the path and type.

    >>> class Message:  # like those of clients
    ...     def model_dump(self, **how):
    ...         return {"role": "assistant", "content": "Hello"}
    >>> plain([Message(), {"role": "user", "content": "Hi"}])
    [{'role': 'assistant', 'content': 'Hello'}, {'role': 'user', 'content': 'Hi'}]
    >>> plain({"reply": object()})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    holdfast.errors.Unsupported: $.reply: builtins.object cannot be converted to plain data; ...
    """
    return _plain(reply, "$")


def recorded(function: Callable[..., Any], /) -> Callable[..., Any]:
    """Wrap a client's method so that it returns plain data: `run.model(recorded(client.messages.create), …)`.

    The wrapper returns `plain` of the method's result. If the result is awaitable, awaiting it returns plain data. If
    it is a stream, sync or async, its chunks are plain data, and the stream is closed at its end or when the caller
    stops reading.

    >>> class Count:
    ...     def model_dump(self, **how):
    ...         return {"input_tokens": 7}
    >>> recorded(lambda text: {"text": text, "usage": Count()})("Hello")
    {'text': 'Hello', 'usage': {'input_tokens': 7}}
    >>> list(recorded(lambda: iter([Count(), Count()]))())
    [{'input_tokens': 7}, {'input_tokens': 7}]
    """

    # The result decides, not the function: both clients wrap their async methods in functions that are not async.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _received(function(*args, **kwargs))

    return call


def usage_of(reply: object) -> Usage | None:
    """The token usage of a reply; None if unknown. Accepts a reply, plain or not, its `usage`, or a stream's chunks.

    `input` includes cached tokens, and `cached` is their number, as OpenAI counts. Anthropic counts tokens read from or
    written to a cache separately from `input_tokens`; they are added here.

    >>> usage_of({"prompt_tokens": 90, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 64}})
    Usage(input=90, output=8, cached=64, total=98, cost=0.0, currency='USD')
    >>> usage_of({"usage": {"input_tokens": 26, "output_tokens": 8, "cache_read_input_tokens": 64}})
    Usage(input=90, output=8, cached=64, total=98, cost=0.0, currency='USD')
    >>> usage_of({"content": "Hello"}) is None
    True
    """
    return usage_of_reply(plain(reply))


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
    """Release the connection. Clients' streams have `close`, async generators `aclose`, other iterators neither."""
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    return None if close is None else close()


def _plain(value: Any, path: str) -> Any:
    # Exact types: a string enum would be loaded as a plain string.
    if value is None or type(value) in (bool, int, float, str):
        return value
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return _plain(_dumped(value), path)
    if isinstance(value, Mapping):
        if not all(type(name) is str for name in value):
            raise Unsupported(path, "a dict with keys that are not strings cannot be sent to a provider")
        return {name: _plain(item, f"{path}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{number}]") for number, item in enumerate(value)]
    kind = type(value)
    raise Unsupported(
        path,
        f"{kind.__module__}.{kind.__qualname__} cannot be converted to plain data; "
        "pass what a client's create method returns, or convert it to a dict first",
    )


def _dumped(reply: Any) -> Any:
    # `warnings`: clients do not validate replies, so pydantic would warn about each new field.
    # `exclude`: fields that the client added itself and does not send back either.
    return reply.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude=getattr(reply, "__api_exclude__", None),
        warnings=False,
    )
