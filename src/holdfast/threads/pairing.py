"""Checking runs: does the record of a run fit its journal, and does each entry fit the others?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores.contract import Problem, Store
from holdfast.stores.running import EffectRow, RunRow

_PAGE: Final = 500
_ENDED: Final = frozenset(("done", "failed", "given_up"))
_ACTING: Final = frozenset(("idempotent", "irreversible"))


def pairs(store: Store, number: int, name: str | None) -> Iterator[Problem]:
    """What is wrong with the run of a thread and its journal."""
    try:
        run = store.run(number)
        for what in _problems(store, number, run):
            yield Problem(name, (), what)
    except Damaged as damage:
        yield Problem(name, (), str(damage))


def _problems(store: Store, number: int, run: RunRow | None) -> Iterator[str]:
    last = 0
    awaited: EffectRow | None = None
    while page := store.effects(number, after=last, limit=_PAGE):
        for entry in page:
            if entry.number != last + 1:
                yield f"journal entries {last + 1} to {entry.number - 1} are missing"
            last = entry.number
            if run is not None:
                yield from _entry(run, entry)
                if entry.number == run.question:
                    awaited = entry
    if run is not None:
        yield from _run(run, number, last, store.last(number), awaited)


def _entry(run: RunRow, entry: EffectRow) -> Iterator[str]:
    what = f"journal entry {entry.number}"
    if entry.fence > run.fence:
        yield f"{what} was written under fence {entry.fence}, and the run has never had more than {run.fence}"
    # Not of waits: an answer may come after the question that takes it.
    if entry.kind in _ACTING and not entry.of and entry.matches >= entry.number:
        yield f"{what} took its result from entry {entry.matches}, which is not before it"
    if entry.kind == "answer" and entry.mark is None:
        yield f"{what} is an answer to no question"
    if entry.status in _ENDED and entry.ended_at is None and entry.kind in _ACTING:
        yield f"{what} has an outcome, and no time at which it ended"
    is_open = entry.status == "begun" and entry.number > run.closed and entry.branch == run.branch
    if run.status == "completed" and is_open and entry.kind in _ACTING and entry.fence == run.fence:
        yield f"{what} was begun and never ended, but its run is completed"


def _run(run: RunRow, number: int, last: int, newest: int, awaited: EffectRow | None) -> Iterator[str]:
    if run.thread != number:
        yield f"its run is that of thread number {run.thread}"
    if run.fence < 1:
        yield "its run has a fence that no claim gives"
    if run.status != "running" and (run.owner is not None or run.lease_until):
        yield f"its run is {run.status} and still leased to somebody"
    if run.question and awaited is None:
        yield f"its run waits for journal entry {run.question}, which is not there"
    if run.closed > last:
        yield f"its run has closed journal entry {run.closed}, and there are {last}"
    if run.began > newest or run.closed_at > newest:
        yield "its run was begun at a checkpoint that is not there"
