"""OpenAI and Anthropic clients, wrapped once: each request to a model is recorded in the current run.

    client = durable(OpenAI())
    reply = client.chat.completions.create(model=MODEL, messages=messages)

For a loop of your own. Outside a run the client works as before. See `docs/runs.md`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from importlib import import_module
from typing import Any, Final, Self, TypeVar

from holdfast.adapters.generic import plain
from holdfast.adapters.seam import Seam, current
from holdfast.adapters.streams import joined, unjoined
from holdfast.errors import InvalidArgument

C = TypeVar("C")

# The methods that ask a model, by their path in a client.
_RECORDED: Final = ("chat.completions.create", "chat.completions.parse", "responses.create", "messages.create")
# Methods and helpers that send requests of their own, which would not be recorded.
_REFUSED: Final = (
    *("chat.completions.stream", "completions.create", "responses.stream", "responses.parse", "responses.connect"),
    *("beta.chat.completions.parse", "beta.chat.completions.stream", "messages.stream", "messages.parse"),
    *("beta.messages.create", "beta.messages.parse", "beta.messages.stream", "beta.messages.tool_runner"),
)
_RAW: Final = ("with_raw_response", "with_streaming_response")  # of a client, or of a part of it


def durable(client: C) -> C:
    """Wrap a client of `openai` or `anthropic`, sync or async, so that requests to models are recorded.

    The requests of one client come one after the other. Those that are made at the same time need
    `with run.scope(name):`.
    """
    package = type(client).__module__.partition(".")[0]
    if package not in ("openai", "anthropic"):
        raise InvalidArgument("durable takes a client of openai or anthropic")
    wrapped: Any = _Wrapped(client, package, "", is_async=type(client).__name__.startswith("Async"))
    return wrapped  # type: ignore[no-any-return]  # for its users it is the client


class _Wrapped:
    """A client, or a part of it such as `client.chat`."""

    def __init__(self, inner: Any, package: str, path: str, *, is_async: bool) -> None:
        self._inner = inner
        self._package = package
        self._path = path
        self._is_async = is_async

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        path = f"{self._path}.{name}".lstrip(".")
        if path in _RECORDED:
            return self._recorded(path, found)
        if (path in _REFUSED or name in _RAW) and current() is not None:
            raise InvalidArgument(f"{path} cannot be recorded in a run; nothing was sent. Use create(…, stream=True).")
        if any(each.startswith(f"{path}.") for each in (*_RECORDED, *_REFUSED)):
            return _Wrapped(found, self._package, path, is_async=self._is_async)
        return found

    def with_options(self, **options: Any) -> Any:
        return durable(self._inner.with_options(**options))

    copy = with_options

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)

    def _recorded(self, path: str, create: Callable[..., Any]) -> Callable[..., Any]:
        """The method of a client that asks a model, with its replies recorded."""

        def ask(*args: Any, **options: Any) -> Any:
            seam = current()
            if seam is None:
                return create(*args, **options)
            name = f"{self._package}.{path.removesuffix('.create')}"
            request = plain({"args": args, **{key: _comparable(value) for key, value in options.items()}})
            if options.get("stream") is True:
                return self._stream(seam, name, lambda: create(*args, **options), request)
            model = seam.model if self._is_async else seam.model_sync
            return model(name, lambda: create(*args, **options), request=request, codec=None)

        return ask

    def _stream(self, seam: Seam, name: str, create: Callable[[], Any], request: Any) -> Any:
        def chunks_of(reply: dict[str, Any]) -> Iterator[Any]:
            return _typed(self._package, unjoined(reply))

        if self._is_async:
            chunks = seam.stream(name, create, request=request, final=_whole, chunks=chunks_of)
            return _opened(_AsyncStream(chunks))
        return _Stream(seam.stream_sync(name, create, request=request, final=_whole, chunks=chunks_of))


def _whole(chunks: list[Any]) -> dict[str, Any]:
    """The whole reply, of the chunks of a stream."""
    return joined([plain(chunk) for chunk in chunks])


def _comparable(value: Any) -> Any:
    """An option of a request as plain data. A class, such as the type of a reply, is its name."""
    return value.__qualname__ if isinstance(value, type) else plain(value)


def _typed(package: str, chunks: Iterable[dict[str, Any]]) -> Iterator[Any]:
    """Plain chunks as objects of the client."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - both clients need it

    for chunk in chunks:
        if package == "anthropic":
            kind = import_module("anthropic.types").RawMessageStreamEvent
        elif "type" in chunk:
            kind = import_module("openai.types.responses").ResponseStreamEvent
        else:
            kind = import_module("openai.types.chat").ChatCompletionChunk
        yield TypeAdapter(kind).validate_python(chunk)


async def _opened(stream: _AsyncStream) -> _AsyncStream:
    """The stream: async clients are awaited before they are read."""
    return stream


class _Stream:
    """The chunks of a reply, as a client's stream: iterated, closed, or used as a context manager."""

    def __init__(self, chunks: Iterator[Any]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[Any]:
        return self._chunks

    def __next__(self) -> Any:
        return next(self._chunks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if isinstance(self._chunks, Generator):
            self._chunks.close()


class _AsyncStream:
    """As `_Stream`, of an async client."""

    def __init__(self, chunks: AsyncGenerator[Any, None]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._chunks

    async def __anext__(self) -> Any:
        return await anext(self._chunks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._chunks.aclose()
