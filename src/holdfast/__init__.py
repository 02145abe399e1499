"""Holdfast keeps an LLM agent's work safe: its state step by step, back where it was after a crash."""

from typing import TYPE_CHECKING, Any

from holdfast.crypto.cipher import Cipher
from holdfast.errors import (
    AlreadyExists,
    Ambiguous,
    AskedByChild,
    Busy,
    CallFailed,
    CallTimedOut,
    Cancelled,
    Closed,
    Conflict,
    Damaged,
    EffectsAhead,
    ErasePending,
    Halted,
    HoldfastError,
    Incompatible,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NewerFormat,
    NotAStore,
    NotEncrypted,
    NotFound,
    NotInstalled,
    NotRecorded,
    OutcomeUnknown,
    Protected,
    ReadOnly,
    Replaced,
    StoreError,
    StoreFull,
    TooLarge,
    Unfinished,
    Unsupported,
    WaitTimedOut,
    WrongKey,
)
from holdfast.handle import Holdfast, open  # noqa: A004 - the firm name, as in gzip.open
from holdfast.keeping import BackedUp
from holdfast.policy import AfterModel, AfterToolCall, EveryN, EverySeconds, Never, Policy
from holdfast.records import (
    NOT_LOADED,
    Checkpoint,
    Effect,
    Erased,
    Interrupted,
    Lost,
    Progress,
    Question,
    RunInfo,
    Skipped,
    Status,
    Stuck,
    ThreadInfo,
    Usage,
)
from holdfast.runs.guards import Budget, LoopGuard
from holdfast.runs.handlers import handler
from holdfast.runs.outcome import GiveUp, Happened, NotDone
from holdfast.runs.run import Run
from holdfast.runs.tools import tool
from holdfast.runs.worker import Worker
from holdfast.threads.diff import Change, Diff
from holdfast.threads.integrity import Looked, Repaired, Report
from holdfast.threads.maintenance import Optimized
from holdfast.threads.retention import Pruned, Retention
from holdfast.threads.saver import ANY, NEW
from holdfast.threads.thread import Thread

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast, AsyncThread, aopen
    from holdfast.aio_run import AsyncRun

__all__ = [
    "ANY",
    "NEW",
    "NOT_LOADED",
    "AfterModel",
    "AfterToolCall",
    "AlreadyExists",
    "Ambiguous",
    "AskedByChild",
    "AsyncHoldfast",
    "AsyncRun",
    "AsyncThread",
    "BackedUp",
    "Budget",
    "Busy",
    "CallFailed",
    "CallTimedOut",
    "Cancelled",
    "Change",
    "Checkpoint",
    "Cipher",
    "Closed",
    "Conflict",
    "Damaged",
    "Diff",
    "Effect",
    "EffectsAhead",
    "ErasePending",
    "Erased",
    "EveryN",
    "EverySeconds",
    "GiveUp",
    "Halted",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "Incompatible",
    "Interrupted",
    "InvalidArgument",
    "LeaseHeld",
    "LeaseLost",
    "Looked",
    "LoopGuard",
    "Lost",
    "Never",
    "NewerFormat",
    "NotAStore",
    "NotDone",
    "NotEncrypted",
    "NotFound",
    "NotInstalled",
    "NotRecorded",
    "Optimized",
    "OutcomeUnknown",
    "Policy",
    "Progress",
    "Protected",
    "Pruned",
    "Question",
    "ReadOnly",
    "Repaired",
    "Replaced",
    "Report",
    "Retention",
    "Run",
    "RunInfo",
    "Skipped",
    "Status",
    "StoreError",
    "StoreFull",
    "Stuck",
    "Thread",
    "ThreadInfo",
    "TooLarge",
    "Unfinished",
    "Unsupported",
    "Usage",
    "WaitTimedOut",
    "Worker",
    "WrongKey",
    "aopen",
    "handler",
    "open",
    "tool",
]

_ASYNC = ("AsyncHoldfast", "AsyncRun", "AsyncThread", "aopen")


def __getattr__(name: str) -> Any:
    """The async names, imported when first asked for: asyncio takes longer to import than all of Holdfast."""
    if name in _ASYNC:
        from holdfast import aio, aio_run  # noqa: PLC0415 - see above

        return getattr(aio_run if name == "AsyncRun" else aio, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
