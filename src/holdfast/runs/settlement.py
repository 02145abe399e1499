"""Settle calls in doubt: a person reports the outcome, or the function of the call ends after its block."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.errors import Conflict, HoldfastError, InvalidArgument, NotFound, Unsupported
from holdfast.redaction import Redaction
from holdfast.runs.acts import require_act_not_done, take_over
from holdfast.runs.arguments import checked_text
from holdfast.runs.drivers import ToolThread
from holdfast.runs.journal import RESULT_REDACTED
from holdfast.runs.lease import deadline_in, now, require_cannot_act
from holdfast.runs.record import ACTING, DOUBTFUL, awaited_entries, is_free, queued, text_of
from holdfast.runs.results import encoded_result
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome, Tools, is_outcome, unknown_outcome
from holdfast.runs.waits import wake_parents
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import ActRow, Clock, Entry, Owner, RunRow
from holdfast.text import quoted
from holdfast.threads.context import Context
from holdfast.types import Effect

_LATE_TRIES: Final = 50
_LATE_SECONDS: Final = 0.1


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
    if by is not None:
        by = redaction.text(checked_text("by", by, "; nothing was changed"))
    number = effect.number if isinstance(effect, Effect) else effect
    if type(number) is not int:
        raise InvalidArgument("effect must be a record or a number that hf.effects(thread) returned")
    rows = store.entries(thread.position.thread, after=number - 1, limit=1)
    if not rows or rows[0].number != number:
        raise NotFound(
            f"thread {quoted(thread.name)} has no call {number}; nothing was changed. hf.effects(thread) lists them."
        )
    row = rows[0]
    tool = tools.of(row.name, row.key)
    settled = replace(_settled(row, outcome, redaction, None if tool is None else tool.resolved().result), by=by)
    if row.status not in DOUBTFUL and not (row.status == "asked" and row.kind in ACTING):
        # Repeated by a caller that did not get the first answer: the run is queued already.
        if (row.status, row.result) != (settled.status, settled.result):
            known = row.status.replace("_", " ")
            raise Conflict(
                f"call {number} of thread {quoted(thread.name)} already has the status {known!r}; nothing was changed. "
                "hf.effects(thread) shows its outcome."
            )
        return
    run = store.run(thread.position.thread)
    if run is not None and not is_free(store, run):
        raise Conflict(
            f"a process runs thread {quoted(thread.name)}, so its calls cannot be settled from outside; nothing was "
            "changed. Try again when its run has ended."
        )
    allows_a_new_call = settled.status == "not_done" or (settled.status == "given_up" and row.act is not None)
    if allows_a_new_call and not force:
        require_cannot_act(row, store.clock(), "Settle it later")
    if allows_a_new_call:
        require_act_not_done(store, thread.position.thread, row)
    store.post(thread.position.thread, settled, status=row.status, run=run, then=_after(run, number))
    take_over(store, thread.position.thread, settled)


def _after(run: RunRow | None, number: int) -> RunRow | None:
    """The record of a run after a call is settled: queued if it waits for that call."""
    is_awaited = run is not None and run.status == "waiting" and (not run.question or number in awaited_entries(run))
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
    context: Context, run: RunRow, number: int, running: ToolThread, result: Any, error: BaseException | None
) -> None:
    """Record the outcome of a function that ended after the block of its run."""
    if run.owner is not None:
        is_not_done = isinstance(error, running.not_done)
        late = LateOutcome(number, run.owner, running.can_act_seconds, result, error, is_not_done, running.result_type)
        with suppress(HoldfastError):  # the call stays in doubt
            record_late(context.store, run.thread, late, context.redaction)


def record_late(store: Store, thread: int, late: LateOutcome, redaction: Redaction) -> None:
    """Record the outcome of a call in doubt, if no process holds the run. Else keep it as a late entry."""
    for tried in range(_LATE_TRIES):
        rows = store.entries(thread, after=late.number - 1, limit=1)
        if not rows or rows[0].status not in ("started", "in_doubt", "given_up") or rows[0].owner != late.owner:
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
    # It took longer than declared. The service may act for so long after the end of the function.
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
