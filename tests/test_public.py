"""The public surface: exactly these names, with these arguments."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_type_hints

import holdfast

NAMES = [
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
    "ToolNotDone",
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


def test_the_names() -> None:
    assert list(holdfast.__all__) == NAMES
    for name in NAMES:
        assert getattr(holdfast, name) is not None
    assert not hasattr(holdfast, "nonsense")


def test_the_fields_of_a_checkpoint() -> None:
    assert set(get_type_hints(holdfast.Checkpoint)) == {
        "id",
        "thread",
        "seq",
        "step",
        "parent",
        "created_at",
        "status",
        "reason",
        "label",
        "tags",
        "metadata",
        "agent",
        "trigger",
        "usage",
        "resume_hint",
        "size",
        "digest",
        "schema_version",
        "state",
        "skipped",
        "lost",
    }
    assert set(get_type_hints(holdfast.Usage)) == {"input", "output", "cached", "total", "cost", "currency"}


def test_the_arguments_of_the_verbs() -> None:
    def arguments(verb: object) -> list[str]:
        assert callable(verb)
        return [name for name in inspect.signature(verb).parameters if name != "self"]

    said = ["step", "label", "tags", "metadata", "status", "reason", "trigger", "agent", "usage", "resume_hint"]
    assert arguments(holdfast.Thread.save) == ["state", *said, "expect"]
    assert arguments(holdfast.Thread.history) == ["limit", "before", "label", "tag", "status", "skip_damaged"]
    assert arguments(holdfast.Thread.fork) == ["name", "at", "state"]
    assert arguments(holdfast.Thread.prune) == ["retention", "dry_run"]
    assert arguments(holdfast.Holdfast.threads) == ["prefix", "status", "limit", "after"]
    assert arguments(holdfast.open)[:4] == ["url", "namespace", "durability", "retention"]
    assert arguments(holdfast.open) == arguments(holdfast.aopen)


def test_every_error_is_a_holdfast_error_and_says_something() -> None:
    for name in NAMES:
        found = getattr(holdfast, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, holdfast.HoldfastError)
            assert found.__doc__


def test_importing_holdfast_imports_no_store_and_no_asyncio() -> None:
    code = (
        "import sys, holdfast; bad = {'asyncio', 'holdfast.aio', 'holdfast.stores.sqlite', 'holdfast.testing'};"
        "assert not bad & set(sys.modules), bad & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
