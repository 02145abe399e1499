"""The run, the tool call and the scope that the current code belongs to, found by context variables.

Tasks, and threads that copy the context (`asyncio.to_thread`, the tools of a run), inherit them. Other threads do not.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from holdfast.runs.drivers import CALL, CurrentCall

if TYPE_CHECKING:
    from holdfast.aio.run import AsyncRun
    from holdfast.runs.run import Run

RUN: Final[ContextVar[Any]] = ContextVar("holdfast_run", default=None)  # set by the block of a run
SCOPE: Final[ContextVar[str]] = ContextVar("holdfast_scope", default="")  # before the key of each call


def current_run() -> Run | AsyncRun | None:
    """Return the run whose block the current code is in; None outside a run. In a child's block, it is the child."""
    run: Run | AsyncRun | None = RUN.get()
    return run


def current_call() -> CurrentCall | None:
    """Return the tool call that the current code is part of: its name, key, attempt and idempotency key; else None."""
    return CALL.get()
