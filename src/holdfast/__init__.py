"""Holdfast makes LLM agents durable: a run that crashed is resumed, and its recorded calls are not repeated.

The names here are loaded when first used, so that importing the package is fast. Other errors are in `holdfast.errors`,
and the types of results in `holdfast.types`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.aio.handle import AsyncHoldfast, AsyncThread, aopen
    from holdfast.aio.run import AsyncRun
    from holdfast.crypto.cipher import Cipher
    from holdfast.errors import (
        Cancelled,
        Closed,
        Conflict,
        Damaged,
        Halted,
        HoldfastError,
        Incompatible,
        InvalidArgument,
        LeaseHeld,
        LeaseLost,
        NotFound,
        OutcomeUnknown,
        StoreError,
        ToolNotDone,
        Unsupported,
    )
    from holdfast.handle import Holdfast, open  # noqa: A004 - the firm name, as in gzip.open
    from holdfast.policy import AfterModel, AfterToolCall, EveryN, EverySeconds, Never, Policy
    from holdfast.runs.block_end import Waiting
    from holdfast.runs.drivers import current_call, current_run
    from holdfast.runs.guards import Budget, LoopGuard
    from holdfast.runs.handlers import handler
    from holdfast.runs.retry import Retry
    from holdfast.runs.run import Run
    from holdfast.runs.tools import GiveUp, Happened, NotDone, NotYet, tool
    from holdfast.runs.worker import Worker
    from holdfast.threads.retention import Retention
    from holdfast.threads.save import ANY, NEW
    from holdfast.threads.thread import Thread
    from holdfast.threads.together import AppendTo, SaveTo
    from holdfast.types import NOT_LOADED, Checkpoint, Effect, Usage

__all__ = [
    "ANY",
    "NEW",
    "NOT_LOADED",
    "AfterModel",
    "AfterToolCall",
    "AppendTo",
    "AsyncHoldfast",
    "AsyncRun",
    "AsyncThread",
    "Budget",
    "Cancelled",
    "Checkpoint",
    "Cipher",
    "Closed",
    "Conflict",
    "Damaged",
    "Effect",
    "EveryN",
    "EverySeconds",
    "GiveUp",
    "Halted",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "Incompatible",
    "InvalidArgument",
    "LeaseHeld",
    "LeaseLost",
    "LoopGuard",
    "Never",
    "NotDone",
    "NotFound",
    "NotYet",
    "OutcomeUnknown",
    "Policy",
    "Retention",
    "Retry",
    "Run",
    "SaveTo",
    "StoreError",
    "Thread",
    "ToolNotDone",
    "Unsupported",
    "Usage",
    "Waiting",
    "Worker",
    "aopen",
    "current_call",
    "current_run",
    "handler",
    "open",
    "tool",
]

_MODULES = {
    "holdfast.aio.handle": ("AsyncHoldfast", "AsyncThread", "aopen"),
    "holdfast.aio.run": ("AsyncRun",),
    "holdfast.crypto.cipher": ("Cipher",),
    "holdfast.errors": (
        *("Cancelled", "Closed", "Conflict", "Damaged", "Halted", "HoldfastError", "Incompatible", "InvalidArgument"),
        *("LeaseHeld", "LeaseLost", "NotFound", "OutcomeUnknown", "StoreError", "ToolNotDone", "Unsupported"),
    ),
    "holdfast.handle": ("Holdfast", "open"),
    "holdfast.policy": ("AfterModel", "AfterToolCall", "EveryN", "EverySeconds", "Never", "Policy"),
    "holdfast.runs.block_end": ("Waiting",),
    "holdfast.runs.drivers": ("current_call", "current_run"),
    "holdfast.runs.guards": ("Budget", "LoopGuard"),
    "holdfast.runs.retry": ("Retry",),
    "holdfast.runs.run": ("Run",),
    "holdfast.runs.tools": ("GiveUp", "Happened", "NotDone", "NotYet", "tool"),
    "holdfast.runs.handlers": ("handler",),
    "holdfast.runs.worker": ("Worker",),
    "holdfast.threads.retention": ("Retention",),
    "holdfast.threads.save": ("ANY", "NEW"),
    "holdfast.threads.thread": ("Thread",),
    "holdfast.threads.together": ("AppendTo", "SaveTo"),
    "holdfast.types": ("NOT_LOADED", "Checkpoint", "Effect", "Usage"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("adapters", "codec", "errors", "policy", "redaction", "states", "telemetry", "testing", "types")


def __getattr__(name: str) -> Any:
    """Load a public name, or a module such as `holdfast.errors`, when it is first used."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _SUBMODULES:
        value = import_module(f"holdfast.{name}")
    else:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
