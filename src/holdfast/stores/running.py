"""What a store keeps of runs: the one mutable record per thread, and the journal of its effects."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.types import Status, Usage

EffectClass = Literal[
    "model", "read", "idempotent", "irreversible", "wait", "answer", "cancel", "turn", "child", "undo"
]
EffectStatus = Literal["begun", "asked", "done", "failed", "not_done", "in_doubt", "given_up", "unstored", "late"]


class Clock(msgspec.Struct, frozen=True, gc=False):
    """The time by which leases run: milliseconds on a clock that cannot be set, and which clock that is.

    Times of different clocks (another boot of the machine) cannot be compared: a lease on another one has ended.
    """

    id: str
    now: int


class Owner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process, told apart from every other there was or will be."""

    host: str
    boot: str
    pid_namespace: int
    pid: int
    started: int


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a run says it is, and when it said so (µs since 1970)."""

    done: float
    total: float | None
    note: str | None
    at: int


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A claim that went on with a run: its fence, when (µs since 1970), head and branch then, and the status it found.

    Found running, the owner before was gone.
    """

    fence: int
    at: int
    head: int
    branch: int
    found: Status


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A thread's run as stored. `thread` 0 in a commit means the thread being created.

    `lease_until`, `wake_at` and `presumed_until` are milliseconds on the clock `clock`; other times are µs since 1970.
    """

    thread: int
    status: Status
    fence: int  # grows with every claim
    attempt: int = 0
    tried_at: int = 0  # when the first of these attempts claimed it, or the first since it waited
    reason: str | None = None
    owner: Owner | None = None
    clock: str = ""
    lease_until: int = 0  # 0 when nobody holds the run
    lease_first: int = 0  # the same when the run was claimed: what it moved by since, the run was held at least
    held: int = 0  # for how many ms the run was held by claims before this one, of the same turn
    wake_at: int = 0  # when a run that is queued or waits is due; 0: at once if queued, never if it waits
    wake_wall: int = 0  # the same in µs since 1970, for when the clock is gone
    presumed_until: int = 0  # until when an owner that was only presumed dead may have begun something
    question: int = 0  # the journal entry that a waiting run waits for
    turn: str | None = None  # the caller's name for what is being done
    began: int = 0  # the head's seq when that was begun
    closed: int = 0  # the newest journal entry then: none up to it is open
    closed_at: int = 0  # the head, if it was saved from outside the run, that closed them
    trace: str | None = None  # where the last claim can be found in traces: a W3C traceparent
    parent: str | None = None  # the thread whose run alone may claim this one
    progress: Progress | None = None
    claims: tuple[Claim, ...] = ()  # the newest that went on with it, for people who look at it
    resumed: int = 0  # how many there were in all
    crashed: int = 0  # and how many of them found that the owner before was gone
    handler: str | None = None
    version: str | None = None
    agent: str | None = None
    branch: int = 1  # how often the thread was rewound
    start: bytes = b""  # a digest of what the run was started with
    result: bytes | None = None  # encoded, of a completed run
    created_at: int = 0
    updated_at: int = 0
    known: tuple[int, int] = (0, 0)  # model and tool calls that were answered from the journal and no entry counts
    nonce: bytes = b""  # of the last claim by a worker: tells it from another that is the same in all else
    sealed: bytes = b""  # in an encrypted store, what the fields that are empty said


class Deadline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A time on a clock, and the same in µs since 1970 for when that clock is gone."""

    clock: str
    at: int
    wall: int


class EffectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One journaled call. Times are µs since 1970."""

    branch: int
    step: int
    key: str
    name: str
    kind: EffectClass
    status: EffectStatus
    arguments: bytes  # a digest
    fence: int  # of the worker who wrote it; 0 if it was written from outside the run
    begun_at: int
    ended_at: int | None = None
    call: bytes | None = None  # the arguments themselves, encoded, where somebody may be asked about them
    result: bytes | None = None  # encoded
    error: str | None = None  # what was raised, as text
    heard: bool = True  # whether the program heard of that, or the call was tried again before it did
    matches: int = 0  # an entry of an abandoned branch that this one took its result from
    of: int = 0  # the thread in whose journal that is; 0: its own
    since: int = 0  # the newest entry that no longer counted when it was begun: of its place, or of a child's journal
    by: str | None = None  # who answered
    mark: str | None = None  # a name under which the entry is found without reading the journal
    deadline: Deadline | None = None  # when a wait ends without an answer
    usage: Usage | None = None  # of a model's reply, in a run with a budget
    spent: Usage | None = None  # of a model's reply: what all replies of the thread up to it cost together
    held: int = 0  # for how many ms the run had been held by then, in a run with a budget
    known: tuple[int, int] = (0, 0)  # model and tool calls answered from the journal before it, since the last entry
    settled: Literal["probe", "person", "rerun", "give_up"] | None = None  # how it was decided when it was in doubt
    redacted: int = 0  # what of it was changed before it was recorded: 1 the call, 2 the result, 3 both
    sealed: bytes = b""  # in an encrypted store, what the fields that are empty said
    number: int = 0  # counts per thread; the store gives it out
