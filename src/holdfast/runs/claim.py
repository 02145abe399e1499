"""Claim a run: resume it or start it, for one process at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.errors import (
    Conflict,
    Damaged,
    Incompatible,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    StoreError,
    Unfinished,
)
from holdfast.observer import RunObservation
from holdfast.policy import AfterToolCall, Policy
from holdfast.runs.arguments import checked_text, is_number
from holdfast.runs.context import RunSettings, Supervisor, left_row
from holdfast.runs.core import RunCore
from holdfast.runs.earlier_calls import CallMode, checked_effects, unfinished_at
from holdfast.runs.guards import Guard, checked_guards
from holdfast.runs.lease import Lease, local_seconds, now
from holdfast.runs.open_entries import doubts_of
from holdfast.runs.record import ENDED, MAX_RACES, is_free, pauses, start_digest, turn_topic
from holdfast.runs.tools import Tools
from holdfast.runs.waits import open_children
from holdfast.signals import sleep
from holdfast.stores.contract import Head, Position, Store, ThreadRow
from holdfast.stores.contract_runs import ClaimLimit, PastClaim, RunRow
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.ancestry import Ancestry, branch_of
from holdfast.threads.context import Context
from holdfast.threads.process import this_process
from holdfast.threads.save import NEW, Saver
from holdfast.threads.scan import thread_named
from holdfast.threads.thread import Thread

_TURNS_SEARCHED: Final = 256  # journal entries that are read if the index of topics does not have a turn
_CLAIMS_KEPT: Final = 24  # in the run's record, which is written with every checkpoint


class ClaimTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a claim, checked: the lease, how long to try, and what the claim writes into the run's record.

    `lease` and `wait` are in seconds. If a field is None, the field of the record stays as it is. `parent` must be the
    same as in the record.
    """

    lease: float
    wait: float = 0.0
    agent: str | None = None
    version: str | None = None
    handler: str | None = None
    turn: str | None = None
    trace: str | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        for name in ("agent", "version", "handler", "turn"):
            if getattr(self, name) is not None:
                checked_text(name, getattr(self, name))
        if not is_number(self.lease, 0.05, 86_400):
            raise InvalidArgument("lease must be a number of seconds, from 0.05 to a day")
        if not is_number(self.wait, 0):
            raise InvalidArgument("wait must be a number of seconds, 0 or more")


class ClaimedRun(NamedTuple):
    """The result of `claim`: a run with its lease, or a completed run without one.

    `resumed` is whether the run was started before. `before` is the trace of its last claim, or of the process that
    submitted it. `head` is the thread with its head, and `last` the number of its newest journal entry, at the claim.
    `is_start` is whether the claim starts the run or another turn.
    """

    lease: Lease | None
    row: RunRow
    resumed: bool
    before: str | None = None
    head: Head | None = None
    last: int = 0
    is_start: bool = False


