"""Stuck runs: those that make no progress, since when, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.runs.open_entries import still_doubtful
from holdfast.runs.record import each_run, handler_of, is_free, now
from holdfast.runs.waits import SLEEP, checked_seconds
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads.metadata import checkpoint_of, moment
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import StuckRun

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
