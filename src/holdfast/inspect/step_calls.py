"""The calls of one step with everything that is recorded about them: arguments, results, and how they were settled."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.handle import Holdfast
from holdfast.inspect.calls import Call, call_of, is_doubtful
from holdfast.inspect.graphs import journal_of
from holdfast.inspect.nearest import existing
from holdfast.inspect.timeline import Step
from holdfast.inspect.whole import Lost, whole
from holdfast.runs.record import effect_of, is_free
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from holdfast.types import Effect

_LOOKED_AT: Final = 60  # newest journal entries to search for calls after the head
_NO_CALLS: Final = ("answer", "cancel", "turn", "undo")


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `status` is in words; "cut off" means that its process died before the call ended.

    `settled` says how a call in doubt was decided: by a probe, a person, and so on. `is_open` is True for a call after
    the head, which no checkpoint includes yet. `is_doubtful` is True if its outcome is unknown. A started call of a run
    that a process holds is under way, not in doubt.
    """

    call: Call
    effect: Effect
    status: str
    settled: str | None
    is_open: bool
    is_doubtful: bool


class StepCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a step; for the head, also those after it. `lost` are messages about unreadable entries."""

    calls: tuple[StepCall, ...]
    lost: tuple[str, ...]


def calls_of(hf: Holdfast, step: Step) -> StepCalls:
    """Return the calls of a step, oldest first."""
    lost: Lost = {}
    store = whole(hf.context.store, lost)
    number = existing(hf, journal_of(hf, step.checkpoint.thread)).position.thread
    wanted = {call.number for call in step.calls}
    rows = _between(store, number, min(wanted) - 1, max(wanted)) if wanted else []
    rows = [row for row in rows if row.number in wanted]
    since = _since(store, number, step) if step.is_head else []
    is_held = step.is_head and _is_held(store, number)
    calls = [_call(row, is_held=is_held, is_open=False) for row in rows]
    calls += [_call(row, is_held=is_held, is_open=True) for row in since if row.number not in wanted]
    return StepCalls(calls=tuple(calls), lost=tuple(lost))


def recent(hf: Holdfast, thread: str) -> list[Effect]:
    """Return the newest entries of a thread's journal. Unreadable ones are left out."""
    store = whole(hf.context.store, {})
    number = existing(hf, journal_of(hf, thread)).position.thread
    last = store.last_entry(number)
    return [effect_of(row) for row in _between(store, number, max(last - _LOOKED_AT, 0), last)]


def call_numbered(hf: Holdfast, thread: str, number: int) -> StepCall | None:
    """Return the call with a number in a thread's journal; None if it cannot be read."""
    store = whole(hf.context.store, {})
    at = existing(hf, journal_of(hf, thread)).position.thread
    rows = store.entries(at, after=number - 1, limit=1)
    return _call(rows[0], is_held=_is_held(store, at), is_open=True) if rows and rows[0].number == number else None


def _between(store: Store, thread: int, after: int, last: int) -> list[Entry]:
    rows = store.entries(thread, after=after, limit=last - after) if last > after else []
    return [row for row in rows if row.kind != "write"]


def _since(store: Store, thread: int, step: Step) -> list[Entry]:
    last = store.last_entry(thread)
    rows = _between(store, thread, max(last - _LOOKED_AT, 0), last)
    return [row for row in rows if row.step > step.checkpoint.step and row.kind not in _NO_CALLS]


def _is_held(store: Store, thread: int) -> bool:
    run = store.run(thread)
    return run is not None and run.status == "running" and not is_free(store, run)


def _call(row: Entry, *, is_held: bool, is_open: bool) -> StepCall:
    status = row.status.replace("_", " ")
    if row.status == "begun":
        status = "under way" if is_held else "cut off"
        status = "in doubt" if is_doubtful(row.kind, row.status, is_held=is_held) else status
    return StepCall(
        call=call_of(row),
        effect=effect_of(row),
        status=status,
        settled=row.settled,
        is_open=is_open,
        is_doubtful=is_doubtful(row.kind, row.status, is_held=is_held),
    )
