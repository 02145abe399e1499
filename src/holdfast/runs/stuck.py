"""Stuck runs: those that get nowhere, and what can be told from outside of why."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.runs.claiming import is_free
from holdfast.runs.journal import now
from holdfast.runs.recovery import each_run
from holdfast.runs.waits import SLEEP, checked_seconds
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.text import shown
from holdfast.threads.metadata import checkpoint_of, moment
from holdfast.types import Stuck

_STATUSES = ("queued", "running", "waiting", "failed", "dead")
_RECENT = 50  # entries at the end of a journal, among which those under way are looked for
_GENERATIONS = 20  # of children; theirs is their parents' progress


def stuck(store: Store, older_than: float) -> Iterator[Stuck]:
    """The runs that have made no progress for so many seconds, those longest untouched first."""
    seconds = checked_seconds("older_than", older_than)
    return _stuck(store, round(seconds * 1_000_000))


def _stuck(store: Store, age: int) -> Iterator[Stuck]:
    for name, run in each_run(store, _STATUSES):
        thread = store.thread(name)
        found = None if thread is None else _why(store, thread, run)
        if found is not None:
            since, why = found
            if now() - since >= age:
                yield Stuck(thread=name, status=run.status, since=moment(since), why=why)


def _why(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str] | None:
    """Since when a run gets nowhere, in µs since 1970, and why. None if it does what it should."""
    match run.status:
        case "queued":
            return _queued(store, thread, run)
        case "waiting":
            return _waiting(store, run)
        case "running":
            if is_free(store, run):
                return _activity(store, thread, run), f"its owner is gone{_nobody(run)}{_again(run)}"
            return _held(store, thread, run)
        case _:
            goes_on = "workers leave it; hf.run goes on with it"
            return run.updated_at, f"{run.status} after {run.attempt} attempts: {run.reason}; {goes_on}"


def _queued(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str]:
    if run.reason is None:
        return run.updated_at, f"queued{_nobody(run)}"
    # What an attempt does before it fails again is no progress: a checkpoint is.
    since = max(_saved_at(store, thread), run.tried_at)
    overdue = _overdue(store, run)
    again = _nobody(run) if overdue >= 0 else f"; is tried again in {-(overdue // 1_000_000)} seconds"
    return since, f"failed {run.attempt} times since its last checkpoint: {run.reason}{again}"


def _waiting(store: Store, run: RunRow) -> tuple[int, str] | None:
    rows = store.effects(run.thread, after=run.question - 1, limit=1) if run.question else []
    question = rows[0] if rows else None
    overdue = _overdue(store, run) if run.wake_at else -1
    if overdue >= 0:
        return now() - overdue, f"{run.reason}, and the time for that is over{_nobody(run)}"
    if question is None:
        # It waits because a child does: until a time, or for somebody.
        return None if run.wake_at else (run.updated_at, f"{run.reason}")
    if question.name == SLEEP:
        return None
    decides = "; hf.answer answers it" if question.kind == "wait" else ""
    return question.begun_at, f"{run.reason}{decides}"


def _held(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str]:
    since = _activity(store, thread, run)
    begun = [row for row in _recent(store, run) if row.status == "begun" and row.fence == run.fence]
    if not begun:
        return since, "runs, and nothing is recorded: inside a model call, a read, or its own code" + _again(run)
    calls = ", ".join(
        f"{row.name} (call {row.number}, since {moment(row.begun_at):%Y-%m-%d %H:%M:%S})" for row in begun
    )
    return since, f"runs, and is inside {calls}{_again(run)}"


def _activity(store: Store, thread: ThreadRow, run: RunRow, generation: int = 0) -> int:
    """When a run last got on: a checkpoint, a journal entry, progress, or a child's; or was first claimed since.

    A later attempt is not told from the one before by being claimed, nor by a call that it only begins again.
    """
    is_first = run.attempt <= 1
    times = [run.updated_at if is_first else run.tried_at, _saved_at(store, thread)]
    times.append(0 if run.progress is None else run.progress.at)
    for row in _recent(store, run):
        if is_first or row.status == "done":
            times += [row.begun_at, row.ended_at or 0]
        if row.kind == "child" and row.status == "begun" and generation < _GENERATIONS:
            child = store.thread(row.name)
            its = None if child is None else store.run(child.position.thread)
            if child is not None and its is not None:
                times.append(_activity(store, child, its, generation + 1))
    return max(times)


def _saved_at(store: Store, thread: ThreadRow) -> int:
    """When the head was saved: the thread's own summary tells of claims, too."""
    head = store.checkpoint(thread.position.thread, thread.position.head)
    return 0 if head is None else round(checkpoint_of("", head).created_at.timestamp() * 1_000_000)


def _again(run: RunRow) -> str:
    return "" if run.attempt <= 1 else f"; attempt {run.attempt} without a checkpoint"


def _recent(store: Store, run: RunRow) -> list[EffectRow]:
    return store.effects(run.thread, after=max(store.last_effect(run.thread) - _RECENT, 0), limit=_RECENT)


def _overdue(store: Store, run: RunRow) -> int:
    """For how many µs the time that a run is due at has come; negative if it has not."""
    clock = store.clock()
    if run.clock == clock.id:
        return (clock.now - run.wake_at) * 1000 if run.wake_at else 0
    return now() - run.wake_wall if run.wake_wall else 0


def _nobody(run: RunRow) -> str:
    """Who would have to take a run up."""
    if run.handler is None:
        return ", and it has no handler: hf.run goes on with it"
    version = "" if run.version is None else f" and version {shown(run.version)}"
    return f", and nobody claims it: is a worker with handler {shown(run.handler)}{version} running?"
