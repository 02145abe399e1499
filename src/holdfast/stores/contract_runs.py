"""The records of runs: one mutable run record per thread, and the entries of its journal."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.types import Status, Usage

EntryKind = Literal[
    "model", "read", "idempotent", "irreversible", "wait", "answer", "cancel", "turn", "child", "undo", "write"
]
EntryStatus = Literal["started", "asked", "done", "failed", "not_done", "in_doubt", "given_up", "unstored", "late"]


class Clock(msgspec.Struct, frozen=True, gc=False):
    """The time for leases: milliseconds on a clock that cannot be set, and the id of that clock.

    Times of different clocks (for example, of another boot of the machine) cannot be compared: a lease on another clock
    has ended.
    """

    id: str
    now: int
    # For a clock that can be set: the latest time that has certainly come. So no lease ends because the clock was set.
    certain: int | None = None

    def has_reached(self, time: int) -> bool:
        """Whether a time on this clock has certainly come."""
        return time <= self.latest_certain

    @property
    def latest_certain(self) -> int:
        """The latest time on this clock that has certainly come."""
        return self.now if self.certain is None else self.certain


class Owner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of a process. A part that the system does not report is empty or 0: then it proves less."""

    host: str
    boot: str
    pid_namespace: int
    pid: int
    started: int  # ticks since boot, as seen in its time namespace
    time_namespace: int = 0


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The progress that a run reported, and when (µs since 1970)."""

    done: float
    total: float | None
    note: str | None
    at: int


class PastClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A claim that resumed a run: its fence, its time (µs since 1970), the head and branch then, and the status found.

    If it found the status running, the previous owner had died.
    """

    fence: int
    at: int
    head: int
    branch: int
    found: Status


class Boundary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A checkpoint from which a run resumes instead of the head: its seq and step. Valid while the head is `head`."""

    head: int
    seq: int
    step: int


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A thread's run as stored. In a commit, `thread` 0 means the thread that the commit creates.

    Stored runs and entries leave out default values: add a field at the end, and change no default.
    `lease_until` and `wake_at` are milliseconds on the clock `clock`. Other times are µs since 1970.
    """

    thread: int
    status: Status
    fence: int  # grows with every claim, and when another process queues or ends the run
    attempt: int = 0
    tried_at: int = 0  # when the run was claimed for its first attempt since it last waited
    reason: str | None = None
    owner: Owner | None = None
    clock: str = ""
    lease_until: int = 0  # 0 when no process holds the run
    # `lease_until` when the run was claimed. The difference is the shortest time that the run can have been held.
    lease_first: int = 0
    held: int = 0  # ms for which earlier claims of the same turn held the run
    wake_at: int = 0  # when a queued or waiting run is due; 0 means at once if queued, never if waiting
    wake_wall: int = 0  # the same in µs since 1970, used when the clock no longer exists
    question: int = 0  # the number of the journal entry that a waiting run waits for
    turn: str | None = None  # the caller's id for the current turn
    began: int = 0  # the newest seq when the turn started: later checkpoints may have its input
    closed: int = 0  # journal entries up to this number are closed: the run does not replay them or wait for them
    closed_at: int = 0  # the seq of the head that closed those entries, if it was saved from outside the run
    doubts: tuple[int, ...] = ()  # irreversible calls in doubt when the run was last released, also of earlier turns
    boundary: Boundary | None = None  # where the run resumes if `run.save()` wrote the head
    trace: str | None = None  # a W3C traceparent: where the last claim is in the traces
    parent: str | None = None  # if set, only the run of this thread may claim this run
    progress: Progress | None = None
    claims: tuple[PastClaim, ...] = ()  # the newest claims that resumed the run, for display
    resumed: int = 0  # how many claims resumed the run in all
    crashed: int = 0  # how many of them found that the previous owner had died
    handler: str | None = None
    version: str | None = None
    agent: str | None = None
    branch: int = 1  # how many times the thread had been rewound
    start: bytes = b""  # a digest of the state that the run was started with
    result: bytes | None = None  # the encoded result of a completed run
    created_at: int = 0
    updated_at: int = 0
    replayed: tuple[int, int] = (0, 0)  # replayed (model, tool) calls that no journal entry counts yet
    nonce: bytes = b""  # of the last claim; distinguishes claims that are equal in all other fields
    sealed: bytes = b""  # in an encrypted store: the content of the fields that are empty
    # Spans of entry numbers, first and last. The entries in them that were made outside of steps still answer calls.
    kept: tuple[tuple[int, int], ...] = ()
    also: tuple[int, ...] = ()  # further entries that a waiting run waits for, besides `question`
    is_in_loop: bool = False  # whether a step of `run.steps()` was closed by the checkpoint from which the run resumes
    # Earlier turns that did not complete and made irreversible calls, each as (a, b): its entries are a + 1 to b.
    unfinished: tuple[tuple[int, int], ...] = ()
    priority: int = 0  # workers take runs with a higher one first


