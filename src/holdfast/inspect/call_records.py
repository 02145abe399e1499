"""The calls in a thread's journal: which are shown, which are in doubt, and what a rewind would not undo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect import graphs
from holdfast.inspect.damage import Readable
from holdfast.inspect.references import existing
from holdfast.runs.guards import usage_of_reply
from holdfast.runs.identity import own_key
from holdfast.runs.open_entries import POSTED, open_entries, place_of
from holdfast.runs.record import DOUBTFUL, effect_of, is_free
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.ancestry import branch_of
from holdfast.threads.effects import Action, actions_ahead
from holdfast.threads.metadata import decode, moment
from holdfast.threads.refs import find_row
from holdfast.types import Checkpoint, Effect, Usage

_PAGE: Final = 500
_PROBED: Final = 16  # entries to read to find one that has a step
_INTERNAL: Final = ("turn", "write")  # kinds of entries that adapters and runs write for themselves
_ACTING: Final = ("idempotent", "irreversible")
END: Final = 1 << 62  # above every step


# -- the two rules -----------------------------------------------------------------------------------------------------


def is_shown(kind: str, status: str, *, posted: bool = False) -> bool:
    """Whether a journal entry is a call that people see. `posted`: also answers and cancellations from outside."""
    return kind not in _INTERNAL and status != "late" and (posted or kind not in POSTED)


def is_doubtful(kind: str, status: str, *, is_held: bool) -> bool:
    """Whether the outcome of a call is unknown. In a run that a process holds, a started call is under way."""
    return kind in _ACTING and status in DOUBTFUL and not (is_held and status == "started")


def call_status(kind: str, status: str, *, is_held: bool) -> str:
    """Return the status of a call in words. A call that is "cut off" can be made again: it does not act."""
    if is_doubtful(kind, status, is_held=is_held):
        return "in doubt"
    if status == "started":
        return "under way" if is_held else "cut off"
    return status.replace("_", " ")


def is_held(store: Store, run: RunRow | None) -> bool:
    """Whether a process holds a run."""
    return run is not None and run.status == "running" and not is_free(store, run)


def question_of(store: Store, run: RunRow) -> Entry | None:
    """Return what a waiting run waits for: a question, a call in doubt or a time. None if it does not wait."""
    if run.status != "waiting" or not run.question:
        return None
    rows = store.entries(run.thread, after=run.question - 1, limit=1)
    return rows[0] if rows else None


# -- calls -------------------------------------------------------------------------------------------------------------


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded call, without its arguments and its result. `kind` is its effect kind, or "wait", "child", "undo".

    `seconds` is its duration, None if it has not ended. `fence` is that of the claim that made it: calls of one
    step with different values were made by different processes. `replayed` is True if the call was not made but
    replayed from an abandoned branch. `usage` is the usage that a model's reply reports.
    """

    number: int
    branch: int
    step: int
    key: str
    name: str
    kind: str
    status: str
    started_at: datetime
    seconds: float | None
    fence: int
    error: str | None
    by: str | None
    replayed: bool
    usage: Usage | None


def call_of(row: Entry) -> Call:
    """Return a journal entry as a call."""
    return Call(
        number=row.number,
        branch=row.branch,
        step=row.step,
        key=row.key,
        name=row.name,
        kind=row.kind,
        status=row.status,
        started_at=moment(row.started_at),
        seconds=None if row.ended_at is None else max(row.ended_at - row.started_at, 0) / 1_000_000,
        fence=row.fence,
        error=row.error,
        by=row.by,
        replayed=bool(row.matches) and row.kind in _ACTING,
        usage=usage_of(row),
    )


