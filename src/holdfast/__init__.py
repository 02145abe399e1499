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
    ToolNotDone,
    Unfinished,
    Unsupported,
    WaitTimedOut,
    WrongKey,
)
from holdfast.handle import Holdfast, open  # noqa: A004 - the firm name, as in gzip.open
from holdfast.maintenance import BackupResult
from holdfast.policy import AfterModel, AfterToolCall, EveryN, EverySeconds, Never, Policy
from holdfast.runs.guards import Budget, LoopGuard
from holdfast.runs.run import Run
from holdfast.runs.tools import GiveUp, Happened, NotDone, tool
from holdfast.runs.worker import Worker, handler
from holdfast.threads.diff import Change, Diff
from holdfast.threads.gc import OptimizeResult
from holdfast.threads.retention import PruneResult, Retention
from holdfast.threads.save import ANY, NEW
from holdfast.threads.thread import Thread
from holdfast.threads.verify import RepairResult, VerifyProgress, VerifyReport
from holdfast.types import (
    NOT_LOADED,
    Checkpoint,
    Effect,
    EraseResult,
    InterruptedRun,
    MissingValue,
    PendingQuestion,
    Progress,
    RunInfo,
    Skipped,
    Status,
    StuckRun,
    ThreadInfo,
    Usage,
)

if TYPE_CHECKING:
    from holdfast.aio.handle import AsyncHoldfast, AsyncThread, aopen
    from holdfast.aio.run import AsyncRun

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
    "BackupResult",
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
    "EraseResult",
    "EveryN",
    "EverySeconds",
    "GiveUp",
    "Halted",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "Incompatible",
    "InterruptedRun",
    "InvalidArgument",
    "LeaseHeld",
    "LeaseLost",
    "LoopGuard",
    "MissingValue",
    "Never",
    "NewerFormat",
    "NotAStore",
    "NotDone",
    "NotEncrypted",
    "NotFound",
    "NotInstalled",
    "NotRecorded",
    "OptimizeResult",
    "OutcomeUnknown",
    "PendingQuestion",
    "Policy",
    "Progress",
    "Protected",
    "PruneResult",
    "ReadOnly",
    "RepairResult",
    "Replaced",
    "Retention",
    "Run",
    "RunInfo",
    "Skipped",
    "Status",
    "StoreError",
    "StoreFull",
    "StuckRun",
    "Thread",
    "ThreadInfo",
    "TooLarge",
    "ToolNotDone",
    "Unfinished",
    "Unsupported",
    "Usage",
    "VerifyProgress",
    "VerifyReport",
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
        from holdfast.aio import handle, run  # noqa: PLC0415 - see above

        return getattr(run if name == "AsyncRun" else handle, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