class ClaimRequest:
    """A request to claim a run, made once, by a sync or an async block."""

    def __init__(
        self,
        context: Context,
        name: str,
        terms: ClaimTerms,
        *,
        tools: Tools,
        start: Any = None,
        type: Any = None,
        policy: Policy | None = None,
        effects: CallMode | None = None,
        supervisor: Supervisor | None = None,
        expect: RunRow | None = None,
        schema_version: int | None = None,
        guards: Iterable[Guard] = (),
        on_resume: Callable[[Any], Any] | None = None,
        above: Lease | None = None,
        limit: ClaimLimit | None = None,
    ) -> None:
        """`start` is the state of a new thread; without it, the run is only resumed.

        `expect` is the record by which a worker chose the run: the claim fails if it has changed since. `above` is the
        lease of the run's parent. `limit` is that of the run's handler. The default policy is `AfterToolCall`.
        """
        policy = AfterToolCall() if policy is None else policy
        if not isinstance(policy, Policy):
            raise InvalidArgument("policy must be a holdfast.Policy")
        if on_resume is not None and not callable(on_resume):
            raise InvalidArgument("on_resume must be a function of the run")
        self.on_resume: Final = on_resume
        self.context: Final = context
        self._thread = Thread(context, name, type, schema_version)
        self.thread: Final = self._thread.name
        self.settings = RunSettings(
            tools=tools,
            policy=policy,
            effects=checked_effects(effects),
            supervisor=supervisor,
            guards=checked_guards(guards),
        )
        self._terms = terms
        self.wait: Final = terms.wait  # for how many seconds to try if another process holds the run
        self._start = start
        self._expect = expect
        self._above = above
        self._limit = limit
        self._entered = False
        self._observation: RunObservation | None = None
        self._lease: Lease | None = None

    def is_failing(self) -> bool:
        """Whether the store refuses renewals of the lease, or the results of calls."""
        return self._lease is not None and (self._lease.is_renewal_failing or self._lease.is_write_failing)

    def use(self, turn: str, effects: CallMode | None) -> None:
        """Set the turn and the effects of a child, which its parent's journal determines."""
        self._terms = replace(self._terms, turn=turn)
        self.settings = replace(self.settings, effects=effects)

    def completed(self, result: bytes | None) -> RunCore:
        """The run as completed with a result that its parent has recorded."""
        row = RunRow(thread=0, status="completed", fence=0, result=result)
        return RunCore(self.context, self._thread, row, self.settings, lease=None, resumed=True)

    def enter_once(self) -> None:
        """InvalidArgument the second time: a block is one claim."""
        if self._entered:
            raise InvalidArgument("a run's block cannot be entered twice; call hf.run again")
        self._entered = True

    @contextmanager
    def observed(self) -> Generator[None]:
        """Report the claim to the observer of the handle. Wraps `enter`, in the Python thread of the block."""
        observer = self.context.observer
        if observer is None:
            yield
            return
        self._observation = observation = observer.running(self.thread, self._terms.agent)
        try:
            yield
        except BaseException as error:
            self._observation = None
            observation.refused(error)
            raise

    def left(self) -> None:
        """Report the end of the block to the observer."""
        if self._observation is not None:
            self._observation.left()

    def enter(self, *, can_await: bool) -> RunCore:
        """Claim the run and load it. One attempt: LeaseHeld if another process holds the run."""
        claimed: ClaimedRun | None = None
        observation = self._observation
        try:
            claimed = self.claim()
            self._lease = claimed.lease
            if claimed.is_start and claimed.lease is not None and claimed.head is not None:
                self._start_at(claimed.head.thread.position, claimed.lease)
            core = RunCore(
                self.context,
                self._thread,
                claimed.row,
                self.settings,
                lease=claimed.lease,
                resumed=claimed.resumed,
                head=claimed.head,
                last=claimed.last,
                can_await=can_await,
                observation=observation,
            )
            for child in core.children_before:
                fence_child(self.context.store, child, self.thread)
            if observation is not None:
                observation.claimed(before=claimed.before, resumed=core.resumed, step=core.step, attempt=core.attempt)
            return core
        except BaseException as error:
            if claimed is not None and claimed.lease is not None:
                claimed.lease.stop()
                left = left_row(claimed.lease.row, error, self.settings, self.context.redaction)
                with suppress(LeaseLost, StoreError):
                    self.context.store.journal(left.thread, left.fence, (), last=None, run=left)
            raise

    def _start_at(self, position: Position, lease: Lease) -> None:
        """Correct the start of a turn if the thread was saved just before the claim."""
        if position.last != lease.row.began:
            row = lease.changed(began=position.last)
            self.context.store.journal(row.thread, row.fence, (), last=None, run=row)

    def claim(self) -> ClaimedRun:
        """Claim the run. Creates the thread and the run if there is none and the program passed a start.

        LeaseHeld if another process holds the run, or if its record is not the expected one; LimitReached if the limit
        of its handler does not allow it. NotFound if there is no run and no start. Incompatible if the program cannot
        resume it.
        """
        races = 0
        while True:
            try:
                return self._claim()
            except _Raced as raced:
                conflict = raced.conflict
                if self._expect is not None:
                    raise LeaseHeld(
                        f"the run of thread {quoted(self.thread)} was claimed or ended by another process; nothing was "
                        "changed. Look for another run, or try again later."
                    ) from conflict
                # Another writer was faster, so look again. Or the records contradict each other.
                races += 1
                if races == MAX_RACES:
                    raise conflict from None

    def _claim(self) -> ClaimedRun:
        store, name, terms = self.context.store, self.thread, self._terms
        if self._observation is not None:
            terms = replace(terms, trace=self._observation.trace)
        found = store.head(name)
        taken_at = local_seconds()
        if found is None:
            if self._start is None:
                raise NotFound(
                    f"there is no thread {quoted(name)} to resume; nothing was changed. Pass start= to start a run."
                )
            return self._create(terms, taken_at)
        thread = found.thread
        known = store.run(thread.position.thread) if self._expect is None else self._expect
        branch, head = branch_of(thread.position), thread.position.head
        is_started, is_start = False, True
        if known is None:
            self._thread.saver.require_compatible(found)
            row = _with_lease(_new_row(thread.position.thread, branch, thread.position.last), terms)
        else:
            if known.parent != terms.parent:
                raise _other_parent_error(name, known)
            if self._start is not None and terms.turn is None and known.start:
                self._require_start(known)
            done = completed(store, thread, known, terms.turn)
            if done is not None:
                return ClaimedRun(None, done, resumed=True, before=done.trace)
            if not is_free(store, known):
                raise _held_error(name, known)
            if known.status == "queued" and known.handler is not None and self._start is None and self._expect is None:
                raise _queued_error(name, known)
            is_new_turn = _is_new_turn(name, known, terms.turn)
            if not is_new_turn:
                _require_version(name, known, terms.version)
            self._thread.saver.require_compatible(found)
            # Only a claim writes a nonce: a run that was submitted and never claimed was not started. A completed turn
            # that was rewound is a new turn, but its start stays: the checkpoint at the head may have its input.
            is_started = not is_new_turn and bool(known.nonce)
            is_start = not known.nonce or (is_new_turn and terms.turn not in (None, known.turn))
            row = _next_row(store, known, thread, branch, is_new_turn=is_new_turn)
            row = _with_lease(replace(row, began=thread.position.last) if is_start else row, terms)
            if is_started:
                row = _with_claim(row, known, head)
        try:
            claimed = store.claim(known, row, self._limit)
        except Conflict as conflict:
            raise _Raced(conflict) from conflict
        current = found if claimed.position == thread.position else store.head(name)
        return ClaimedRun(
            Lease(store, claimed.run, terms.lease, taken_at, self._above),
            claimed.run,
            resumed=is_started,
            before=None if known is None else known.trace,
            head=current,
            last=claimed.last_entry,
            is_start=is_start,
        )

    def _create(self, terms: ClaimTerms, taken_at: float) -> ClaimedRun:
        """Create the thread with a claimed run."""
        store = self.context.store
        clock, row = store.clock(), _with_lease(_new_row(0, 0, 1), terms)
        until = clock.now + row.lease_until
        row = replace(row, clock=clock.id, lease_until=until, lease_first=until)
        try:
            row = _created(self._thread.saver, self._start, row)
        except Conflict as conflict:
            raise _Raced(conflict) from conflict
        created = store.head(self.thread)
        # The lease is made last: if the store fails before, nothing renews it.
        return ClaimedRun(Lease(store, row, terms.lease, taken_at, self._above), row, resumed=False, head=created)

    def _require_start(self, known: RunRow) -> None:
        """Conflict if the run was started with another state. A turn uses its start only for a new thread."""
        saver = self._thread.saver
        plain = saver.plain(self._start)
        if start_digest(plain) != known.start and not saver.has_started_with(known.thread, plain):
            raise Conflict(
                f"the run of thread {quoted(self.thread)} was started with another start state; nothing was changed. "
                "Omit start= to resume it, or start the other run under another name."
            )


