"""The same act once, in async runs: several tasks, several threads of one loop, and a call that takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import ActUnderWay
from holdfast.runs import acts

PAID: list[str] = []


@holdfast.tool(effect="irreversible", identity=("invoice",))
async def pay(invoice: str, note: str) -> str:
    await asyncio.sleep(0.05)
    PAID.append(note)
    return f"receipt {len(PAID)}"


@holdfast.tool(effect="irreversible", identity=("invoice",))
def send(invoice: str, note: str) -> str:
    PAID.append(note)
    return f"letter {len(PAID)}"


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    PAID.clear()
    with holdfast.open(tmp_path / "agent.db", durability="off", tools=[pay, send]) as opened:
        yield opened


async def agent(hf: Holdfast, thread: str, tool: Any = pay) -> str:
    async with hf.aio.run(thread, start={}) as run:
        async for _ in run.steps():
            return str(await run.tool(tool, {"invoice": "A-17", "note": f"words of {thread}"}))
    raise AssertionError("no step")


def test_parallel_calls_of_one_run_pay_once(hf: Holdfast) -> None:
    async def main() -> list[str]:
        async with hf.aio.run("t", start={}) as run:
            async for _ in run.steps():
                calls = [run.tool(pay, {"invoice": "A-17", "note": str(n)}, key=str(n)) for n in range(5)]
                other = run.tool(pay, {"invoice": "B-1", "note": "other"}, key="other")
                return list(await asyncio.gather(*calls, other))
        return []

    *same, other = asyncio.run(main())
    assert len(set(same)) == 1
    assert len(PAID) == 2
    assert other != same[0]


@pytest.mark.parametrize("tool", [pay, send])
def test_threads_of_one_loop_pay_once(hf: Holdfast, tool: Any) -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(agent(hf, f"t{n}", tool) for n in range(5)))

    results = asyncio.run(main())
    assert len(set(results)) == 1
    assert len(PAID) == 1


def test_a_call_that_stays_under_way_does_not_block_the_loop(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "WAIT_SECONDS", 0.1)
    ready, over = asyncio.Event(), asyncio.Event()

    @holdfast.tool(effect="irreversible", name="pay", identity=("invoice",))
    async def slow(invoice: str, note: str) -> str:
        ready.set()
        await over.wait()
        PAID.append(note)
        return "receipt"

    async def main() -> None:
        first = asyncio.create_task(agent(hf, "a", slow))
        await ready.wait()
        with pytest.raises(ActUnderWay):
            await agent(hf, "b", slow)
        over.set()
        assert await first == await agent(hf, "b", slow) == "receipt"

    asyncio.run(main())
    assert PAID == ["words of a"]


def test_acts_are_listed_and_released(hf: Holdfast) -> None:
    async def main() -> None:
        await agent(hf, "a")
        [act] = [each async for each in hf.aio.acts(pay)]
        await hf.aio.release(act, by="anna", reason="the bank returned it")
        await agent(hf, "b")

    asyncio.run(main())
    assert PAID == ["words of a", "words of b"]
