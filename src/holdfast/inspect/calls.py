"""The calls in a thread's journal, without arguments and results."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import Damaged, HoldfastError
from holdfast.runs.guards import counted
from holdfast.runs.record import effect_of
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from holdfast.threads.metadata import moment
from holdfast.types import Effect, Usage

_PAGE: Final = 500
_PROBED: Final = 16  # entries to read to find one that has a step
_NO_CALLS: Final = ("answer", "cancel", "turn", "write")
_ACTING: Final = ("idempotent", "irreversible")
DOUBTFUL: Final = ("begun", "in_doubt", "unstored")


def is_doubtful(kind: str, status: str, *, is_held: bool) -> bool:
    """Whether the outcome of a call is unknown. In a run that a process holds, a started call is still running."""
    return kind in _ACTING and status in DOUBTFUL and not (is_held and status == "begun")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded call, without its arguments and its result. `kind` is its effect class, or "wait", "child", "undo".

    `seconds` is its duration, None if it has not ended. `attempt` is the fence of the claim that made it: calls of one
    step with different values were made by different processes. `given_back` is True if the call was not made but
    replayed from an abandoned branch. `usage` is the usage that a model's reply reports.
    """

    number: int
    branch: int
    step: int
    key: str
    name: str
    kind: str
    status: str
    begun_at: datetime
    seconds: float | None
    attempt: int
    error: str | None
    by: str | None
    given_back: bool
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
        begun_at=moment(row.begun_at),
        seconds=None if row.ended_at is None else max(row.ended_at - row.begun_at, 0) / 1_000_000,
        attempt=row.fence,
        error=row.error,
        by=row.by,
        given_back=bool(row.matches) and row.kind in ("idempotent", "irreversible"),
        usage=usage_of(row),
    )


def usage_of(row: Entry) -> Usage | None:
    """Return the usage that a model's reply reports."""
    if row.kind != "model" or row.usage is not None or row.result is None:
        return row.usage
    try:
        return counted(msgpack.decode(row.result))
    except HoldfastError:
        return None  # the call is still listed; loading its result raises


def effects(store: Store, thread: int, *, after: int = 0, limit: int = _PAGE) -> list[Effect]:
    """Return a page of a thread's journal, oldest first, with arguments and results."""
    return [effect_of(row) for row in store.entries(thread, after=after, limit=limit)]


def rows_between(
    store: Store, thread: int, low: tuple[int, int], high: tuple[int, int], lost: dict[str, None]
) -> Iterator[Entry]:
    """Yield the calls above (branch, step) `low` up to `high`, oldest first. `low` is found by a binary search.

    Unreadable entries are skipped, and a message about each is added to `lost`.
    """
    try:
        last = store.last_entry(thread)
    except Damaged as damage:
        lost[str(damage)] = None
        return
    after = _first_above(store, thread, last, low) - 1
    while after < last:
        for row in readable(store, thread, after, _PAGE, lost):
            if row.kind in _NO_CALLS or row.status == "late":
                continue
            place = (row.branch, row.step)
            if place > high:
                return
            if place > low:
                yield row
        after += _PAGE


def readable(store: Store, thread: int, after: int, limit: int, lost: dict[str, None]) -> list[Entry]:
    """Return a page of the journal without damaged entries, which are added to `lost`. Numbers have no gaps."""
    try:
        return store.entries(thread, after=after, limit=limit)
    except Damaged as damage:
        if limit == 1:
            lost[str(damage)] = None
            return []
    half = limit // 2
    return [
        *readable(store, thread, after, half, lost),
        *readable(store, thread, after + half, limit - half, lost),
    ]


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
    for row in readable(store, thread, number - 1, _PROBED, {}):
        if row.number >= above:
            break
        if row.kind not in _NO_CALLS and row.status != "late" and row.kind != "undo":
            return (row.branch, row.step)
    return None