class _Raced(Exception):
    """Another writer was faster: the records are not those that the claim was made from."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict: Final = conflict


# -- waiting for a run that another process holds -------------------------------------------------------------------


def until_free(attempt: Callable[[], RunCore], seconds: float) -> RunCore:
    """Attempt to claim a run until it is free. LeaseHeld if it is not free after so many seconds."""
    for pause in pauses(seconds):
        with suppress(LeaseHeld):
            return attempt()
        sleep(pause)
    return attempt()


# -- children of an earlier claim -----------------------------------------------------------------------------------


def fence_child(store: Store, name: str, parent: str) -> None:
    """Take a child and its own children from the process that held their parent before and may still run them."""
    thread = thread_named(store, name)
    run = None if thread is None else store.run(thread.position.thread)
    for _ in range(MAX_RACES):
        if thread is None or run is None or run.parent != parent or is_free(store, run):
            break
        # It is interrupted, as its parent was. A call that its owner started may not have ended.
        freed = replace(run, fence=run.fence + 1, owner=None, lease_until=0)
        with suppress(Conflict):  # it was renewed meanwhile
            store.claim(run, freed)
            break
        run = store.run(thread.position.thread)
    if thread is not None and run is not None and run.parent == parent:
        for below in open_children(store, thread.position.thread):
            fence_child(store, below, name)


# -- the record of a claimed run ------------------------------------------------------------------------------------


def _created(saver: Saver, start: Any, row: RunRow) -> RunRow:
    """Create the thread with its run. Return the run's record with the number of the thread."""
    request = saver.request(start, is_of_run=True, trigger="start", step=0, agent=row.agent)
    row = replace(row, start=start_digest(request.state))
    saver.commit(saver.prepare(request, NEW), run=row)
    head = saver.known_head
    return row if head is None else replace(row, thread=head.position.thread)


