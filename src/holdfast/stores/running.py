"""What a store keeps of runs: the one mutable record per thread, and the journal of its effects."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.records import Status

EffectClass = Literal["model", "read", "idempotent", "irreversible"]
EffectStatus = Literal["begun", "done", "failed", "not_done", "in_doubt", "given_up", "unstored", "late"]


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


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A thread's run as stored. `thread` 0 in a commit means the thread being created.

    `fence` grows with every claim. `lease_until` counts on the clock `clock`; 0 when nobody holds the run. `branch` is
    the seq at which the current branch began. `start` is a digest of what the run was started with. `result` is the
    encoded result of a completed run. Times but for `lease_until` and `wake_at` (on the same clock) are µs since 1970.
    """

    thread: int
    status: Status
    fence: int
    attempt: int = 0
    reason: str | None = None
    owner: Owner | None = None
    clock: str = ""
    lease_until: int = 0
    wake_at: int = 0
    handler: str | None = None
    version: str | None = None
    agent: str | None = None
    branch: int = 1
    start: bytes = b""
    result: bytes | None = None
    created_at: int = 0
    updated_at: int = 0


class EffectRow(msgspec.Struct, frozen=True, kw_only=True):
    """One journaled call. `number` counts per thread; the store gives it out.

    `arguments` is a digest; `call` are the arguments themselves, encoded, where somebody may be asked about them.
    `result` is an encoded value, `error` what was raised, as text. `fence` is that of the worker who wrote it.
    """

    branch: int
    step: int
    key: str
    name: str
    kind: EffectClass
    status: EffectStatus
    arguments: bytes
    fence: int
    begun_at: int
    ended_at: int | None = None
    call: bytes | None = None
    result: bytes | None = None
    error: str | None = None
    number: int = 0
