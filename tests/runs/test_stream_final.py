"""Streams of which only the whole reply is recorded: `run.stream(…, final=fold)`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Budget, Halted, Holdfast, InvalidArgument, Unsupported
from tests.waiting import DEADLINE

WORDS = [f"word{number} " for number in range(200)]


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "agent.db") as handle:
        yield handle


class Chunk:
    """A chunk of a client, which cannot be recorded."""

    def __init__(self, text: str) -> None:
        self.text = text


def whole(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_chunks_pass_and_the_whole_reply_is_recorded(hf: Holdfast) -> None:
    calls: list[str] = []

    def ask(prompt: str) -> Iterator[Chunk]:
        calls.append(prompt)
        yield from map(Chunk, WORDS)

    with suppress(ZeroDivisionError), hf.run("t", start={}) as run:
        live = list(run.stream(ask, "hello", final=whole))
        assert [chunk.text for chunk in live] == WORDS
        raise ZeroDivisionError
    [effect] = hf.effects("t")
    assert effect.result == "".join(WORDS)
    with hf.run("t") as run:
        assert list(run.stream(ask, "hello", final=whole)) == ["".join(WORDS)]
        run.finish()
    assert calls == ["hello"]


def test_the_same_in_an_async_run(hf: Holdfast) -> None:
    calls: list[str] = []

    async def ask(prompt: str) -> AsyncIterator[Chunk]:
        calls.append(prompt)
        for word in WORDS:
            yield Chunk(word)

    async def run_once(is_last: bool) -> list[Any]:
        async with hf.aio.run("t", start={}) as run:
            found = [chunk async for chunk in run.stream(ask, "hello", final=whole)]
            if not is_last:
                raise ZeroDivisionError(len(found))
            await run.finish()
        return found

    with pytest.raises(ZeroDivisionError, match="200"):
        asyncio.run(run_once(is_last=False))
    assert asyncio.run(run_once(is_last=True)) == ["".join(WORDS)]
    assert calls == ["hello"]


def test_a_stream_that_is_left_or_cannot_be_folded_is_not_recorded(hf: Holdfast) -> None:
    def refuse(chunks: list[str]) -> str:
        raise ValueError(f"{len(chunks)} chunks are not enough")

    with hf.run("t", start={}) as run:
        next(iter(run.stream(lambda: iter("ab"), key="left", final="".join)))
        with pytest.raises(ValueError, match="2 chunks are not enough"):
            list(run.stream(lambda: iter("ab"), key="refused", final=refuse))
        with pytest.raises(Unsupported, match=r"the whole reply of .* cannot be recorded"):
            list(run.stream(lambda: iter("ab"), key="object", final=lambda _: object()))
        with pytest.raises(InvalidArgument, match="final must be a function"):
            list(run.stream(lambda: iter("ab"), key="wrong", final="join"))  # type: ignore[arg-type]
        assert list(run.stream(lambda: iter("cd"), key="left", final="".join)) == ["c", "d"]
        run.finish()
    assert [effect.result for effect in hf.effects("t") if effect.result is not None] == ["cd"]


def test_the_whole_reply_is_paid_for(hf: Holdfast) -> None:
    def folded(_: list[str]) -> dict[str, Any]:
        return {"text": "ab", "usage": {"input_tokens": 70, "output_tokens": 20}}

    with suppress(Halted), hf.run("t", start={}, guards=[Budget(tokens=80)]) as run:
        for key in "12":
            list(run.stream(lambda: iter("ab"), key=key, final=folded))
    assert run.status == "halted"
    assert len(hf.effects("t")) == 1


def test_a_program_that_starts_to_fold_asks_again(hf: Holdfast) -> None:
    def ask() -> Iterator[str]:
        return iter("ab")

    with suppress(ZeroDivisionError), hf.run("t", start={}) as run:
        assert list(run.stream(ask)) == ["a", "b"]
        raise ZeroDivisionError
    with hf.run("t") as run:
        assert list(run.stream(ask, final="".join)) == ["a", "b"]
        run.finish()


PROGRAM = """
import os, signal, sys
from pathlib import Path
import holdfast

calls = Path(sys.argv[2])

def ask(number):
    with calls.open("a") as file:
        file.write(f"{number}\\n")
    for word in ("to ", "be ", "or"):
        yield word
        if number == 2 and word == "be " and sys.argv[3] == "die":
            os.kill(os.getpid(), signal.SIGKILL)

with holdfast.open(sys.argv[1]) as hf, hf.run("t", start={}) as run:
    chunks = [list(run.stream(ask, number, final="".join)) for number in (1, 2)]
    run.finish(chunks)
    print(chunks)
"""


def test_killed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    def process(what: str) -> subprocess.CompletedProcess[str]:
        given = [sys.executable, "-c", PROGRAM, str(tmp_path / "agent.db"), str(tmp_path / "calls"), what]
        return subprocess.run(given, capture_output=True, text=True, check=False, timeout=DEADLINE)

    assert process("die").returncode == -signal.SIGKILL
    ended = process("live")
    assert ended.stdout == "[['to be or'], ['to ', 'be ', 'or']]\n", ended.stderr
    assert (tmp_path / "calls").read_text().split() == ["1", "2", "2"]