def _new_row(thread: int, branch: int, began: int) -> RunRow:
    return RunRow(thread=thread, status="running", fence=1, attempt=1, branch=branch, began=began, created_at=now())


def _next_row(store: Store, known: RunRow, thread: ThreadRow, branch: int, *, is_new_turn: bool) -> RunRow:
    """The record of a run that is claimed again. `branch` is that of the thread's head."""
    has_waited = known.status == "waiting"
    # Waiting is not a failure. Every other claim counts, until a checkpoint shows progress. A delayed run has waited
    # before its first claim.
    attempt = 1 if is_new_turn else max(known.attempt + (not has_waited), 1)
    row = replace(
        known,
        status="running",
        fence=known.fence + 1,
        attempt=attempt,
        # 0 means that `_with_lease` sets it: for a run that waited, or was released without a failure.
        tried_at=0 if attempt <= 1 or has_waited else known.tried_at,
        reason=None,
        result=None,
        progress=None,
        question=0,
        also=(),
        wake_at=0,
        wake_wall=0,
        branch=branch,
        held=0 if is_new_turn else _held_before(known),
    )
    if is_new_turn:
        # A turn that was halted inside a step may have left open entries, which do not belong to this one.
        row = replace(row, closed=store.last_entry(known.thread), kept=(), is_in_loop=False)
        if known.status != "completed":
            unfinished = unfinished_at(store, known, row.closed)
            row = replace(row, doubts=doubts_of(store, known, thread), unfinished=unfinished)
    if is_new_turn or branch != known.branch:
        row = replace(row, boundary=None)
    return row


def _with_lease(row: RunRow, terms: ClaimTerms) -> RunRow:
    """A claimed run's record. The store counts the lease from its own clock."""
    moment = now()
    return replace(
        row,
        owner=this_process(),
        clock="",
        lease_until=round(terms.lease * 1000),
        updated_at=moment,
        tried_at=row.tried_at or moment,
        agent=terms.agent or row.agent,
        version=terms.version or row.version,
        handler=terms.handler or row.handler,
        turn=terms.turn or row.turn,
        trace=terms.trace or row.trace,
        parent=terms.parent,
        nonce=os.urandom(8),
    )


def _with_claim(row: RunRow, known: RunRow, head: int) -> RunRow:
    """The record of a resumed run, with this claim in its list of claims."""
    claims = (*known.claims, PastClaim(row.fence, row.updated_at, head, row.branch, known.status))
    crashed = known.crashed + (known.status == "running")
    return replace(row, claims=claims[-_CLAIMS_KEPT:], resumed=known.resumed + 1, crashed=crashed)


