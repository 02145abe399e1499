"""Looking after runs from outside: what was interrupted, what is in doubt, settling it, queueing work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Conflict, InvalidArgument, NotFound
from holdfast.redaction import Redaction
from holdfast.runs.claiming import is_free, start_digest
from holdfast.runs.journal import RESULT_REDACTED, now, open_entries
from holdfast.runs.tools import GiveUp, Happened, NotDone, Outcome, Tools, unknown_outcome
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import EffectRow, RunRow
from holdfast.text import shown
from holdfast.threads.ancestry import branch_of
from holdfast.threads.metadata import moment
from holdfast.threads.save import NEW, Saver
from holdfast.types import Effect, Interrupted, RunInfo

_PAGE = 200
_DOUBTFUL = ("begun", "in_doubt", "unstored")
_ACTING = ("idempotent", "irreversible")  # entries of other kinds are asked, too, and answered otherwise


def effects_of(store: Store, thread: ThreadRow) -> list[Effect]:
    """A thread's journal, oldest first."""
    return [effect_of(row) for row in _journal(store, thread.position.thread)]


def info_of(store: Store, thread: ThreadRow) -> RunInfo | None:
    """The run of a thread as users see it; None if it has none."""
    run = store.run(thread.position.thread)
    if run is None:
        return None
    return RunInfo(
        thread=thread.name,
        status=run.status,
        interrupted=run.status == "running" and is_free(store, run),
        reason=run.reason,
        attempt=run.attempt,
        turn=run.turn,
        handler=run.handler,
        version=run.version,
        since=moment(run.updated_at),
    )


def interrupted(store: Store, tools: Tools) -> Iterator[Interrupted]:
    """The runs whose owner is gone, oldest first, and what a resume would do with each."""
    for name, row in each_run(store, ("running",)):
        if is_free(store, row):
            thread = store.thread(name)
            if thread is not None:
                yield _interrupted(store, tools, thread, row)


def settle(store: Store, thread: ThreadRow, effect: Effect | int, outcome: Outcome, redaction: Redaction) -> None:
    """Say what became of an effect in doubt. A run that waits for it is queued again.

    NotFound if the thread has no such effect, Conflict if it is not in doubt.
    """
    number = effect.number if isinstance(effect, Effect) else effect
    if type(number) is not int:
        raise InvalidArgument("an effect is named by its record or its number")
    rows = store.effects(thread.position.thread, after=number - 1, limit=1)
    if not rows or rows[0].number != number:
        raise NotFound(f"thread {shown(thread.name)} has no effect {number}; hf.effects() lists them")
    row = rows[0]
    settled = _settled(row, outcome, redaction)
    if row.status not in _DOUBTFUL and not (row.status == "asked" and row.kind in _ACTING):
        # Said again, by somebody who did not hear the first time: the run was queued with the first.
        if (row.status, row.result) != (settled.status, settled.result):
            raise Conflict(
                f"effect {number} of thread {shown(thread.name)} is {row.status} already; nothing was changed"
            )
        return
    run = store.run(thread.position.thread)
    if run is not None and not is_free(store, run):
        raise Conflict(f"thread {shown(thread.name)} is being run; what is under way there is not in doubt")
    is_awaited = run is not None and run.status == "waiting" and run.question == number
    store.settle(thread.position.thread, number, row.status, settled, run, queued(run) if run and is_awaited else None)


def queued(run: RunRow) -> RunRow:
    """The record of a run that waited and need not any more."""
    # Whoever waited did not fail: the claim that follows counts this attempt again.
    return replace(
        run,
        status="queued",
        attempt=run.attempt - 1,
        fence=run.fence + 1,
        reason=None,
        question=0,
        wake_at=0,
        wake_wall=0,
        updated_at=now(),
    )


