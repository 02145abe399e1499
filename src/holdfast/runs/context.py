"""The context of a run: its settings, and what its parts share while this process holds it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.errors import Cancelled, HoldfastError, InvalidArgument
from holdfast.observer import RunObservation
from holdfast.policy import Policy
from holdfast.redaction import Redaction
from holdfast.runs.block_end import Waiting
from holdfast.runs.earlier_calls import CallMode, EarlierCalls
from holdfast.runs.guards import Guard, Watch
from holdfast.runs.identity import is_same, own_key
from holdfast.runs.journal import Journal
from holdfast.runs.lease import Lease, now
from holdfast.runs.open_entries import Place, place_of
from holdfast.runs.record import released_row, released_unfinished, text_of, turn_topic
from holdfast.runs.tools import Tools
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted, to_utf8
from holdfast.threads.ancestry import Ancestry
from holdfast.threads.context import Context
from holdfast.threads.scan import thread_named
from holdfast.types import Status


class Supervisor(Protocol):
    """The worker of a run: it stops the run, and decides what happens after a failure."""

    def is_stopping(self) -> bool:
        """Whether the run is to be released at the end of its step."""
        ...

    def after_failure(self, row: RunRow) -> RunRow:
        """The record of a run that failed. It is written with the failure, so a crash cannot separate them."""
        ...


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run: all that a program passes besides the thread and its state."""

    tools: Tools
    policy: Policy
    effects: CallMode | None = None
    supervisor: Supervisor | None = None
    guards: tuple[Guard, ...] = ()


def left_row(row: RunRow, error: BaseException | None, settings: RunSettings, redaction: Redaction) -> RunRow:
    """The record of a run whose block was left, or could not be entered, because of an error."""
    if isinstance(error, Exception):
        failed = released_row(row, "failed", text_of(error, redaction))
        return failed if settings.supervisor is None else settings.supervisor.after_failure(failed)
    if error is None:
        return released_unfinished(row, "idle")
    return released_unfinished(row, "released" if row.handler is None else "queued")


class RunContext:
    """A held run as its calls see it: its lease, its journal, its guards, its tools and its earlier calls."""

    def __init__(
        self,
        context: Context,
        thread: str,
        lease: Lease,
        closed_step: int,
        last: int,
        settings: RunSettings,
        *,
        can_await: bool,
        observation: RunObservation | None,
    ) -> None:
        """`closed_step` is the step of the last checkpoint, `last` the number of the newest entry at the claim."""
        row = lease.row
        self.thread: Final = thread
        self.store: Final[Store] = context.store
        self.redaction: Final[Redaction] = context.redaction
        self.lease: Final = lease
        self.tools: Final = settings.tools
        self.can_await = can_await
        self.watch: Final = Watch(settings.guards, context.store, row, observation, context.interceptor)
        self.journal: Final = Journal(
            context.store, lease, closed_step, last, self.watch, context.redaction, self._ancestry
        )
        earlier = row.doubts and tuple(number for number in row.doubts if number <= row.closed)
        self.earlier_calls: Final = EarlierCalls(context.store, thread, settings.effects, earlier, row.unfinished)
        self._namespace = context.namespace
        self.step = closed_step + 1
        self.events: set[Literal["model", "tool"]] = set()  # the kinds of calls made in the open step
        self.saved_events: set[Literal["model", "tool"]] = set()  # the same, before the last `run.save()` in it
        self.changed: list[Entry] = []  # recorded calls that the program repeated with other arguments
        # By place: the arguments of each call that was answered, as digest, and its function.
        self.answered: dict[Place, tuple[bytes, Callable[..., Any]]] = {}
        self.suspended: Waiting | None = None
        self.ended: Status | None = None
        self._lock = threading.Lock()

    @functools.cached_property
    def run_id(self) -> bytes:
        """The run as a part of idempotency keys: it differs from every other run."""
        names = to_utf8(self._namespace), to_utf8(self.thread)
        return msgspec.msgpack.encode((*names, self.lease.row.created_at))

    def _ancestry(self) -> Ancestry:
        thread = thread_named(self.store, self.thread)
        return Ancestry({}) if thread is None else Ancestry.of(self.store, thread.position)

    def turn_entry(self, step: int, result: bytes) -> tuple[Entry, ...]:
        """The journal entry by which the result of the turn is found."""
        turn = self.lease.row.turn
        if turn is None:
            return ()
        topic = turn_topic(turn)
        entry = self.journal.new(step, topic, turn, "turn", "done", b"")
        return (replace(entry, topic=topic, result=result, ended_at=now()),)

    def require_held(self, *, to_ask: bool = False) -> None:
        """HoldfastError if the run has ended, Waiting if it waits, LeaseLost if another process may have it.

        `to_ask` is whether the caller asks a question: that is allowed while the run waits for other questions, so that
        concurrent calls can all ask.
        """
        if self.ended is not None:
            raise run_ended_error(self.thread, self.ended)
        if self.suspended is not None:
            first = self.suspended.entry
            if not to_ask or first is None or first.kind != "wait" or first.topic is None:
                raise self.suspended  # the program caught it, and still cannot continue
        self.lease.check()

    def require_active(self, *, to_ask: bool = False) -> None:
        """As `require_held`, and Cancelled if the run was cancelled."""
        self.require_held(to_ask=to_ask)
        if self.journal.cancel is None:
            self.journal.poll()
        if self.journal.cancel is not None:
            raise Cancelled(
                f"the run of thread {quoted(self.thread)} was cancelled: {self.journal.cancel.error}. Nothing more "
                "was done; recorded calls are kept. hf.run resumes the run."
            )

    def require_same(
        self, place: Place, name: str, arguments: bytes, function: Callable[..., Any], *, is_named: bool
    ) -> None:
        """InvalidArgument if a call was answered in this step with other arguments or for another function."""
        known = self.answered.get(place)
        if known is None:
            return
        what = None
        if known[0] != arguments:
            what = "other arguments"
        elif not is_same(known[1], function, is_named=is_named):
            what = "another function of that name"
        if what is not None:
            problem = f"{name!r} was already called with this key and {what} in this step"
            if own_key(place[1]) is None:
                problem = f"the recorded result that fits this call of {name!r} was used for one with {what}"
            raise InvalidArgument(f"{problem}; nothing was called. Give each call its own key.")

    def suspend(self, suspended: Waiting) -> Waiting:
        """Suspend the run: for its own questions if it has some, and until the first of its children wakes."""
        with self._lock:
            known = self.suspended
            if known is not None and known is not suspended:
                chosen = known if known.entry is not None or suspended.entry is None else suspended
                wakes = [each for each in (known, suspended) if each.wake_at]
                first = min(wakes, key=lambda each: each.wake_at, default=chosen)
                questions = {place_of(entry): entry for entry in (*known.entries, *suspended.entries)}
                question, *more = questions.values() or (None,)
                seen_until = None if more else chosen.seen_until
                wake_at, wake_wall = first.wake_at, first.wake_wall
                suspended = Waiting(question, chosen.reason, wake_at, wake_wall, seen_until, more_entries=tuple(more))
            self.suspended = suspended
            return suspended


def run_ended_error(thread: str, status: Status) -> HoldfastError:
    """The error of a verb that is used after its run has ended."""
    is_completed = status == "completed"
    advice = "Do this before run.finish" if is_completed else "Resume it with hf.run, or a child with its parent"
    return HoldfastError(
        f"this block no longer holds the run of thread {quoted(thread)}, which is {status}; nothing was called or "
        f"saved. {advice}."
    )