def _held_before(known: RunRow) -> int:
    """How many ms a run was held so far. If its process did not release it, counted until the last renewal."""
    was_renewed = known.status == "running" and known.lease_first > 0
    return known.held + (max(known.lease_until - known.lease_first, 0) if was_renewed else 0)


def _held_error(name: str, known: RunRow) -> LeaseHeld:
    or_wait = "" if known.parent is not None else ", or pass wait="  # `run.child` waits by itself
    if known.owner == this_process():
        return LeaseHeld(
            f"this process runs thread {quoted(name)} already, in another block; nothing was changed. "
            f"Leave that block first{or_wait}."
        )
    return LeaseHeld(
        f"another process holds the run of thread {quoted(name)}; nothing was changed. Try again later{or_wait}."
    )


def _queued_error(name: str, known: RunRow) -> Unfinished:
    return Unfinished(
        f"the run of thread {quoted(name)} is queued for a worker with handler {quoted(known.handler or '')}; "
        f"nothing was changed. Read its result with hf.result({quoted(name)}, wait=…), or pass its start= to run it "
        "here.",
        known.turn,
    )


def _other_parent_error(name: str, known: RunRow) -> InvalidArgument:
    if known.parent is not None:
        return InvalidArgument(
            f"thread {quoted(name)} is a child of {quoted(known.parent)} and can only be run by it; nothing was "
            f"changed. Run {quoted(known.parent)}."
        )
    return InvalidArgument(
        f"thread {quoted(name)} has its own run, so it cannot be a child; nothing was changed. "
        "Give the child another name."
    )


def _require_version(name: str, known: RunRow, version: str | None) -> None:
    """Incompatible if another version started the run: only that version knows what the open step did.

    A run or a program without a version is compatible with every version.
    """
    if version is not None and known.version is not None and version != known.version:
        raise Incompatible(
            f"the run of thread {quoted(name)} was started by version {quoted(known.version)}, and this is version "
            f"{quoted(version)}; nothing was changed. Finish it with version {quoted(known.version)}, or omit version= "
            "to resume it anyway."
        )


def completed(store: Store, thread: ThreadRow, known: RunRow, turn: str | None) -> RunRow | None:
    """The record of the run or turn if it is completed; None if it is not, or was rewound."""
    if known.status == "completed" and known.branch == branch_of(thread.position) and turn in (None, known.turn):
        return known
    if turn is None or (turn == known.turn and known.status != "completed"):
        return None
    topic = turn_topic(turn)
    rows = list(scan.entries(store, thread.position.thread, topic=topic))
    if not rows:
        _confirm_none(store, thread.position.thread, topic)
    ancestry = Ancestry.of(store, thread.position) if rows else None
    for row in rows:
        if ancestry is not None and ancestry.holds(row.branch, row.step):
            return replace(known, status="completed", turn=turn, result=row.result, reason=None)
    return None


def _confirm_none(store: Store, number: int, topic: str) -> None:
    """Damaged if the journal has an entry that the index of topics has lost: a completed turn must not run again.

    Only the newest entries are read: a request is usually repeated soon, and reading all would take longer each turn.
    """
    newest = max(store.last_entry(number) - _TURNS_SEARCHED, 0)
    if any(row.topic == topic for row in store.entries(number, after=newest, limit=_TURNS_SEARCHED)):
        raise Damaged(
            "a journal entry is missing from the index of topics; nothing was changed. hf.verify() shows what is "
            "damaged."
        )


def _is_new_turn(name: str, known: RunRow, turn: str | None) -> bool:
    """Whether a turn starts here. Unfinished if the thread is busy with another."""
    if turn is None or turn == known.turn:
        return known.status == "completed"
    if known.status not in ENDED:
        busy = "work without a turn" if known.turn is None else f"turn {quoted(known.turn)}"
        raise Unfinished(
            f"thread {quoted(name)} is {known.status} with {busy}; nothing was changed. "
            "Finish that first, or cancel it with hf.cancel.",
            known.turn,
        )
    return True
