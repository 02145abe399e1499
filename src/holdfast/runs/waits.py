"""Waiting without a process: `run.wait` and `run.sleep`; and from outside: questions, answers, cancellation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import AskedByChild, Conflict, EffectMismatch, NotFound, WaitTimedOut
from holdfast.runs.arguments import check_value, checked_text
from holdfast.runs.block_end import Waiting
from holdfast.runs.context import RunContext
from holdfast.runs.lease import has_passed, note_posted, now, on_clock
from holdfast.runs.open_entries import doubts_of, open_entries, pending_cancel, place_of, still_doubtful
from holdfast.runs.record import (
    CANCEL,
    CHILD,
    ENDED,
    MAX_RACES,
    RELEASED,
    awaited_entries,
    each_run,
    ended_from_outside,
    is_free,
    question_topic,
    queued,
    resume_step,
)
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Deadline, Entry, RunRow
from holdfast.text import quoted
from holdfast.threads import scan
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import moment
from holdfast.threads.scan import thread_named
from holdfast.types import PendingQuestion

WAIT: Final = "run.wait"
SLEEP: Final = "run.sleep"


# -- inside the run -----------------------------------------------------------------------------------------------


def wait(context: RunContext, name: str, payload: Any, timeout: float | None, key: str) -> Any:
    """The answer to a question. Suspends the run if there is none yet."""
    msgpack.check(payload, is_state=False)
    recorded = context.redaction.copy(payload)
    store, journal, run = context.store, context.journal, context.lease.row
    digest = hashlib.sha256(msgpack.encode_sorted(recorded)).digest()
    known = journal.find(context.step, key)
    if known is not None and known.arguments != digest:
        _require_unanswered(known, scan.entries(store, run.thread, run.closed, question_topic(name)), run)
        known = None  # it is asked anew
    if known is None:
        known = _new_question(context, name, digest, timeout, key)
        known = replace(known, call=msgpack.encode(recorded), topic=question_topic(name))
    while known.status == "asked":
        journal.flush()  # reads and failures from before the question
        last = journal.last  # read before the answers, so that an answer posted in between prevents the suspension
        rows = () if known.topic is None else scan.entries(store, run.thread, run.closed, known.topic)
        answer = _unused_answer(rows, run)
        if answer is not None:
            known = replace(known, status="done", result=answer.result, by=answer.by, matches=answer.number)
            known = journal.end(replace(known, ended_at=now()), replace(answer, status="done"))
        elif not _has_passed(store, known.deadline):
            raise _suspended(store, known, f"waits for an answer to {name!r}", last)
        else:
            try:
                known = journal.write_expecting(replace(known, status="failed", ended_at=now()), last)
            except Conflict:
                journal.poll(at_once=True)  # an entry was posted meanwhile: look again
    if known.status == "failed":
        raise WaitTimedOut(
            f"{name!r} was not answered within its timeout; a later answer is refused. Catch WaitTimedOut to continue "
            "without an answer."
        )
    return journal.recorded(known)


def sleep(context: RunContext, seconds: float, key: str) -> None:
    """Return when so many seconds have passed. Suspends the run until then."""
    known = context.journal.find(context.step, key) or _new_question(context, SLEEP, b"", seconds, key)
    if known.status == "done":
        return
    if not _has_passed(context.store, known.deadline):
        raise _suspended(context.store, known, "sleeps", None)
    context.journal.end(replace(known, status="done"))


def _require_unanswered(known: Entry, posted: Iterable[Entry], run: RunRow) -> None:
    """EffectMismatch if a question with another payload has an answer, which is not for this one."""
    if known.status != "asked" or _unused_answer(posted, run) is not None:
        raise EffectMismatch(
            f"{known.name!r} was asked with another payload and answered (call {known.number}); the answer was not "
            "used, and nothing was asked. Pass the recorded payload, or give this question another name."
        )


def _new_question(context: RunContext, name: str, arguments: bytes, seconds: float | None, key: str) -> Entry:
    row = context.journal.new(context.step, key, name, "wait", "asked", arguments)
    if seconds is None:
        return row
    clock = context.store.clock()
    deadline = Deadline(clock.id, clock.now + math.ceil(seconds * 1000), now() + math.ceil(seconds * 1_000_000))
    return replace(row, deadline=deadline)


def has_answer(context: RunContext, questions: Iterable[Entry]) -> bool:
    """Whether one of these questions has an answer that no question has used."""
    store, run = context.store, context.lease.row
    topics = [row.topic for row in questions if row.kind == "wait" and row.topic is not None]
    return any(_unused_answer(scan.entries(store, run.thread, run.closed, topic), run) for topic in topics)


def _has_passed(store: Store, deadline: Deadline | None) -> bool:
    return deadline is not None and has_passed(deadline, store.clock())


def _suspended(store: Store, question: Entry, reason: str, last: int | None) -> Waiting:
    if question.deadline is None:
        return Waiting(question, reason, seen_until=last)
    deadline = on_clock(question.deadline, store.clock())
    return Waiting(question, reason, wake_at=deadline.at, wake_wall=deadline.wall, seen_until=last)


def _unused_answer(rows: Iterable[Entry], run: RunRow) -> Entry | None:
    """The first answer among these entries that no question has used, and that was not for an earlier turn."""
    for row in rows:
        if row.kind == "answer" and row.status == "asked" and row.number > run.closed:
            return row
    return None


# -- from outside: questions and answers --------------------------------------------------------------------------


def waiting(store: Store, name: str | None) -> Iterator[PendingQuestion]:
    """The questions that runs wait for and the calls in doubt, oldest run first. Sleeping runs ask nothing.

    A call in doubt of a run whose process died is listed by `interrupted`, and one of an earlier turn of a completed
    run by `stuck`. A call about which its run decides when a time has come is not listed.
    """
    if name is not None:
        checked_text("the name of a question", name)
    return _waiting(store, name)


def _waiting(store: Store, name: str | None) -> Iterator[PendingQuestion]:
    for thread, run in each_run(store, ("waiting", *RELEASED)):
        rows = [row for row in _asked(store, run) if row.name != SLEEP]
        known = {row.number for row in rows}
        decides = run.closed if run.status == "waiting" and run.wake_at else math.inf
        doubts = [row for row in still_doubtful(store, run.thread, run.doubts) if row.number <= decides]
        rows += [row for row in doubts if row.number not in known]
        yield from (_question(thread, row) for row in rows if name in (None, row.name))


def answer(store: Store, thread: ThreadRow, name: str, value: Any, by: str | None, *, early: bool = False) -> None:
    """Answer a question, or with `early` post an answer for the first question of its name. The run is queued.

    The first answer counts: the same answer again changes nothing, another one is a Conflict. NotFound if the thread
    has no run, Conflict if its run has ended or has not asked, AskedByChild if a child of the run asks the question.
    """
    checked_text("the name of a question", name)
    if by is not None:
        checked_text("by", by, "; nothing was changed")
    check_value("the answer", value)
    encoded = msgpack.encode(value)
    for _ in range(MAX_RACES):
        try:
            _answer(store, thread, name, encoded, by, early=early)
            break
        except _Changed:
            continue
    else:
        raise _gave_up_error(thread)
    wake_parents(store, store.run(thread.position.thread))


class _Changed(Exception):
    """A record changed after it was read."""


def _answer(store: Store, thread: ThreadRow, name: str, encoded: bytes, by: str | None, *, early: bool) -> None:
    number = thread.position.thread
    run = _run_of(store, thread, "answer")
    last = store.last_entry(number)
    rows = list(scan.entries(store, number, topic=question_topic(name)))
    branch = branch_of(thread.position)
    questions = [row for row in rows if row.kind == "wait" and row.branch == branch]
    question = _open_question(run, questions)
    given = _unused_answer(rows, run)
    if given is not None:
        _require_same(thread, name, given, encoded)
        return
    if question is None and questions:
        # An early answer is for the first question of a name only: sent again, it must not answer the next one.
        if questions[-1].result != encoded:
            _require_no_child(store, thread, run, name)
        _require_answered(thread, name, questions[-1])
        _require_same(thread, name, questions[-1], encoded)
        return
    if run.status in ENDED:
        is_completed = run.status == "completed"
        advice = (
            "hf.waiting() lists open questions" if is_completed else "Resume it with hf.run, and answer when it asks"
        )
        raise Conflict(
            f"the run of thread {quoted(thread.name)} is {run.status} and does not wait for {name!r}; nothing was "
            f"stored. {advice}."
        )
    if question is None:
        _require_no_child(store, thread, run, name)
        if not early:
            raise _not_asked_error(store, thread, run, name)
    try:
        if question is not None and question.number in awaited_entries(run):
            answered = replace(question, status="done", result=encoded, by=by, ended_at=now())
            store.post(number, answered, status="asked", run=run, then=queued(run))
        else:
            entry = _posted("answer", last + 1, name, question_topic(name), result=encoded, by=by)
            store.post(number, entry, run=run)
            note_posted()
    except Conflict as conflict:
        raise _Changed from conflict


def _open_question(run: RunRow, questions: list[Entry]) -> Entry | None:
    """The question that an answer is for: the one that the run waits for, else the newest of the current turn."""
    asked = [row for row in questions if row.status == "asked" and row.number > run.closed]
    open_now = [row for row in asked if row.number in awaited_entries(run)]
    return open_now[0] if open_now else asked[-1] if asked else None


def _not_asked_error(store: Store, thread: ThreadRow, run: RunRow, name: str) -> Conflict:
    """The error of an answer to a question that the run has not asked."""
    last = store.last_entry(run.thread)
    rows = open_entries(store, run.thread, run.closed, last, resume_step(run, thread), branch_of(thread.position))
    asked = {place_of(row): row for row in rows if row.kind == "wait" and row.name != SLEEP}.values()
    names = ", ".join(repr(row.name) for row in asked if row.status == "asked")
    return Conflict(
        f"the run of thread {quoted(thread.name)} has not asked {name!r}; nothing was stored. It has "
        f"{f'asked {names}' if names else 'no open question'}. To answer before it asks, pass early=True (--early)."
    )


def _require_no_child(store: Store, thread: ThreadRow, run: RunRow, name: str) -> None:
    """AskedByChild if a child waits for this answer: posted to its parent, it would never reach the child."""
    child = _asking_child(store, thread, run, name)
    if child is not None:
        raise AskedByChild(
            f"{name!r} is asked by {quoted(child)}, a child of {quoted(thread.name)}; nothing was stored. "
            f"Answer {quoted(child)}.",
            child,
        )


def _asking_child(store: Store, thread: ThreadRow, run: RunRow, name: str) -> str | None:
    """The thread of a child of the open step, or of its children, that waits for an answer to a question."""
    for each in _children_in_step(store, thread, run):
        child = thread_named(store, each)
        its = None if child is None else store.run(child.position.thread)
        if child is None or its is None or its.status != "waiting":
            continue
        if not its.question:
            found = _asking_child(store, child, its, name)
            if found is not None:
                return found
        elif any(asked.kind == "wait" and asked.name == name for asked in _asked(store, its)):
            return each
    return None


def _children_in_step(store: Store, thread: ThreadRow, run: RunRow) -> list[str]:
    """The threads of the children that a run started in its open step and that have not ended."""
    last = store.last_entry(run.thread)
    rows = open_entries(store, run.thread, run.closed, last, resume_step(run, thread), branch_of(thread.position))
    return [row.name for row in rows if row.kind == "child" and row.status == "started"]


def _asked(store: Store, run: RunRow) -> list[Entry]:
    """The questions that a run waits for."""
    return [row for number in awaited_entries(run) for row in store.entries(run.thread, after=number - 1, limit=1)]


def _require_answered(thread: ThreadRow, name: str, question: Entry) -> None:
    if question.status == "failed":
        raise Conflict(
            f"{name!r} of thread {quoted(thread.name)} was not answered in time, and the run has continued; "
            "nothing was changed. hf.waiting() lists the open questions."
        )
    if question.status == "asked":
        raise Conflict(
            f"{name!r} of thread {quoted(thread.name)} is no longer asked: its turn has ended; nothing was changed. "
            "hf.waiting() lists the open questions."
        )


def _require_same(thread: ThreadRow, name: str, row: Entry, encoded: bytes) -> None:
    if row.result != encoded:
        raise Conflict(
            f"{name!r} of thread {quoted(thread.name)} already has another answer; nothing was changed. "
            "The first answer counts."
        )


def _question(thread: str, row: Entry) -> PendingQuestion:
    return PendingQuestion(
        thread=thread,
        name=row.name,
        about="wait" if row.kind == "wait" else "in doubt",
        payload=None if row.call is None else msgpack.decode(row.call),
        since=moment(row.started_at),
        until=None if row.deadline is None or row.kind != "wait" else moment(row.deadline.wall),
        effect=row.number,
        step=row.step,
    )


# -- from outside: cancellation -----------------------------------------------------------------------------------


def cancel(store: Store, thread: ThreadRow, reason: str) -> None:
    """Halt a run: at once if no process holds it, else at its next call. To cancel it again changes nothing.

    A child that its parent waits for is halted at its next call too, and the parent is woken for that: if it were
    halted at once, its parent would wait forever. NotFound if the thread has no run, Conflict if it is completed.
    """
    checked_text("reason", reason, "; nothing was changed")
    _cancel_family(store, thread, reason, set())


def _cancel_family(store: Store, thread: ThreadRow, reason: str, done: set[str]) -> None:
    done.add(thread.name)
    _cancel(store, thread, reason)
    # The children after their parent: a run that starts a child checks afterwards whether it was cancelled itself.
    for name in open_children(store, thread.position.thread):
        child = thread_named(store, name)
        if child is not None and child.name not in done:
            with suppress(Conflict, NotFound):  # it has ended meanwhile, or never started
                _cancel_family(store, child, reason, done)


def open_children(store: Store, thread: int) -> list[str]:
    """The threads of the children that a run has started and that did not complete."""
    return [row.name for row in scan.entries(store, thread, topic=CHILD) if row.status in ("started", "failed")]


def _cancel(store: Store, thread: ThreadRow, reason: str) -> None:
    for _ in range(MAX_RACES):
        run = _run_of(store, thread, "cancel")
        if run.status == "completed":
            raise Conflict(
                f"the run of thread {quoted(thread.name)} is completed, so it cannot be cancelled; nothing was changed"
            )
        if run.status == "halted":
            _end_cancel(store, run)
            return
        try:
            if is_free(store, run) and not _is_awaited(store, thread, run):
                halted = ended_from_outside(run, "halted", reason)
                doubts = doubts_of(store, run, thread)
                store.claim(run, replace(halted, question=0, also=(), wake_at=0, wake_wall=0, doubts=doubts))
                _end_cancel(store, run)
                return
            if not pending_cancel(store, run):
                number = store.last_entry(run.thread) + 1
                store.post(run.thread, _posted("cancel", number, CANCEL, CANCEL, error=reason), run=run)
                note_posted()
            wake_parents(store, run)
            return
        except Conflict:
            continue
    raise _gave_up_error(thread)


def _is_awaited(store: Store, thread: ThreadRow, run: RunRow) -> bool:
    """Whether the parent of a run waits for it, or is queued to resume it."""
    above = None if run.parent is None else thread_named(store, run.parent)
    parent = None if above is None else store.run(above.position.thread)
    if above is None or parent is None or parent.status not in ("waiting", "queued") or parent.question:
        return False
    return thread.name in _children_in_step(store, above, parent)


def _end_cancel(store: Store, run: RunRow) -> None:
    """End a cancellation of a run whose record already says that it is halted."""
    row = pending_cancel(store, run)
    if row is not None:
        with suppress(Conflict):
            store.post(run.thread, replace(row, status="done"), status="asked")


# -- from outside: parents, and what all share --------------------------------------------------------------------


def wake_parents(store: Store, run: RunRow | None) -> None:
    """Queue the runs that wait because a child of theirs waits."""
    while run is not None and run.parent is not None:
        thread = thread_named(store, run.parent)
        run = None if thread is None else store.run(thread.position.thread)
        if run is not None and run.status == "waiting":
            if run.question:
                return  # it waits for its own answer, which will wake it and its parents
            try:
                store.claim(run, queued(run))
            except Conflict:
                return  # another process has it, and will see the child


def _run_of(store: Store, thread: ThreadRow, verb: Literal["answer", "cancel"]) -> RunRow:
    run = store.run(thread.position.thread)
    if run is None:
        raise NotFound(f"thread {quoted(thread.name)} has no run, so there is nothing to {verb}; nothing was changed")
    return run


def _gave_up_error(thread: ThreadRow) -> Conflict:
    return Conflict(
        f"the run of thread {quoted(thread.name)} changed on every attempt, so nothing was stored. "
        "Try again, or check the store with hf.verify()."
    )


def _posted(
    kind: Literal["answer", "cancel"],
    number: int,
    name: str,
    topic: str,
    *,
    result: bytes | None = None,
    error: str | None = None,
    by: str | None = None,
) -> Entry:
    """An entry that is written from outside the run."""
    return Entry(
        branch=0,
        step=0,
        key=topic,
        name=name,
        kind=kind,
        status="asked",
        arguments=b"",
        fence=0,
        started_at=now(),
        topic=topic,
        result=result,
        error=error,
        by=by,
        number=number,
    )