class ClaimLimit(msgspec.Struct, frozen=True):
    """How many runs of a handler may be held at a time, and how many claims for it are allowed within so many ms."""

    handler: str
    held: int | None = None
    claims: int | None = None
    within: int = 0


class ClaimWindow(msgspec.Struct, frozen=True, gc=False):
    """The times of the newest limited claims for a handler, oldest first: ms on a clock.

    `wall` is the wall clock at the last one (µs since 1970), used when the clock no longer exists.
    """

    clock: str
    wall: int
    times: tuple[int, ...]


class Deadline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A time on a clock, and the same time in µs since 1970, used when that clock no longer exists."""

    clock: str
    at: int
    wall: int


class Release(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision to release an act: the person, the reason, and the time (µs since 1970)."""

    by: str
    reason: str
    at: int


class ActRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A claimed act: its key, and the journal entry that holds the claim. The entry tells the status of the act."""

    key: bytes
    thread: int
    number: int


class ActClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The entry `number` of a journal write claims its act. `expect` is the claim that it replaces, if there is one."""

    number: int
    expect: ActRow | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One journal entry: a call, a child, a question, an answer, a cancellation, an undo, the end of a turn, a write.

    A write is data that another framework keeps with a checkpoint. A run does not read it.

    Times are µs since 1970.
    """

    branch: int
    step: int
    key: str
    name: str
    kind: EntryKind
    status: EntryStatus
    arguments: bytes  # a digest of the arguments
    fence: int  # the fence of the process that wrote it; 0 if it was posted from outside the run
    started_at: int
    ended_at: int | None = None
    call: bytes | None = None  # the encoded arguments, if a person may be asked about the call
    result: bytes | None = None  # the encoded result
    error: str | None = None  # the error that was raised, as text
    heard: bool = True  # False if the call was retried before the program received the error
    # Another entry: the abandoned call whose result was reused, the answer to the question, or the call that is undone.
    matches: int = 0
    # The thread whose journal has the entry `matches`; 0 if it is this thread.
    matches_thread: int = 0
    # Entries up to this number are ignored for this call: entries of this journal, or for a child, of its journal.
    valid_after: int = 0
    by: str | None = None  # the person or program that answered
    topic: str | None = None  # finds the entry without reading the whole journal
    # When a wait ends without an answer. Of a call: until when it can act, counted from its start; None if unknown.
    deadline: Deadline | None = None
    # The process in which the function of an irreversible call may be running; None if it does not run.
    owner: Owner | None = None
    usage: Usage | None = None  # usage of a model's reply, in a run with a budget
    spent: Usage | None = None  # usage of all model replies of the thread up to this one
    held: int = 0  # ms for which the run had been held by then, in a run with a budget
    replayed: tuple[int, int] = (0, 0)  # (model, tool) calls replayed from the journal since the previous entry
    # How a call in doubt was decided; "allowed" if a person has allowed a call that was asked about before it was made.
    settled: Literal["probe", "person", "allowed", "rerun", "give_up"] | None = None
    redacted: int = 0  # what was redacted before it was recorded, as a sum: 1 the call, 2 the result, 4 the identity
    sealed: bytes = b""  # in an encrypted store: the content of the fields that are empty
    number: int = 0  # counts per thread, from 1
    # The registered name of the result's class; "" if it is plain data, whatever its tool declares. None: its tool, or
    # the caller, knows its type. Of a stream: one line per series of chunks, with their number and their type.
    type: str | None = None
    outside: int = 0  # of a call outside of `run.steps()`: 1, or more if its key was used before an earlier save
    act: bytes | None = None  # the key of the act that this call claims, or was answered from (`effects.act_key`)
    identity: tuple[str, str] | None = None  # the tool and the identity of that act, readable
    released: Release | None = None  # a person's decision that the act may happen again
    idempotency_key: str | None = None  # of a call with an act: the same for every call of the act
    # Of a call in a graph: the graph's checkpoint in which it was made, and the nearest one before with another call.
    place: tuple[str, str] | None = None
    tries: int = 0  # how many tries of the call have failed, with this one, since the program received an error of it
    again: Deadline | None = None  # when a failed call is made again
    # The place of the tool call whose function made this call: its step, or `-outside`, and its key.
    inside: tuple[int, str] | None = None
