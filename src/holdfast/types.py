"""Types of the values that Holdfast returns."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final, Literal, final

import msgspec

from holdfast.errors import InvalidArgument

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors of decoding a damaged record: wrong types, invalid text, nesting too deep."""

Status = Literal["queued", "running", "waiting", "idle", "released", "completed", "failed", "halted", "dead"]


@final
class NotLoaded:
    """The state of a checkpoint that was listed, not loaded. `thread.load(checkpoint)` loads it."""

    def __repr__(self) -> str:
        return "NOT_LOADED"

    def __reduce__(self) -> str:
        return "NOT_LOADED"


NOT_LOADED: Final = NotLoaded()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tokens and money spent, as counted by the caller."""

    input: int = 0
    output: int = 0
    cached: int = 0
    total: int = 0
    cost: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "total"):
            count: object = getattr(self, name)
            if type(count) is not int or not 0 <= count < 2**63:
                raise InvalidArgument(f"usage: {name} must be a whole number, 0 or more")
        if type(self.cost) not in (int, float) or not 0 <= self.cost < math.inf:
            raise InvalidArgument("usage: cost must be a number, 0 or more")
        if type(self.currency) is not str or not (self.currency.isascii() and self.currency.isprintable()):
            raise InvalidArgument('usage: currency must be a code such as "USD"')


class MissingValue(msgspec.Struct, frozen=True):
    """Placeholder for an unreadable value in a state loaded with `partial=True`.

    A state that contains one cannot be saved.
    """

    path: str
    why: str


class Skipped(msgspec.Struct, frozen=True):
    """A damaged checkpoint that `latest(fallback=True)` skipped."""

    id: str
    seq: int
    step: int
    why: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One saved state of a thread, with its metadata. It never changes.

    `seq` gives the order; `created_at` is for people. `trigger` is what caused the save, and `resume_hint` a note about
    what is needed to resume. `size` is that of the encoded state in bytes. `digest` covers what the checkpoint
    stores, and the digest of its parent. `state` is `NOT_LOADED` in listings. `skipped` are the damaged checkpoints
    that `latest(fallback=True)` passed over. `lost` are the values that `load(partial=True)` could not read.
    """

    id: str
    thread: str
    seq: int
    step: int
    parent: str | None
    created_at: datetime
    status: Status
    reason: str | None
    label: str | None
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    agent: str | None
    trigger: str
    usage: Usage | None
    resume_hint: str | None
    size: int
    digest: str
    schema_version: int | None
    state: Any = NOT_LOADED
    skipped: tuple[Skipped, ...] = ()
    lost: tuple[MissingValue, ...] = ()


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A thread in the list of `hf.threads()`, described by its head. `status` is that of its run, if it has one."""

    name: str
    head: str
    seq: int
    step: int
    status: Status
    agent: str | None
    size: int
    count: int
    updated_at: datetime


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the journal, usually a recorded call.

    `effect` is the effect kind of the tool ("read", "idempotent", "irreversible"), or the kind of the entry ("model",
    "wait" and others). `arguments` are stored for calls that a person may have to settle. `again_at` is when a failed
    call is made again.
    """

    number: int
    branch: int
    step: int
    key: str
    name: str
    effect: str
    status: str
    started_at: datetime
    ended_at: datetime | None
    arguments: Any
    result: Any
    error: str | None
    by: str | None = None
    again_at: datetime | None = None


ActStatus = Literal["under_way", "in_doubt", "done", "not_done", "given_up", "undone", "released", "deleted"]


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An act that a call has claimed: its tool and identity, and the call, which is `number` of `thread`.

    While `status` is "under_way", "in_doubt" or "done", no other call does the act. If it is "deleted", the thread of
    the call was deleted with its result: a call asks a person first. `by` and `reason` are those of its release.
    """

    id: str
    status: ActStatus
    number: int
    thread: str | None = None
    tool: str | None = None
    identity: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    arguments: Any = None
    result: Any = None
    by: str | None = None
    reason: str | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a thread's run. `reason` says why it failed, was halted or waits.

    `interrupted` is true if `hf.interrupted()` lists it. `result` is what a completed run was finished with. Workers
    take queued runs with a higher `priority` first.
    """

    thread: str
    status: Status
    interrupted: bool
    reason: str | None
    attempt: int
    turn: str | None
    handler: str | None
    version: str | None
    since: datetime
    result: Any
    priority: int


class InterruptedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was left unfinished. `plan` says what a resume would do.

    `status` is "running" if its process died, "released" if its block was left because of Ctrl-C, SIGTERM or a
    cancelled task, and "failed" if it was left because of an exception (`reason`).
    """

    thread: str
    status: Status
    reason: str | None
    step: int
    attempt: int
    since: datetime
    in_doubt: tuple[Effect, ...]
    plan: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress that a run reported, and when."""

    done: float
    total: float | None
    note: str | None
    at: datetime


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: what it starts, when the next time is, and when the last one was."""

    name: str
    handler: str
    every: float | None
    cron: str | None
    timezone: str
    version: str | None
    next: datetime
    last: datetime | None


class StuckRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that makes no progress: since when, and why, as far as the store shows it."""

    thread: str
    status: Status
    since: datetime
    why: str


class EraseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `hf.erase`.

    `threads` were erased. `forks_left` share data with them and were kept, with the data they use. `blobs_kept` are
    the digests of blobs that other threads use too. `beyond` lists, in words, places outside the store's reach that may
    still hold some of the data.
    """

    threads: tuple[str, ...]
    forks_left: tuple[str, ...]
    blobs_kept: tuple[str, ...]
    beyond: tuple[str, ...]


class PendingQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An open question of a run: one that needs an answer, or one about the outcome of a call.

    `about` is "wait" for a question of `run.wait`, answered with `hf.answer`, or "in doubt" for a call to be settled
    with `hf.settle`. That includes a call that waits for permission; its effect has the status "asked". `effect` is its
    number in the thread's journal. `payload` is the payload of the question, or the arguments of the call.
    """

    thread: str
    name: str
    about: Literal["wait", "in doubt"]
    payload: Any
    since: datetime
    until: datetime | None
    effect: int
    step: int


# -- results of maintenance, and of comparing states --------------------------------------------------------------


class Problem(msgspec.Struct, frozen=True):
    """One problem found by a check. `seqs` are the checkpoints known to be affected; empty means that any may be."""

    thread: str | None
    seqs: tuple[int, ...]
    what: str


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `hf.verify()`: how many threads and checkpoints were checked, and every problem found."""

    threads: int
    checkpoints: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class VerifyProgress(msgspec.Struct, frozen=True):
    """Progress through the threads of a store: threads done, their total, and bytes of cells and blobs read."""

    done: int
    total: int
    bytes: int


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `hf.repair()`.

    `lost` lists the checkpoints, journal entries and threads that are not in the new store, with the reasons.
    `redigested` is how many checkpoints have a new digest: they refer to a thread that has another number now, or their
    parent was lost or has a new digest itself.
    """

    threads: int
    checkpoints: int
    entries: int
    redigested: int
    lost: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.lost


class BackupResult(msgspec.Struct, frozen=True):
    """The result of `hf.backup()`: the path of the copy, its size, and the report of verifying it."""

    target: str
    bytes: int
    report: VerifyReport


class OptimizeResult(msgspec.Struct, frozen=True):
    """The result of `hf.optimize()`: segments merged, damaged ones left unchanged, and checkpoints pruned.

    Only threads that were changed since the last time are read. `hf.verify()` lists all damage. `pruned` is how many
    checkpoints the handle's `retention` removed in this call.
    """

    merged: int
    damaged: int
    pruned: int = 0


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a prune: what it removed or, with `dry_run`, would remove."""

    thread: str
    removed: tuple[Checkpoint, ...]
    kept: int
    dry_run: bool


@final
class Absent:
    """The value of the missing side of a change: before an addition, or after a removal."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class Change(msgspec.Struct, frozen=True):
    """One difference. `path` is written as in errors: `$.messages[3].content`, `$["odd key"]`.

    Indexes are those in the state after the change, with one exception: for an item that was removed from a list, the
    last index is the one that it had before. A key that is not a str is written as in Python, `$[7]`; an element of a
    set is in braces, `$.seen{"a"}`.
    """

    kind: Literal["added", "removed", "changed"]
    path: str
    before: Any = ABSENT
    after: Any = ABSENT


class Diff(msgspec.Struct, frozen=True):
    """The changes from one state to another, in the order of the state. False if there are none."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)