def submit(store: Store, saver: Saver, name: str, handler: str, start: Any, version: str | None) -> None:
    """Queue a run for any worker. Again with the same start it changes nothing; with another it is a Conflict."""
    if type(handler) is not str or not handler:
        raise InvalidArgument("a handler is named by a text that is not empty")
    if version is not None and (type(version) is not str or not version):
        raise InvalidArgument("version must be a text that is not empty")
    plain, details = saver.request(start, {"trigger": "submit", "step": 0, "status": "queued"})
    digest = start_digest(plain)
    row = RunRow(
        thread=0,
        status="queued",
        fence=1,
        branch=0,
        began=1,
        handler=handler,
        version=version,
        start=digest,
        trace=saver.trace,
        created_at=now(),
        updated_at=now(),
    )
    try:
        saver.commit(saver.prepare(plain, details, NEW), run=row)
    except Conflict:
        thread = store.thread(name)
        known = None if thread is None else store.run(thread.position.thread)
        if known is None or known.start != digest or known.handler != handler:
            raise Conflict(
                f"thread {shown(name)} was begun otherwise, and nothing was queued; submit under another name"
            ) from None


def _settled(row: EffectRow, outcome: object, redaction: Redaction) -> EffectRow:
    row = replace(row, settled="person")
    if isinstance(outcome, Happened):
        msgpack.check(outcome.result)
        result = redaction.value(outcome.result)
        if result is not outcome.result:
            row = replace(row, redacted=row.redacted | RESULT_REDACTED)
        return replace(row, status="done", result=msgpack.encode(result), ended_at=now())
    if isinstance(outcome, NotDone) or outcome is NotDone:
        return replace(row, status="not_done", error=None, ended_at=now())  # it is called: no failure is raised again
    if isinstance(outcome, GiveUp) or outcome is GiveUp:
        told = unknown_outcome(row.name)
        return replace(row, status="given_up", result=msgpack.encode(told), ended_at=now())
    raise InvalidArgument("settle takes holdfast.Happened(result), holdfast.NotDone() or holdfast.GiveUp()")


def _interrupted(store: Store, tools: Tools, thread: ThreadRow, row: RunRow) -> Interrupted:
    step = thread.summary.step
    branch = branch_of(thread.position)
    rows = open_entries(store, row.thread, row.closed, store.last_effect(row.thread), step, branch)
    open_rows = {(effect.step, effect.key): effect for effect in rows}.values()  # the newest of each call
    doubtful = [e for e in open_rows if e.status in _DOUBTFUL]
    known = sum(e.status == "done" for e in open_rows)
    would = [f"resume after step {step}", f"answer {known} calls from the journal"]
    for effect in doubtful:
        tool = tools.get(effect.name)
        would.append(f"{effect.name}: {'ask' if tool is None else tool.in_doubt}")
    if row.parent is not None:
        would.append(f"only through its parent, {shown(row.parent)}")
    if row.version is not None:
        would.append(f"needs a worker of version {shown(row.version)}")
    return Interrupted(
        thread=thread.name,
        step=step,
        attempt=row.attempt,
        since=moment(row.updated_at),
        in_doubt=tuple(effect_of(effect) for effect in doubtful),
        would="; ".join(would),
    )


def effect_of(row: EffectRow) -> Effect:
    """A journal entry as users get to see it."""
    return Effect(
        number=row.number,
        branch=row.branch,
        step=row.step,
        key=row.key,
        name=row.name,
        effect=row.kind,
        status=row.status,
        begun_at=moment(row.begun_at),
        ended_at=None if row.ended_at is None else moment(row.ended_at),
        arguments=None if row.call is None else msgpack.decode(row.call),
        result=None if row.result is None else msgpack.decode(row.result),
        error=row.error,
        by=row.by,
    )


def _journal(store: Store, thread: int) -> Iterator[EffectRow]:
    after = 0
    while page := store.effects(thread, after=after, limit=_PAGE):
        yield from page
        after = page[-1].number


def each_run(store: Store, statuses: tuple[str, ...]) -> Iterator[tuple[str, RunRow]]:
    """The runs in these statuses with their threads' names, oldest first."""
    after = (0, 0)
    while page := store.runs(statuses=statuses, after=after, limit=_PAGE):
        yield from page
        last = page[-1][1]
        after = (last.updated_at, last.thread)
    store.runs(statuses=(), after=(0, 0), limit=1)  # raises if there are some that cannot be told
