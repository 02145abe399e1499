"""Calls of async runs: what they raise, to whom, and what they close."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from tests.waiting import DEADLINE


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db", durability="off") as opened:
        yield opened


def test_a_function_that_cannot_be_called_fails_and_may_be_called_again(hf: Holdfast) -> None:
    async def model(prompt: str) -> str:
        return prompt

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            with pytest.raises(TypeError) as failed:
                await run.model(model)
            assert await run.model(model, "x") == "x"
            await run.save()
            assert failed.value.__traceback__ is not None, "kept until here, with all that it refers to"

    asyncio.run(main())


def test_a_cancelled_caller_hears_of_that_even_if_its_tool_fails(hf: Holdfast) -> None:
    started, go_on = threading.Event(), threading.Event()

    @holdfast.tool(effect="idempotent")
    def look() -> None:
        started.set()
        assert go_on.wait(DEADLINE)
        raise ValueError("no such row")

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            calling = asyncio.ensure_future(run.tool(look, {}, key="a"))
            assert await asyncio.to_thread(started.wait, 10)
            calling.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.wait([calling])
            assert calling.cancelled()

    asyncio.run(main())


def test_a_stream_that_is_closed_closes_its_source(hf: Holdfast) -> None:
    closed: list[str] = []

    async def chunks() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("async")

    def plain_chunks() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("plain")

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            sources: list[tuple[Any, str]] = [(chunks(), "async"), (plain_chunks(), "plain")]
            for source, name in sources:
                stream: Any = run.stream(itertools.repeat(source).__next__)
                assert await anext(stream) == 1
                await stream.aclose()
                assert closed.pop() == name

    asyncio.run(main())


def test_a_stream_that_fails_in_a_later_step_says_why(hf: Holdfast) -> None:
    async def chunks() -> AsyncIterator[int]:
        yield 1
        raise ValueError("half-way")

    async def main() -> None:
        async with hf.aio.run("t", start={}) as run:
            stream: Any = run.stream(chunks)
            assert await anext(stream) == 1
            await run.save()
            with pytest.raises(ValueError, match="half-way"):
                await anext(stream)

    asyncio.run(main())
