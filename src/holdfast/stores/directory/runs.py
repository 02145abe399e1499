"""Write verbs for a run and its journal. The rules are those of every store (`stores.leases`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from holdfast.errors import NotFound
from holdfast.stores import rules
from holdfast.stores.contract_runs import Entry, EntryStatus, Progress, RunRow
from holdfast.stores.directory import records as r
from holdfast.stores.directory.replay import Thread
from holdfast.stores.directory.space import Followed, Sealed, Space, sealed
from holdfast.stores.directory.writing import Plan, check_numbers, journaled, run_of

T = TypeVar("T")


def claim(space: Space, expect: RunRow | None, row: RunRow) -> Plan[None]:
    found = space.numbered(row.thread)
    rules.require_expected(run_of(space, row.thread), expect)
    if found is None or found.thread.is_gone:
        raise NotFound(f"the thread with number {row.thread} does not exist; nothing was changed")
    return _put(space, found, row, [], None)


def renew(space: Space, thread: int, fence: int, until: int, progress: Progress | None) -> Plan[None]:
    run = rules.require_fence(run_of(space, thread), fence)
    kept = rules.renewed(run, until, progress)
    return Plan(None, [sealed(r.show_run(kept, space.form))], followed=_there(space, thread))


def update(space: Space, row: RunRow) -> Plan[None]:
    before = rules.require_fence(run_of(space, row.thread), row.fence)
    return _put(space, _there(space, row.thread), rules.keep_lease(before, row), [], None)


def park(space: Space, row: RunRow, entry: Entry | None, last: int) -> Plan[int]:
    before = rules.require_fence(run_of(space, row.thread), row.fence)
    found = _there(space, row.thread)
    rules.require_last(found.thread.last_entry, last)
    entries = [] if entry is None else [entry]
    check_numbers(found.thread, entries)
    written, numbers = journaled(found.thread, entries)
    [question] = numbers or [0]
    kept = rules.keep_lease(before, replace(row, question=question))
    return _put(space, found, kept, written, question)


def journal(space: Space, thread: int, fence: int, rows: Sequence[Entry]) -> Plan[list[int]]:
    rules.require_fence(run_of(space, thread), fence)
    found = _there(space, thread)
    check_numbers(found.thread, rows)
    written, numbers = journaled(found.thread, rows)
    return Plan(numbers, _shown(space, written), followed=found, entry=max(numbers, default=0))


def tell(space: Space, thread: int, row: Entry, last: int | None, run: RunRow | None) -> Plan[int]:
    current = run_of(space, thread)
    if current is None:
        raise rules.no_run(thread)
    found = _there(space, thread)
    if last is not None:
        rules.require_last(found.thread.last_entry, last)
    if run is not None:
        rules.require_expected(current, run)
    written, [number] = journaled(found.thread, [replace(row, number=0)])
    return Plan(number, _shown(space, written), followed=found, entry=number)


def settle(
    space: Space,
    thread: int,
    number: int,
    expect: EntryStatus,
    row: Entry,
    run: RunRow | None,
    then: RunRow | None,
) -> Plan[None]:
    found = space.numbered(thread)
    known = found.thread if found is not None else Thread(number=thread)
    if found is None or not 1 <= number <= known.last_entry:
        raise rules.no_entry(thread, number)
    entry = known.entries.get(number)
    if entry is None:
        raise known.missing(f"journal entry {number}")
    if entry.status != expect or (run is not None and known.run != run):
        raise rules.settled_otherwise()
    settled = [replace(row, number=number)]
    if then is not None:
        return _put(space, found, then, settled, None)
    return Plan(None, _shown(space, settled), followed=found, entry=number)


def _there(space: Space, number: int) -> Followed:
    found = space.numbered(number)
    if found is None:
        raise NotFound(f"the thread with number {number} does not exist; nothing was changed")
    return found


def _shown(space: Space, entries: Sequence[Entry]) -> list[Sealed]:
    return [sealed(r.show_effect(entry, space.form)) for entry in entries]


def _put(space: Space, found: Followed, row: RunRow, entries: Sequence[Entry], answer: T) -> Plan[T]:
    """Plan to replace the record of a run, and its status in listings."""
    at = found.thread.at
    shown = replace(at, summary=replace(at.summary, status=row.status, updated_at=row.updated_at))
    lines = [*_shown(space, entries), sealed(r.show_run(row, space.form))]
    return Plan(answer, lines, shown, found, entry=max((entry.number for entry in entries), default=0))
