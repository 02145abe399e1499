"""The setup of a run: its settings, and the interface to the worker that runs it (`Supervisor`)."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.errors import HoldfastError
from holdfast.policy import Policy
from holdfast.redaction import Redaction
from holdfast.runs.earlier_calls import Effects
from holdfast.runs.guards import Guard
from holdfast.runs.record import released, released_unfinished, text_of
from holdfast.runs.tools import Tools
from holdfast.stores.contract_runs import RunRow
from holdfast.text import quoted
from holdfast.types import Status


class Supervisor(Protocol):
    """The worker of a run: it stops the run, and decides what happens after a failure."""

    def is_stopping(self) -> bool:
        """Whether the run is to be released at the end of its step."""
        ...

    def after_failure(self, row: RunRow) -> RunRow:
        """The record of a run that failed. It is written with the failure, so a crash cannot separate them."""
        ...


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run: all that a program passes besides the thread and its state."""

    tools: Tools
    policy: Policy
    effects: Effects | None = None
    supervisor: Supervisor | None = None
    guards: tuple[Guard, ...] = ()


def left_row(row: RunRow, error: BaseException | None, setup: Setup, redaction: Redaction) -> RunRow:
    """The record of a run whose block was left, or could not be entered, because of an error."""
    if isinstance(error, Exception):
        failed = released(row, "failed", text_of(error, redaction))
        return failed if setup.supervisor is None else setup.supervisor.after_failure(failed)
    if error is None:
        return released_unfinished(row, "idle")
    return released_unfinished(row, "released" if row.handler is None else "queued")


def waits_in_hook(thread: str, status: Status) -> HoldfastError:
    """The error of a block that cannot start because the hook of its run has to wait."""
    return HoldfastError(
        f"the run of thread {quoted(thread)} is {status}, because its on_resume waits; the block was not entered. "
        "Call hf.run again later."
    )
