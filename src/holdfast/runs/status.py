"""Runs as people see them: status, effects, progress and result; and which runs are interrupted or stuck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast import types
from holdfast.codec import msgpack
from holdfast.errors import NotFound, Unfinished
from holdfast.runs.arguments import checked_seconds
from holdfast.runs.claim import completed
from holdfast.runs.lease import now
from holdfast.runs.open_entries import is_saved_outside, open_entries, place_of, still_doubtful, unsettled_before
from holdfast.runs.record import DOUBTFUL, UNFINISHED, each_run, effect_of, handler_of, is_free, pauses, resume_step
from holdfast.runs.tools import Tools
from holdfast.runs.waits import SLEEP
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import checkpoint_of, moment
from holdfast.threads.scan import checkpoint_at, thread_named
from holdfast.types import Effect, InterruptedRun, RunInfo, StuckRun


def effects_of(store: Store, thread: ThreadRow) -> list[Effect]:
    """The journal of a thread, oldest first, without the writes of frameworks."""
    return [effect_of(row) for row in scan.entries(store, thread.position.thread) if row.kind != "write"]


def info_of(store: Store, thread: ThreadRow) -> RunInfo | None:
    """The run of a thread as users see it; None if it has none."""
    run = store.run(thread.position.thread)
    if run is None:
        return None
    return RunInfo(
        thread=thread.name,
        status=run.status,
        interrupted=_is_interrupted(store, run),
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


# -- interrupted runs ---------------------------------------------------------------------------------------------


def interrupted(store: Store, tools: Tools) -> Iterator[InterruptedRun]:
    """The runs that were left unfinished, oldest first, and what a resume would do with each."""
    for name, row in each_run(store, UNFINISHED):
        if _is_interrupted(store, row):
            thread = thread_named(store, name)
            if thread is not None:
                yield _interrupted(store, tools, thread, row)


def _is_interrupted(store: Store, run: RunRow) -> bool:
    """Whether a run was left unfinished, and no process holds it."""
    # A child that was released or failed is left to its parent, which may wait or continue without it.
    is_own = run.parent is None or run.status == "running"
    return is_own and run.status in UNFINISHED and is_free(store, run)


def _interrupted(store: Store, tools: Tools, thread: ThreadRow, row: RunRow) -> InterruptedRun:
    step = resume_step(row, thread)
    branch = branch_of(thread.position)
    last = store.last_entry(row.thread)
    if is_saved_outside(store, row, thread):  # a resume asks about a call in doubt, and closes all others
        unsettled = unsettled_before(store, row, last)
        rows = [] if unsettled is None else [unsettled]
    else:
        rows = open_entries(store, row.thread, row.closed, last, step, branch)
    open_rows = {place_of(effect): effect for effect in rows}.values()  # the newest of each call
    unended = [e for e in open_rows if e.status in DOUBTFUL]
    replayed = sum(e.status == "done" for e in open_rows)
    plan = [f"resume after step {step}", f"answer {replayed} call{'s' * (replayed != 1)} from the journal"]
    plan += [_next_action(tools, effect) for effect in unended]
    doubtful = [e for e in unended if e.kind != "child"]
    if row.parent is not None:
        plan.append(f"only through its parent, {quoted(row.parent)}")
    if row.version is not None:
        plan.append(f"needs a worker of version {quoted(row.version)}")
    return InterruptedRun(
        thread=thread.name,
        status=row.status,
        reason=row.reason,
        step=step,
        attempt=row.attempt,
        since=moment(row.updated_at),
        in_doubt=tuple(effect_of(effect) for effect in doubtful),
        plan="; ".join(plan),
    )


def _next_action(tools: Tools, entry: Entry) -> str:
    """The action of a resume for a call that has no recorded result."""
    if entry.kind == "child":
        return f"resume the child {quoted(entry.name)}"
    call = f"{entry.name} (call {entry.number})"
    if entry.kind == "undo":
        return f"the undo of {call} is in doubt: settle it with hf.settle"
    if entry.status == "unstored":
        return f"{call} was made and its result could not be stored: settle it with hf.settle"
    tool = tools.of(entry.name, entry.key)
    if tool is None:
        return f"{call} is in doubt, and its tool is not registered here"
    return f"{call} is in doubt: in_doubt={tool.in_doubt!r}"


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
                return row.started_at, f"{row.name} (call {row.number}) is in doubt; settle it with hf.settle"
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
    return question.started_at, f"{run.reason}{answers}"


def _why_running(store: Store, thread: ThreadRow, run: RunRow) -> tuple[int, str]:
    since = _active_at(store, thread, run)
    started = [row for row in _recent(store, run) if row.status == "started" and row.fence == run.fence]
    if not started:
        return since, "runs without a recorded call: inside a model call, a read, or its own code" + _attempts(run)
    calls = ", ".join(
        f"{row.name} (call {row.number}, since {moment(row.started_at):%Y-%m-%d %H:%M:%S})" for row in started
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
            times += [row.started_at, row.ended_at or 0]
        if row.kind == "child" and row.status == "started" and generation < _GENERATIONS:
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


# -- results ------------------------------------------------------------------------------------------------------

PENDING: Final = object()
_WITHOUT_RESULT: Final = ("failed", "halted", "dead")


class ResultSearch:
    """One wait for a result. `look()` until it is found, with `pauses()` between."""

    def __init__(self, store: Store, thread: str, turn: str | None, wait: float) -> None:
        self._store = store
        self._thread = thread
        self._turn = turn
        self._seconds = checked_seconds("wait", wait)

    def pauses(self) -> Iterator[float]:
        """The seconds to sleep after each look that found nothing. After them, the `is_last` look is due."""
        return pauses(self._seconds)

    def look(self, *, is_last: bool = False) -> Any:
        """The result, or PENDING if it may still come.

        NotFound if there is no run. Unfinished if no result will come, or none has come at the last look.
        """
        thread = thread_named(self._store, self._thread)
        run = None if thread is None else self._store.run(thread.position.thread)
        if thread is None or run is None:
            missing = (
                f"thread {quoted(self._thread)} has no run" if thread else f"there is no thread {quoted(self._thread)}"
            )
            raise NotFound(f"{missing}, so there is no result. Start a run with hf.run or hf.submit.")
        done = completed(self._store, thread, run, self._turn)
        if done is not None:
            return None if done.result is None else msgpack.decode(done.result)
        whose = f"the run of thread {quoted(thread.name)}"
        if self._turn is not None and self._turn != run.turn:
            problem = f"turn {quoted(self._turn)} of thread {quoted(thread.name)} has no result yet"
        elif run.status == "completed":
            raise Unfinished(f"{whose} was rewound, so it has no result; hf.run resumes it", run.turn)
        elif run.status in _WITHOUT_RESULT:
            raise Unfinished(f"{whose} is {run.status} and has no result ({run.reason}); hf.run resumes it", run.turn)
        else:
            problem = f"{whose} is {run.status} and has no result yet"
        if is_last:
            is_waiting = run.status == "waiting" and self._turn in (None, run.turn)
            advice = "hf.waiting() lists what it waits for" if is_waiting else "Ask again later, or pass a longer wait="
            raise Unfinished(f"{problem}. {advice}.", run.turn)
        return PENDING
