"""Holdfast keeps an LLM agent's work safe: its state step by step, back where it was after a crash."""

from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    AlreadyExists,
    Ambiguous,
    Busy,
    Closed,
    Conflict,
    Damaged,
    HoldfastError,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NewerFormat,
    NotAStore,
    NotFound,
    OutcomeUnknown,
    Protected,
    ReadOnly,
    StoreError,
    StoreFull,
    TooLarge,
    Unsupported,
)
from holdfast.handle import Holdfast, open  # noqa: A004 - the firm name, as in gzip.open
from holdfast.policy import AfterModel, AfterToolCall, EveryN, EverySeconds, Never, Policy
from holdfast.records import NOT_LOADED, Checkpoint, Effect, Interrupted, Skipped, Status, ThreadInfo, Usage
from holdfast.runs.outcome import GiveUp, Happened, NotDone
from holdfast.runs.run import Run
from holdfast.runs.tools import tool
from holdfast.runs.worker import Worker
from holdfast.threads.diff import Change, Diff
from holdfast.threads.integrity import Report
from holdfast.threads.maintenance import Optimized
from holdfast.threads.retention import Pruned, Retention
from holdfast.threads.saver import ANY, NEW
from holdfast.threads.thread import Thread

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast, AsyncThread, aopen

__all__ = [
    "ANY",
    "NEW",
    "NOT_LOADED",
    "AfterModel",
    "AfterToolCall",
    "AlreadyExists",
    "Ambiguous",
    "AsyncHoldfast",
    "AsyncThread",
    "Busy",
    "Change",
    "Checkpoint",
    "Closed",
    "Conflict",
    "Damaged",
    "Diff",
    "Effect",
    "EveryN",
    "EverySeconds",
    "GiveUp",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "Interrupted",
    "InvalidArgument",
    "LeaseHeld",
    "LeaseLost",
    "Never",
    "NewerFormat",
    "NotAStore",
    "NotDone",
    "NotFound",
    "Optimized",
    "OutcomeUnknown",
    "Policy",
    "Protected",
    "Pruned",
    "ReadOnly",
    "Report",
    "Retention",
    "Run",
    "Skipped",
    "Status",
    "StoreError",
    "StoreFull",
    "Thread",
    "ThreadInfo",
    "TooLarge",
    "Unsupported",
    "Usage",
    "Worker",
    "aopen",
    "open",
    "tool",
]

_ASYNC = ("AsyncHoldfast", "AsyncThread", "aopen")


def __getattr__(name: str) -> Any:
    """The async names, imported when first asked for: asyncio takes longer to import than all of Holdfast."""
    if name in _ASYNC:
        from holdfast import aio  # noqa: PLC0415 - see above

        return getattr(aio, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
