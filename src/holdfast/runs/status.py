"""Runs seen and changed from outside: their status and journal, stuck runs, settle, submit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from holdfast import types
from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.errors import Conflict, HoldfastError, InvalidArgument, NotFound, Unsupported
from holdfast.redaction import Redaction
from holdfast.runs.acts import require_act_not_done, take_over
from holdfast.runs.deadlines import deadline_in, require_over
from holdfast.runs.drivers import Running
from holdfast.runs.journal import RESULT_REDACTED
from holdfast.runs.open_entries import still_doubtful
from holdfast.runs.record import (
    DOUBTFUL,
    UNFINISHED,
    awaited,
    each_run,
    effect_of,
    handler_of,
    is_free,
    now,
    queued,
    start_digest,
    text_of,
)
from holdfast.runs.results import encoded_result
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome, Tools, is_outcome, unknown_outcome
from holdfast.runs.waits import SLEEP, checked_seconds, wake_parents
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import ActRow, Clock, Entry, Owner, RunRow
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.context import Context
from holdfast.threads.metadata import checkpoint_of, moment
from holdfast.threads.save import NEW, Saver
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Effect, RunInfo, Status, StuckRun

_ACTIONS: Final = ("idempotent", "irreversible")  # calls that a person may allow; other questions are answered
_HIGHEST_PRIORITY: Final = 100
_LATE_TRIES: Final = 50
_LATE_SECONDS: Final = 0.1


# -- one run ------------------------------------------------------------------------------------------------------


def effects_of(store: Store, thread: ThreadRow) -> list[Effect]:
    """The calls in the journal of a thread, oldest first."""
    return [effect_of(row) for row in scan.entries(store, thread.position.thread) if row.kind != "write"]


def info_of(store: Store, thread: ThreadRow) -> RunInfo | None:
    """The run of a thread as users see it; None if it has none."""
    run = store.run(thread.position.thread)
    if run is None:
        return None
    return RunInfo(
        thread=thread.name,
        status=run.status,
        interrupted=run.status in UNFINISHED and is_free(store, run),
        reason=run.reason,
        attempt=run.attempt,
        turn=run.turn,
        handler=run.handler,
        version=run.version,
        since=moment(run.updated_at),
        result=result_in(run),
        priority=run.priority,
    )


def result_in(run: RunRow) -> Any:
    """The result of a completed run; None if it has none."""
    return None if run.status != "completed" or run.result is None else msgpack.decode(run.result)


def progress_of(store: Store, thread: ThreadRow) -> types.Progress | None:
    """The progress that the run of a thread last reported."""
    run = store.run(thread.position.thread)
    if run is None or run.progress is None:
        return None
    stored = run.progress
    return types.Progress(done=stored.done, total=stored.total, note=stored.note, at=moment(stored.at))


def settle(
    store: Store,
    thread: ThreadRow,
    effect: Effect | int,
    outcome: Outcome,
    redaction: Redaction,
    tools: Tools,
    *,
    by: str | None,
    force: bool,
) -> None:
    """Record the outcome of a call in doubt, and who settled it. A run that waits for it is queued.

    A result has the type that its tool declares, if the tool is one of `tools`.
    NotFound if the thread has no such effect, Conflict if it is not in doubt, or if another call has done its act.
    Without `force`, also Conflict if it is settled as not done, or an act is given up, while the call may still act.
    """
    if by is not None and (type(by) is not str or not by):
        raise InvalidArgument("by must be a non-empty string")
    number = effect.number if isinstance(effect, Effect) else effect
    if type(number) is not int:
        raise InvalidArgument("effect must be a record or a number that hf.effects(thread) returned")
    rows = store.entries(thread.position.thread, after=number - 1, limit=1)
    if not rows or rows[0].number != number:
        raise NotFound(
            f"thread {quoted(thread.name)} has no effect {number}; nothing was changed. hf.effects(thread) lists them."
        )
    row = rows[0]
    tool = tools.of(row.name, row.key)
    settled = replace(_settled(row, outcome, redaction, None if tool is None else tool.resolved().result), by=by)
    if row.status not in DOUBTFUL and not (row.status == "asked" and row.kind in _ACTIONS):
        # Repeated by a caller that did not get the first answer: the run is queued already.
        if (row.status, row.result) != (settled.status, settled.result):
            known = row.status.replace("_", " ")
            raise Conflict(
                f"effect {number} of thread {quoted(thread.name)} is {known} already; nothing was changed. "
                "hf.effects(thread) shows its outcome."
            )
        return
    run = store.run(thread.position.thread)
    if run is not None and not is_free(store, run):
        raise Conflict(
            f"a process runs thread {quoted(thread.name)}, so its calls cannot be settled from outside; nothing was "
            "changed. Try again when its run has ended."
        )
    is_freed = settled.status == "not_done" or (settled.status == "given_up" and row.act is not None)
    if is_freed and not force:
        require_over(row, store.clock(), "Settle it later")
    if is_freed:
        require_act_not_done(store, thread.position.thread, row)
    store.post(thread.position.thread, settled, status=row.status, run=run, then=_after(run, number))
    take_over(store, thread.position.thread, settled)


def _after(run: RunRow | None, number: int) -> RunRow | None:
    """The record of a run after a call is settled: queued if it waits for that call."""
    is_awaited = run is not None and run.status == "waiting" and (not run.question or number in awaited(run))
    return queued(run) if run is not None and is_awaited else None


class LateOutcome(NamedTuple):
    """The outcome of a call whose function ended after the block of its run. `bound` is for how long it could act."""

    number: int
    owner: Owner
    bound: float
    result: Any
    error: BaseException | None
    is_not_done: bool
    declared: StateType | None


def record_running(
    context: Context, run: RunRow, number: int, running: Running, result: Any, error: BaseException | None
) -> None:
    """Record the outcome of a function that ended after the block of its run."""
    if run.owner is not None:
        is_not_done = isinstance(error, running.not_done)
        late = LateOutcome(number, run.owner, running.bound, result, error, is_not_done, running.result)
        with suppress(HoldfastError):  # the call stays in doubt
            record_late(context.store, run.thread, late, context.redaction)


def record_late(store: Store, thread: int, late: LateOutcome, redaction: Redaction) -> None:
    """Record the outcome of a call in doubt, if no process holds the run. Else keep it as a late entry."""
    for tried in range(_LATE_TRIES):
        rows = store.entries(thread, after=late.number - 1, limit=1)
        if not rows or rows[0].status not in ("begun", "in_doubt", "given_up") or rows[0].owner != late.owner:
            return  # it was settled
        ended = _ended_late(rows[0], late, store.clock(), redaction)
        if rows[0].status == "given_up":
            _end_given_up(store, thread, rows[0], ended)
            return
        run = store.run(thread)
        with suppress(Conflict):  # another process wrote or claimed meanwhile
            if run is not None and is_free(store, run):
                store.post(thread, ended, status=rows[0].status, run=run, then=_after(run, late.number))
                take_over(store, thread, ended)
                wake_parents(store, store.run(thread))
                return
            if tried == _LATE_TRIES - 1:
                store.post(thread, replace(ended, status="late", number=store.last_entry(thread) + 1))
        time.sleep(_LATE_SECONDS)


def _end_given_up(store: Store, thread: int, row: Entry, ended: Entry) -> None:
    """Note that a call that was given up has ended. The run keeps the unknown outcome; the act keeps the result."""
    if ended.status == "done" and row.act is not None:
        late = replace(ended, status="late", number=store.last_entry(thread) + 1, matches=row.matches or row.number)
        store.post(thread, late)
        store.put_act(row.act, ActRow(row.act, thread, row.number), ActRow(row.act, thread, late.number))
    store.post(thread, replace(row, owner=None, deadline=ended.deadline), status="given_up")


def _ended_late(row: Entry, late: LateOutcome, clock: Clock, redaction: Redaction) -> Entry:
    row = replace(row, ended_at=now(), owner=None)
    if late.error is None:
        try:
            settled = _settled(row, Happened(late.result), redaction, late.declared)
            return replace(settled, settled=None, deadline=None)
        except Unsupported as refused:
            return replace(row, status="unstored", error=redaction.message(str(refused)), deadline=None)
    row = replace(row, error=text_of(late.error, redaction))
    if late.is_not_done:
        return replace(row, status="not_done", deadline=None)
    # It took longer than declared, so the time in which the service may act counts from the end of the function.
    return replace(row, status="in_doubt", deadline=deadline_in(late.bound, clock))


def _settled(row: Entry, outcome: object, redaction: Redaction, declared: StateType | None) -> Entry:
    row = replace(row, settled="person", ended_at=now(), owner=None)
    if isinstance(outcome, Happened):
        encoded = encoded_result(outcome.result, declared, redaction, is_declared=True, is_reported=True)
        if encoded.is_redacted:
            row = replace(row, redacted=row.redacted | RESULT_REDACTED)
        return replace(row, status="done", result=encoded.data, type=encoded.type, released=None)
    if is_outcome(outcome, NotDone):
        # The tool is called, and no recorded error is raised.
        return replace(row, status="not_done", error=None, settled="allowed" if row.status == "asked" else "person")
    if is_outcome(outcome, GiveUp):
        return replace(row, status="given_up", result=msgpack.encode(unknown_outcome(row.name)))
    raise InvalidArgument("settle takes holdfast.Happened(result), holdfast.NotDone() or holdfast.GiveUp()")


def submit(
    store: Store,
    saver: Saver,
    name: str,
    handler: str,
    start: Any,
    version: str | None,
    at: datetime | None = None,
    priority: int = 0,
) -> None:
    """Queue a run for any worker, at once or at a time.

    Submitted again, the same start changes nothing; another one is a Conflict.
    """
    if type(handler) is not str or not handler:
        raise InvalidArgument("the name of a handler must be a non-empty string")
    if version is not None and (type(version) is not str or not version):
        raise InvalidArgument("version must be a non-empty string")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        raise InvalidArgument("at must be a datetime with a time zone, like datetime.now(UTC) + timedelta(hours=1)")
    if type(priority) is not int or not -_HIGHEST_PRIORITY <= priority <= _HIGHEST_PRIORITY:
        raise InvalidArgument(f"priority must be a whole number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}")
    seconds = 0.0 if at is None else at.timestamp() - time.time()
    status: Status = "waiting" if seconds > 0 else "queued"
    request = saver.request(start, is_of_run=True, trigger="submit", step=0, status=status)
    digest = start_digest(request.state)
    row = RunRow(
        thread=0,
        status=status,
        fence=1,
        branch=0,
        began=1,
        handler=handler,
        version=version,
        start=digest,
        trace=saver.trace,
        created_at=now(),
        updated_at=now(),
        priority=priority,
    )
    if at is not None and seconds > 0:
        until = deadline_in(seconds, store.clock())
        reason = f"starts at {at.isoformat(sep=' ', timespec='seconds')}"
        row = replace(row, reason=reason, clock=until.clock, wake_at=until.at, wake_wall=until.wall)
    try:
        saver.commit(saver.prepare(request, NEW), run=row)
    except Conflict:
        thread = thread_named(store, name)
        known = None if thread is None else store.run(thread.position.thread)
        if known is None or known.start != digest or known.handler != handler:
            raise Conflict(
                f"thread {quoted(name)} exists with another start or handler; nothing was queued. "
                "Submit under another name."
            ) from None


# -- stuck runs ---------------------------------------------------------------------------------------------------

_CAN_BE_STUCK: Final = ("queued", "running", "waiting", "released", "failed", "dead")
_WITH_DOUBTS: Final = ("idle", "halted", "completed")  # stuck only if a call is in doubt
_RECENT: Final = 50  # entries at the end of a journal among which the calls under way are searched
_GENERATIONS: Final = 20  # of children whose progress counts for a run


def stuck(store: Store, older_than: float) -> Iterator[StuckRun]:
    """The runs that have made no progress for so many seconds, longest unchanged first."""
    seconds = checked_seconds("older_than", older_than)
    return _stuck(store, round(seconds * 1_000_000))


def _stuck(store: Store, age: int) -> Iterator[StuckRun]:
    for name, run in each_run(store, (*_CAN_BE_STUCK, *_WITH_DOUBTS)):
        if run.status in _WITH_DOUBTS and not run.doubts:
            continue
        thread = thread_named(store, name)
        found = None if thread is None else _why(store, thread, run)
        if found is not None:
            since, why = found
            if now() - since >= age:
                yield StuckRun(thread=name, status=run.status, since=moment(since), why=why)


def _why(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str] | None:
    """Since when a run makes no progress, in µs since 1970, and why. None if nothing is wrong with it."""
    match run.status:
        case "queued":
            return _why_queued(store, thread, run)
        case "waiting":
            return _why_waiting(store, run)
        case "released" if run.parent is not None:
            return None  # its parent resumes it
        case "released":
            return run.updated_at, f"its block was left unfinished{_unclaimed(run)}"
        case "running":
            if is_free(store, run):
                return _active_at(store, thread, run), f"its process is gone{_unclaimed(run)}{_attempts(run)}"
            return _why_running(store, thread, run)
        case "idle" | "halted" | "completed":
            for row in still_doubtful(store, run.thread, run.doubts):
                return row.begun_at, f"{row.name} (call {row.number}) is in doubt; settle it with hf.settle"
            return None
        case _:
            # The reason comes last in all of these: it may consist of several sentences.
            resumes = _unclaimed(run) if run.status == "failed" else "; workers ignore it, hf.run resumes it"
            return run.updated_at, f"{run.status} after {_counted(run.attempt, 'attempt')}{resumes}: {run.reason}"


def _why_queued(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str]:
    if run.reason is None:
        return run.updated_at, f"queued{_unclaimed(run)}"
    # Calls of an attempt that failed are not progress. A checkpoint is.
    since = max(_saved_at(store, thread), run.tried_at)
    overdue = _overdue(store, run)
    again = _unclaimed(run) if overdue >= 0 else f"; is tried again in {_counted(-(overdue // 1_000_000), 'second')}"
    return since, f"failed {_counted(run.attempt, 'time')} since its last checkpoint{again}: {run.reason}"


def _why_waiting(store: Store, run: RunRow) -> tuple[int, str] | None:
    rows = store.entries(run.thread, after=run.question - 1, limit=1) if run.question else []
    question = rows[0] if rows else None
    overdue = _overdue(store, run) if run.wake_at else -1
    if overdue >= 0:
        return now() - overdue, f"the time it waited for is over{_unclaimed(run)}: {run.reason}"
    if question is None:
        # It waits because a child waits: for a time, or for an answer.
        return None if run.wake_at else (run.updated_at, f"{run.reason}")
    if question.name == SLEEP:
        return None
    answers = "; hf.answer answers it" if question.kind == "wait" else ""
    return question.begun_at, f"{run.reason}{answers}"


def _why_running(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str]:
    since = _active_at(store, thread, run)
    begun = [row for row in _recent(store, run) if row.status == "begun" and row.fence == run.fence]
    if not begun:
        return since, "runs without a recorded call: inside a model call, a read, or its own code" + _attempts(run)
    calls = ", ".join(
        f"{row.name} (call {row.number}, since {moment(row.begun_at):%Y-%m-%d %H:%M:%S})" for row in begun
    )
    return since, f"runs, and is inside {calls}{_attempts(run)}"


def _active_at(store: Store, thread: ThreadRow, run: RunRow, generation: int = 0) -> int:
    """The time of a run's last progress: a checkpoint, a journal entry, reported progress, or progress of a child.

    For later attempts, neither the claim nor the start of a call counts.
    """
    is_first = run.attempt <= 1
    times = [run.updated_at if is_first else run.tried_at, _saved_at(store, thread)]
    times.append(0 if run.progress is None else run.progress.at)
    for row in _recent(store, run):
        if is_first or row.status == "done":
            times += [row.begun_at, row.ended_at or 0]
        if row.kind == "child" and row.status == "begun" and generation < _GENERATIONS:
            child = thread_named(store, row.name)
            its = None if child is None else store.run(child.position.thread)
            if child is not None and its is not None:
                times.append(_active_at(store, child, its, generation + 1))
    return max(times)


def _saved_at(store: Store, thread: ThreadRow) -> int:
    """The time when the head was saved. The thread's summary also changes with claims."""
    head = checkpoint_at(store, thread.position.thread, thread.position.head)
    return 0 if head is None else round(checkpoint_of("", head).created_at.timestamp() * 1_000_000)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _attempts(run: RunRow) -> str:
    return "" if run.attempt <= 1 else f"; attempt {run.attempt} without a checkpoint"


def _recent(store: Store, run: RunRow) -> list[Entry]:
    return store.entries(run.thread, after=max(store.last_entry(run.thread) - _RECENT, 0), limit=_RECENT)


def _overdue(store: Store, run: RunRow) -> int:
    """For how many µs a run is overdue; negative if it is not due yet."""
    clock = store.clock()
    if run.clock == clock.id:
        return (clock.now - run.wake_at) * 1000 if run.wake_at else 0
    return now() - run.wake_wall if run.wake_wall else 0


def _unclaimed(run: RunRow) -> str:
    """A hint why a run is not claimed."""
    handler = handler_of(run)
    if handler is None:
        return ", and it has no handler (hf.run resumes it)"
    version = "" if run.version is None else f" and version {quoted(run.version)}"
    return f", and no worker claims it (is a worker with handler {quoted(handler)}{version} running?)"
