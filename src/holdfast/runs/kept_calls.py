"""Calls outside of `run.steps()`: the journal answers them for the whole turn, also after later checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

from holdfast.runs.identity import identity_in, own_key
from holdfast.runs.open_entries import PAGE, Place, place_of
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import scan
from holdfast.threads.ancestry import Ancestry
from holdfast.threads.effects import undo_topic

_SPANS_MAX: Final = 32
_UNDOABLE: Final = ("idempotent", "irreversible", "child")

Spans = tuple[tuple[int, int], ...]


class KeptCalls:
    """The calls outside of steps in one turn: those in `RunRow.kept`, and those that the next checkpoint adds to it."""

    def __init__(self, store: Store, run: RunRow, ancestry: Callable[[], Ancestry]) -> None:
        """`ancestry` reads the ancestry of the thread's head, which a rewind may have changed."""
        self._store = store
        self._thread = run.thread
        self.tries: Final[dict[Place, list[Entry]]] = {}  # of each call that this claim has not asked for, oldest first
        self._open: dict[int, int] = {}  # by number: the steps of those that are not in `RunRow.kept`
        for row in _rows(store, run, ancestry) if run.kept else ():
            self.tries.setdefault(place_of(row), []).append(row)

    def is_undone(self, row: Entry) -> bool:
        """Whether a call was undone."""
        if row.kind not in _UNDOABLE:
            return False
        topics = [undo_topic(number) for number in (row.number, row.matches) if number]
        return any(
            undo.status == "done" for topic in topics for undo in scan.entries(self._store, self._thread, 0, topic)
        )

    def reply_of(self, identity: str) -> Entry | None:
        """The oldest reply of a model function to a call without a key."""
        places = [at for at in self.tries if identity_in(at[1]) == identity and own_key(at[1]) is None]
        replies = [row for at in places if (row := self.tries[at][-1]).status in ("done", "unstored")]
        return min(replies, key=lambda row: row.number, default=None)

    def note_written(self, row: Entry) -> None:
        """Note an entry of a call outside of steps."""
        self._open[row.number] = row.step

    def spans_at(self, kept: Spans, step: int) -> Spans:
        """`RunRow.kept` when a step is closed and the run resumes after it."""
        numbers = [number for number, at in self._open.items() if at <= step]
        return _joined(kept, numbers) if numbers else kept

    def note_closed(self, step: int) -> None:
        """Note that the record of the run keeps the calls up to a step."""
        self._open = {number: at for number, at in self._open.items() if at > step}


def _rows(store: Store, run: RunRow, ancestry: Callable[[], Ancestry]) -> list[Entry]:
    rows: list[Entry] = []
    for first, last in run.kept:
        after = first - 1
        while after < last and (page := store.entries(run.thread, after=after, limit=min(last - after, PAGE))):
            rows += [row for row in page if row.outside and row.status != "late"]
            after = page[-1].number
    if all(row.branch == run.branch for row in rows):
        return rows
    found = ancestry()
    return [row for row in rows if found.holds(row.branch, row.step)]


def _joined(spans: Spans, numbers: Iterable[int]) -> Spans:
    """Spans that also hold these numbers. Above the limit, the nearest spans are joined.

    The entries in between do no harm: `Entry.outside` is checked when a span is read.
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*spans, *((number, number) for number in numbers)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    while len(joined) > _SPANS_MAX:
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(joined)]
        at = gaps.index(min(gaps))
        joined[at : at + 2] = [(joined[at][0], joined[at + 1][1])]
    return tuple(joined)
