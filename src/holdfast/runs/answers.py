"""Questions from outside the run: who waits for what, answers, cancellation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import AskedByChild, Conflict, InvalidArgument, NotFound
from holdfast.runs.claiming import OUTRUN_MOST, is_free, presumed_until
from holdfast.runs.family import open_children, wake_parents
from holdfast.runs.journal import note_told, now, open_entries
from holdfast.runs.recovery import each_run, queued
from holdfast.runs.waits import SLEEP, checked_name, mark_of
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.text import shown
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import moment
from holdfast.types import Question

CANCEL = "cancel"
_ENDED = ("completed", "dead", "halted")


def waiting(store: Store, name: str | None) -> Iterator[Question]:
    """What runs wait for, longest first: questions, and calls in doubt. Those that only sleep ask nothing."""
    if name is not None:
        checked_name(name)
    for thread, run in each_run(store, ("waiting",)):
        rows = _asked(store, run)
        if rows and rows[0].name != SLEEP and name in (None, rows[0].name):
            yield _question(thread, rows[0])


def answer(store: Store, thread: ThreadRow, name: str, value: Any, by: str | None) -> None:
    """Answer a question, or say what the first of its name will be answered. The run is queued with it.

    The first answer holds: the same again changes nothing, another is a Conflict. NotFound if the thread has no run,
    Conflict if its run has ended, AskedByChild if it is a child of it that asks that.
    """
    checked_name(name)
    if by is not None and (type(by) is not str or not by):
        raise InvalidArgument("by must be a text that is not empty")
    msgpack.check(value)
    encoded = msgpack.encode(value)
    for _ in range(OUTRUN_MOST):
        try:
            _answer(store, thread, name, encoded, by)
            break
        except _Moved:
            continue
    else:
        raise _not_to_be_had(thread)
    wake_parents(store, store.run(thread.position.thread))


def cancel(store: Store, thread: ThreadRow, reason: str) -> None:
    """Halt a run: at once if nobody holds it, else at its next call. Again it changes nothing.

    A child that its parent waits for hears of it at its next call, too, for which the parent is woken: halted at once,
    it would let its parent wait for ever. NotFound if the thread has no run, Conflict if it is completed.
    """
    if type(reason) is not str or not reason:
        raise InvalidArgument("cancel needs a reason")
    _cancel_family(store, thread, reason, set())


def _cancel_family(store: Store, thread: ThreadRow, reason: str, done: set[str]) -> None:
    done.add(thread.name)
    _cancel(store, thread, reason)
    # Its children after it: whoever begins one looks after that whether their parent was cancelled.
    for name in open_children(store, thread.position.thread):
        child = store.thread(name)
        if child is not None and child.name not in done:
            with suppress(Conflict, NotFound):  # ended meanwhile, or never begun
                _cancel_family(store, child, reason, done)


def _cancel(store: Store, thread: ThreadRow, reason: str) -> None:
    number = thread.position.thread
    for _ in range(OUTRUN_MOST):
        run = _run_of(store, thread)
        if run.status == "completed":
            raise Conflict(f"the run of thread {shown(thread.name)} is completed; there is nothing to cancel")
        if run.status == "halted":
            _heeded(store, run)
            return
        try:
            if is_free(store, run) and not _is_awaited(store, thread, run):
                row = replace(run, status="halted", owner=None, lease_until=0, reason=reason, fence=run.fence + 1)
                row = replace(row, question=0, wake_at=0, wake_wall=0, updated_at=now())
                store.claim(run, replace(row, presumed_until=presumed_until(store, run)))
                _heeded(store, run)
                return
            if not pending_cancel(store, run):
                store.tell(number, _from_outside("cancel", CANCEL, CANCEL, error=reason), run=run)
                note_told()
            wake_parents(store, run)
            return
        except Conflict:
            continue
    raise _not_to_be_had(thread)


def _not_to_be_had(thread: ThreadRow) -> Conflict:
    return Conflict(
        f"the run of thread {shown(thread.name)} was another one each time it was looked at; nothing was stored. "
        "hf.verify() shows whether its records contradict each other"
    )


def _is_awaited(store: Store, thread: ThreadRow, run: RunRow) -> bool:
    """Whether the parent of a run waits for it, or was woken and will go on with it."""
    above = None if run.parent is None else store.thread(run.parent)
    parent = None if above is None else store.run(above.position.thread)
    if above is None or parent is None or parent.status not in ("waiting", "queued") or parent.question:
        return False
    return thread.name in _children(store, above, parent)


def pending_cancel(store: Store, run: RunRow) -> EffectRow | None:
    """A cancellation that was meant for what the run is doing, and that nobody has heeded yet."""
    rows = store.marked(run.thread, CANCEL)
    return next((row for row in rows if row.status == "asked" and row.number > run.closed), None)


def _heeded(store: Store, run: RunRow) -> None:
    """Whoever is told that a run was cancelled by its record need not hear of it again."""
    row = pending_cancel(store, run)
    if row is not None:
        with suppress(Conflict):
            store.settle(run.thread, row.number, "asked", replace(row, status="done"))


class _Moved(Exception):
    """What was decided by is not so any more."""


def _answer(store: Store, thread: ThreadRow, name: str, encoded: bytes, by: str | None) -> None:
    number = thread.position.thread
    run = _run_of(store, thread)
    last = store.last_effect(number)
    rows = store.marked(number, mark_of(name))
    branch = branch_of(thread.position)
    questions = [row for row in rows if row.kind == "wait" and row.branch == branch]
    question = _open_question(run, questions)
    given = next(
        (row for row in rows if row.kind == "answer" and row.status == "asked" and row.number > run.closed), None
    )
    if given is not None:
        _require_same(thread, name, given, encoded)
        return
    if question is None and questions:
        # An early answer is for the first question of a name only: one that is sent again must not answer the next.
        if questions[-1].result != encoded:
            _require_no_child(store, thread, run, name)
        _require_answered(thread, name, questions[-1])
        _require_same(thread, name, questions[-1], encoded)
        return
    if run.status in _ENDED:
        raise Conflict(f"the run of thread {shown(thread.name)} is {run.status}; nobody will ask {name!r}")
    if question is None:
        _require_no_child(store, thread, run, name)
    try:
        if question is not None and run.status == "waiting" and run.question == question.number:
            answered = replace(question, status="done", result=encoded, by=by, ended_at=now())
            store.settle(number, question.number, "asked", answered, run, queued(run))
        else:
            told = _from_outside("answer", name, mark_of(name), result=encoded, by=by)
            store.tell(number, told, last=last, run=run)
            note_told()
    except Conflict as conflict:
        raise _Moved from conflict


def _open_question(run: RunRow, questions: list[EffectRow]) -> EffectRow | None:
    """The question that an answer is for: the one that the run waits for, else the newest of what it is doing now."""
    asked = [row for row in questions if row.status == "asked" and row.number > run.closed]
    awaited = [row for row in asked if row.number == run.question]
    return awaited[0] if awaited else asked[-1] if asked else None


def _require_no_child(store: Store, thread: ThreadRow, run: RunRow, name: str) -> None:
    """AskedByChild if a child waits for this answer: kept for its parent, it would never reach it."""
    child = _asking_child(store, thread, run, name)
    if child is not None:
        raise AskedByChild(
            f"{name!r} is asked by {shown(child)}, a child of {shown(thread.name)}; answer that: nothing was stored",
            child,
        )


def _asking_child(store: Store, thread: ThreadRow, run: RunRow, name: str) -> str | None:
    """The thread of the child in the open step, or of a child of that, which waits for an answer to a question."""
    for each in _children(store, thread, run):
        child = store.thread(each)
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


def _children(store: Store, thread: ThreadRow, run: RunRow) -> list[str]:
    """The threads of the children that a run has begun in its open step, and not ended."""
    last = store.last_effect(run.thread)
    rows = open_entries(store, run.thread, run.closed, last, thread.summary.step, branch_of(thread.position))
    return [row.name for row in rows if row.kind == "child" and row.status == "begun"]


def _asked(store: Store, run: RunRow) -> list[EffectRow]:
    """The question that a run waits for, if it asks one."""
    return store.effects(run.thread, after=run.question - 1, limit=1) if run.question else []


def _require_answered(thread: ThreadRow, name: str, question: EffectRow) -> None:
    if question.status == "failed":
        raise Conflict(f"{name!r} of thread {shown(thread.name)} was not answered in time, and the run went on")
    if question.status == "asked":
        raise Conflict(
            f"{name!r} of thread {shown(thread.name)} is asked no more: that turn was ended; nothing was changed"
        )


def _require_same(thread: ThreadRow, name: str, row: EffectRow, encoded: bytes) -> None:
    if row.result != encoded:
        raise Conflict(f"{name!r} of thread {shown(thread.name)} was answered otherwise already; nothing was changed")


def _run_of(store: Store, thread: ThreadRow) -> RunRow:
    run = store.run(thread.position.thread)
    if run is None:
        raise NotFound(f"thread {shown(thread.name)} has no run; there is nothing to answer or cancel")
    return run


def _from_outside(kind: Any, name: str, mark: str, **given: Any) -> EffectRow:
    return EffectRow(
        branch=0,
        step=0,
        key=mark,
        name=name,
        kind=kind,
        status="asked",
        arguments=b"",
        fence=0,
        begun_at=now(),
        mark=mark,
        **given,
    )


def _question(thread: str, row: EffectRow) -> Question:
    return Question(
        thread=thread,
        name=row.name,
        about="wait" if row.kind == "wait" else "in doubt",
        payload=None if row.call is None else msgpack.decode(row.call),
        since=moment(row.begun_at),
        until=None if row.deadline is None else moment(row.deadline.wall),
        effect=row.number,
        step=row.step,
    )
