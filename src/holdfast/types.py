"""What users get to see of the store: frozen records."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final, Literal, final

import msgspec

from holdfast.errors import InvalidArgument

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding a record raises that nobody wrote: wrong types, texts that are none, nesting without end."""

Status = Literal["queued", "running", "waiting", "idle", "completed", "failed", "halted", "dead"]


@final
class NotLoaded:
    """The state of a checkpoint that was listed, not loaded. `thread.load(checkpoint)` gives it."""

    def __repr__(self) -> str:
        return "NOT_LOADED"

    def __reduce__(self) -> str:
        return "NOT_LOADED"


NOT_LOADED: Final = NotLoaded()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tokens and money spent so far, as the caller counts them."""

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
        if type(self.currency) is not str or not self.currency.isascii():
            raise InvalidArgument('usage: currency must be a code such as "USD"')


class Lost(msgspec.Struct, frozen=True):
    """What stands in a state, loaded with `partial=True`, in the place of something that cannot be read.

    A state that holds one cannot be saved.
    """

    path: str
    why: str


class Skipped(msgspec.Struct, frozen=True):
    """A checkpoint that `latest(fallback=True)` had to pass over."""

    id: str
    seq: int
    step: int
    why: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable record of a thread. `seq` gives the order; `created_at` is information only."""

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
    lost: tuple[Lost, ...] = ()


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `hf.threads()`: a thread as its head shows it."""

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
    """One journaled call. `arguments` are kept where somebody may have to be asked about them."""

    number: int
    branch: int
    step: int
    key: str
    name: str
    effect: str
    status: str
    begun_at: datetime
    ended_at: datetime | None
    arguments: Any
    result: Any
    error: str | None
    by: str | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the run of a thread is doing, or how it ended. `reason` is why it failed, was halted or waits.

    `interrupted` says that its status is running, and nobody runs it: its owner is gone.
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


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose owner is gone. `would` says what a resume would do."""

    thread: str
    step: int
    attempt: int
    since: datetime
    in_doubt: tuple[Effect, ...]
    would: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run said it is, and when."""

    done: float
    total: float | None
    note: str | None
    at: datetime


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """A run that gets nowhere: since when, and why, as far as that can be told from outside."""

    thread: str
    status: Status
    since: datetime
    why: str


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What `hf.erase` removed, and what it did not.

    `threads` are gone. `forks_left` share cells with them and were not to go; so what they use is still there.
    `values_kept` are the digests of large values that others use, too. `beyond` says, in words, what may hold something
    of it and could not be reached from here.
    """

    threads: tuple[str, ...]
    forks_left: tuple[str, ...]
    values_kept: tuple[str, ...]
    beyond: tuple[str, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for. `about` says whether it is a `run.wait`, answered by `hf.answer`, or a call in doubt,
    decided by `hf.settle`; `payload` is what the run gave to it, or the arguments of that call.
    """

    thread: str
    name: str
    about: Literal["wait", "in doubt"]
    payload: Any
    since: datetime
    until: datetime | None
    effect: int
    step: int
