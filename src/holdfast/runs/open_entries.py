"""The open entries of a journal: calls that a resumed run is answered from, calls in doubt, and cancellations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from holdfast.errors import Damaged
from holdfast.runs.lease import Lease
from holdfast.runs.record import CANCEL, DOUBTFUL, resume_step
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import scan
from holdfast.threads.ancestry import boundary_of
from holdfast.threads.metadata import decode
from holdfast.threads.save import RUN_TRIGGERS
from holdfast.threads.scan import checkpoint_at

CALLS: Final = ("model", "read", "idempotent", "irreversible")
POSTED: Final = ("answer", "cancel")  # kinds of entries that are written from outside the run

PAGE: Final = 500
_NONE_CLOSED: Final = -1  # before the first step

Place = tuple[int, str]


def place_of(row: Entry) -> Place:
    """The place by which a call is found: its step and its key. Outside of steps, `-outside` stands for the step."""
    return (-row.outside if row.outside else row.step, row.key)


def open_entries(store: Store, thread: int, closed: int, last: int, closed_step: int, branch: int) -> list[Entry]:
    """The entries of a branch after a step, with numbers above `closed` up to `last`, without those that were undone.

    Read from the end, so a long history costs nothing: branches and steps only grow along a journal, except for entries
    that were posted from outside or written too late.
    """
    return split_undone(open_rows(store, thread, closed, last, closed_step, branch)[0])[0]


def still_doubtful(store: Store, thread: int, numbers: Sequence[int]) -> list[Entry]:
    """Those of these calls that are in doubt, and that no later call has taken over."""
    if not numbers:
        return []
    rows = list(scan.entries(store, thread, min(numbers) - 1))
    taken = {row.matches for row in rows if row.kind in CALLS and not row.matches_thread}
    return [row for row in rows if row.number in numbers and row.status in DOUBTFUL and row.number not in taken]


def doubts_of(store: Store, run: RunRow, thread: ThreadRow) -> tuple[int, ...]:
    """The irreversible calls in doubt of a run that no process holds: of its open steps, and of earlier turns."""
    last = store.last_entry(run.thread)
    step = _NONE_CLOSED if is_saved_outside(store, run, thread) else resume_step(run, thread)
    rows = open_entries(store, run.thread, run.closed, last, step, run.branch)
    newest = {place_of(row): row for row in rows}.values()
    numbers = [*run.doubts, *(row.number for row in newest if row.kind == "irreversible")]
    return tuple(row.number for row in still_doubtful(store, run.thread, numbers))


def pending_cancel(store: Store, run: RunRow) -> Entry | None:
    """A cancellation that the run has not carried out yet."""
    return first_pending(scan.entries(store, run.thread, run.closed, CANCEL), run)


def first_pending(rows: Iterable[Entry], run: RunRow) -> Entry | None:
    for row in rows:
        if row.kind == "cancel" and row.status == "asked" and row.number > run.closed:
            return row
    return None


def open_rows(
    store: Store, thread: int, closed: int, last: int, closed_step: int, branch: int
) -> tuple[list[Entry], list[Entry]]:
    """The open entries, with those that were undone; and the entries from outside that were read on the way.

    The second list also has the undos without an outcome, of any step.
    """
    entries: list[Entry] = []
    posted: list[Entry] = []
    while last > closed:
        first = max(last - PAGE, closed)
        is_older = False
        found: list[Entry] = []
        for row in store.entries(thread, after=first, limit=last - first):
            if row.kind in POSTED or (row.kind == "undo" and row.status in DOUBTFUL):
                posted.append(row)
            elif row.status != "late":
                if row.branch == branch and row.step > closed_step:
                    found.append(row)
                is_older = is_older or ((row.branch, row.step) <= (branch, closed_step) and row.kind != "undo")
        entries[:0] = found
        if is_older:
            break
        last = first
    return entries, posted


def split_undone(rows: list[Entry]) -> tuple[list[Entry], dict[Place, int]]:
    """The entries that were not undone, and for each call the number of its newest entry that was undone."""
    numbers = {row.matches for row in rows if row.kind == "undo" and row.status == "done"}
    undone = {place_of(row): row.number for row in rows if row.number in numbers}
    is_open = [row for row in rows if row.kind != "undo" and row.number > undone.get(place_of(row), 0)]
    return is_open, undone


def is_saved_outside(store: Store, run: RunRow, thread: ThreadRow) -> bool:
    """Whether the head was saved from outside the run, and the run has not closed its entries since."""
    position = thread.position
    if run.closed_at == position.head or boundary_of(run, position) is not None:
        return False
    with suppress(Damaged):  # a damaged head does not hide calls of the run: its step is known
        head = checkpoint_at(store, position.thread, position.head)
        return head is not None and decode(head).trigger not in RUN_TRIGGERS
    return False


def unsettled_before(store: Store, run: RunRow, last: int) -> Entry | None:
    """An irreversible call of a run with an unknown outcome, whose head was saved from outside the run."""
    rows = open_entries(store, run.thread, run.closed, last, _NONE_CLOSED, run.branch)
    newest = {place_of(entry): entry for entry in rows}.values()
    return next((each for each in newest if each.kind == "irreversible" and each.status in ("begun", "in_doubt")), None)


def close_entries(store: Store, lease: Lease, head: int, last: int) -> Entry | None:
    """Close all entries, because the head was saved from outside the run and its state does not include them.

    Returns an irreversible call with an unknown outcome, if there is one: it still has to be settled. Then nothing is
    closed, so that the next claim finds the call too.
    """
    row = lease.row
    unsettled = unsettled_before(store, row, last)
    if unsettled is None:
        store.journal(row.thread, row.fence, (), last=None, run=lease.changed(closed=last, closed_at=head))
    return unsettled