def usage_of(row: Entry) -> Usage | None:
    """Return the usage that a model's reply reports."""
    if row.kind != "model" or row.usage is not None or row.result is None:
        return row.usage
    try:
        return usage_of_reply(msgpack.decode(row.result))
    except HoldfastError:
        return None  # the call is still listed; loading its result raises


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call with its arguments and its result, in `effect`. `status` is in words, as `call_status` has it.

    `settled` says how a call in doubt was decided: by a probe, a person, and so on. `is_open` is True for a call after
    the head, which no checkpoint includes yet. `is_doubtful` is True if its outcome is unknown.
    """

    call: Call
    effect: Effect
    status: str
    settled: str | None
    is_open: bool
    is_doubtful: bool

    @property
    def own_key(self) -> str | None:
        """The key that the program gave the call."""
        return own_key(self.effect.key)


def recorded_call(row: Entry, *, is_held: bool, is_open: bool = False) -> RecordedCall:
    """Return a journal entry with its arguments, its result and its status in words."""
    return RecordedCall(
        call=call_of(row),
        effect=effect_of(row),
        status=call_status(row.kind, row.status, is_held=is_held),
        settled=row.settled,
        is_open=is_open,
        is_doubtful=is_doubtful(row.kind, row.status, is_held=is_held),
    )


class CallHistory:
    """The journal of a thread, for lists of its calls. Raises NotFound if there is no such thread.

    A LangGraph graph's journal is that of its tools.
    """

    def __init__(self, hf: Holdfast, thread: str) -> None:
        self._readable = Readable(hf)
        self._number = existing(hf, graphs.journal_of(hf, thread)).position.thread
        store = self._readable.store
        self._is_held = is_held(store, store.run(self._number))

    @property
    def lost(self) -> tuple[str, ...]:
        """The messages about unreadable entries so far."""
        return self._readable.lost

    def newest_first(
        self,
        *,
        before: int | None = None,
        numbers: set[int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[RecordedCall]:
        """Yield the calls with a number below `before`, all or those in `numbers`.

        `progress` is called with the entries that were read and their number.
        """
        store = self._readable.store
        last = store.last_entry(self._number) if numbers is None else max(numbers, default=0)
        first = 1 if not numbers else min(numbers)
        end = last if before is None else min(last, before - 1)
        for high in range(end, first - 1, -_PAGE):
            low = max(high - _PAGE, first - 1)
            if progress is not None:
                progress(end - high, end - first + 1)
            for row in reversed(store.entries(self._number, after=low, limit=high - low)):
                if is_shown(row.kind, row.status, posted=True) and (numbers is None or row.number in numbers):
                    yield recorded_call(row, is_held=self._is_held)


# -- entries of parts of a journal -------------------------------------------------------------------------------------


def rows_between(store: Store, thread: int, low: tuple[int, int], high: tuple[int, int]) -> Iterator[Entry]:
    """Yield the calls above (branch, step) `low` up to `high`, oldest first. `low` is found by a binary search."""
    last = store.last_entry(thread)
    after = _first_above(store, thread, last, low) - 1
    while after < last:
        for row in store.entries(thread, after=after, limit=_PAGE):
            if is_shown(row.kind, row.status):
                place = (row.branch, row.step)
                if place > high:
                    return
                if place > low:
                    yield row
        after += _PAGE


def open_rows(store: Store, thread: ThreadRow, run: RunRow | None, after_step: int | None = None) -> list[Entry]:
    """Return the newest entry of each call after the head, or after another step, oldest first."""
    number = thread.position.thread
    step = thread.summary.step if after_step is None else after_step
    closed = 0 if run is None else run.closed
    rows = open_entries(store, number, closed, store.last_entry(number), step, branch_of(thread.position))
    newest = {place_of(row): row for row in rows}
    return sorted(newest.values(), key=lambda row: row.number)


def _first_above(store: Store, thread: int, last: int, low: tuple[int, int]) -> int:
    """Return the number of the first entry above (branch, step) `low`. Both only grow along a journal."""
    below, above = 0, last + 1
    while above - below > 1:
        middle = (below + above) // 2
        place = _place(store, thread, middle, above)
        if place is None or place > low:
            above = middle
        else:
            below = middle
    return above


def _place(store: Store, thread: int, number: int, above: int) -> tuple[int, int] | None:
    """Return (branch, step) of the first call from `number` on; None if there is none below `above`."""
    for row in store.entries(thread, after=number - 1, limit=_PROBED):
        if row.number >= above:
            break
        if is_shown(row.kind, row.status) and row.kind != "undo":
            return (row.branch, row.step)
    return None


# -- effects that a rewind does not undo -------------------------------------------------------------------------------


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that was or may have been made, by the thread itself or by a child run.

    `must_confirm` is True if it is irreversible; a rewind past it must be confirmed.
    """

    thread: str
    number: int
    step: int
    name: str
    effect: str
    status: str
    must_confirm: bool


def effects_ahead(hf: Holdfast, thread: str, checkpoint: str | Checkpoint) -> list[Ahead]:
    """Return the effects after a checkpoint, oldest first. Raises NotFound if there is no such checkpoint."""
    row = existing(hf, thread)
    store = hf.context.store
    start = find_row(store, row, checkpoint)
    if row.summary.agent == graphs.AGENT:
        since = graphs.tool_entries(store, row.name, decode(start).created_at)
        return [_of_graph(row.name, entry) for entry in since if entry.kind in _ACTING and entry.status != "late"]
    return [
        Ahead(
            thread=action.thread.name,
            number=action.entry.number,
            step=action.entry.step,
            name=action.entry.name,
            effect=action.entry.kind,
            status=action.outcome.status,
            must_confirm=action.entry.kind == "irreversible",
        )
        for action in actions_ahead(store, row, start)
        if isinstance(action, Action)
    ]


def _of_graph(thread: str, entry: Entry) -> Ahead:
    return Ahead(
        thread=thread,
        number=entry.number,
        step=entry.step,
        name=entry.name,
        effect=entry.kind,
        status=entry.status,
        must_confirm=entry.kind == "irreversible",
    )
