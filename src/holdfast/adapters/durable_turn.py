"""Run an agent of a framework to its end in a run of a thread: the two-line form of the adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.handle import Holdfast


async def durable_turn(
    hf: Holdfast | AsyncHoldfast,
    thread: str,
    turn: str | None,
    agent: str | None,
    body: Callable[[AsyncRun], Awaitable[Any]],
) -> Any:
    """Run `body` in a run of the thread, and return what it returns: plain data, recorded as the result of the run.

    `Unfinished` if the run waits for a person. The same call resumes it, also in another process, and returns the
    recorded result when the run is completed.
    """
    aio = hf.aio if isinstance(hf, Holdfast) else hf
    async with aio.run(thread, start={"messages": []}, turn=turn, agent=agent) as run:
        async for _ in run.steps():
            await run.finish(await body(run))
    return run.result if run.status == "completed" else await aio.result(thread, turn=turn)
