"""Model turns of an agent framework as steps of a run, and the two-line form of the adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from holdfast.aio.handle import AsyncHoldfast
from holdfast.aio.run import AsyncRun
from holdfast.errors import InvalidArgument
from holdfast.handle import Holdfast
from holdfast.runs.drivers import SCOPE, current_run
from holdfast.runs.run import Run

IDLE_SECONDS: Final = 60.0  # after that, the save reports that calls are under way


class Turns:
    """A block in which an agent's model turns are steps."""

    def __init__(self, run: Run | AsyncRun) -> None:
        self.run: Final = run
        self.scope: Final = SCOPE.get()
        self._agent: object = None

    def is_next(self, agent: object) -> bool:
        """Whether this is the agent of the block, and its first turn was before."""
        if self._agent is None:
            self._agent = agent
            return False
        return self._agent == agent


_current: Final[ContextVar[Turns | None]] = ContextVar("holdfast_turns", default=None)


def current_turns() -> Turns | None:
    """Return the block of `turns()` that the current code is in; None outside."""
    return _current.get()


@contextmanager
def turns() -> Generator[None]:
    """A block in which each model turn of an agent ends with a checkpoint, which has the messages so far.

    So the thread's history shows the conversation turn by turn, and it can be forked at a turn or rewound to it. After
    a crash the run resumes from before the block, and the calls are answered from the journal.
    """
    run = current_run()
    if run is None or type(run.state) is not dict:
        raise InvalidArgument("turns() needs a run whose state is a dict")
    token = _current.set(Turns(run))
    try:
        yield
    finally:
        _current.reset(token)


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
            with turns():
                result = await body(run)
            await run.finish(result)
    return run.result if run.status == "completed" else await aio.result(thread, turn=turn)
